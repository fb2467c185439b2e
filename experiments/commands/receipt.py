"""The commands `fedkernel receipt make` and `verify`: what left sites, signed by them, and added up."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

import fedkernel.site
from fedkernel import peers
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import FAILED, CommandGroup, print_line, print_rows, print_status

app = CommandGroup("Make and check signed receipts of what left a site in a run.")


@app.command()
def make(
    out: Annotated[Path, Argument(metavar="OUT", help="The site's --out.")],
    name: Annotated[str, Option(help="The site's name.")],
    identity: Annotated[Path | None, Option(help="The site's key (`fedkernel identity`), which signs.")] = None,
) -> None:
    """Write a receipt for each run in the outbox into OUT/receipts, as `join` does when it ends."""
    for path in fedkernel.site.write_receipts(out, name, None if identity is None else peers.KeyPair.read(identity)):
        print_line(path)


@app.command()
def verify(
    files: Annotated[
        list[Path], Argument(metavar="FILES", exists=True, dir_okay=False, help="Receipts of any sites and runs.")
    ],
    study: Annotated[Path | None, Option(help="Their study, which has the sites' keys if sums are masked.")] = None,
    out: Annotated[
        Path | None, Option(metavar="OUT", help="A site's --out, whose outbox must have the receipts.")
    ] = None,
) -> None:
    """Check the signatures of receipts, and add them up; exits with 1 if anything contradicts.

    A site's numbers for each entry, epsilon and delta add up over its runs.
    """
    receipts, read = fedkernel.site.read_receipts(files), None if study is None else commands.read_study(study)
    runs = [] if read is None else read.runs
    keys = {name: key for run in runs for name, key in zip(run.sites or (), run.identities or (), strict=False)}
    faults = fedkernel.site.faults_of(receipts, keys)
    lines = set() if out is None else {sha256 for _, sha256 in fedkernel.site.departures_of(out)}
    for it in receipts:
        if read is not None and it.study != read.sha256:
            faults.append(f"{it.site}, run {it.run}: it is of study {it.study or 'none'}, not of {read.sha256}")
        if out is not None and it.sha256 not in lines:
            faults.append(f"{it.site}, run {it.run}: its last line is not in the outbox of {out}")
    rows = []
    for it in receipts:
        signed = f"{it.signer}{'' if it.site in keys else ', checked against nothing'}" if it.signer else "nobody"
        rows.append((it.site, it.run, signed, fedkernel.site.described([it])))
    for site in sorted({it.site for it in receipts}):
        own = [it for it in receipts if it.site == site]
        rows.append((site, f"all {len(own)} here", "", fedkernel.site.described(own)))
    print_rows(("site", "run", "signed by", "left"), rows)
    for fault in faults:
        print_status(fault)
    if faults:
        raise Exit(FAILED)

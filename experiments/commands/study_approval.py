"""The commands `fedkernel study show`, `approve` and `sign`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fedkernel.site
from fedkernel import ground
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import CommandGroup, print_line, print_status
from fedkernel.experiments.commands.table_options import Overrides, Shape
from fedkernel.ground import InputError

app = CommandGroup("Show a study, which is all that sites will be asked, and approve it.")


@app.command(name="show")
def show_(
    study: Annotated[
        Path, Argument(metavar="STUDY", help="An experiment with sites in its \\[data] table, or its .json.")
    ],
    out: Annotated[Path | None, Option(help="File for the study, as sites need it.")] = None,
    overrides: Overrides = None,
    shape: Shape = None,
) -> None:
    """Print all requests of an experiment to its sites, and the hash for their approval."""
    read = commands.read_study(study, overrides or [])
    if out is not None:  # before printing, since a reader such as `head` may close the pipe
        ground.write_atomic(out, lambda file: file.write(read.text.encode()))
    commands.show_shares(read, None if shape is None else commands.read_shape(shape))
    commands.show_study(read)
    if out is not None:
        print_status(f"{out}: the study, for the sites")


@app.command(name="approve")
def approve_(
    study: Annotated[str, Argument(metavar="STUDY", help="Its .json, or its whole hash.")],
    out: Annotated[Path, Option(help="The folder that the site joins with.")],
    shape: Shape = None,
    table_share: Annotated[
        float | None, Option(help="Numbers that may leave in a run for each entry, in place of the policy's.")
    ] = None,
) -> None:
    """Approve a study: a site that joins with this folder takes part in it."""
    if study.endswith(".json"):
        read = commands.read_study(Path(study))
        left = fedkernel.site.totals_of(out).share if out.exists() else 0.0
        needed = commands.show_shares(read, None if shape is None else commands.read_shape(shape), table_share, left)
        if needed is not None:
            raise InputError(f"the study takes more than is allowed; approve it with --table-share {needed:g}")
        sha256 = read.sha256
    else:
        sha256 = fedkernel.site.check_hash(study)
    fedkernel.site.approve(out, sha256, table_share)
    most = "its policy's" if table_share is None else f"{table_share:g}"
    print_line(f"study {sha256} is approved in {out}, with {most} numbers for each entry of the table")


@app.command(name="sign")
def sign_(
    study: Annotated[Path, Argument(metavar="STUDY", help="Its .json, or the experiment that makes it.")],
    key: Annotated[Path, Option(help="The signer's key: openssl genpkey -algorithm ed25519 -out FILE")],
) -> None:
    r"""Sign a study for sites whose policies trust the signer; \[data] of the experiment takes the signature."""
    signature = fedkernel.site.sign(commands.read_study(study).sha256, key)
    print_line(f'signatures = ["{signature}"]')
    print_status(f'approve = "signed" and signers = ["{signature.partition(":")[0]}"] in [study] of a policy trust it')

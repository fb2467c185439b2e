"""The commands about a study: `fedkernel study show`, and `approve` for a site's operator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from experiments.commands.console import errors, output, say, show
from experiments.config import read_config
from experiments.running import plan, study_of
from fedkernel.addresses import find, own_names
from fedkernel.errors import InputError, one_line
from fedkernel.protocol import KernelClient, Request
from fedkernel.protocol.plan import reveals
from fedkernel.run import SHORT, RunSpec, Study, approve, check_hash, sign
from fedkernel.storage import write_whole

app = typer.Typer(no_args_is_help=True, help="Show a study, which is all that sites will be asked, and approve it.")

Debug = Annotated[bool, typer.Option(help="Show tracebacks.")]


@app.command(name="show")
def show_(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="An experiment whose [data] table names its sites, or its .json.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write it to this file, for sites to look at.")] = None,
    debug: Debug = False,
) -> None:
    """Print what an experiment will ask of its sites, and the hash by which they approve it."""
    with errors(debug):
        read = read_study(study)
        show_study(read)
        if out is not None:
            write_whole(out, lambda file: file.write(read.text.encode()))
            say(f"{out}: the study, for the sites")


@app.command(name="approve")
def approve_(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Its hash, 64 hexadecimal digits, or its .json.")],
    out: Annotated[Path, typer.Option(help="The folder that the site joins with.")],
    debug: Debug = False,
) -> None:
    """Approve a study: a site that joins with this folder takes part in it."""
    with errors(debug):
        sha256 = read_study(Path(study)).sha256 if study.endswith(".json") else check_hash(study)
        approve(out, sha256)
        output.print(f"study {sha256[:SHORT]} is approved in {out}", highlight=False, markup=False, soft_wrap=True)


@app.command(name="sign")
def sign_(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Its .json, or the experiment that makes it.")],
    key: Annotated[Path, typer.Option(help="The signer's key: openssl genpkey -algorithm ed25519 -out FILE")],
    debug: Debug = False,
) -> None:
    """Sign a study for sites whose policies trust the signer; [data] of the experiment takes the signature."""
    with errors(debug):
        signature = sign(read_study(study).sha256, key)
        output.print(f'signatures = ["{signature}"]', highlight=False, markup=False, soft_wrap=True)
        say(f'approve = "signed" and signers = ["{signature.partition(":")[0]}"] in [study] of a policy trust it')


def read_study(path: Path) -> Study:
    """Read a study, or the experiment that makes one."""
    if path.suffix == ".json":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read ({type(error).__name__}); allowed: a study, as JSON") from None
        return Study.from_json(text, str(path))
    experiment = read_config(path, ["engine=grpc"])
    if (study := study_of(experiment, plan(experiment))) is None:
        raise InputError(f'{path}: a study needs a table [data] with sites = ["name", ...], who are to approve it')
    return study


def show_study(study: Study) -> None:
    """Print a study; runs that differ in their id and seed only are shown once."""
    versions = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    _line(f"study {study.name!r}, {versions}")
    alike: dict[str, list[RunSpec]] = {}
    for run in study.runs:
        alike.setdefault(repr(_without_seeds({**run.model_dump(mode="json"), "id": ""})), []).append(run)
    for runs in alike.values():
        run, seeds = runs[0], ", ".join(str(run.seed) for run in runs)
        _line()
        _line(f"{', '.join(run.id for run in runs[:3])}{'' if len(runs) < 4 else ', ...'}")
        aligned = f"aligned by ids, those missing somewhere: {run.missing}" if run.align else "each site's own"
        _line(f"sites: {', '.join(run.sites or ())}; seeds: {seeds}; rows: {aligned}")
        _line(f"method: {run.strategy}, answered by {run.pair}")
        _line(f"with: {_fields(run.parameters)}")
        if run.plan is None:
            _line("It does not say what it asks: whatever its client answers, in any order, any number of times.")
        else:
            show(_steps(run))
    _line()
    _line(f"SHA-256: {study.sha256}")


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_seeds(inner) for name, inner in value.items() if name != "seed"}
    return list(map(_without_seeds, value)) if isinstance(value, list | tuple) else value


def _steps(run: RunSpec) -> Table:
    here = {kind.__name__: kind.reply_type for kind in _answers(run)}
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for heading in ("step", "times at most", "asks", "with", "leaves the site", "which"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("step", "times at most") else "left")
    for number, step in enumerate(run.plan or (), start=1):
        for asked in step.requests:
            leaves = ", ".join(f"{name} {shape}" for name, shape in asked.arrays.items())
            with_ = {**asked.fields, **{name: {"shape at most": shape} for name, shape in asked.sizes.items()}}
            cells = str(number), str(step.times), asked.request, _fields(with_)
            summed = " (summed)" if asked.summed else ""
            known = here.get(asked.request)
            tells = f"(so its author says) {asked.reveals}" if known is None else reveals(known)
            table.add_row(*map(Text, map(one_line, (*cells, f"{asked.reply} {leaves}{summed}", tells))))
    return table


def _answers(run: RunSpec) -> Sequence[type[Request[Any]]]:
    """Return what a run's client answers, if it is ours: what a reply tells is said by the class that is here."""
    ours = own_names("clients")
    pair = ours.get(run.pair or "", run.pair or "")
    return find(pair, KernelClient, "clients", "pair").answers if pair in ours.values() else ()


def _fields(fields: Any) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value) if isinstance(value, str) else str(value)
    if len(value) == 1 and (name := next(iter(value))).endswith("at most"):
        inner = value[name]
        sizes = ["any" if size is None else str(size) for size in inner] if isinstance(inner, tuple) else [str(inner)]
        return f"{name} {' x '.join(sizes)}"
    return f"{{{_fields(value)}}}"


def _line(text: str = "") -> None:
    """Print a line, one also where what somebody else wrote has several."""
    output.print(one_line(text), highlight=False, markup=False, soft_wrap=True, emoji=False)

"""The commands about a site's policy: `fedkernel policy init`, `check` and `explain`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from experiments.commands.console import BAD_INPUT, errors, output, say, show
from experiments.commands.study import read_study
from fedkernel.data.rehearsal import schema_of
from fedkernel.errors import one_line
from fedkernel.run import SHORT, read_own_data, read_policy, verdicts
from fedkernel.storage import write_new

app = typer.Typer(no_args_is_help=True, help="Write and check a site's policy: what its operator allows.")

Debug = Annotated[bool, typer.Option(help="Show tracebacks.")]
File = Annotated[Path, typer.Argument(metavar="POLICY", help="A site's policy, a TOML file.")]

TEMPLATE = Path(__file__).with_name("policy.toml")


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="POLICY", help="The file to write.")] = Path("site.toml"),
    debug: Debug = False,
) -> None:
    """Write a policy to start from: that of a site without one, with everything else that can be said as comments."""
    with errors(debug):
        say(f"wrote {write_new(path, TEMPLATE.read_bytes())}")


@app.command()
def check(path: File, debug: Debug = False) -> None:
    """Check a policy, and print every rule as it counts, defaults included."""
    with errors(debug):
        table = Table(box=None, pad_edge=False)
        for heading in ("rule", "value"):
            table.add_column(heading, overflow="fold")
        for rule, value in _flat("", read_policy(path).model_dump(mode="json", exclude_none=True)):
            table.add_row(Text(rule), Text(str(value)))
        show(table)


@app.command()
def explain(
    path: File,
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study, as JSON, or the experiment that makes it.")],
    debug: Debug = False,
) -> None:
    """Say of each rule whether it allows a study, before anything connects; exit code 2 if one does not."""
    with errors(debug):
        read = read_study(study)
        held = list(verdicts(read_policy(path), read))
        table = Table(box=None, pad_edge=False)
        for heading in ("rule", "", "why"):
            table.add_column(heading, overflow="fold")
        for verdict in held:
            table.add_row(
                *map(Text, (verdict.rule, "allowed" if verdict.allowed else "refused", one_line(verdict.text)))
            )
        show(table)
        refused = sum(not verdict.allowed for verdict in held)
        ending = (
            f"{refused} reasons to refuse it"
            if refused
            else "the policy allows it as far as it tells; limits, guards and what data decide are for the run"
        )
        output.print(f"study {read.sha256[:SHORT]} ({one_line(read.name)}): {ending}", highlight=False, markup=False)
        if refused:
            raise typer.Exit(BAD_INPUT)


@app.command()
def schema(  # noqa: PLR0917 - one option each
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The site's table.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("schema.toml"),
    id_: Annotated[str | None, typer.Option("--id", help="The column that says which row is which.")] = None,
    label: Annotated[str | None, typer.Option(help="A column that is kept out.")] = None,
    policy: Annotated[Path | None, typer.Option(help="The site's policy: columns that it hides are not read.")] = None,
    debug: Debug = False,
) -> None:
    """Write a table's size, columns and ranges, for `fedkernel join --rehearse`; ranges tell the extreme values."""
    with errors(debug):
        options = {"data": data, "id": id_, "label": label, "policy": policy}
        read = read_own_data({name: str(value) for name, value in options.items() if value is not None})
        say(f"wrote {write_new(out, schema_of(read).encode())}")


def _flat(path: str, table: dict[str, object]) -> list[tuple[str, object]]:
    """Return the values of a table and of those within it, by dotted names."""
    pairs: list[tuple[str, object]] = []
    for name, value in table.items():
        pairs += _flat(f"{path}{name}.", value) if isinstance(value, dict) else [(f"{path}{name}", value)]
    return pairs

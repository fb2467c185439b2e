"""The command `fedkernel check`: faults of a site's file, with their remedies."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Exit, Option

from fedkernel import data, site
from fedkernel.data import checks
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import BAD_INPUT, print_line, print_rows, write_file
from fedkernel.experiments.commands.table_options import File, ReadingOptions
from fedkernel.ground import InputError

if TYPE_CHECKING:
    from fedkernel.data.checks import Finding

STYLES = {"fault": "bold red", "doubt": "yellow", "note": "dim"}


def check(
    path: File,
    *,
    reading: ReadingOptions,
    against: Annotated[
        Path | None,
        Option(metavar="SCHEMA", help="Compare with the sites' agreed schema; FILE may then be a schema, too."),
    ] = None,
    schema: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the names and types of columns, to be edited by hand."),
    ] = None,
    ranges: Annotated[
        bool,
        Option(
            "--ranges",
            help="With --schema: also the number of rows, and ranges and levels, which show single rows. Another "
            "site's number is a fault if it is beyond a range by more than its width.",
        ),
    ] = False,
    study: Annotated[
        Path | None,
        Option(
            metavar="STUDY",
            help="Compare also with the units that a study states, and print how many numbers it sends for each entry.",
        ),
    ] = None,
    show_values: Annotated[bool, Option("--show-values", help="Quote some of the cells.")] = False,
) -> None:
    r"""Check a site's file, and print every fault with its remedy; nothing leaves.

    Faults must be mended, in the file, by an option or by the experiment's table \[prepare]: exit code 2. A file with
    doubts and notes can be used. Places are as in a spreadsheet: row 1 has the names, columns are letters.
    """
    if ranges and schema is None:
        raise InputError("--ranges needs --schema FILE")
    agreed = None if against is None else checks.read_schema(against)
    planned = None if study is None else commands.read_study(study)
    if path.suffix.lower() == ".toml":
        own = checks.read_schema(path)
        if agreed is None or schema is not None:
            raise InputError(f"{path} is a schema; allowed with it: --against SCHEMA, and no --schema")
        findings, size = list(checks.compare_schemas(own, agreed)), checks.plural(len(own.columns), "column")
    else:
        file = reading.of(path)
        look = checks.check_file(file, site.MIN_ROWS)
        compared = [] if agreed is None else checks.compare(look, agreed)
        stated = dict.fromkeys(run.prepares for run in planned.runs if run.prepares is not None) if planned else {}
        findings = [*look.findings, *compared, *(it for own in stated for it in checks.compare_with_prepare(look, own))]
        size = f"{checks.plural(len(look.rows), 'row')}, {checks.plural(len(look.columns), 'column')}"
        size += "" if look.ids is None else ", ids"
    faults = _show(path, size, findings, show_values)
    if planned is not None:
        shape = None if path.suffix.lower() == ".toml" else (len(look.rows), len(look.columns))
        commands.show_shares(planned, shape)
    if schema is not None:
        write_file(schema, checks.schema_of(data.read_raw(file), ranges=ranges).to_toml())
    if faults:
        raise Exit(BAD_INPUT)


def _show(path: Path, size: str, findings: Sequence["Finding"], show_values: bool) -> int:
    """Print findings, the worst first, and return the number of faults."""
    headings = ["", "what", "where", "what to do", *(["cells"] if show_values else [])]
    rows: list[list[str | Text]] = []
    counts = []
    for severity, style in STYLES.items():
        group = [finding for finding in findings if finding.severity == severity]
        for finding in group:
            cells = [", ".join(map(repr, finding.cells))] if show_values else []
            rows.append([Text(severity, style), finding.problem, finding.where, finding.remedy, *cells])
        counts += [checks.plural(len(group), severity)] if group else []
    if findings:
        print_rows(headings, rows)
    ending = ", ".join(counts) or "nothing to mend"
    print_line(f"{path}: {size}: {ending}")
    return sum(finding.severity == "fault" for finding in findings)

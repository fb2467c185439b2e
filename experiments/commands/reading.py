"""The options that say how a site's file is read, the same for every command that reads one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkernel import data
from fedkernel.data import checks
from fedkernel.errors import InputError, and_more

if TYPE_CHECKING:
    from fedkernel.data import SiteFile

File = Annotated[Path, typer.Argument(metavar="FILE", help="A table: .csv, .xlsx, .parquet, .npz or .npy.")]
Id = Annotated[str | None, typer.Option("--id", help="The column that says which row is which; kept out.")]
Label = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column that is kept out; again for more.")]
Drop = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column that is left out; again for more.")]
Columns = Annotated[str | None, typer.Option(help="Names of the table's columns, with commas; by default all others.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Of a .csv file: what stands between values, such as ; or tab. By default as it looks."),
]
Decimal = Annotated[str | None, typer.Option(help="Of a .csv file: . or , before decimals; by default as it looks.")]
Encoding = Annotated[
    str | None, typer.Option(help="Of a .csv file, such as latin-1; by default UTF-8, or UTF-16 with its mark.")
]

Header = Annotated[
    int | None,
    typer.Option(min=1, help="Of a .csv or .xlsx file: the row with the names of the columns; by default 1."),
]


def site_file(
    path: Path,
    *,
    id_: str | None = None,
    label: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    columns: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    header: int | None = None,
) -> "SiteFile":
    """Return the file that a command's options describe; InputError where they contradict each other."""
    return data.SiteFile(
        path,
        columns=None if columns is None else data.listed(columns),
        label=tuple(label) if label else None,
        id=id_,
        drop=tuple(drop or ()),
        delimiter=delimiter,
        decimal=decimal,
        encoding=encoding,
        header=header,
    )


def how_read(file: "SiteFile") -> str:
    """Return what of a file's form nobody said and was guessed, for whoever reads on; empty if nothing was."""
    return f"{file.path} is read with {' and '.join(file.form.guessed)}, as it looks" if file.form.guessed else ""


def as_agreed(file: "SiteFile", schema: Path) -> "SiteFile":
    """Return a file with the columns that a schema has, in the schema's order, whatever their order in the file.

    Raises
    ------
    InputError
        If the file is not as the schema says; cells that are missing are none of its concern.
    """
    agreed = checks.read_schema(schema)
    faults = [finding for finding in checks.compare(checks.look_at(file, 1), agreed) if finding.severity == "fault"]
    if faults:
        where = f" ({faults[0].where})" if faults[0].where else ""
        raise InputError(
            f"{file.path} is not as {schema} says: {faults[0].what}{where}{and_more(len(faults) - 1)}; allowed: a file "
            f"in which fedkernel check {file.path} --against {schema} finds no fault of this kind"
        )
    return replace(file, columns=tuple(agreed.columns))

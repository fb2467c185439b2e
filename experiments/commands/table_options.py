"""Options for reading a site's file, the same for every command."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedkernel import data
from fedkernel.data import checks
from fedkernel.ground import InputError, and_more

File = Annotated[Path, Argument(metavar="FILE", help="A table: .csv, .xlsx, .parquet, .npz or .npy.")]
Id = Annotated[str | None, Option("--id", help="Column of row ids, kept out of the table.")]
Drop = Annotated[list[str] | None, Option(metavar="COLUMN", help="Column to leave out; may be repeated.")]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a value by its dotted path; may be repeated.")
]
Shape = Annotated[str | None, Option(metavar="ROWSxCOLUMNS", help="Size of the site's table, on which limits depend.")]


@dataclass(frozen=True)
class FormatOptions:
    """Options for the format of a file."""

    delimiter: Annotated[str | None, Option(help="Separator of a .csv file, such as ; or tab; by default guessed.")] = (
        None
    )
    decimal: Annotated[str | None, Option(help="Decimal sign of a .csv file, . or ,; by default guessed.")] = None
    encoding: Annotated[
        str | None, Option(help="Encoding of a .csv file; by default UTF-8, or UTF-16 with its mark.")
    ] = None
    header: Annotated[int | None, Option(min=1, help="Row with the columns' names; by default 1.")] = None


@dataclass(frozen=True)
class ReadingOptions:
    """Options for reading a site's table from its file."""

    id: Id = None
    label: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="Column of labels, kept out of the table; may be repeated.")
    ] = None
    drop: Drop = None
    columns: Annotated[str | None, Option(help="The table's columns, separated by commas; by default all others.")] = (
        None
    )
    form: FormatOptions = FormatOptions()

    def of(self, path: Path) -> "data.SiteFile":
        """Return the file at a path with these options. Raise InputError if they contradict each other."""
        columns = None if self.columns is None else data.split_names(self.columns)
        label, drop = tuple(self.label) if self.label else None, tuple(self.drop or ())
        return data.SiteFile(path, columns=columns, label=label, id=self.id, drop=drop, **vars(self.form))


def guessed_format(file: "data.SiteFile") -> str:
    """Return a sentence on the guessed format of a file, or "" if nothing was guessed."""
    guessed = " and ".join(file.csv_format.guessed)
    return f"{file.path} is read with {guessed}, guessed from the file" if guessed else ""


def with_schema_columns(file: "data.SiteFile", schema: Path) -> "data.SiteFile":
    """Return a file with columns in a schema's order. Raise InputError if it differs other than in missing cells."""
    agreed = checks.read_schema(schema)
    faults = [finding for finding in checks.compare(checks.check_file(file, 1), agreed) if finding.severity == "fault"]
    if faults:
        where = f" ({faults[0].where})" if faults[0].where else ""
        raise InputError(
            f"{file.path} differs from {schema}: {faults[0].problem}{where}{and_more(len(faults) - 1)}; allowed: one "
            f"in which fedkernel check {file.path} --against {schema} finds no fault of this kind"
        )
    return replace(file, columns=tuple(agreed.columns))

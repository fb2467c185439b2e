"""Data file of a site: its format, its columns for the table, row ids and labels, and its version."""

import codecs
import csv
import hashlib
import importlib
import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data.arrow_columns import checked_ids, ids_of, is_numeric, stack_columns
from fedkernel.data.block_tables import ArrayTable, ParquetTable, SparseTable, Table, file_errors, open_table
from fedkernel.data.column_readers import Reader, open_csv, open_parquet, open_sheet, read_sheet
from fedkernel.data.csv_format import CsvFormat, find_later_header, find_later_names, guess_csv_format
from fedkernel.ground import AnyArray, InputError, listed, open_npz, row_of_file


@dataclass(frozen=True)
class SiteData:
    """Content of a data file: table X (n_m, d_m), and column names and n_m unique row ids, if any."""

    X: Table
    columns: tuple[str, ...]
    ids: tuple[str, ...] | None


@dataclass(frozen=True)
class SiteFile:
    """Data file of a site with its options: .csv (a line of names, then rows), .xlsx, .parquet, .npy or .npz.

    An .npz file holds ``X``, as an array or in the form of scipy.sparse.save_npz, and optionally ``columns``, its
    column names, and ``ids``, text or whole numbers. Columns without names are called "0", "1", and so on. Of a
    spreadsheet the first sheet is read. Blanks around names are stripped.

    - `columns`: columns of the table, in this order; None: all but those below.
    - `label`: columns kept out of the table, for comparison and colours.
    - `id`: column of unique row ids, kept out of the table.
    - `allowed`, `hidden`: the site policy's patterns, with ``*`` and ``?``, of columns for the table.
    - `drop`: columns to leave out.
    - `delimiter`: separator of a .csv file, such as ; or ``tab``; None: guessed.
    - `decimal`: decimal sign of a .csv file, "." or ","; None: guessed.
    - `encoding`: encoding of a .csv file, by Python's name.
    - `header`: row with the columns' names, from 1; None: 1.
    """

    path: str | os.PathLike[str]
    columns: Sequence[str] | None = None
    label: str | Sequence[str] | None = None
    id: str | None = None
    allowed: tuple[str, ...] = ("*",)
    hidden: tuple[str, ...] = ()
    drop: Sequence[str] = ()
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: int | None = None

    def __post_init__(self) -> None:
        for option in ("columns", "label", "id", "drop"):
            if (value := getattr(self, option)) is not None:
                texts = value.strip() if isinstance(value, str) else tuple(text.strip() for text in value)
                object.__setattr__(self, option, texts)
        self._check_form()
        if twice := _repeated(self.columns or ()):
            raise InputError(f"columns names {twice!r} twice; allowed: each column once")
        out: list[tuple[str, str | None]] = [("id", self.id), *(("label", name) for name in self.labels)]
        for option, name in out:
            if name in (self.columns or ()):
                raise InputError(f"columns names {name!r}, which is the {option}; allowed: columns of the table")
            if name in self.drop:
                raise InputError(f"drop names {name!r}, which is the {option}; allowed: columns of the table")
        if dropped := [name for name in self.columns or () if name in self.drop]:
            raise InputError(f"columns and drop both name {dropped[0]!r}; allowed: one of them")

    def _check_form(self) -> None:
        """Refuse invalid options of the file format."""
        if self.delimiter == "tab":
            object.__setattr__(self, "delimiter", "\t")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(f"delimiter = {self.delimiter!r}, but must be one character, such as ';', or tab")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal = {self.decimal!r}, but must be '.' or ','")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise InputError(f"encoding = {self.encoding!r} is unknown; allowed: utf-8, latin-1, ...") from None
        if self.header is not None and (isinstance(self.header, bool) or self.header < 1):
            raise InputError(f"header = {self.header}, but must be the number of a row, from 1")
        form = {"delimiter": self.delimiter, "decimal": self.decimal, "encoding": self.encoding, "header": self.header}
        suffix = Path(self.path).suffix.lower()
        if suffix == ".xlsx":
            del form["header"]
        if (options := [name for name, value in form.items() if value is not None]) and suffix != ".csv":
            kinds = ".csv and .xlsx" if options[0] == "header" else ".csv"
            raise InputError(f"{options[0]} is for {kinds} files, but {self.path} ends in {suffix!r}")

    def to_node(self) -> dict[str, str]:
        """Return the options, except the policy's, as a node's configuration, with comma-separated lists."""
        lists = {"columns": self.columns, "label": self.labels or None, "drop": self.drop or None}
        options: dict[str, Any] = {key: None if names is None else _join_names(names) for key, names in lists.items()}
        options |= {"data": self.path, **{key: getattr(self, key) for key in (*_NODE_TEXTS, "header")}}
        return {key: str(value) for key, value in options.items() if value is not None}

    @classmethod
    def of_node(
        cls, node: Mapping[str, Any], allowed: tuple[str, ...] = ("*",), hidden: tuple[str, ...] = ()
    ) -> "SiteFile":
        """Build the file from a node's configuration, the inverse of `to_node`."""
        lists = {key: split_names(str(node[key])) for key in ("columns", "label", "drop") if key in node}
        texts = {key: str(node[key]) for key in _NODE_TEXTS if key in node}
        header = int(node["header"]) if "header" in node else None
        return cls(str(node["data"]), allowed=allowed, hidden=hidden, header=header, **lists, **texts)  # type: ignore[arg-type]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the label columns."""
        label = self.label or ()
        return (label,) if isinstance(label, str) else tuple(label)

    @property
    def header_row(self) -> int:
        """Row with the names, as a spreadsheet counts."""
        return self.header or 1

    @property
    def csv_format(self) -> CsvFormat:
        """Format of the .csv file. Options that are not given are guessed by `guess_csv_format`."""
        path = Path(self.path).expanduser()
        if path.suffix.lower() != ".csv":
            return CsvFormat()
        return guess_csv_format(path, self.delimiter, self.decimal, self.encoding, self.header_row)

    @property
    def later_header(self) -> int | None:
        """Row below the first that may have a .csv or .xlsx file's names, or None. It is None if `header` is given."""
        path = Path(self.path).expanduser()
        if self.header is not None or not path.is_file():
            return None
        if path.suffix.lower() == ".xlsx":
            return find_later_names(read_sheet(path).rows)
        return find_later_header(path, self.delimiter, self.encoding) if path.suffix.lower() == ".csv" else None

    @property
    def _later_header_hint(self) -> str:
        row = self.later_header
        return f"; row {row} may have the names (--header {row})" if row else ""

    def read(self) -> SiteData:
        """Read the file; tables in .npy and .parquet files are read later, block by block.

        Raises InputError, with rows as a spreadsheet counts (of arrays from 0) and no values: a file that is missing,
        empty, damaged or of another kind; a column that is missing, not numeric or without a unique name; an empty
        cell; ids that are missing or not unique.
        """
        path = Path(self.path).expanduser()
        if path.is_dir():
            raise InputError(f"{path} is a folder; allowed: a file with a table")
        if path.suffix.lower() not in _READERS:
            raise InputError(f"{path} ends in {path.suffix!r}; allowed: {', '.join(_READERS)}")
        return _READERS[path.suffix.lower()](self, path)

    def choose(self, path: Path, names: Sequence[str]) -> list[str]:
        """Return the names of the table's columns, chosen from the file's stripped names by the options."""
        if "" in names:
            problem = f"{path}: column {names.index('')} (counted from 0) has no name; allowed: names for all"
            raise InputError(f"{problem}{self._later_header_hint}")
        if repeated := _repeated(names):
            raise InputError(f"{path} has two columns {repeated!r}; allowed: names that differ")
        options = [("columns", name) for name in self.columns or ()] + [("label", name) for name in self.labels]
        for option, name in [*options, ("id", self.id), *(("drop", name) for name in self.drop)]:
            if name is not None and name not in names:
                columns = listed(list(map(repr, names)))
                there = f"there are: {columns}" + (f", the names in row {self.header} (header)" if self.header else "")
                raise InputError(f"{option} = {name!r} is no column of {path}; {there}{self._later_header_hint}")
        if withheld := [name for name in self.columns or () if not self.policy_admits(name)]:
            allowed = "columns that table.columns and table.hidden admit"
            raise InputError(f"columns names {withheld[0]!r}, which the policy keeps out; allowed: {allowed}")
        others = [name for name in names if name not in self.excluded_columns and self.policy_admits(name)]
        chosen = others if self.columns is None else list(self.columns)
        if not chosen:
            raise InputError(f"{path} has no columns besides label and id; allowed: at least one for the table")
        return chosen

    @property
    def excluded_columns(self) -> tuple[str, ...]:
        """Names of the columns outside the table: labels, the id, and dropped ones."""
        return (*self.labels, *(() if self.id is None else (self.id,)), *self.drop)

    def policy_admits(self, name: str) -> bool:
        """Return whether the site's policy admits a column to the table."""
        allowed, hidden = (any(fnmatchcase(name, own) for own in patterns) for patterns in (self.allowed, self.hidden))
        return allowed and not hidden


_NODE_TEXTS = ("id", "delimiter", "decimal", "encoding")  # options that a node's configuration has as texts


def split_names(text: str) -> tuple[str, ...]:
    """Split comma-separated names; a name with a comma is quoted."""
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def _join_names(names: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def _repeated(names: Sequence[str]) -> str | None:
    """Return the first repeated name, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def read_columns(file: SiteFile, path: Path, labels: Sequence[str] = ()) -> tuple[list[str], Any]:
    """Return the names of the table's columns, and a pyarrow table of these, the id and the labels.

    Raises InputError as `SiteFile.read` does, except for cell contents.
    """
    names, read = _OPEN[path.suffix.lower()](file, path)
    chosen = file.choose(path, names)
    texts = [*(() if file.id is None else (file.id,)), *labels]
    table = read(list(dict.fromkeys([*chosen, *texts])), texts)
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows; allowed: at least one below the names of the columns")
    return chosen, table


_OPEN: dict[str, Callable[[SiteFile, Path], tuple[list[str], Reader]]] = {
    ".csv": lambda file, path: open_csv(path, file.csv_format),
    ".xlsx": lambda file, path: open_sheet(path, file.header_row),
    ".parquet": lambda file, path: open_parquet(path),
}
"""Functions that open files whose cells may have any type, by file ending."""


def _read_text(file: SiteFile, path: Path) -> SiteData:
    chosen, read = read_columns(file, path)
    table = read.select(chosen)
    for name in chosen:
        _check_numbers(path, name, table.column(name), file.header_row)
    X = stack_columns(table, np.float64, str(path), header=file.header_row)
    return SiteData(ArrayTable(X, str(path)), tuple(chosen), ids_of(file.id, path, read, file.header_row))


def _read_parquet(file: SiteFile, path: Path) -> SiteData:
    with file_errors(path):
        schema = importlib.import_module("pyarrow.parquet").read_schema(path)
    names = [name.strip() for name in schema.names]
    chosen = file.choose(path, names)
    places = [names.index(name) for name in chosen]
    for name, place in zip(chosen, places, strict=True):
        _check_kind(path, name, schema.field(place).type)
    X = ParquetTable(path, None if chosen == schema.names else [schema.names[place] for place in places])
    if file.id is None:
        return SiteData(X, tuple(chosen), None)
    return SiteData(X, tuple(chosen), ids_of(file.id, path, open_parquet(path)[1]([file.id], [])))


def _check_numbers(path: Path, name: str, column: Any, header: int) -> None:
    """Refuse a column of a CSV file or spreadsheet that is not numeric, naming its first row without a number."""
    kind = str(column.type)
    if kind == "null":  # no value at all
        raise InputError(f"{path}: {row_of_file(0, header)}, column {name!r} holds no value; allowed: finite numbers")
    where = ""
    if kind == "string":
        other_cells = ((row, str(cell)) for row, cell in enumerate(column) if not _is_number(str(cell)))
        for row, cell in itertools.islice(other_cells, 1):
            comma = ", where a decimal comma may stand (--decimal)" if _is_number(cell.replace(",", ".", 1)) else ""
            where = f" in {row_of_file(row, header)}{comma}"
    _check_kind(path, name, column.type, where)


def _check_kind(path: Path, name: str, kind: Any, where: str = "") -> None:
    if not is_numeric(kind):
        allowed = "numbers (--columns chooses columns, --label, --id and --drop keep some out)"
        raise InputError(f"{path}: column {name!r} holds {kind}{where}; allowed in the table: {allowed}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_arrays(file: SiteFile, path: Path) -> SiteData:
    if file.id is not None:
        allowed = "an .npz file with an array ids, a .csv or .parquet file"
        raise InputError(f"id = {file.id!r}, but {path} has no column of ids; allowed: {allowed}")
    X = open_table(path)
    if not isinstance(X, ArrayTable | SparseTable):
        raise InputError(f"{path} is no {path.suffix} file; the file's ending must match its format")
    extras: dict[str, AnyArray] = {}
    if path.suffix.lower() == ".npz":
        with file_errors(path), open_npz(path) as archive:
            extras = {name: archive[name] for name in ("columns", "ids") if name in archive}
    n, d = X.shape
    names: tuple[str, ...] = ()
    if (columns := extras.get("columns")) is not None:
        if columns.shape != (d,) or columns.dtype.kind != "U":
            raise InputError(f"columns in {path} must be the names of its {d} columns: {d} texts")
        names = tuple(name.strip() for name in columns.tolist())
    labels = names or tuple(str(place) for place in range(d))
    chosen = file.choose(path, labels)
    if chosen != list(labels):
        X = type(X)(X.X[:, [labels.index(name) for name in chosen]], X.title)  # type: ignore[arg-type]
    own = tuple(chosen) if names else ()
    if (ids := extras.get("ids")) is None:
        return SiteData(X, own, None)
    if ids.shape != (n,) or ids.dtype.kind not in "Uiu":
        raise InputError(f"ids in {path} must be one text or whole number for each of its {n} rows")
    return SiteData(X, own, checked_ids(list(map(str, ids.tolist())), f"ids in {path}"))


_READERS: dict[str, Callable[[SiteFile, Path], SiteData]] = {
    ".csv": _read_text,
    ".xlsx": _read_text,
    ".parquet": _read_parquet,
    ".npy": _read_arrays,
    ".npz": _read_arrays,
}


Version = tuple[int, int, int]
"""Modification time in nanoseconds, size in bytes, and inode, which changes if the file is replaced."""


def version_of(path: str | os.PathLike[str]) -> Version:
    """Return the current version of a file. Raises InputError if it cannot be read."""
    with file_errors(path, "a file with the site's data"):
        stat = Path(path).expanduser().stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def file_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's content; an unchanged file is not read again."""
    return _hash_of_version(str(path), version_of(path))


@lru_cache(maxsize=64)
def _hash_of_version(path: str, version: Version) -> str:
    with Path(path).expanduser().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""A site's own file: which columns are its table, which one names its rows, and which one is kept out."""

import csv
import importlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkernel.arrays import READING
from fedkernel.data.columns import is_numeric, stack_columns
from fedkernel.data.sources import some
from fedkernel.data.tables import ArrayTable, ParquetTable, SparseTable, Table, open_table, readable
from fedkernel.errors import InputError


@dataclass(frozen=True)
class SiteData:
    """What a site's file holds.

    Attributes
    ----------
    X : Table of shape (n_m, d_m)
    columns : tuple of str
        Names of its columns; empty where the file has none.
    ids : tuple of str, or None
        What each row is known by: n_m different texts.
    """

    X: Table
    columns: tuple[str, ...]
    ids: tuple[str, ...] | None


@dataclass(frozen=True)
class SiteFile:
    """A site's file and what of it is used: .csv (a line of names, then rows), .parquet, .npy or .npz.

    An .npz file holds ``X``, as an array or in the form of scipy.sparse.save_npz, and perhaps ``columns``, the names of
    its columns, and ``ids``, text or whole numbers. Columns of an .npy file, and of an .npz file without names, are
    called "0", "1", and so on.

    Parameters
    ----------
    path : str or path
    columns : sequence of str, optional
        The columns of the site's table, in this order; None: all but `label` and `id`.
    label : str, optional
        A column that is kept out of the table.
    id : str, optional
        The column that says which row is which, kept out of the table: text or whole numbers, each only once.
    allowed, hidden : tuple of str
        Patterns with ``*`` and ``?`` of a site's policy: which columns may be in the table, and which may not.
    """

    path: str | os.PathLike[str]
    columns: Sequence[str] | None = None
    label: str | None = None
    id: str | None = None
    allowed: tuple[str, ...] = ("*",)
    hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make it usable as a key, and refuse columns that are to be both in the table and out of it."""
        if self.columns is None:
            return
        object.__setattr__(self, "columns", tuple(self.columns))
        if twice := _repeated(self.columns):
            raise InputError(f"columns names {twice!r} twice; allowed: each column once")
        for option, name in {"label": self.label, "id": self.id}.items():
            if name in self.columns:
                raise InputError(f"columns names {name!r}, which is the {option} and is kept out of the table")

    def read(self) -> SiteData:
        """Read the file; .npy and .parquet are opened, and their table is read block by block.

        Raises
        ------
        InputError
            A file that is missing, empty, damaged or of another kind; a column that is not there, is not of numbers or
            has no name of its own; a cell without a value; ids that are missing or not unique. The text names the file,
            rows (counted from 0) and columns, and quotes no value.
        """
        path = Path(self.path).expanduser()
        if path.suffix.lower() not in _READERS:
            raise InputError(f"{path} ends in {path.suffix or 'nothing'!r}; allowed: {', '.join(_READERS)}")
        return _READERS[path.suffix.lower()](self, path)

    def choose(self, path: Path, names: Sequence[str]) -> list[str]:
        """Return the names of the table's columns, of those that the file has."""
        if "" in names:
            raise InputError(f"{path}: column {names.index('')} (counted from 0) has no name; allowed: names for all")
        if twice := _repeated(names):
            raise InputError(f"{path} has two columns {twice!r}; allowed: names that differ")
        options = [*(("columns", name) for name in self.columns or ()), ("label", self.label), ("id", self.id)]
        for option, name in options:
            if name is not None and name not in names:
                raise InputError(f"{option} = {name!r} is no column of {path}; there are: {some(names)}")
        if withheld := [name for name in self.columns or () if not self._offers(name)]:
            raise InputError(f"columns names {withheld[0]!r}, which the policy keeps out (table.columns, table.hidden)")
        others = [name for name in names if name not in (self.label, self.id) and self._offers(name)]
        chosen = others if self.columns is None else list(self.columns)
        if not chosen:
            raise InputError(f"{path} has no columns beside label and id; allowed: at least one for the table")
        return chosen

    def _offers(self, name: str) -> bool:
        """Return whether the policy lets a column be in the table."""
        return any(fnmatchcase(name, pattern) for pattern in self.allowed) and not any(
            fnmatchcase(name, pattern) for pattern in self.hidden
        )


def _repeated(names: Sequence[str]) -> str | None:
    """Return the first name that stands there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


# --- CSV and parquet -------------------------------------------------------------------------------------------------

_CSV = "text in UTF-8, with commas between the values"


def _read_csv(file: SiteFile, path: Path) -> SiteData:
    arrow = importlib.import_module("pyarrow.csv")
    with readable(path, _CSV), path.open(newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream), [])
    if not header:
        raise InputError(f"{path} is empty; allowed: a line with the names of the columns, then the rows")
    chosen = file.choose(path, header)
    text = {file.id: importlib.import_module("pyarrow").string()} if file.id is not None else {}  # 007 is not 7
    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    try:
        with readable(path, _CSV):
            read = arrow.read_csv(
                path,
                read_options=arrow.ReadOptions(use_threads=False),  # else it does not know the number of a wrong row
                # of a single column, an empty line is a row without a value
                parse_options=arrow.ParseOptions(
                    newlines_in_values=True, ignore_empty_lines=len(header) > 1, invalid_row_handler=refuse
                ),
                convert_options=arrow.ConvertOptions(include_columns=[*chosen, *text], column_types=text),
            )
    except InputError:
        if not wrong:
            raise
        raise InputError(
            f"{path}: row {wrong[0].number - 2} (counted from 0) has {wrong[0].actual_columns} values; "
            f"allowed: one for each of the {len(header)} columns"
        ) from None
    if read.num_rows == 0:
        raise InputError(f"{path} has no rows; allowed: at least one below the names of the columns")
    table = read.select(chosen)
    for name in chosen:
        _check_numbers(path, name, table.column(name))
    X = stack_columns(table, np.float64, str(path))
    return SiteData(ArrayTable(X, str(path)), tuple(chosen), ids_of(file, path, read))


def _read_parquet(file: SiteFile, path: Path) -> SiteData:
    parquet = importlib.import_module("pyarrow.parquet")
    with readable(path):
        schema = parquet.read_schema(path)
    chosen = file.choose(path, schema.names)
    for name in chosen:
        _check_kind(path, name, schema.field(name).type)
    X = ParquetTable(path, None if chosen == schema.names else chosen)
    if file.id is None:
        return SiteData(X, tuple(chosen), None)
    with readable(path):
        read = parquet.read_table(path, columns=[file.id])
    return SiteData(X, tuple(chosen), ids_of(file, path, read))


def _check_numbers(path: Path, name: str, column: Any) -> None:
    """Refuse a column of a CSV file that is not of numbers, and say where it begins to be none."""
    kind = str(column.type)
    if kind == "null":  # not one value
        raise InputError(
            f"{path}: row 0, column {name!r} (counted from 0) holds no value; allowed: finite numbers only"
        )
    where = ""
    if kind == "string":
        rows = (row for row, cell in enumerate(column) if not _is_number(str(cell)))
        where = "".join(f" in row {row} (counted from 0)" for row in itertools.islice(rows, 1))
    _check_kind(path, name, column.type, where)


def _check_kind(path: Path, name: str, kind: Any, where: str = "") -> None:
    if not is_numeric(kind):
        raise InputError(
            f"{path}: column {name!r} holds {kind}{where}; allowed in the table: numbers "
            "(--columns chooses columns, --label and --id keep one out)"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def ids_of(file: SiteFile, path: Path, read: Any) -> tuple[str, ...] | None:
    """Return the ids of a pyarrow table's rows, where the file names their column; InputError where they are none."""
    if file.id is None:
        return None
    column, types = read.column(file.id), importlib.import_module("pyarrow.types")
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not any(is_kind(column.type) for is_kind in (types.is_integer, types.is_string, types.is_large_string)):
        raise InputError(f"{path}: column {file.id!r} holds {column.type}; allowed for ids: text or whole numbers")
    return _checked_ids(["" if id_ is None else str(id_) for id_ in column.to_pylist()], f"{path}: column {file.id!r}")


def _checked_ids(ids: list[str], what: str) -> tuple[str, ...]:
    """Return the ids if there is one for each row and no two are the same; a text names rows, never an id."""
    first: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        if not id_.strip():
            raise InputError(f"{what}: row {row} (counted from 0) has no id; allowed: an id for each row")
        if (other := first.setdefault(id_, row)) != row:
            raise InputError(f"{what}: rows {other} and {row} (counted from 0) have the same id; allowed: unique ids")
    return tuple(ids)


# --- npy and npz -----------------------------------------------------------------------------------------------------


class _Extras(NamedTuple):
    """What an npz file holds beside its table."""

    columns: np.ndarray[Any, Any] | None = None
    ids: np.ndarray[Any, Any] | None = None


def _read_arrays(file: SiteFile, path: Path) -> SiteData:
    if file.id is not None:
        raise InputError(
            f"id = {file.id!r}, but {path} has no column of ids; allowed: an .npz file with an array ids, a .csv or "
            ".parquet file"
        )
    X = open_table(path)
    if not isinstance(X, ArrayTable | SparseTable):
        raise InputError(f"{path} is no {path.suffix} file; allowed: a name that says what is in it")
    extras = _Extras() if path.suffix.lower() == ".npy" else _extras(path)
    n, d = X.shape
    names: tuple[str, ...] = ()
    if extras.columns is not None:
        if extras.columns.shape != (d,) or extras.columns.dtype.kind != "U":
            raise InputError(f"columns in {path} are not the names of its {d} columns; allowed: {d} texts")
        names = tuple(extras.columns.tolist())
    labels = names or tuple(str(place) for place in range(d))
    chosen = file.choose(path, labels)
    if chosen != list(labels):
        X = type(X)(X.X[:, [labels.index(name) for name in chosen]], X.what)  # type: ignore[arg-type]
    if extras.ids is None:
        return SiteData(X, tuple(chosen) if names else (), None)
    if extras.ids.shape != (n,) or extras.ids.dtype.kind not in "Uiu":
        raise InputError(
            f"ids in {path} are not one text or whole number for each of its {n} rows; allowed: {n} of them"
        )
    ids = _checked_ids([str(id_) for id_ in extras.ids.tolist()], f"ids in {path}")
    return SiteData(X, tuple(chosen) if names else (), ids)


def _extras(path: Path) -> _Extras:
    with READING, readable(path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return _Extras(**{name: archive[name] for name in _Extras._fields if name in archive.files})


_READERS: dict[str, Callable[[SiteFile, Path], SiteData]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npy": _read_arrays,
    ".npz": _read_arrays,
}

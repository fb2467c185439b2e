"""Search of a site's file for all faults and oddities at once, for the site itself."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedkernel.data.checks.column_types import ODDITIES, Kind, kind_of
from fedkernel.data.checks.findings import Finding, counted, listing, place_of, rows_of
from fedkernel.data.checks.raw_cells import Cells, read_cells
from fedkernel.data.checks.table_schema import MOST_LEVELS
from fedkernel.data.raw import is_text, missing_in
from fedkernel.data.site_files import SiteFile
from fedkernel.ground import AnyArray, FloatArray, InputError

OUTLYING, ENOUGH = 3.0, 8
"""Distance of outliers from the quartiles in interquartile ranges (Tukey's "far out"), and least count of numbers."""

APART, DISTINCT = 3.0, 10
"""Factor between two groups of a column's numbers, and least count of different numbers."""

DIFFERING = 100.0
"""Ratio of columns' standard deviations above which a note is given."""


@dataclass(frozen=True, eq=False)
class Column:
    """Column of the table: position in the file, name, cells and kind."""

    place: int
    name: str
    cells: AnyArray
    kind: Kind
    missing: npt.NDArray[np.bool_]

    @property
    def numbers(self) -> FloatArray:
        """Cells that are numbers."""
        return self.kind.numbers[~np.isnan(self.kind.numbers)]

    @property
    def drop(self) -> str:
        """Advice to leave the column out."""
        return f"--drop {self.name!r}" if self.name else "delete the column"

    def __str__(self) -> str:
        return place_of(self.place, self.name)

    def at(self, rows: npt.NDArray[np.intp], positions: Sequence[int]) -> str:
        """Return the column and file rows of some cells as text."""
        return f"{self}, {rows_of(rows[list(positions)].tolist())}"

    def quoted(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the first three of some cells."""
        return tuple(str(self.cells[position]) for position in positions[:3])


@dataclass(frozen=True)
class Look:
    """Result of a file's check.

    - `columns`: those of the table, in the file's order.
    - `ids`: unchanged from the file, "" for a missing one.
    - `rows` (n,): row numbers of a spreadsheet.
    - `findings`: faults first.
    """

    columns: tuple[Column, ...]
    ids: tuple[str, ...] | None
    rows: npt.NDArray[np.intp]
    findings: tuple[Finding, ...]


def look_at(file: SiteFile, min_rows: int) -> Look:
    """Read a file and collect its faults and oddities; without a fault `SiteFile.read` succeeds.

    `min_rows`: least number of rows for a site to answer. Raises InputError if the file is missing, empty, or of an
    unsupported format.
    """
    cells = read_cells(file)
    names = [name.strip() for name in cells.names]
    findings = [*cells.findings, *_names(file, cells.names)]
    places = _table(file, names)
    columns = tuple(_column(cells, place, names[place]) for place in places)
    ids = cells.ids
    if file.id is not None and file.id in names:
        ids = tuple(map(_id, cells.columns[names.index(file.id)].tolist()))
        findings += _ids(place_of(names.index(file.id), file.id), ids, cells.rows)
    findings += _labels(file, names, cells)
    for column in columns:
        findings += [*_cells(column, cells.rows), *_numbers(column, cells.rows)]
    findings += [*_same(columns), *_shape(columns, len(cells.rows), min_rows), *_scales(columns)]
    if not any(finding.severity == "fault" for finding in findings):
        try:
            file.read()
        except InputError as error:
            findings.append(Finding("fault", str(error)))
    order = ("fault", "doubt", "note")
    return Look(columns, ids, cells.rows, tuple(sorted(findings, key=lambda finding: order.index(finding.severity))))


def _column(cells: Cells, place: int, name: str) -> Column:
    values = cells.columns[place]
    kind = kind_of(values.tolist(), cells.decimal) if is_text(values) else Kind("number", values.astype(float), {})
    return Column(place, name, values, kind, missing_in(values))


def _id(cell: float | str | None) -> str:
    """Return an id as text; "" for a missing one."""
    if isinstance(cell, float):
        return "" if np.isnan(cell) else f"{cell:.0f}"
    return cell or ""


def _table(file: SiteFile, names: Sequence[str]) -> list[int]:
    """Return the positions of the table's columns."""
    chosen = [name for name in names if name not in file.kept_out] if file.columns is None else list(file.columns)
    return [place for place, name in enumerate(names) if name in chosen and file.offers(name)]


def _names(file: SiteFile, raw: Sequence[str]) -> Iterator[Finding]:
    names = [name.strip() for name in raw]
    if blank := [place_of(place, name) for place, name in enumerate(names) if not name]:
        yield Finding(
            "fault",
            f"{counted(len(blank), 'column')} without a name",
            listing(blank),
            "name or delete them, or --header",
        )
    for name, count in Counter(filter(None, names)).items():
        if count > 1:
            where = listing([place_of(place, other) for place, other in enumerate(names) if other == name])
            yield Finding("fault", f"{count} columns of the same name", where, "give each a name of its own")
    if padded := [place_of(place, name) for place, name in enumerate(raw) if name != name.strip()]:
        yield Finding("note", "blanks around names, which do not count", listing(padded))
    options = [("--columns", name) for name in file.columns or ()] + [("--label", name) for name in file.labels]
    options += [("--id", name) for name in (file.id,) if name is not None] + [("--drop", name) for name in file.drop]
    for option, name in options:
        if name not in names:
            yield Finding("fault", f"{option} names {name!r}, which is no column", mend=f"there are: {listing(names)}")


def _ids(where: str, ids: Sequence[str], rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    def at(positions: Sequence[int]) -> str:
        return f"{where}, {rows_of(rows[list(positions)].tolist())}"

    if blank := [position for position, id_ in enumerate(ids) if not id_.strip()]:
        yield Finding("fault", f"{counted(len(blank), 'row')} without an id", at(blank), "fill or delete these rows")
    if padded := [position for position, id_ in enumerate(ids) if id_ != id_.strip() and id_.strip()]:
        yield Finding("fault", f"{counted(len(padded), 'id')} with blanks around", at(padded), "delete the blanks")
    first: dict[str, list[int]] = defaultdict(list)
    for position, id_ in enumerate(ids):
        if id_.strip():
            first[id_].append(position)
    if twice := [positions for positions in first.values() if len(positions) > 1]:
        positions = [position for group in twice for position in group]
        cells = tuple(ids[group[0]] for group in twice[:3])
        yield Finding(
            "fault", f"{counted(len(twice), 'id')} on several rows", at(positions), "each row an id of its own", cells
        )
    yield from _cut_zeros(ids, at)


def _labels(file: SiteFile, names: list[str], cells: Cells) -> Iterator[Finding]:
    for name in filter(names.__contains__, file.labels):
        column = _column(cells, names.index(name), name)
        if missing := np.flatnonzero(column.missing).tolist():
            what = f"{counted(len(missing), 'row')} of {len(column.cells)} without a label"
            mend = "fill it, or not: what compares with labels leaves these rows out"
            yield Finding("doubt", what, column.at(cells.rows, missing), mend)


def _cut_zeros(ids: Sequence[str], at: Callable[[Sequence[int]], str]) -> Iterator[Finding]:
    """Find numeric ids that a spreadsheet shortened by dropping leading zeros.

    Running numbers are short, too, and excluded: ids must reach far beyond the number of rows, and most must have full
    length. Zeros in front of some ids are proof.
    """
    digits = [position for position, id_ in enumerate(ids) if id_.isdecimal()]
    if not digits or len(digits) < len(list(filter(None, ids))):
        return
    length = max(len(ids[position]) for position in digits)
    short = [position for position in digits if len(ids[position]) < length]
    zeros = any(ids[position].startswith("0") and len(ids[position]) > 1 for position in digits)
    far_apart = max(int(ids[position]) for position in digits) > 10 * len(ids)
    if short and (zeros or (far_apart and 2 * len(short) < len(ids))):
        what = f"{len(short)} of {len(ids)} ids look like numbers with zeros cut: they have less than {length} digits"
        mend = "export them as text, with their zeros"
        yield Finding("fault" if zeros else "doubt", what, at(short), mend, tuple(ids[place] for place in short[:3]))


def _cells(column: Column, rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    """Find missing cells and cells that are no numbers."""
    missing = np.flatnonzero(column.missing).tolist()
    if missing and len(missing) == len(column.cells):
        yield Finding("fault", "no cell has a value", str(column), column.drop)
        return
    if missing:
        what = f"{counted(len(missing), 'missing cell')} of {len(column.cells)}"
        mend = '[prepare] missing = "drop", "mean" or "median"'
        yield Finding("fault", what, column.at(rows, missing), mend)
    kind = column.kind
    if kind.name == "spelt":
        for reason, positions in kind.odd.items():
            what = f"{counted(len(positions), 'cell')} {ODDITIES[reason]} in a column of numbers"
            yield Finding("fault", what, column.at(rows, positions), MENDS[reason], column.quoted(positions))
    elif kind.name == "date":
        mend = f"{column.drop}, or days since a date in its place"
        yield Finding("fault", "dates", str(column), mend, column.quoted(kind.odd["date"]))
    elif kind.name == "text":
        present = [cell for cell in column.cells if cell is not None]
        levels = len(set(present))
        if levels == len(present) > 1 or levels > MOST_LEVELS:
            what, mend = "text", f"{column.drop}, or --id or --label"
        else:
            what, mend = (
                f"text, {counted(levels, 'level')}",
                f"{column.drop}, or --label, or [prepare] categories",
            )
        yield Finding("fault", what, str(column), mend, tuple(map(str, present[:3])))


MENDS = {
    "decimal": "--decimal says which it is",
    "thousands": "without them",
    "ambiguous": "--decimal, if it stands before decimals",
    "both": "without the mark for thousands, and --decimal",
    "limit": "a number in its place, or an empty cell",
    "unit": "the number alone, the unit in the schema",
    "date": "empty these cells",
    "blank": "empty these cells",
    "infinite": "empty these cells",
    "word": "empty these cells, or --drop",
}


def _numbers(column: Column, rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    """Find constant, outlying and infinite numbers, codes for missing cells, and mixed units."""
    if column.kind.name not in ("number", "spelt") or column.numbers.size < 2:
        return
    x, every = column.numbers, column.kind.numbers
    if not np.isfinite(x).all():
        positions = np.flatnonzero(np.isinf(every)).tolist()
        yield Finding("fault", "numbers that are infinite", column.at(rows, positions), MENDS["infinite"])
        return
    if x.min() == x.max():
        yield Finding("doubt", "all its numbers are the same", str(column), column.drop)
        return
    if x.size < ENOUGH:
        return
    if (code := _missing_code(x)) is not None:
        positions = np.flatnonzero(every == code).tolist()
        what = f"{counted(len(positions), 'number')} of nines, far from the others: do they stand for missing cells?"
        yield Finding("doubt", what, column.at(rows, positions), "empty these cells", column.quoted(positions))
        return
    if (unit := _two_units(x)) is not None:
        threshold, factor = unit
        low = np.flatnonzero(every <= threshold).tolist()
        fewer = low if 2 * len(low) <= x.size else np.flatnonzero(every > threshold).tolist()
        what = f"two groups of numbers, whose medians are {factor:.3g} times apart: two units?"
        yield Finding("doubt", what, column.at(rows, fewer), "one unit for all", column.quoted(fewer))
        return
    first, third = np.quantile(x, [0.25, 0.75])
    beyond = np.maximum(first - every, every - third) / (third - first) if third > first else np.zeros(every.shape)
    if outliers := np.flatnonzero(beyond > OUTLYING).tolist():
        worst = max(outliers, key=lambda position: float(beyond[position]))
        what = f"{counted(len(outliers), 'number')} beyond {OUTLYING:g} distances of the quartiles; the farthest, "
        what += f"{beyond[worst]:.3g} of them, in row {rows[worst]}"
        mend = '[prepare] clip, log or scale = "robust"'
        yield Finding("doubt", what, column.at(rows, outliers), mend, column.quoted([worst]))


def _missing_code(x: FloatArray) -> float | None:
    """Return the extreme number if it is a code for missing cells, such as -99 or 999."""
    values = np.unique(x)
    if len(values) < DISTINCT:
        return None
    if values[0] in (-9, -99, -999, -9999, -99999) and values[1] >= 0:
        return float(values[0])
    return float(values[-1]) if values[-1] in (999, 9999, 99999) and 2 * values[-2] < values[-1] else None


def _two_units(x: FloatArray) -> tuple[float, float] | None:
    """Return threshold and ratio of medians if positive numbers fall into two separate groups.

    Each group is narrower than the gap between them, and has at least 3 numbers and one in 20 of all.
    """
    if x.min() <= 0 or len(np.unique(x)) < DISTINCT:
        return None
    logs = np.sort(np.log(x))
    least = max(3, -(-x.size // 20))
    if x.size < 2 * least:
        return None
    gaps = np.diff(logs)[least - 1 : -least + 1 or None]
    place = int(np.argmax(gaps)) + least  # of the first number above
    below, above = logs[:place], logs[place:]
    if gaps.max() <= max(np.log(APART), below[-1] - below[0], above[-1] - above[0]):
        return None
    return float(np.exp(below[-1])) * (1 + 1e-12), float(np.exp(np.median(above) - np.median(below)))


def _same(columns: Sequence[Column]) -> Iterator[Finding]:
    alike: dict[bytes, list[Column]] = defaultdict(list)
    for column in columns:
        key = column.kind.numbers.tobytes() if column.kind.name == "number" else repr(column.cells.tolist()).encode()
        if len(column.cells) > 1 and not column.missing.all():
            alike[key].append(column)
    for group in alike.values():
        if len(group) > 1:
            drop = " ".join(column.drop for column in group[1:])
            yield Finding("doubt", "columns with the same cells", listing([str(column) for column in group]), drop)


def _shape(columns: Sequence[Column], rows: int, min_rows: int) -> Iterator[Finding]:
    if not columns:
        yield Finding("fault", "no columns beside id, label and those dropped")
    if rows == 0:
        yield Finding("fault", "no rows", mend="at least one below the names")
    elif rows < min_rows:
        what = f"{counted(rows, 'row')}, but a site answers from {min_rows} (table.min_rows of its policy)"
        yield Finding("fault", what, mend="more rows, or join --min-rows")
    if 0 < rows < 2 * len(columns):
        what = f"{counted(rows, 'row')} against {counted(len(columns), 'column')}: few for what is estimated of them"
        yield Finding("doubt", what, mend="more rows, or fewer columns: --drop, --columns")


def _scales(columns: Sequence[Column]) -> Iterator[Finding]:
    varying = [column for column in columns if column.kind.name == "number" and column.numbers.size > 1]
    spreads = [(float(column.numbers.std()), str(column)) for column in varying if np.isfinite(column.numbers).all()]
    spreads = [(spread, name) for spread, name in spreads if spread > 0]
    if spreads and (ratio := max(spreads)[0] / min(spreads)[0]) > DIFFERING:
        what = f"the standard deviations of columns differ by a factor of up to {ratio:.2g}"
        mend = '[prepare] scale = "standard", or a kernel sees the widest only'
        yield Finding("note", what, f"{max(spreads)[1]}, {min(spreads)[1]}", mend)

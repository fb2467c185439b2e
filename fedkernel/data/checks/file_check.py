"""Check of a site's data file for all faults and oddities at once, shown to the site alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedkernel.data.checks.findings import Finding, column_place, listing, plural, row_numbers
from fedkernel.data.checks.raw_cells import Cells, read_cells
from fedkernel.data.checks.table_schema import MOST_LEVELS
from fedkernel.data.checks.text_column_kinds import EMPTY, ODDITIES, ColumnKind, column_kind
from fedkernel.data.raw import is_text, missing_cells
from fedkernel.data.site_files import SiteFile
from fedkernel.ground import AnyArray, FloatArray, InputError

OUTLIER_DISTANCE = 3.0  # of outliers from the quartiles in interquartile ranges (Tukey's "far out")
LEAST_NUMBERS, LEAST_DISTINCT = 8, 10  # least counts of numbers, and of different ones, for a judgement
UNIT_RATIO = 3.0  # factor between two groups of a column's numbers
SPREAD_RATIO = 100.0  # ratio of columns' standard deviations above which a note is given


@dataclass(frozen=True, eq=False)
class Column:
    """Column of a checked file: position, name, cells and kind."""

    place: int
    name: str
    cells: AnyArray
    kind: ColumnKind
    missing: npt.NDArray[np.bool_]

    @property
    def numbers(self) -> FloatArray:
        """Cells that are numbers."""
        return self.kind.numbers[~np.isnan(self.kind.numbers)]

    @property
    def drop(self) -> str:
        """Advice to the operator on leaving the column out."""
        return f"--drop {self.name!r}" if self.name else "delete the column"

    def __str__(self) -> str:
        return column_place(self.place, self.name)

    def at(self, rows: npt.NDArray[np.intp], positions: Sequence[int]) -> str:
        """Return the column's name and the file rows of some of its cells as text."""
        return f"{self}, {row_numbers(rows[list(positions)].tolist())}"

    def quoted(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return up to three of the cells at these positions as text, for display at the site."""
        return tuple(str(self.cells[position]) for position in positions[:3])


@dataclass(frozen=True)
class FileCheck:
    """Result of `check_file`: a file's columns, ids and findings, faults first.

    `columns`: those of the table, in the file's order. `ids`: unchanged from the file, "" for a missing one. `rows`
    (n,): row numbers of a spreadsheet.
    """

    columns: tuple[Column, ...]
    ids: tuple[str, ...] | None
    rows: npt.NDArray[np.intp]
    findings: tuple[Finding, ...]


def check_file(file: SiteFile, min_rows: int) -> FileCheck:
    """Check a site's data file for faults and oddities. If none is a fault, `SiteFile.read` succeeds.

    `min_rows`: least rows for a site to answer. Raises InputError if the file cannot be read at all.
    """
    cells = read_cells(file)
    names = [name.strip() for name in cells.names]
    findings = [*cells.findings, *_names(file, cells.names)]
    places = _table(file, names)
    columns = tuple(_column(cells, place, names[place]) for place in places)
    if _has_units(columns):
        findings.append(Finding("fault", "units, or other words, below the names", f"row {cells.rows[0]}", "delete it"))
        cells = replace(cells, columns=tuple(column[1:] for column in cells.columns), rows=cells.rows[1:])
        columns = tuple(_column(cells, place, names[place]) for place in places)
    ids = cells.ids
    if file.id is not None and file.id in names:
        ids = tuple(map(_id, cells.columns[names.index(file.id)].tolist()))
        findings += _ids(column_place(names.index(file.id), file.id), ids, cells.rows)
    findings += _labels(file, names, cells)
    for column in columns:
        findings += [*_cells(column, cells.rows), *_numbers(column, cells.rows)]
    findings += [*_equal_columns(columns), *_table_size(columns, len(cells.rows), min_rows), *_scales(columns)]
    if not any(finding.severity == "fault" for finding in findings):
        try:
            file.read()
        except InputError as error:
            findings.append(Finding("fault", str(error)))
    order = ("fault", "doubt", "note")
    findings.sort(key=lambda finding: order.index(finding.severity))
    return FileCheck(columns, ids, cells.rows, tuple(findings))


def _column(cells: Cells, place: int, name: str) -> Column:
    values = cells.columns[place]
    text, decimal = is_text(values), cells.decimal
    kind = column_kind(values.tolist(), decimal) if text else ColumnKind("number", values.astype(float), {})
    return Column(place, name, values, kind, missing_cells(values))


def _has_units(columns: Sequence[Column]) -> bool:
    """Return whether most columns of numbers, and at least two, have a word in the first row only."""
    spelt = [column for column in columns if column.kind.name in ("number", "spelt")]
    units = [column for column in spelt if list(column.kind.odd.values()) == [[0]]]
    return len(units) > 1 and 2 * len(units) > len(spelt)


def _id(cell: float | str | None) -> str:
    """Return an id as text, or "" for a missing one."""
    if isinstance(cell, float):
        return "" if np.isnan(cell) else f"{cell:.0f}"
    return cell or ""


def _table(file: SiteFile, names: Sequence[str]) -> list[int]:
    chosen = {*names} - {*file.excluded_columns} if file.columns is None else {*file.columns}
    return [place for place, name in enumerate(names) if name in chosen and file.policy_admits(name)]


def _names(file: SiteFile, raw: Sequence[str]) -> Iterator[Finding]:
    names = [name.strip() for name in raw]
    if blank := [column_place(place, name) for place, name in enumerate(names) if not name]:
        problem = f"{plural(len(blank), 'column')} without a name"
        yield Finding("fault", problem, listing(blank), "name or delete them, or --header")
    for name, count in Counter(filter(None, names)).items():
        if count > 1:
            where = listing([column_place(place, other) for place, other in enumerate(names) if other == name])
            yield Finding("fault", f"{count} columns of the same name", where, "give each a unique name")
    if padded := [column_place(place, name) for place, name in enumerate(raw) if name != name.strip()]:
        yield Finding("note", "blanks around names, which are ignored", listing(padded))
    options = [("--columns", name) for name in file.columns or ()] + [("--label", name) for name in file.labels]
    options += [("--id", name) for name in (file.id,) if name is not None] + [("--drop", name) for name in file.drop]
    for option, name in options:
        if name not in names:
            yield Finding("fault", f"{option} names no column: {name!r}", remedy=f"there are: {listing(names)}")


def _ids(where: str, ids: Sequence[str], rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    def at(positions: Sequence[int]) -> str:
        return f"{where}, {row_numbers(rows[list(positions)].tolist())}"

    if blank := [position for position, id_ in enumerate(ids) if not id_.strip()]:
        yield Finding("fault", f"{plural(len(blank), 'row')} without an id", at(blank), "fill or delete these rows")
    if padded := [position for position, id_ in enumerate(ids) if id_ != id_.strip() and id_.strip()]:
        yield Finding("fault", f"{plural(len(padded), 'id')} with blanks around", at(padded), "delete the blanks")
    first: dict[str, list[int]] = defaultdict(list)
    for position, id_ in enumerate(ids):
        if id_.strip():
            first[id_].append(position)
    if twice := [positions for positions in first.values() if len(positions) > 1]:
        positions = [position for group in twice for position in group]
        problem, cells = f"{plural(len(twice), 'id')} on several rows", tuple(ids[group[0]] for group in twice[:3])
        yield Finding("fault", problem, at(positions), "give each row a unique id", cells)
    yield from _cut_zeros(ids, at)


def _labels(file: SiteFile, names: list[str], cells: Cells) -> Iterator[Finding]:
    for name in filter(names.__contains__, file.labels):
        column = _column(cells, names.index(name), name)
        if missing := np.flatnonzero(column.missing).tolist():
            problem = f"{plural(len(missing), 'row')} of {len(column.cells)} without a label"
            remedy = "fill it in, or leave it: comparisons with labels skip these rows"
            yield Finding("doubt", problem, column.at(cells.rows, missing), remedy)


def _cut_zeros(ids: Sequence[str], at: Callable[[Sequence[int]], str]) -> Iterator[Finding]:
    """Find ids that lost leading zeros. If no zero is left, running numbers up to 10 times the rows do not count."""
    digits = [position for position, id_ in enumerate(ids) if id_.isdecimal()]
    if not digits or len(digits) < len(list(filter(None, ids))):
        return
    length = max(len(ids[position]) for position in digits)
    short = [position for position in digits if len(ids[position]) < length]
    zeros = any(ids[position].startswith("0") and len(ids[position]) > 1 for position in digits)
    far_apart = max(int(ids[position]) for position in digits) > 10 * len(ids)
    if short and (zeros or (far_apart and 2 * len(short) < len(ids))):
        problem = f"{len(short)} of {len(ids)} ids have less than {length} digits: were zeros cut?"
        remedy = "export them as text, with their zeros"
        cells = tuple(ids[place] for place in short[:3])
        yield Finding("fault" if zeros else "doubt", problem, at(short), remedy, cells)


def _cells(column: Column, rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    missing = np.flatnonzero(column.missing).tolist()
    if missing and len(missing) == len(column.cells):
        yield Finding("fault", "no cell has a value", str(column), column.drop)
        return
    if missing:
        problem = f"{plural(len(missing), 'missing cell')} of {len(column.cells)}"
        remedy = '[prepare] missing = "drop", "mean" or "median"'
        yield Finding("fault", problem, column.at(rows, missing), remedy)
    kind = column.kind
    if kind.name == "spelt":
        for reason, positions in kind.odd.items():
            oddity, remedy = ODDITIES[reason]
            problem = f"{plural(len(positions), 'cell')} {oddity} in a column of numbers"
            yield Finding("fault", problem, column.at(rows, positions), remedy, column.quoted(positions))
    elif kind.name == "date":
        remedy = f"{column.drop}, or days since a date in its place"
        yield Finding("fault", "dates", str(column), remedy, column.quoted(kind.odd["date"]))
    elif kind.name == "text":
        present = [cell for cell in column.cells if cell is not None]
        levels = len(set(present))
        if levels == len(present) > 1 or levels > MOST_LEVELS:
            problem, remedy = "text", f"{column.drop}, or --id or --label"
        else:
            problem, remedy = f"text, {plural(levels, 'level')}", f"{column.drop}, or --label, or [prepare] categories"
        yield Finding("fault", problem, str(column), remedy, tuple(map(str, present[:3])))


def _numbers(column: Column, rows: npt.NDArray[np.intp]) -> Iterator[Finding]:
    """Find constant, outlying and infinite numbers, codes for missing cells, and mixed units."""
    if column.kind.name not in ("number", "spelt") or column.numbers.size < 2:
        return
    x, every = column.numbers, column.kind.numbers
    if not np.isfinite(x).all():
        positions = np.flatnonzero(np.isinf(every)).tolist()
        yield Finding("fault", "numbers that are infinite", column.at(rows, positions), EMPTY)
        return
    if x.min() == x.max():
        yield Finding("doubt", "all its numbers are the same", str(column), column.drop)
        return
    if x.size < LEAST_NUMBERS:
        return
    if (code := _missing_code(x)) is not None:
        positions = np.flatnonzero(every == code).tolist()
        problem = f"{plural(len(positions), 'number')} of nines, far from the others: do they stand for missing cells?"
        yield Finding("doubt", problem, column.at(rows, positions), EMPTY, column.quoted(positions))
        return
    if (unit := _two_units(x)) is not None:
        threshold, factor = unit
        low = np.flatnonzero(every <= threshold).tolist()
        fewer = low if 2 * len(low) <= x.size else np.flatnonzero(every > threshold).tolist()
        problem = f"two groups of numbers, whose medians are {factor:.3g} times apart: two units?"
        yield Finding("doubt", problem, column.at(rows, fewer), "one unit for all", column.quoted(fewer))
        return
    first, third = np.quantile(x, [0.25, 0.75])
    beyond = np.maximum(first - every, every - third) / (third - first) if third > first else np.zeros(every.shape)
    if outliers := np.flatnonzero(beyond > OUTLIER_DISTANCE).tolist():
        worst = max(outliers, key=lambda position: float(beyond[position]))
        problem = f"{plural(len(outliers), 'number')} beyond {OUTLIER_DISTANCE:g} interquartile ranges; "
        problem += f"the farthest, {beyond[worst]:.3g} of them, in row {rows[worst]}"
        remedy = '[prepare] clip, log or scale = "robust"'
        yield Finding("doubt", problem, column.at(rows, outliers), remedy, column.quoted([worst]))


def _missing_code(x: FloatArray) -> float | None:
    """Return the least or greatest number if it looks like a code for missing cells, such as -99 or 999."""
    values = np.unique(x)
    if len(values) < LEAST_DISTINCT:
        return None
    if values[0] in (-9, -99, -999, -9999, -99999) and values[1] >= 0:
        return float(values[0])
    return float(values[-1]) if values[-1] in (999, 9999, 99999) and 2 * values[-2] < values[-1] else None


def _two_units(x: FloatArray) -> tuple[float, float] | None:
    """Return the threshold between two groups of positive numbers, and the ratio of their medians.

    None unless each is narrower than the gap between them, and has at least 3 numbers and one in 20 of all.
    """
    if x.min() <= 0 or len(np.unique(x)) < LEAST_DISTINCT:
        return None
    logs = np.sort(np.log(x))
    least = max(3, -(-x.size // 20))
    if x.size < 2 * least:
        return None
    gaps = np.diff(logs)[least - 1 : -least + 1 or None]
    place = int(np.argmax(gaps)) + least  # of the first number above
    below, above = logs[:place], logs[place:]
    if gaps.max() <= max(np.log(UNIT_RATIO), below[-1] - below[0], above[-1] - above[0]):
        return None
    return float(np.exp(below[-1])) * (1 + 1e-12), float(np.exp(np.median(above) - np.median(below)))


def _equal_columns(columns: Sequence[Column]) -> Iterator[Finding]:
    alike: dict[bytes, list[Column]] = defaultdict(list)
    for column in columns:
        key = column.kind.numbers.tobytes() if column.kind.name == "number" else repr(column.cells.tolist()).encode()
        if len(column.cells) > 1 and not column.missing.all():
            alike[key].append(column)
    for group in alike.values():
        if len(group) > 1:
            drop = " ".join(column.drop for column in group[1:])
            yield Finding("doubt", "columns with the same cells", listing([str(column) for column in group]), drop)


def _table_size(columns: Sequence[Column], rows: int, min_rows: int) -> Iterator[Finding]:
    if not columns:
        yield Finding("fault", "no columns besides id, label and dropped ones")
    if rows == 0:
        yield Finding("fault", "no rows", remedy="at least one below the names")
    elif rows < min_rows:
        problem = f"{plural(rows, 'row')}, but a site answers from {min_rows} (table.min_rows of its policy)"
        yield Finding("fault", problem, remedy="more rows, or join --min-rows")
    if 0 < rows < 2 * len(columns):
        problem = f"{plural(rows, 'row')} against {plural(len(columns), 'column')}: too few for reliable estimates"
        yield Finding("doubt", problem, remedy="more rows, or fewer columns: --drop, --columns")


def _scales(columns: Sequence[Column]) -> Iterator[Finding]:
    varying = [column for column in columns if column.kind.name == "number" and column.numbers.size > 1]
    spreads = [(float(column.numbers.std()), str(column)) for column in varying if np.isfinite(column.numbers).all()]
    spreads = [(spread, name) for spread, name in spreads if spread > 0]
    if spreads and (ratio := max(spreads)[0] / min(spreads)[0]) > SPREAD_RATIO:
        problem = f"the standard deviations of columns differ by a factor of up to {ratio:.2g}"
        remedy = '[prepare] scale = "standard", or a kernel sees the widest only'
        yield Finding("note", problem, f"{max(spreads)[1]}, {min(spreads)[1]}", remedy)

"""Comparison of a site's file or schema with the agreed schema, and with the preparation that a study states."""

from collections.abc import Iterator

import numpy as np

from fedkernel.data.checks.file_check import LEAST_NUMBERS, Column, FileCheck
from fedkernel.data.checks.findings import Finding, column_place, listing, plural, row_numbers
from fedkernel.data.checks.table_schema import Column as Wanted
from fedkernel.data.checks.table_schema import Schema, without_unit
from fedkernel.data.preparation import Prepare

MEASURED_REMEDY = "nothing, or delete `measured` in the schema to make it a limit"

USUAL_DISTANCE, USUAL_SPREADS = 5.0, (0.1, 10.0)  # of a column's median and standard deviation, in a study's units


def compare(check: FileCheck, schema: Schema) -> Iterator[Finding]:
    """Yield the differences of a checked file from the agreed schema, as findings."""
    columns = {column.name: column for column in check.columns}
    yield from _names({name: column.place for name, column in columns.items()}, schema)
    yield from _ids(check, schema)
    for name, agreed in schema.columns.items():
        if name in columns:
            yield from _cells(columns[name], agreed, check)


def compare_schemas(own: Schema, schema: Schema) -> Iterator[Finding]:
    """Yield the differences of a site's schema from the agreed one, as findings."""
    yield from _names({name: place for place, name in enumerate(own.columns)}, schema)
    if schema.ids and not own.ids:
        yield Finding("fault", "rows have no ids, but the schema requires them", remedy="--id")
    for name, agreed in schema.columns.items():
        if (column := own.columns.get(name)) is None:
            continue
        if column.type != agreed.type:
            yield Finding("fault", f"{column.type}, but the schema has {agreed.type}", repr(name))
        if None not in (column.unit, agreed.unit) and column.unit != agreed.unit:
            yield _unit(repr(name), str(column.unit), str(agreed.unit))
        if _beyond(column, agreed.limits):
            yield Finding("fault", "its range exceeds the schema's", repr(name), "a different unit? a wrong number?")
        elif _beyond(column, agreed.range):
            yield Finding("note", "its range is slightly beyond the measured one", repr(name), MEASURED_REMEDY)
        if column.levels and agreed.levels and (others := set(column.levels) - set(agreed.levels)):
            yield Finding("fault", f"{plural(len(others), 'level')} that the schema does not list", repr(name))


def compare_with_prepare(check: FileCheck, prepare: Prepare) -> Iterator[Finding]:
    """Yield a finding for each column that seems to be in another unit than the study's `scale`."""
    columns = {column.name: column for column in check.columns}
    for name, (center, unit) in prepare.by_column.get("scale", {}).items():
        x = columns[name].numbers if name in columns else np.empty(0)
        x = np.log(x[x > 0]) if name in prepare.log else x
        if len(x) < LEAST_NUMBERS or not np.isfinite(x).all():
            continue
        distance, spread = abs(float(np.median(x)) - center) / unit, float(x.std()) / unit
        if distance > USUAL_DISTANCE or not USUAL_SPREADS[0] <= spread <= USUAL_SPREADS[1]:
            problem = f"in the study's scale its median is {distance:.2g} from the centre, and its spread {spread:.2g}"
            yield Finding("doubt", problem, str(columns[name]), "a different unit than the study's?")


def _beyond(column: Wanted, ends: tuple[float, float]) -> bool:
    """Return whether a column's range in a site's schema exceeds the given limits."""
    least, most = ends
    return (column.least is not None and column.least < least) or (column.most is not None and column.most > most)


def _names(places: dict[str, int], schema: Schema) -> Iterator[Finding]:
    missing = [name for name in schema.columns if name not in places]
    extra = [name for name in places if name not in schema.columns]
    for name in list(extra):
        base, unit = without_unit(name)
        agreed = schema.columns.get(base)
        if base in missing and unit is not None and agreed is not None:
            missing.remove(base)
            extra.remove(name)
            where = column_place(places[name], name)
            if agreed.unit not in (None, unit):
                yield _unit(where, unit, str(agreed.unit))
            yield Finding("fault", f"the schema calls it {base!r}", where, "rename it")
    if missing:
        problem = f"{plural(len(missing), 'column')} of the schema {'is' if len(missing) == 1 else 'are'} missing"
        yield Finding("fault", problem, listing([repr(name) for name in missing]), "add or rename")
    if extra:
        problem = f"{plural(len(extra), 'column')} that the schema does not have"
        drop = " ".join(f"--drop {name!r}" for name in extra)
        yield Finding("fault", problem, listing([column_place(places[name], name) for name in extra]), drop)
    common = [name for name in schema.columns if name in places]
    if common != [name for name in places if name in schema.columns]:
        problem = "the columns are in a different order than in the schema"
        yield Finding("note", problem, remedy="join --against reorders them, [prepare] finds them by name")


def _ids(check: FileCheck, schema: Schema) -> Iterator[Finding]:
    if schema.ids and check.ids is None:
        yield Finding("fault", "rows have no ids, but the schema requires them", remedy="--id")
    if check.ids is None or schema.id_length is None:
        return
    wrong = [position for position, id_ in enumerate(check.ids) if id_.strip() and len(id_.strip()) != schema.id_length]
    if wrong:
        cut = all(len(check.ids[position]) < schema.id_length and check.ids[position].isdecimal() for position in wrong)
        problem = f"{len(wrong)} of {len(check.ids)} ids do not have {schema.id_length} characters"
        remedy = "zeros were cut: export them as text" if cut else "the same ids as at the other sites"
        cells = tuple(check.ids[position] for position in wrong[:3])
        yield Finding("fault", problem, row_numbers(check.rows[wrong].tolist()), remedy, cells)


def _cells(column: Column, agreed: Wanted, check: FileCheck) -> Iterator[Finding]:
    if column.missing.all():
        return
    kind = "number" if column.kind.name == "spelt" else column.kind.name  # misspelt numbers are a fault of their own
    if kind != agreed.type:
        remedy = f"export it as {agreed.type}"
        if agreed.levels is None or kind != "number":
            yield Finding("fault", f"{kind}, but the schema has {agreed.type}", str(column), remedy)
            return
    if agreed.type == "number":
        yield from _numbers(column, agreed, check)
    elif agreed.levels is not None:
        texts = [None if cell is None else f"{cell:g}" if isinstance(cell, float) else cell for cell in column.cells]
        other = [place for place, text in enumerate(texts) if not column.missing[place] and text not in agreed.levels]
        if other:
            problem = f"{plural(len(other), 'cell')} with a level that the schema does not list"
            remedy = "correct them, or the schema"
            yield Finding("fault", problem, column.at(check.rows, other), remedy, column.quoted(other))


def _numbers(column: Column, agreed: Wanted, check: FileCheck) -> Iterator[Finding]:
    numbers, (least, most) = column.kind.numbers, agreed.limits
    if outside := np.flatnonzero((numbers < least) | (numbers > most)).tolist():
        problem = f"{len(outside)} of {plural(column.numbers.size, 'number')} outside what the schema allows"
        unit = "" if agreed.unit is None else f" (it has {agreed.unit})"
        middle = float(np.median(column.numbers))
        remedy = f"a different unit{unit}?" if not least <= middle <= most else "wrong numbers? [prepare] clip"
        yield Finding("fault", problem, column.at(check.rows, outside), remedy, column.quoted(outside))
    elif outside := np.flatnonzero((numbers < agreed.range[0]) | (numbers > agreed.range[1])).tolist():
        problem = f"{len(outside)} of {plural(column.numbers.size, 'number')} slightly outside the measured range"
        yield Finding("note", problem, column.at(check.rows, outside), MEASURED_REMEDY)
    if agreed.whole and (broken := np.flatnonzero((numbers != np.round(numbers)) & ~np.isnan(numbers)).tolist()):
        problem = f"{plural(len(broken), 'number')} with a fraction, but the schema has whole numbers"
        yield Finding("fault", problem, column.at(check.rows, broken), "a different unit?", column.quoted(broken))


def _unit(where: str, own: str, agreed: str) -> Finding:
    return Finding("fault", f"its unit is {own}, in the schema {agreed}", where, f"convert it to {agreed}")

"""Comparison of a site's file or schema with the agreed schema."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedkernel.data.checks.file_check import Column, Look
from fedkernel.data.checks.findings import Finding, counted, listing, place_of, rows_of
from fedkernel.data.checks.table_schema import Column as Wanted
from fedkernel.data.checks.table_schema import Schema, without_unit

TYPES = {"number": "number", "spelt": "number", "date": "date", "text": "text"}
"""Schema type by kind of column; misspelt numbers are a fault of their own."""


MEASURED = "nothing, or delete `measured` in the schema, which makes a limit of it"


def compare(look: Look, schema: Schema) -> Iterator[Finding]:
    """Yield the differences of a file from a schema."""
    columns = {column.name: column for column in look.columns}
    places = {name: column.place for name, column in columns.items()}
    yield from _names(list(columns), places, schema)
    yield from _ids(look, schema)
    for name, agreed in schema.columns.items():
        if name in columns:
            yield from _cells(columns[name], agreed, look)


def compare_schemas(own: Schema, schema: Schema) -> Iterator[Finding]:
    """Yield the differences of a site's schema from the agreed one."""
    names = list(own.columns)
    places = {name: place for place, name in enumerate(names)}
    yield from _names(names, places, schema)
    if schema.ids and not own.ids:
        yield Finding("fault", "rows have no ids, which the schema wants", mend="--id")
    for name, agreed in schema.columns.items():
        if (column := own.columns.get(name)) is None:
            continue
        if column.type != agreed.type:
            yield Finding("fault", f"{column.type}, where the schema has {agreed.type}", repr(name))
        if None not in (column.unit, agreed.unit) and column.unit != agreed.unit:
            yield _unit(repr(name), str(column.unit), str(agreed.unit))
        if _beyond(column, agreed.limits):
            yield Finding("fault", "its range goes beyond the schema's", repr(name), "another unit? a wrong number?")
        elif _beyond(column, agreed.range):
            yield Finding("note", "its range goes a little beyond the one that was measured", repr(name), MEASURED)
        if column.levels and agreed.levels and (others := set(column.levels) - set(agreed.levels)):
            yield Finding("fault", f"{counted(len(others), 'level')} that the schema does not list", repr(name))


def _beyond(column: Wanted, ends: tuple[float, float]) -> bool:
    """Return whether a column's own range exceeds these limits."""
    least, most = ends
    return (column.least is not None and column.least < least) or (column.most is not None and column.most > most)


def _names(names: Sequence[str], places: dict[str, int], schema: Schema) -> Iterator[Finding]:
    missing = [name for name in schema.columns if name not in names]
    extra = [name for name in names if name not in schema.columns]
    for name in list(extra):
        base, unit = without_unit(name)
        agreed = schema.columns.get(base)
        if base in missing and unit is not None and agreed is not None:
            missing.remove(base)
            extra.remove(name)
            where = place_of(places[name], name)
            if agreed.unit not in (None, unit):
                yield _unit(where, unit, str(agreed.unit))
            yield Finding("fault", f"the schema calls it {base!r}", where, "rename it")
    if missing:
        what = f"{counted(len(missing), 'column')} of the schema {'is' if len(missing) == 1 else 'are'} missing"
        yield Finding("fault", what, listing([repr(name) for name in missing]), "add or rename")
    if extra:
        what = f"{counted(len(extra), 'column')} that the schema does not have"
        drop = " ".join(f"--drop {name!r}" for name in extra)
        yield Finding("fault", what, listing([place_of(places[name], name) for name in extra]), drop)
    common = [name for name in schema.columns if name in names]
    if common != [name for name in names if name in schema.columns]:
        what = "the columns stand in another order than in the schema"
        yield Finding("note", what, mend="join --against puts them right, [prepare] finds them by name")


def _ids(look: Look, schema: Schema) -> Iterator[Finding]:
    if schema.ids and look.ids is None:
        yield Finding("fault", "rows have no ids, which the schema wants", mend="--id")
    if look.ids is None or schema.id_length is None:
        return
    wrong = [position for position, id_ in enumerate(look.ids) if id_.strip() and len(id_.strip()) != schema.id_length]
    if wrong:
        cut = all(len(look.ids[position]) < schema.id_length and look.ids[position].isdecimal() for position in wrong)
        what = f"{len(wrong)} of {len(look.ids)} ids have not {schema.id_length} characters"
        mend = "zeros were cut: export them as text" if cut else "the same ids as at the other sites"
        cells = tuple(look.ids[position] for position in wrong[:3])
        yield Finding("fault", what, rows_of(look.rows[wrong].tolist()), mend, cells)


def _cells(column: Column, agreed: Wanted, look: Look) -> Iterator[Finding]:
    if column.missing.all():
        return
    if (kind := TYPES[column.kind.name]) != agreed.type:
        mend = f"export it as {agreed.type}"
        if agreed.levels is None or kind != "number":
            yield Finding("fault", f"{kind}, where the schema has {agreed.type}", str(column), mend)
            return
    if agreed.type == "number":
        yield from _numbers(column, agreed, look)
    elif agreed.levels is not None:
        texts = [None if cell is None else f"{cell:g}" if isinstance(cell, float) else cell for cell in column.cells]
        other = [place for place, text in enumerate(texts) if not column.missing[place] and text not in agreed.levels]
        if other:
            what = f"{counted(len(other), 'cell')} with a level that the schema does not list"
            yield Finding("fault", what, column.at(look.rows, other), "mend them, or the schema", column.quoted(other))


def _numbers(column: Column, agreed: Wanted, look: Look) -> Iterator[Finding]:
    numbers, (least, most) = column.kind.numbers, agreed.limits
    if outside := np.flatnonzero((numbers < least) | (numbers > most)).tolist():
        what = f"{len(outside)} of {counted(column.numbers.size, 'number')} outside what the schema allows"
        unit = "" if agreed.unit is None else f" (it has {agreed.unit})"
        middle = float(np.median(column.numbers))
        mend = f"another unit{unit}?" if not least <= middle <= most else "wrong numbers? [prepare] clip"
        yield Finding("fault", what, column.at(look.rows, outside), mend, column.quoted(outside))
    elif outside := np.flatnonzero((numbers < agreed.range[0]) | (numbers > agreed.range[1])).tolist():
        what = (
            f"{len(outside)} of {counted(column.numbers.size, 'number')} a little outside the range that was measured"
        )
        yield Finding("note", what, column.at(look.rows, outside), MEASURED)
    if agreed.whole and (broken := np.flatnonzero((numbers != np.round(numbers)) & ~np.isnan(numbers)).tolist()):
        what = f"{counted(len(broken), 'number')} with a fraction, where the schema has whole ones"
        yield Finding("fault", what, column.at(look.rows, broken), "another unit?", column.quoted(broken))


def _unit(where: str, own: str, agreed: str) -> Finding:
    return Finding("fault", f"its unit is {own}, in the schema {agreed}", where, f"convert it to {agreed}")

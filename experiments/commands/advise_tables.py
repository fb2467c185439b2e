"""Sizes and columns of the sites' tables, for `fedkernel advise`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedkernel.data import MOST_LEVELS, SiteFile, is_text, missing_cells, read_raw
from fedkernel.data.checks import check_file, plural
from fedkernel.data.checks.file_check import Column
from fedkernel.experiments.commands.forecast_table import read_shape
from fedkernel.ground import Division, InputError, listed

NO_VALUES = "without a value"
LEAST_ROWS_FOR_IDS = 8  # for distinct whole numbers to count as ids


class SiteTable(NamedTuple):
    """Size of a site's table and, from a file, properties of its columns and rows.

    - `empty`: whether any cell is empty.
    - `levels`: the texts of columns that can be categories.
    - `unusable`: columns that no method can use, with the reason.
    - `like_ids`: columns of whole numbers that differ from row to row.
    - `faults`: further faults of ``fedkernel check`` that neither leaving these out nor ``[prepare]`` mends.
    """

    rows: int
    columns: int
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] | None = None
    empty: bool = False
    levels: Mapping[str, set[str]] = MappingProxyType({})
    unusable: Mapping[str, str] = MappingProxyType({})
    like_ids: tuple[str, ...] = ()
    faults: int = 0


def is_shape(table: str) -> bool:
    """Return whether a command-line argument is a table's shape, not a file."""
    rows, _, columns = table.partition("x")
    return rows.isdecimal() and columns.isdecimal() and not Path(table).exists()


def read_site_table(table: str, id_: str | None = None, without: Sequence[str | None] = (), **form: Any) -> SiteTable:
    """Read the shape of a site's table and, from a file, the properties of all columns but those in `without`."""
    if is_shape(table):
        return SiteTable(*read_shape(table))
    file = SiteFile(table, id=id_, **form)
    if Path(table).suffix.lower() in (".npy", ".npz"):
        data = file.read()
        return SiteTable(*data.X.shape, data.columns, data.ids)
    raw = read_raw(file)
    names = tuple(name for name in raw.names if name not in without)
    empty = any(missing_cells(raw.columns[name]).any() for name in names)
    look, levels, unusable = check_file(file, 1), dict[str, set[str]](), dict[str, str]()
    settled = {str(column) for column in look.columns if column.name not in names}
    for column in (column for column in look.columns if column.name in names):
        present = [cell for cell in raw.columns[column.name] if cell is not None]
        if column.missing.all():
            unusable[column.name] = NO_VALUES
        elif column.kind.name == "date":
            unusable[column.name] = "dates"
        elif column.kind.name == "text" and is_text(raw.columns[column.name]):
            if len(set(present)) == len(present) > 1:
                unusable[column.name] = "text that differs from row to row, as ids do (--id, if they are such)"
            elif len(set(present)) > MOST_LEVELS:
                unusable[column.name] = f"text of more than {MOST_LEVELS} levels"
            else:
                levels[column.name] = set(present)
        else:
            continue
        settled.add(str(column))
    others = (finding for finding in look.findings if finding.severity == "fault" and "[prepare]" not in finding.remedy)
    faults = sum(not any(finding.where.startswith(where) for where in settled) for finding in others)
    like_ids = tuple(column.name for column in look.columns if column.name in names and _is_like_ids(column))
    return SiteTable(raw.rows, len(names), names, raw.ids, empty, levels, unusable, like_ids, faults)


def _is_like_ids(column: Column) -> bool:
    x = column.numbers
    whole = column.kind.name == "number" and x.size == len(column.cells) and bool((x == np.round(x)).all())
    return whole and x.size >= LEAST_ROWS_FOR_IDS and len(np.unique(x)) == x.size


def unusable_columns(parts: Sequence[SiteTable], divided: Division) -> dict[str, str]:
    """Return the columns that no method can use, with reasons.

    A column that is empty at some sites is filled by the others; text of a single level is left out.
    """
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(name for part in parts for name in (*part.unusable, *part.levels)):
        having = [part for part in parts if name in part.names]
        unusable = [part.unusable[name] for part in having if name in part.unusable]
        if worse := [reason for reason in unusable if reason != NO_VALUES]:
            reasons[name] = worse[0]
        elif len(unusable) == len(having):
            reasons[name] = NO_VALUES
        elif len(set.union(*(part.levels.get(name, set()) for part in having))) == 1:
            reasons[name] = "text that is the same in all rows"
    if divided == "vertical":
        return reasons
    return {name: why for name, why in reasons.items() if all(name in part.names for part in parts)}


def categories_of(parts: Sequence[SiteTable], without: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the levels, over all sites, of each text column that is not left out."""
    names = dict.fromkeys(name for part in parts for name in part.levels if name not in without)
    return {name: tuple(sorted(set.union(*(part.levels.get(name, set()) for part in parts)))) for name in names}


def as_prepared(
    parts: Sequence[SiteTable], without: Sequence[str], categories: dict[str, tuple[str, ...]]
) -> list[SiteTable]:
    """Return the tables as prepared: some columns are left out, and each level of a category is a column."""
    prepared = []
    for part in parts:
        names = tuple(name for name in part.names if name not in without)
        levels = sum(len(categories[name]) - 1 for name in names if name in categories)
        prepared.append(part._replace(names=names, columns=part.columns - len(part.names) + len(names) + levels))
    return prepared


def column_remarks(
    tables: Sequence[str], parts: Sequence[SiteTable], reasons: dict[str, str], categories: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yield sentences about columns that are not numeric, and about files with other faults."""
    for name, why in reasons.items():
        yield f"column {name!r} is left out, being {why}: --drop {name!r}"
    for name, levels in categories.items():
        becomes = "each of which becomes a column ([prepare] categories); --label, if it is to be compared with"
        yield f"column {name!r} is text of {len(levels)} levels, {becomes}"
        spellings = Counter(level.strip().casefold() for level in levels)
        if alike := [level for level in levels if spellings[level.strip().casefold()] > 1]:
            spelt = listed([repr(level) for level in alike])
            yield f"column {name!r} has levels that differ in case alone, {spelt}: one spelling in all files?"
    for name in dict.fromkeys(name for part in parts for name in part.like_ids):
        if all(name in part.like_ids for part in parts if name in part.names):
            hint = f"--id {name!r} or --drop {name!r}, if they name rows and measure nothing"
            yield f"column {name!r} holds whole numbers that differ from row to row: {hint}"
    for table, part in zip(tables, parts, strict=False):
        if part.faults:
            faults = plural(part.faults, "fault")
            yield f"{table} has {faults} to be mended before it can be used: fedkernel check {table}"


def with_common_rows(parts: Sequence[SiteTable]) -> list[SiteTable]:
    """Return the tables with the number of rows that all have by id. If a table has no ids, nothing changes."""
    id_sets = [set(part.ids) for part in parts if part.ids is not None]
    if len(id_sets) < len(parts):
        return list(parts)
    if not (common := set.intersection(*id_sets)):
        raise InputError("no row is common to all files; allowed: at least one id that all have")
    return [part._replace(rows=len(common)) for part in parts]

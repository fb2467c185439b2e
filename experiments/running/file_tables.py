"""Tables of the clients from files of ``[data]``: read as sites read them, names checked, rows aligned by ids."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data import (
    Prepare,
    RawTable,
    SiteFile,
    Version,
    as_classes,
    has_label,
    is_text,
    label_texts,
    missing_cells,
    read_raw,
    version_of,
)
from fedkernel.experiments.config import Shards
from fedkernel.ground import AnyArray, Division, InputError, Positions, Rows, and_more, listed
from fedkernel.run import common_rows
from fedkernel.site import find_rows
from fedkernel.wire import hash_ids

COLUMN_OPTIONS = ("columns", "label", "drop")  # with columns divided, each file needs only some of the named ones


def files_of(data: Shards, divided: Division) -> list[SiteFile]:
    """Return the files with their own options. If rows are divided, all take the first file's column order.

    Raises InputError if, with rows divided, the files' column names differ, or if, with columns divided, an option
    names a column that no file has.
    """
    check_files(data)
    return list(_files_of(tuple(data.files), divided, tuple(map(version_of, data.shards))))


def check_files(data: Shards) -> None:
    """Raise InputError if one of the files does not exist."""
    if missing := [path for path in data.shards if not Path(path).is_file()]:
        allowed = "files that exist, relative ones in the folder of the configuration"
        raise InputError(f"data.shards: there is no file {missing[0]}{and_more(len(missing) - 1)}; allowed: {allowed}")


def raw_tables(
    data: Shards, divided: Division, run: str = "", seed: int = 0, prepare: Prepare | None = None
) -> list[RawTable]:
    """Return the files' contents with rows aligned, not prepared yet, but without the rows that `Prepare` drops.

    With columns divided, rows with ids are those of a run between sites, in the order that its id and the seed decide.
    """
    raws = [_raw(file) for file in files_of(data, divided)]
    if prepare is not None:
        usable = [prepare.usable_rows(raw) for raw in raws]
        raws = [raw if rows.all() else raw.take(rows) for raw, rows in zip(raws, usable, strict=True)]
    places = _positions(data, divided, run, seed, [raw.ids for raw in raws])
    return [raw if positions is None else raw.take(positions) for raw, positions in zip(raws, places, strict=True)]


def tables_of(data: Shards, divided: Division, run: str = "", seed: int = 0) -> list[Rows]:
    """Return the clients' numeric tables, aligned as by `raw_tables`. An InputError names an empty or text cell."""
    places = _positions(data, divided, run, seed, _ids(data, divided))
    tables = [(_numbers(file), rows) for file, rows in zip(files_of(data, divided), places, strict=True)]
    return [X if rows is None else X[rows] for X, rows in tables]


def labels_of(
    data: Shards, divided: Division, run: str = "", seed: int = 0, prepare: Prepare | None = None
) -> list[AnyArray] | None:
    """Return the labels of each client's rows or, if columns are divided, of all rows. None without labels.

    With several label columns, the first counts. The class of a row without a label is None; of files without any label
    there are none. Raises InputError if, with rows divided, only some have a label column.
    """
    tables = raw_tables(data, divided, run, seed, prepare) if getattr(data, "label", None) else []
    labelled_tables = [raw for raw in tables if raw.labels]
    if not labelled_tables:
        return None
    if divided == "horizontal" and (without := [raw.title for raw in tables if not raw.labels]):
        raise InputError(f"data: {without[0]} has no labels, but others have; allowed: labels in all files or none")
    counted = labelled_tables[:1] if divided == "vertical" else labelled_tables
    columns = [texts for texts in map(label_texts, counted) if texts is not None]
    if not has_label(texts := np.concatenate(columns)).any():
        return None
    classes = as_classes(texts)
    return np.split(classes, np.cumsum([len(column) for column in columns])[:-1])


def are_aligned(data: Shards, divided: Division) -> bool:
    """Return whether rows are aligned by ids, so that each run has them in its own order."""
    return divided == "vertical" and any(ids is not None for ids in _ids(data, divided))


# --- cached reading of the files


@lru_cache(maxsize=4)
def _files_of(files: tuple[SiteFile, ...], divided: Division, versions: tuple[Version, ...]) -> tuple[SiteFile, ...]:
    files = tuple(replace(file, id=None) if _is_arrays(file) else file for file in files)  # arrays bring their ids
    headers = [_header(file) for file in files]
    files = tuple(_with_own_columns(files, headers, COLUMN_OPTIONS if divided == "vertical" else ("drop",)))
    if divided == "vertical":
        return files
    pairs = zip(files, headers, strict=True)
    first, *others = [tuple(file.choose(Path(file.path), header)) if header else () for file, header in pairs]
    for file, names in zip(files[1:], others, strict=True):
        if sorted(names) == sorted(first):
            continue
        who, other = Path(file.path).name, Path(files[0].path).name
        if not (names and first):
            bare, named = (who, other) if first else (other, who)
            raise InputError(
                f"data: {bare} has no names of columns, but {named} has; allowed: names in all files or none"
            )
        allowed = "the same columns in all files (columns chooses some, drop leaves some out)"
        if lacking := [name for name in first if name not in names]:
            columns = f"has no column {lacking[0]!r}{and_more(len(lacking) - 1)}, which {other} has"
        else:
            surplus = [name for name in names if name not in first]
            columns = f"has a column {surplus[0]!r}{and_more(len(surplus) - 1)}, which {other} lacks"
        raise InputError(f"data: {who} {columns}; allowed: {allowed}")
    pairs = zip(files[1:], others, strict=True)
    return (files[0], *(file if names == first else replace(file, columns=first) for file, names in pairs))


def _with_own_columns(
    files: Sequence[SiteFile], headers: Sequence[Sequence[str]], options: Sequence[str]
) -> list[SiteFile]:
    """Return the files, each with its own columns only in these options. A file without a header keeps all."""
    everywhere = dict.fromkeys(name for header in headers for name in header)
    own: list[SiteFile] = []
    for file, header in zip(files, headers, strict=True):
        changes: dict[str, Any] = {}
        for field in (field for field in fields(SiteFile) if field.name in options):
            option, value = field.name, getattr(file, field.name)
            names = () if value is None else (value,) if isinstance(value, str) else tuple(value)
            if lacking := [name for name in names if header and name not in everywhere]:
                raise InputError(
                    f"data.{option} names {lacking[0]!r}, which no file has; the files have {listed([*everywhere])}"
                )
            mine = tuple(name for name in names if name in header)
            if header and len(mine) < len(names):
                changes[option] = mine or field.default
        if "columns" in changes and changes["columns"] is None:
            raise InputError(f"data.columns names no column of {Path(file.path).name}; allowed: some of each file")
        own.append(replace(file, **changes))
    return own


def _is_arrays(file: SiteFile) -> bool:
    return Path(file.path).suffix.lower() in (".npy", ".npz")


def _header(file: SiteFile) -> tuple[str, ...]:
    """Return the names of all columns of a file, or nothing if it has no names."""
    bare = replace(file, id=None, columns=None, label=None, drop=())
    return bare.read().columns if _is_arrays(file) else _raw(bare).names


def _raw(file: SiteFile) -> RawTable:
    return _read(file, version_of(file.path))


@lru_cache(maxsize=64)
def _read(file: SiteFile, version: Version) -> RawTable:
    return read_raw(file)


def _numbers(file: SiteFile) -> Rows:
    if _is_arrays(file):
        table = file.read().X
        return table.block(0, len(table)) if table.sparse else np.asarray(table)
    raw, name_of = _raw(file), Path(file.path).name
    for name, column in raw.columns.items():
        if (empty := missing_cells(column)).any():
            raise InputError(
                f"data: {name_of}: {raw.row(int(np.argmax(empty)))}, column {name!r} holds no value"
                f"{and_more(int(empty.sum()) - 1)}; allowed: finite numbers, or a table [prepare] that says what empty "
                "cells mean"
            )
        if is_text(column):
            raise InputError(
                f"data: {name_of}: column {name!r} holds text; allowed: numbers, its levels in "
                "[prepare] categories, or to keep it out (data.columns, data.label, data.id)"
            )
    return np.column_stack([*raw.columns.values()])


def _ids(data: Shards, divided: Division) -> list[tuple[str, ...] | None]:
    return [file.read().ids if _is_arrays(file) else _raw(file).ids for file in files_of(data, divided)]


def _positions(
    data: Shards, divided: Division, run: str, seed: int, ids: Sequence[tuple[str, ...] | None]
) -> list[Positions | None]:
    """Return each file's row positions in a run. They are agreed as by sites, with ids hashed without a key."""
    if divided == "horizontal" or not any(own is not None for own in ids):
        return [None] * len(ids)
    hashed = {}
    for path, own in zip(data.shards, ids, strict=True):
        if own is None:
            raise InputError(f"data: {Path(path).name} has no ids, but others have; allowed: ids in all files or none")
        hashed[path] = hash_ids(own, b"", run, seed)
    try:
        common = common_rows(hashed, data.missing, run)
    except InputError as error:
        raise InputError(f"data: {error}") from None
    return [find_rows(own, common) for own in hashed.values()]

"""Cached raw tables of real and simulated sites, since every message builds the site anew."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedkernel.data import Partition, Prepare, RawTable, SiteFile, Version, open_tables, read_raw, version_of
from fedkernel.ground import InputError
from fedkernel.preparing import TableToPrepare


class OwnRaw(NamedTuple):
    """Raw table from a site's own file, with its column names and row ids."""

    X: TableToPrepare
    columns: tuple[str, ...]
    ids: tuple[str, ...] | None


def own_raw_table(file: SiteFile, version: Version, prepare: Prepare) -> OwnRaw:
    """Read a site's own file as a raw table; cached until the file changes."""
    X = _own_raw_table(file, version, prepare)
    return OwnRaw(X, X.raw.names, X.raw.ids)


def raw_shard(file: str | SiteFile, prepare: Prepare) -> TableToPrepare:
    """Read a simulated site's file as a raw table, cached; NaN marks an array's missing cells."""
    path = file if isinstance(file, str) else str(file.path)
    return _raw_shard(file, version_of(path), prepare)


def raw_parts(partition: Partition, columns: Sequence[str], prepare: Prepare) -> list[TableToPrepare]:
    """Convert the parts of a data set to raw tables with the data set's column names."""
    tables = []
    for number, (X, index) in enumerate(zip(partition.shards, partition.indices, strict=True)):
        names = [columns[place] for place in index] if partition.kind == "vertical" else columns
        if not isinstance(X, np.ndarray):
            raise InputError(f"the data of client {number} is sparse; allowed where it is prepared: dense tables")
        tables.append(TableToPrepare(RawTable.of_array(X, names, f"the data of client {number}"), prepare))
    return tables


@lru_cache(maxsize=4)
def _own_raw_table(file: SiteFile, version: Version, prepare: Prepare) -> TableToPrepare:
    return TableToPrepare(read_raw(file), prepare)


@lru_cache(maxsize=32)
def _raw_shard(file: str | SiteFile, version: Version, prepare: Prepare) -> TableToPrepare:
    if isinstance(file, SiteFile):
        return TableToPrepare(read_raw(file), prepare)
    if Path(file).suffix.lower() == ".parquet":
        # written from a frame, with rows counted from 0
        return TableToPrepare(replace(read_raw(SiteFile(file)), places=None), prepare)
    opened = open_tables(file)
    if opened.X.sparse:
        raise InputError(f"{file} is sparse; allowed where it is prepared: dense tables")
    new = None if opened.new is None else RawTable.of_array(np.asarray(opened.new), title=f"the new rows of {file}")
    return TableToPrepare(RawTable.of_array(np.asarray(opened.X), title=file), prepare, new)

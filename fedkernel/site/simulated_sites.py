"""Simulated sites with their parts of a job's data; the job's author acts as their operator."""

import os
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data import (
    Dataset,
    DataSpec,
    OpenedTables,
    Partition,
    PartitionSpec,
    Prepare,
    RawTable,
    SiteFile,
    Version,
    load,
    open_tables,
    read_raw,
    split,
    version_of,
)
from fedkernel.ground import InputError, load_class, load_npy
from fedkernel.numerics import import_kernels
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import KernelClient
from fedkernel.site.data_files import content_of, labels_of_file, read_file
from fedkernel.site.result_files import write_results
from fedkernel.site.site_setup import Site
from fedkernel.wire import Job, RunSpec, simulated_keys


@lru_cache(maxsize=1)
def _loaded(data: DataSpec) -> Dataset:
    """Load a data set, cached for all runs that partition it."""
    return load(data)


@lru_cache(maxsize=2)
def simulated_partition(data: DataSpec, partition: PartitionSpec, clients: int, seed: int) -> Partition:
    """Return all simulated sites' parts of a data set, cached for the messages of several sites."""
    where = "data"
    try:
        dataset, where = _loaded(data.drawn(seed)), "partition"
        return split(partition, dataset, clients=clients, seed=seed)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


@lru_cache(maxsize=2)
def simulated_raw(
    data: DataSpec, partition: PartitionSpec, clients: int, seed: int, prepare: Prepare
) -> list[TableToPrepare]:
    """Return all simulated sites' parts of a data set as raw tables, cached like `simulated_partition`."""
    parts, columns, tables = simulated_partition(data, partition, clients, seed), _loaded(data.drawn(seed)).columns, []
    for number, (X, index) in enumerate(zip(parts.shards, parts.indices, strict=True)):
        names = [columns[place] for place in index] if parts.kind == "vertical" else columns
        if not isinstance(X, np.ndarray):
            raise InputError(f"the data of client {number} is sparse; allowed where it is prepared: dense tables")
        tables.append(TableToPrepare(RawTable.of_array(X, names, f"the data of client {number}"), prepare))
    return tables


Derived = dict[type[KernelClient], dict[str, Any]]


@lru_cache(maxsize=2)
def _derived_of_parts(data: DataSpec, partition: PartitionSpec, clients: int, seed: int) -> list[Derived]:
    """Return the caches of `KernelClient.cached` for all parts of a data set, kept as long as the parts."""
    return [{} for _ in simulated_partition(data, partition, clients, seed).shards]


@lru_cache(maxsize=1)
def derived_of_file(file: SiteFile | str, version: Version) -> Derived:
    """Return the cache of `KernelClient.cached` for a site's file, kept until a different file is used."""
    return {}


@lru_cache(maxsize=32)
def _raw_shard(file: str | SiteFile, version: Version, prepare: Prepare) -> TableToPrepare:
    """Read a simulated site's file as a raw table; NaN marks an array's missing cells."""
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


@lru_cache(maxsize=1)
def _opened(file: str, version: Version) -> OpenedTables:
    """Open a simulated site's file; cached until it changes."""
    return open_tables(file)


def _named_by(run: RunSpec) -> dict[str, type[KernelClient]]:
    """Import the kernels and the client class of a simulated run, and return the client by class name."""
    import_kernels(run.parameters)
    if run.pair is None:
        kind: type[KernelClient] = load_class(run.strategy, object, "pairs", "strategy").client
    else:
        kind = load_class(run.pair, KernelClient, "clients", "pair")
    return {kind.__name__: kind}


def simulated_site(site: Site, job: Job, run: RunSpec, clients: int) -> Site:
    """Return a simulated site, with its part of the job's data and the job's settings filled in."""
    own: dict[str, Any] = {"share_rows": run.shares_rows, "pairs": _named_by(run)}
    own["masks"] = partial(simulated_keys, site.number, clients)
    if job.folder is not None:
        own["keep"] = partial(write_results, job.folder / run.id / f"client-{site.number}.npz")
    if run.shards is not None:
        own |= _simulated_file(run, site.number)
    elif run.data is not None and run.partition is not None:
        parts = simulated_partition(run.data, run.partition, clients, run.seed)
        y = parts.all_labels if parts.labels is None else parts.labels[site.number]
        derived = _derived_of_parts(run.data, run.partition, clients, run.seed)[site.number]
        own |= {"X": parts.shards[site.number], "labels": lambda: y, "derived": derived}
        if run.prepare is not None:
            own["X"] = simulated_raw(run.data, run.partition, clients, run.seed, run.prepare)[site.number]
    return replace(site, **own)


def _simulated_file(run: RunSpec, number: int) -> dict[str, Any]:
    """Return the `Site` fields of a simulated site that has a file."""
    file = (run.shards or [])[number]
    path = str(file.path) if isinstance(file, SiteFile) else file
    version, labels = version_of(path), None if run.labels is None else run.labels[number]
    own: dict[str, Any] = {"table": partial(content_of, [path] if os.path.isfile(path) else [])}
    own |= {"labels": lambda: None if labels is None else load_npy(labels)}
    if isinstance(file, SiteFile):
        own |= {"labels": partial(labels_of_file, file, version), "ids_without_key": True}
    if run.prepare is not None:
        table = _raw_shard(file, version, run.prepare)
        return own | {"X": table, "ids": table.raw.ids}
    own |= {"derived": derived_of_file(file, version)}
    if isinstance(file, SiteFile):
        data = read_file(file, version)
        return own | {"X": data.X, "columns": data.columns, "ids": data.ids}
    X, new = _opened(file, version)
    return own | {"X": X, "new": new}

"""Computations on all clients' tables for the plan: preparation as at sites, and kernel widths from the data."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from fedkernel.data import DataSpec, PartitionSpec, Prepare
from fedkernel.experiments.config import Shards
from fedkernel.experiments.running.file_tables import raw_tables
from fedkernel.ground import Division, FloatArray, InputError, Rows, stack_rows
from fedkernel.numerics import KERNELS, kernel_from, table_of_name, with_width
from fedkernel.preparing import TableToPrepare, prepare_centrally
from fedkernel.site import simulated_raw

Source = tuple[DataSpec | Shards, PartitionSpec, int, int]  # data, partition, number of clients, and seed


def raw_shards(source: Source, prepare: Prepare, divided: Division, run: str) -> list[TableToPrepare]:
    """Return the clients' raw tables in the run with this id, with the preparation that each is to get."""
    data, partition, clients, seed = source
    if isinstance(data, Shards):
        return [TableToPrepare(raw, prepare) for raw in raw_tables(data, divided, run, seed, prepare)]
    return simulated_raw(data, partition, clients, seed, prepare)


@lru_cache(maxsize=1)
def prepared_shards(source: Source, prepare: Prepare, divided: Division, run: str) -> list[FloatArray]:
    """Return the clients' prepared tables, (n_m, columns) each, bit for bit. `run`: "" unless it decides the order."""
    return prepare_centrally(raw_shards(source, prepare, divided, run), prepare, divided)


Widths = dict[str, dict[str, Any]]  # kernels with computed widths, by data set, its division, and seed


def with_pooled_widths(
    parameters: Mapping[str, Any], shards: Sequence[Rows], divided: str, data: str, known: Widths
) -> dict[str, Any]:
    """Replace each rule-based kernel width in a method's parameters by its number on the pooled data.

    Kernels of methods within the method count too, such as ``components.kernel``. Without shards, where sites hold
    their own, rules stay, and strategies settle them across the sites. `data` names the shards, uniquely; `known` takes
    the widths.
    """
    with_numbers = dict(parameters)
    for name, value in parameters.items():
        if name == "kernel" and (table := _ruled_table(value)) is not None:
            if not shards:  # sites hold the data, and settle the width as the run begins
                continue
            key = repr((sorted(table.items(), key=str), divided, data))
            if key not in known:
                known[key] = with_width(table, _pooled(shards, divided))
            with_numbers[name] = known[key]
        elif isinstance(value, Mapping):
            with_numbers[name] = with_pooled_widths(value, shards, divided, data, known)
    return with_numbers


def _ruled_table(value: Any) -> Mapping[str, Any] | None:
    """Return the table of a fedkernel kernel whose width a rule computes. None for all others, also invalid ones."""
    table = table_of_name(value)
    if isinstance(table, Mapping) and str(table.get("type")) in KERNELS:
        with suppress(InputError):
            return table if kernel_from(table).rule is not None else None
    return None


def _pooled(shards: Sequence[Any], divided: str) -> Rows:
    axis, shared = (1, "rows") if divided == "vertical" else (0, "columns")
    sizes = [shard.shape[1 - axis] for shard in shards]
    if len(set(sizes)) > 1:
        raise InputError(
            f"the clients have {', '.join(map(str, sizes))} {shared}: "
            f"with a {divided} partition all must have the same {shared}"
        )
    return np.hstack(shards) if divided == "vertical" else stack_rows(shards)

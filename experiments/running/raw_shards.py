"""Tables of the clients in an experiment with `prepare`: raw, and prepared as the sites would prepare them."""

from functools import lru_cache

from experiments.config import Shards
from experiments.running.file_tables import raw_tables
from fedkernel.data import DataSpec, PartitionSpec, Prepare
from fedkernel.ground import Division, FloatArray
from fedkernel.preparing import TableToPrepare, prepare_centrally
from fedkernel.site import simulated_raw

Source = tuple[DataSpec | Shards, PartitionSpec, int, int]
"""Data, partition, number of clients, and seed."""


def raw_shards(source: Source, prepare: Prepare, divided: Division, run: str) -> list[TableToPrepare]:
    """Return the clients' raw tables in the run with this id, with the preparation that each is to get."""
    data, partition, clients, seed = source
    if isinstance(data, Shards):
        return [TableToPrepare(raw, prepare) for raw in raw_tables(data, divided, run, seed, prepare)]
    return simulated_raw(data, partition, clients, seed, prepare)


@lru_cache(maxsize=1)
def prepared_shards(source: Source, prepare: Prepare, divided: Division, run: str) -> list[FloatArray]:
    """Return the clients' prepared tables, (n_m, columns) each, bit for bit; `run`: "" unless it decides the order."""
    return prepare_centrally(raw_shards(source, prepare, divided, run), prepare, divided)

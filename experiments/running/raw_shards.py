"""Tables of the clients in an experiment with `prepare`: raw, and prepared as the sites would prepare them."""

from functools import lru_cache
from typing import NamedTuple

from experiments.config import Experiment, Shards, Sites
from experiments.running.file_tables import raw_tables
from fedkernel.data import DataSpec, PartitionSpec, Prepare
from fedkernel.ground import Division, FloatArray
from fedkernel.preparing import TableToPrepare, prepare_centrally
from fedkernel.site import simulated_raw


class _TableSource(NamedTuple):
    """Inputs that determine the clients' raw tables."""

    data: DataSpec | Shards
    partition: PartitionSpec
    clients: int
    seed: int
    divided: Division
    run: str

    def raw(self, prepare: Prepare) -> list[TableToPrepare]:
        """Return the clients' raw tables, with the preparation that each is to get."""
        if isinstance(self.data, Shards):
            raws = raw_tables(self.data, self.divided, self.run, self.seed, prepare)
            return [TableToPrepare(raw, prepare) for raw in raws]
        return simulated_raw(self.data, self.partition, self.clients, self.seed, prepare)


def raw_shards(
    experiment: Experiment, prepare: Prepare, seed: int, divided: Division, run: str = ""
) -> list[TableToPrepare]:
    """Return the clients' raw tables in the run with this id; empty where sites hold their own."""
    if isinstance(experiment.data, Sites):
        return []
    return _TableSource(experiment.data, experiment.partition, experiment.clients or 1, seed, divided, run).raw(prepare)


def prepared_shards(
    experiment: Experiment, prepare: Prepare, seed: int, divided: Division, run: str = ""
) -> list[FloatArray]:
    """Return the clients' prepared tables, (n_m, columns) each, in the run with this id, bit for bit."""
    data, partition = experiment.data, experiment.partition
    if isinstance(data, Sites):
        return []
    kind = divided if isinstance(data, Shards) else partition.kind
    order = run if isinstance(data, Shards) and kind == "vertical" else ""  # all other runs have the same
    return list(_prepared(_TableSource(data, partition, experiment.clients or 1, seed, kind, order), prepare))


@lru_cache(maxsize=1)
def _prepared(draw: _TableSource, prepare: Prepare) -> list[FloatArray]:
    return prepare_centrally(draw.raw(prepare), prepare, draw.divided)

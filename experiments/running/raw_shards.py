"""The clients' tables of an experiment that prepares them: raw, and as the sites of a run will have prepared theirs."""

from functools import lru_cache

from experiments.config import Experiment, Shards, Sites
from experiments.running.site_tables import Divided, raw_tables
from fedkernel.arrays import FloatArray
from fedkernel.data import DataSpec, Prepare
from fedkernel.preparing import TableToPrepare, prepared_here
from fedkernel.run import simulated_raw


def raw_shards(
    experiment: Experiment, prepare: Prepare, seed: int, divided: Divided, run: str = ""
) -> list[TableToPrepare]:
    """Return the clients' raw tables, as a run of this id has them; none where sites hold their own."""
    if isinstance(experiment.data, Sites):
        return []
    if isinstance(experiment.data, Shards):
        raws = raw_tables(experiment.data, divided, run, seed, prepare)
        return [TableToPrepare(raw, prepare) for raw in raws]
    return simulated_raw(experiment.data, experiment.partition, experiment.clients or 1, seed, prepare)


def prepared_shards(
    experiment: Experiment, prepare: Prepare, seed: int, divided: Divided, run: str = ""
) -> list[FloatArray]:
    """Return the clients' tables as they are in a run of this id, bit for bit."""
    kind = experiment.partition.kind if isinstance(experiment.data, DataSpec) else divided
    order = run if isinstance(experiment.data, Shards) and kind == "vertical" else ""
    key = repr((experiment.data, experiment.partition, experiment.clients, prepare))
    return list(_prepared(_Case(experiment, prepare, key), seed, kind, order))


class _Case:
    """An experiment's data and what is to be done to them, as a key."""

    def __init__(self, experiment: Experiment, prepare: Prepare, key: str) -> None:
        self.experiment, self.prepare, self._key = experiment, prepare, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Case) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=1)
def _prepared(case: _Case, seed: int, divided: Divided, run: str) -> list[FloatArray]:
    return prepared_here(raw_shards(case.experiment, case.prepare, seed, divided, run), case.prepare, divided)

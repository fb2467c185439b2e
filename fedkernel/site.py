"""The Flower ClientApp that answers for a site, and where it finds the site's data and memory."""

import logging
import os
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.client import KernelClient
from fedkernel.data import Dataset, DataSpec, Partition, PartitionSpec, Table, TableLike, load, split
from fedkernel.data.tables import open_tables
from fedkernel.engines import _flower
from fedkernel.errors import FedkernelError, InputError
from fedkernel.job import Job
from fedkernel.messages import VERSION
from fedkernel.sealing import KeyPair, read_pins
from fedkernel.storage import write_whole
from fedkernel.threads import blas_threads

log = logging.getLogger(__name__)

REFUSED, FAILED = 101, 102
"""Error codes of a client's reply: the request does not fit the site; the site's code broke."""

NDArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Site:
    """What a client app needs to know about the place it runs at.

    Attributes
    ----------
    number : int
        The client's number in the cohort.
    X : array-like or Table of shape (n_m, d_m), or None
        None: this node takes no part in the run.
    new : array-like or Table of shape (n_new, d_m), or None
    keep : callable
        Stores named arrays on the site.
    threads : int
        BLAS threads for the client's computations.
    identity, pins
        The site's key pair and its peers' fingerprints (see `KernelClient`): the site's own, of no coordinator's.
    """

    number: int
    X: TableLike | None
    new: TableLike | None
    keep: Callable[[dict[str, NDArray]], object]
    threads: int = 1
    identity: KeyPair | None = None
    pins: Mapping[int, str] | None = None


FindSite = Callable[[Context, Mapping[str, Any]], Site]


class Memory(MutableMapping[str, NDArray]):
    """A client's named arrays in Flower's context, where they survive rounds on every engine; one run's at a time."""

    def __init__(self, context: Context, run: str) -> None:
        state = context.state
        if "run" not in state.config_records or state.config_records["run"]["id"] != run:
            state["run"] = ConfigRecord({"id": run})
            state["memory"] = ArrayRecord()
        self._record = state.array_records["memory"]

    def __getitem__(self, name: str) -> NDArray:
        return _flower.read_array(self._record[name])

    def __contains__(self, name: object) -> bool:
        return name in self._record  # the inherited one would read the array

    def __setitem__(self, name: str, value: NDArray) -> None:
        self._record[name] = Array(np.asarray(value, order="C"))

    def __delitem__(self, name: str) -> None:
        del self._record[name]

    def __iter__(self) -> Any:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


def client_app(clients: Mapping[str, type[KernelClient]], find_site: FindSite) -> ClientApp:
    """Build the ClientApp that answers for a site.

    Parameters
    ----------
    clients : mapping of str to type
        The client classes this site is willing to run, by class name: nothing else can be asked of it.
    find_site : callable
        Finds the site's data from Flower's context and a message's configuration.
    """
    app = ClientApp()

    def client_for(message: Message, context: Context, site: Site, *, joins: bool = False) -> KernelClient:
        config = message.content.config_records["config"]
        pair = str(config["pair"])
        if pair not in clients:
            raise InputError(f"this site runs {', '.join(sorted(clients))}, but was asked for {pair!r}")
        memory = Memory(context, str(config["run"]))
        if joins:
            # A run begins: what an earlier one of the same name left must not be taken for this one's.
            memory.clear()
        seed = int(str(config["seed"]))
        keys: dict[str, Any] = {"identity": site.identity, "pins": site.pins}
        return clients[pair](site.X, new=site.new, client=site.number, seed=seed, memory=memory, **keys)  # type: ignore[arg-type]

    def answer(message: Message, context: Context, act: Callable[[Site], RecordDict]) -> Message:
        try:
            return Message(act(find_site(context, message.content.config_records["config"])), reply_to=message)
        except FedkernelError as error:
            return Message(Error(REFUSED, str(error)), reply_to=message)
        except Exception as error:
            # Whatever else goes wrong may quote data in its text: the coordinator learns the type, the site the rest.
            log.exception("the client failed")
            reason = f"{type(error).__name__} on the site, whose log has the details"
            return Message(Error(FAILED, reason), reply_to=message)

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        def act(site: Site) -> RecordDict:
            if site.X is None:
                told: dict[str, Any] = {"client": site.number, "rows": 0, "columns": 0, "new_rows": 0}
                return RecordDict({"config": ConfigRecord({**told, "version": VERSION})})
            return RecordDict(
                {"config": ConfigRecord({**client_for(message, context, site, joins=True).get_properties({})})}
            )

        return answer(message, context, act)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        def act(site: Site) -> RecordDict:
            config = message.content.config_records["config"]
            arrays = _flower.read_arrays(message.content.array_records["arrays"])
            client = client_for(message, context, site)
            with blas_threads(site.threads):
                # of this thread's processor: what other clients do on the same machine does not count
                began = time.thread_time()
                replied, _, scalars = client.fit(arrays, dict(config))  # type: ignore[arg-type]
                seconds = time.thread_time() - began
            if client.outputs:
                site.keep(client.outputs)
            told = ConfigRecord({**scalars, "seconds": seconds})
            return RecordDict({"arrays": ArrayRecord(replied), "config": told})

        return answer(message, context, act)

    return app


@lru_cache(maxsize=1)
def _loaded(data: DataSpec) -> Dataset:
    """Return the data set that the seeds of an experiment divide, each in its own way."""
    return load(data)


@lru_cache(maxsize=2)
def simulated_partition(data: DataSpec, partition: PartitionSpec, clients: int, seed: int) -> Partition:
    """Return all simulated sites' parts of a data set.

    Cached, since a site is built anew for every message, and a process serves several sites.
    """
    where = "data"
    try:
        dataset, where = _loaded(data), "partition"
        return split(partition, dataset, clients=clients, seed=seed)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def read_shard(path: str | os.PathLike[str]) -> tuple[Table, Table | None]:
    """Open one site's table, .npy, .npz or .parquet, and the rows ``new`` that an .npz with ``X`` may hold."""
    return open_tables(path)


def site_of_job(context: Context, config: Mapping[str, Any]) -> Site:
    """Find the part that a simulated site holds in a run of the job that stands in Flower's run configuration.

    The node's configuration may name files of the site's own: ``identity``, see `KeyPair.read`, and ``pins``, see
    `read_pins`.
    """
    job = Job.from_json(str(context.run_config["job"]))
    run = job.run(str(config["run"]))
    number = int(context.node_config["partition-id"])
    clients = run.clients or int(context.node_config["num-partitions"])
    folder = None if job.out is None else Path(job.out) / run.id

    def keep(outputs: dict[str, NDArray]) -> None:
        if folder is not None:
            path = folder / f"client-{number}.npz"
            write_whole(path, lambda file: np.savez_compressed(file, allow_pickle=False, **outputs))

    X: TableLike | None = None
    new: TableLike | None = None
    if number < clients:
        if run.shards is not None:
            X, new = read_shard(run.shards[number])
        elif run.data is not None and run.partition is not None:
            X = simulated_partition(run.data, run.partition, clients, run.seed).shards[number]
    node = context.node_config
    identity = KeyPair.read(str(node["identity"])) if "identity" in node else None
    pins = read_pins(str(node["pins"])) if "pins" in node else None
    return Site(number, X, new, keep, job.threads, identity, pins)

"""The Flower ClientApp that answers for a site, and where it finds the site's data and memory."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.addresses import find, names, own_names
from fedkernel.data import Dataset, DataSpec, Partition, PartitionSpec, Table, TableLike, as_table, load, split
from fedkernel.data.site_files import SiteData, SiteFile
from fedkernel.data.tables import open_tables, readable
from fedkernel.errors import FedkernelError, InputError, OwnFileError, called
from fedkernel.numerics.kernels import Kernel, import_kernels
from fedkernel.peers.client import PeerClient
from fedkernel.peers.sealing import KeyPair, read_pins
from fedkernel.protocol.client import KernelClient
from fedkernel.protocol.messages import MessageT, Reply
from fedkernel.run import flower
from fedkernel.run.alignment import find_rows, hash_ids, key_check, read_key
from fedkernel.run.job import Job, RunSpec
from fedkernel.run.joining import CommonRows, HashedIds, HashIds, Introduce, Introduction, TakeRows
from fedkernel.run.memory import Memory
from fedkernel.run.wire import from_content, to_content
from fedkernel.storage import check_folder, write_whole
from fedkernel.threads import blas_threads

log = logging.getLogger(__name__)

REFUSED, FAILED = 101, 102
"""Error codes of a client's reply: the request does not fit the site; the site's code broke."""

MIN_ROWS = 20
"""Rows of a site's own from which it answers at least, unless its operator says otherwise."""

NDArray = npt.NDArray[Any]


def _logged(error: Exception) -> str:
    """Log an error with its traceback; the coordinator learns the type only."""
    log.error("the client failed", exc_info=error)
    return f"{type(error).__name__} on the site, whose log has the details"


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
        The site's key pair and its peers' fingerprints (see `PeerClient`): the site's own, of no coordinator's.
    name : str, optional
        The site's, for error texts.
    columns : sequence of str
        Names of the columns of `X`, which the coordinator is told; empty: they have none.
    ids : sequence of str, optional
        What each row of `X` is known by. They do not leave the site, but hashes of them do (`fedkernel.run.alignment`).
    id_key : bytes
        What these hashes are keyed with, as at all sites of a run.
    share_rows : bool
        Whether rows may leave as they are.
    min_rows : int
        Nothing is answered from fewer rows than these.
    pairs : mapping of str to type, optional
        The client classes it is willing to run, by class name; None: all that the app has.
    path : str, optional
        Where `X` is, which is not told elsewhere.
    check_keep : callable
        Raises OwnFileError if nothing can be stored on the site.
    outline : callable
        Returns what the coordinator is told of an error in the client's code, whose text may quote data.
    """

    number: int
    X: TableLike | None
    new: TableLike | None
    keep: Callable[[dict[str, NDArray]], object]
    threads: int = 1
    identity: KeyPair | None = None
    pins: Mapping[int, str] | None = None
    name: str | None = None
    columns: Sequence[str] = ()
    ids: Sequence[str] | None = None
    id_key: bytes = b""
    share_rows: bool = False
    min_rows: int = 1
    pairs: Mapping[str, type[KernelClient]] | None = None
    path: str | None = None
    check_keep: Callable[[], object] = lambda: None
    outline: Callable[[Exception], str] = _logged

    def check_rows(self, rows: int) -> None:
        """Raise InputError if these are too few to answer from."""
        if rows < self.min_rows:
            raise InputError(
                f"{self.called} is to answer from {rows} rows, but answers from {self.min_rows} or more (--min-rows)"
            )

    @property
    def called(self) -> str:
        """What texts call it."""
        return called(self.number, self.name)


FindSite = Callable[[Context, Mapping[str, Any]], Site]


@dataclass(frozen=True)
class _Call:
    """A message to a site, and what is at hand there to answer it."""

    message: Message
    context: Context
    site: Site
    clients: Mapping[str, type[KernelClient]]

    @cached_property
    def config(self) -> ConfigRecord:
        return self.message.content.config_records["config"]

    @property
    def run(self) -> str:
        return str(self.config["run"])

    @property
    def seed(self) -> int:
        return int(str(self.config["seed"]))

    def request(self, kind: type[MessageT]) -> MessageT:
        """Return the message as a request of the given kind."""
        return from_content(kind, self.message.content)

    def memory(self) -> Memory:
        return Memory(self.context, self.run)

    def client(self, memory: Memory) -> KernelClient:
        """Return the client that the message is for, with the rows that the run works on."""
        site, pair = self.site, str(self.config["pair"])
        willing = self.clients if site.pairs is None else site.pairs
        if pair not in willing:
            allowed = ", ".join(sorted(willing)) or "nothing, since neither its job nor --allow names a pair"
            raise InputError(f"{site.called} runs {allowed}, but was asked for {pair!r}")
        X, positions = site.X, memory.rows
        if X is not None and positions is not None:
            X = as_table(X, f"the data of {site.called}").take(positions)
        own: dict[str, Any] = {"share_rows": site.share_rows}
        if issubclass(willing[pair], PeerClient):
            own |= {"identity": site.identity, "pins": site.pins}
        client = willing[pair](X, new=site.new, client=site.number, seed=self.seed, memory=memory, **own)  # type: ignore[arg-type]
        site.check_rows(client.X.shape[0])
        return client

    def hashes(self) -> NDArray:
        """Return the hashes of the site's ids, of shape (n_m, 16)."""
        if self.site.ids is None:
            raise InputError(f"{self.site.called} has no ids, but was asked for them")
        return hash_ids(self.site.ids, self.site.id_key, self.run, self.seed)


def client_app(clients: Mapping[str, type[KernelClient]], find_site: FindSite) -> ClientApp:
    """Build the ClientApp that answers for a site.

    Parameters
    ----------
    clients : mapping of str to type
        The client classes this app is willing to run, by class name, unless the site says which: nothing else can be
        asked of it.
    find_site : callable
        Finds the site's data from Flower's context and a message's configuration.
    """

    def handler(act: Callable[[_Call], RecordDict]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            site: Site | None = None
            try:
                site = find_site(context, message.content.config_records["config"])
                return Message(act(_Call(message, context, site, clients)), reply_to=message)
            except OwnFileError as error:
                log.error("%s", error)
                return Message(Error(REFUSED, error.outline), reply_to=message)
            except FedkernelError as error:
                log.info("refused: %s", error)
                outline = str(error).replace(site.path, "its table") if site and site.path else str(error)
                return Message(Error(REFUSED, outline), reply_to=message)
            except Exception as error:
                return Message(Error(FAILED, (site.outline if site else _logged)(error)), reply_to=message)

        return handle

    app = ClientApp()
    app.query()(handler(lambda call: to_content(_introduce(call))))
    app.query("ids")(handler(lambda call: to_content(_hash_ids(call))))
    app.query("align")(handler(lambda call: to_content(_take_rows(call))))
    app.train()(handler(_train))
    return app


def _introduce(call: _Call) -> Reply:
    """Begin a run; tells who this is and how large its table is, and if it has them its name and its columns'."""
    site = call.site
    call.request(Introduce)
    if site.X is None:
        return Introduction(client=site.number, rows=0, columns=0, new_rows=0)
    site.check_keep()
    size = call.client(Memory.begin(call.context, call.run)).get_properties({})
    return Introduction(**size, site=site.name, names=tuple(site.columns), ids=site.ids is not None)


def _hash_ids(call: _Call) -> Reply:
    """Tell the hashes of the site's ids, and what differs where a site has another key."""
    call.memory()
    call.request(HashIds)
    return HashedIds(hashes=call.hashes(), key_check=key_check(call.site.id_key, call.run, call.seed))


def _take_rows(call: _Call) -> Reply:
    """Work from now on with the rows that all sites agreed on, in their order; tells how many these are."""
    memory, own = call.memory(), call.hashes()
    positions = find_rows(own, call.request(TakeRows).hashes)
    call.site.check_rows(len(positions))
    if not np.array_equal(positions, np.arange(len(own))):
        memory.rows = positions
    return CommonRows(rows=len(positions))


def _train(call: _Call) -> RecordDict:
    """Answer a request of the protocol."""
    arrays = flower.read_arrays(call.message.content.array_records["arrays"])
    memory = call.memory()
    client = call.client(memory)
    with blas_threads(call.site.threads):
        # of this thread's processor: what other clients do on the same machine does not count
        began = time.thread_time()
        replied, _, scalars = client.fit(arrays, dict(call.config))  # type: ignore[arg-type]
        seconds = time.thread_time() - began
    if client.outputs:
        call.site.keep(client.outputs | _ids_in_order(call.site, memory))
    return RecordDict({"arrays": ArrayRecord(replied), "config": ConfigRecord({**scalars, "seconds": seconds})})


def _ids_in_order(site: Site, memory: Memory) -> dict[str, NDArray]:
    """Return the ids of the rows that a run works on, in its order, where the site knows them."""
    if site.ids is None:
        return {}
    ids, positions = np.array(site.ids), memory.rows
    return {"ids": ids if positions is None else ids[positions]}


@lru_cache(maxsize=4)
def _job(text: str) -> Job:
    """Read a job, which comes with every message."""
    return Job.from_json(text)


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


@lru_cache(maxsize=8)
def _read_own(file: SiteFile, changed: tuple[int, int]) -> SiteData:
    """Read a site's own file; cached, as `simulated_partition` is, until the file is changed."""
    return file.read()


class OwnKeys(NamedTuple):
    """Keys that a node's configuration names; None, or no key: not named."""

    ids: bytes
    identity: KeyPair | None
    pins: Mapping[int, str] | None


def read_own_keys(node: Mapping[str, Any]) -> OwnKeys:
    """Read the keys that a node's configuration names, as `site_of_job` tells it; InputError where one is missing."""
    key = read_key(str(node["id-key"])) if "id-key" in node else b""
    identity = KeyPair.read(str(node["identity"])) if "identity" in node else None
    return OwnKeys(key, identity, read_pins(str(node["pins"])) if "pins" in node else None)


def read_own_data(node: Mapping[str, Any]) -> SiteData:
    """Read the table that a node's configuration names, as `site_of_job` tells it; InputError where it is none."""
    columns = [name.strip() for name in str(node["columns"]).split(",")] if "columns" in node else None
    label, id_ = (str(node[key]) if key in node else None for key in ("label", "id"))
    file = SiteFile(str(node["data"]), columns, label, id_)
    with readable(file.path, "a file with the site's data"):
        found = Path(file.path).expanduser().stat()
    return _read_own(file, (found.st_mtime_ns, found.st_size))


def allowed(names_: Iterable[str]) -> dict[str, type[KernelClient]]:
    """Import what a site's operator allows, and return the clients among it by class name; the others are kernels.

    Raises
    ------
    InputError
        If a name is that of no client or kernel, or if two clients have the same class name.
    """
    willing: dict[str, type[KernelClient]] = {}
    for name in filter(None, (name.strip() for name in names_)):
        kind = find(name, object, "kernels" if name in names("kernels") else "clients", "allow")
        if not (isinstance(kind, type) and issubclass(kind, KernelClient | Kernel)):
            raise InputError(f"allow = {name!r} is no client and no kernel")
        if issubclass(kind, KernelClient) and willing.setdefault(kind.__name__, kind) is not kind:
            raise InputError(f"allow = {name!r}, but another client that is allowed is called {kind.__name__}, too")
    return willing


def own_pairs(runs: Iterable[RunSpec]) -> list[str]:
    """Return the addresses of the clients that runs name and that are ours, in order."""
    ours = own_names("clients")
    wholes = {ours.get(run.pair, run.pair) for run in runs if run.pair is not None}
    return sorted(wholes & set(ours.values()))


def _named_by(run: RunSpec) -> dict[str, type[KernelClient]]:
    """Import what a run names, for a site that is simulated, and return its client by class name."""
    import_kernels(run.parameters)
    if run.pair is None:
        kind: type[KernelClient] = find(run.strategy, object, "pairs", "strategy").client
    else:
        kind = find(run.pair, KernelClient, "clients", "pair")
    return {kind.__name__: kind}


def flag(node: Mapping[str, Any], name: str) -> bool:
    """Return whether a node's configuration says yes to something."""
    return str(node.get(name, False)).lower() in ("true", "1", "yes")


def _number(node: Mapping[str, Any], run: RunSpec) -> int:
    """Return the client's number: the node's partition, or its place among the run's sites."""
    sites, name = run.sites or [], node.get("name")
    if name is not None and sites and name not in sites:
        raise InputError(f"this node's name = {name!r}, but the sites of run {run.id!r} are {', '.join(sites)}")
    if "partition-id" not in node:
        if name is None or not sites:
            raise InputError("this node has no partition-id; allowed without one: a name, and a run of named sites")
        return sites.index(str(name))
    number = int(node["partition-id"])
    if name is not None and sites and sites.index(str(name)) != number:
        raise InputError(f"this node's partition-id = {number}, but site {name!r} is client {sites.index(str(name))}")
    return number


def site_of_job(context: Context, config: Mapping[str, Any]) -> Site:
    """Find the data of a site, its own or its part of simulated ones, for a run of the job in Flower's configuration.

    The node's configuration says what is the site's own, and none of it is told by a job:

    ``name``
        The site's, by which a run of ``sites`` knows it; its number is ``partition-id`` where that is there.
    ``data``, ``columns``, ``label``, ``id``
        Its file, see `SiteFile`; ``columns`` with commas between. With it, no path that the job names is used.
    ``id-key``
        A file with the key of the hashes of its ids, see `fedkernel.run.alignment`.
    ``out``
        A folder: what the site keeps of a run is written to ``<out>/<run>.npz``; without it nothing is kept.
    ``share-rows``
        Whether rows of its file may leave as they are; without it, no.
    ``allow``
        The client classes it answers as, and kernels that are not ours, by short name or address, with commas between;
        without it the one that the run names, if it is ours. Nothing that only a job or a message names is imported.
    ``min-rows``
        Nothing is answered from fewer rows of its file than these; 20 without it.
    ``identity``, ``pins``
        Files, see `KeyPair.read` and `read_pins`.

    Raises
    ------
    InputError
        If there are no data for the run, if they cannot be read, or if the node and the run contradict each other.
    """
    job = _job(str(context.run_config["job"]))
    run = job.run(str(config["run"]))
    node = context.node_config
    number = _number(node, run)
    name = str(node["name"]) if "name" in node else run.sites[number] if run.sites and number < len(run.sites) else None
    who = called(number, name)
    try:
        keys = read_own_keys(node)
    except InputError as error:
        raise OwnFileError(f"{who} cannot read its keys; its log says why", f"{who}: {error}") from None
    site = Site(number, None, None, _keeper(None), job.threads, keys.identity, keys.pins, name, id_key=keys.ids)
    clients = run.clients or int(node.get("num-partitions", number + 1))
    if number >= clients:
        return site
    if "data" in node:
        data = Path(str(node["data"])).expanduser()
        out = Path(str(node["out"])).expanduser() if "out" in node else None
        try:
            own = read_own_data(node)
        except InputError as error:
            raise OwnFileError(f"{who} cannot read its data; its log says why", f"{who}: {error}") from None
        share_rows = flag(node, "share-rows")
        if run.shares_rows and not share_rows:
            raise InputError(
                f"run {run.id!r} has rows of each site sent as they are, which {who} does not allow (join --share-rows)"
            )
        willing = str(node["allow"]).split(",") if "allow" in node else own_pairs([run])
        if run.pair is not None and not own_pairs([run]) and run.pair not in [name.strip() for name in willing]:
            raise InputError(
                f"run {run.id!r} is answered by {run.pair}, which {who} does not allow (join --allow {run.pair})"
            )
        results = None if out is None else out / f"{run.id}.npz"

        def check_keep() -> None:
            try:
                if out is not None:
                    check_folder(out)
                if results is not None and results.resolve() == data.resolve():
                    raise InputError(
                        f"results of run {run.id!r} would replace {results}; choose another folder (--out)"
                    )
            except InputError as error:
                raise OwnFileError(f"{who} cannot store what it keeps; its log says why", f"{who}: {error}") from None

        return replace(
            site,
            X=own.X,
            keep=_keeper(results),
            columns=own.columns,
            ids=own.ids,
            share_rows=share_rows,
            min_rows=int(node.get("min-rows", MIN_ROWS)),
            pairs=allowed(willing),
            path=str(data),  # as error texts have it
            check_keep=check_keep,
        )
    if run.sites is not None:
        raise InputError(f"{site.called} has no data of its own for run {run.id!r}: its node needs data = PATH")
    # where sites are simulated, whoever made the job speaks for them, and what it names is imported
    site = replace(site, share_rows=run.shares_rows, pairs=_named_by(run))
    site = replace(site, keep=_keeper(None if job.folder is None else job.folder / run.id / f"client-{number}.npz"))
    if run.shards is not None:
        X, new = read_shard(run.shards[number])
        return replace(site, X=X, new=new)
    if run.data is not None and run.partition is not None:
        return replace(site, X=simulated_partition(run.data, run.partition, clients, run.seed).shards[number])
    return site


def _keeper(path: Path | None) -> Callable[[dict[str, NDArray]], object]:
    """Return what stores a site's named arrays in a file; with None, nowhere."""

    def keep(outputs: dict[str, NDArray]) -> None:
        if path is not None:
            write_whole(path, lambda file: np.savez_compressed(file, allow_pickle=False, **outputs))

    return keep

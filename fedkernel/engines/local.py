"""The engine in one process: Flower's apps and messages, serialised as between machines, without the waiting."""

import importlib
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedkernel.engines import _flower
from fedkernel.job import Job
from fedkernel.threads import blas_threads

SERVER_APP, CLIENT_APP = "strategies.server_app:app", "clients.client_app:app"
"""Where a Flower app bundle has its components, as pyproject.toml names them."""


class LocalGrid(Grid):
    """A Flower Grid whose nodes are contexts in this process, served by a few daemon threads.

    Parameters
    ----------
    client_app : ClientApp
    clients : int
    threads : int
        BLAS threads while clients compute.
    run_config : dict of str to str, optional
        What Flower hands to every app of a run.

    Notes
    -----
    One client's requests are carried out one after the other, different clients' side by side on as many threads as
    the machine has cores: more would only multiply the memory. A client that hangs keeps its thread, but neither its
    round beyond the deadline nor the process at its end; as many hanging clients as threads keep the others waiting.
    """

    def __init__(
        self, client_app: ClientApp, *, clients: int, threads: int = 1, run_config: dict[str, str] | None = None
    ) -> None:
        _flower.ensure_task_identity()
        self._app = client_app
        self._threads = threads
        self._run = _flower.empty_run()
        self._contexts = {
            node: _flower.new_context(node, {"partition-id": node - 1, "num-partitions": clients}, run_config or {})
            for node in range(1, clients + 1)
        }
        self._locks = {node: threading.Lock() for node in self._contexts}
        self._tasks: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._arrived = threading.Condition()
        self._replies: dict[str, bytes] = {}
        self._workers = min(clients, os.cpu_count() or 1)
        for number in range(self._workers):
            threading.Thread(target=self._serve, name=f"client-worker-{number}", daemon=True).start()

    def __enter__(self) -> "LocalGrid":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for _ in range(self._workers):
            self._tasks.put(None)

    def set_run(self, run: _flower.Run) -> None:
        """Set the run this grid belongs to."""
        self._run = run

    @property
    def run(self) -> _flower.Run:
        """The run this grid belongs to."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message to a node."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes: 1 and up."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Serialise the messages and queue them for their nodes."""
        ids = []
        for message in messages:
            ids.append(_flower.stamp(message))
            self._tasks.put((ids[-1], _flower.to_bytes(message)))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come to these messages; each is returned once."""
        with self._arrived:
            ready = [self._replies.pop(message_id) for message_id in message_ids if message_id in self._replies]
        return [_flower.from_bytes(data) for data in ready]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the replies, or for those that come before the timeout."""
        with blas_threads(self._threads):
            ids = list(self.push_messages(messages))
            give_up = None if timeout is None else time.monotonic() + timeout
            with self._arrived:
                self._arrived.wait_for(
                    lambda: all(message_id in self._replies for message_id in ids),
                    None if give_up is None else max(0.0, give_up - time.monotonic()),
                )
            return self.pull_messages(ids)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            message_id, data = task
            reply = _flower.to_bytes(self._answer(_flower.from_bytes(data)))
            with self._arrived:
                self._replies[message_id] = reply
                self._arrived.notify_all()

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            with self._locks[node]:
                reply = self._app(message, self._contexts[node])
        except Exception as error:  # an app of somebody else's may raise anything: the caller must hear of it
            reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
        _flower.stamp(reply)
        return reply


def run_job(job: Job) -> Iterator[str]:
    """Carry out a job in this process; yields each run's id when its results are there.

    Runs are started one by one, since starting costs nothing here and the caller hears of each result at once.
    """
    server: ServerApp = _component(SERVER_APP)
    client: ClientApp = _component(CLIENT_APP)
    for run in job.runs:
        run_config = {"job": job.model_copy(update={"runs": [run]}).model_dump_json()}
        clients = run.clients or 1
        with LocalGrid(client, clients=clients, threads=job.threads, run_config=run_config) as grid:
            server(grid, _flower.new_context(0, {}, run_config))
        yield run.id


def _component(address: str) -> Any:
    module, name = address.split(":")
    return getattr(importlib.import_module(module), name)

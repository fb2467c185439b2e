"""The engine in one process: Flower's apps and messages, serialised as between machines, without the waiting."""

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType

from flwr.app import Message
from flwr.clientapp import ClientApp

from fedkernel.engines.apps import CLIENT_APP, answer, carry_out, component
from fedkernel.run import flower
from fedkernel.run.grid import MessageGrid
from fedkernel.run.job import Job, RunSpec
from fedkernel.threads import blas_threads


class LocalGrid(MessageGrid):
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
        super().__init__()
        self._app = client_app
        self._threads = threads
        self._contexts = {
            node: flower.new_context(node, {"partition-id": node - 1, "num-partitions": clients}, run_config or {})
            for node in range(1, clients + 1)
        }
        self._locks = {node: threading.Lock() for node in self._contexts}
        self._tasks: queue.SimpleQueue[tuple[str, tuple[bytes, ...]] | None] = queue.SimpleQueue()
        self._workers = min(clients, os.cpu_count() or 1)
        for number in range(self._workers):
            threading.Thread(target=self._serve, name=f"client-worker-{number}", daemon=True).start()

    def __enter__(self) -> "LocalGrid":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for _ in range(self._workers):
            self._tasks.put(None)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes: 1 and up."""
        return list(self._contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the replies, or for those that come before the timeout."""
        with blas_threads(self._threads):
            return super().send_and_receive(messages, timeout=timeout)

    def _post(self, message: Message, message_id: str, parts: tuple[bytes, ...]) -> None:
        self._tasks.put((message_id, parts))

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            message_id, parts = task
            message = flower.from_bytes(b"".join(parts))
            node = message.metadata.dst_node_id
            with self._locks[node]:
                reply = b"".join(answer(self._app, message, self._contexts[node]))
            self._deliver(message_id, flower.from_bytes(reply))


def run_job(job: Job) -> Iterator[str]:
    """Carry out a job in this process; yields each run's id when its results are there.

    Runs are started one by one, since starting costs nothing here and the caller hears of each result at once.
    """
    app: ClientApp = component(CLIENT_APP)

    def grid(run: RunSpec, told: str) -> LocalGrid:
        return LocalGrid(app, clients=run.clients or 1, threads=job.threads, run_config={"job": told})

    return carry_out(job, grid)

"""Engine that runs Flower's apps in this process, with or without serialisation of the messages."""

import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from flwr.app import Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.engines.app_execution import answer, carry_out
from fedkernel.ground import ProtocolError, blas_threads, openmp_threads, quoted, reserve_core
from fedkernel.protocol import KernelClient
from fedkernel.run import FailedRun, MessageGrid, Serialise
from fedkernel.site import FindSite, apply_changes, changes_of, copy_state, site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.wire import INVALID_REPLY, Job, RunSpec, flower_internals


class LocalGrid(MessageGrid):
    """Flower Grid whose clients compute in this process, in a few daemon threads.

    `threads`: BLAS threads while clients compute. `serialised`: messages are serialised, and checked on reading, as
    between machines. Else they are passed as objects, for apps that leave them unchanged, as `client_app`'s.

    One client's requests are executed one after the other, different clients' in parallel on at most as many threads as
    the machine has cores. Idle cores help the clients that compute (`fedkernel.ground.parallel`). A client that hangs
    keeps its thread, but delays neither its round beyond the deadline nor the process's end; as many hanging clients as
    threads block the others.
    """

    write_every = 1.0

    def __init__(
        self,
        client_app: ClientApp,
        *,
        clients: int,
        threads: int = 1,
        run_config: dict[str, str] | None = None,
        serialised: bool = True,
    ) -> None:
        super().__init__()
        self._serialised = serialised
        self._app = client_app
        self._threads = threads
        self._contexts = {
            node: flower_internals.new_context(
                node, {"partition-id": node - 1, "num-partitions": clients}, run_config or {}
            )
            for node in range(1, clients + 1)
        }
        self._locks = {node: threading.Lock() for node in self._contexts}
        self._noted = {node: RecordDict() for node in self._contexts}
        self._tasks: queue.SimpleQueue[tuple[str, Message | bytes] | None] = queue.SimpleQueue()
        self._workers = min(clients, os.cpu_count() or 1)
        for number in range(self._workers):
            threading.Thread(target=self._serve, name=f"client-worker-{number}", daemon=True).start()

    def __enter__(self) -> "LocalGrid":
        return self

    def __exit__(self, *error: object) -> None:
        for _ in range(self._workers):
            self._tasks.put(None)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes: the clients' numbers plus 1."""
        return list(self._contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that arrive before the timeout."""
        with blas_threads(self._threads):
            return super().send_and_receive(messages, timeout=timeout)

    def checkpoint(self) -> bytes:
        """Return the changes in the clients' memory since the last call. Clients that are computing are left out."""
        changes = RecordDict()
        for node, context in self._contexts.items():
            if not self._locks[node].acquire(blocking=False):
                continue
            try:
                for name, record in changes_of(self._noted[node], context.state).items():
                    changes[f"{node} {name}"] = record
                self._noted[node] = copy_state(context.state)
            finally:
                self._locks[node].release()
        return b"".join(flower_internals.content_to_parts(changes))

    def prepare_resume(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> None:
        """Restore the clients' memory from checkpoints."""
        for checkpoint in checkpoints:
            for place, record in flower_internals.content_from_bytes(checkpoint).items():
                node, _, name = place.partition(" ")
                apply_changes(self._contexts[int(node)].state, name, record)
        self._noted = {node: copy_state(context.state) for node, context in self._contexts.items()}

    def _post(self, message: Message, message_id: str, serialise: Serialise) -> None:
        self._tasks.put((message_id, b"".join(serialise()) if self._serialised else message))

    def _serve(self) -> None:
        if (task := self._tasks.get()) is None:
            return
        with openmp_threads(self._threads):  # once, or each request would set them anew
            while task is not None:
                self._carry_out(*task)
                task = self._tasks.get()

    def _carry_out(self, message_id: str, sent: Message | bytes) -> None:
        message = flower_internals.from_bytes(sent) if isinstance(sent, bytes) else sent
        node = message.metadata.dst_node_id
        with self._locks[node], reserve_core(self._threads):
            reply = answer(self._app, message, self._contexts[node])
        if self._serialised:
            try:
                reply = flower_internals.from_bytes(flower_internals.to_bytes(reply))
            except ProtocolError as error:  # else this thread would end, and its requests would wait
                unfit = f"{self.node_name(node)} sent an invalid reply: {error}"
                reply = Message(Error(INVALID_REPLY, unfit), reply_to=message)
        self._deliver(node, message_id, reply)


@contextmanager
def sites_here(
    pairs: Mapping[str, type[KernelClient]],
    find_site: FindSite,
    *,
    clients: int,
    threads: int = 1,
    run_config: dict[str, str] | None = None,
    serialised: bool = False,
) -> Iterator[LocalGrid]:
    """Open a grid whose sites are in this process; see `client_app` and `LocalGrid` for the parameters.

    An error in a client's code keeps its text, and its traceback as cause: nothing has to be hidden in one process.
    """
    failures: dict[str, Exception] = {}

    def describe(error: Exception) -> str:
        text = quoted(f"{type(error).__name__}: {error}")[1:-1]  # as quoted
        failures.setdefault(text, error)
        return text

    app = client_app(pairs, find_site, describe)
    with LocalGrid(app, clients=clients, threads=threads, run_config=run_config, serialised=serialised) as grid:
        try:
            yield grid
        except ProtocolError as error:
            cause = next((failure for text, failure in failures.items() if text in str(error)), None)
            raise error from cause


def run_job(job: Job) -> Iterator[str | FailedRun]:
    """Run a job in this process; yield each run's id once its results are complete."""

    def grid(run: RunSpec, text: str) -> AbstractContextManager[LocalGrid]:
        return sites_here({}, site_of_job, clients=run.clients or 1, threads=job.threads, run_config={"job": text})

    return carry_out(job, grid)

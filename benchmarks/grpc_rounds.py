"""Seconds per round over gRPC with mutual TLS, 5 processes on this machine, against what moves as many bytes otherwise.

`python benchmarks/grpc_rounds.py`. A round is one of the toy pair of rounds.py: an array down and up again, per client.
"messages" are Flower's messages with that array over the same streams, without a pair: what remains is serialising and
moving. "raw" is a gRPC server that hands as many bytes to as many processes and gets them back: nothing of Flower or of
this project's is in it. The three take turns, ten rounds each, so that a machine that is busy is so for all
of them. "cpu" is the processor time of a round, of all six processes. Not a test: a busy machine makes every figure
larger.
"""

import argparse
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
from echo import Echo, EchoClient, EchoStrategy
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from rich.console import Console
from rich.table import Table

from fedkernel.engines.grpc.certificates import TLS, make_certificates, read_tls
from fedkernel.engines.grpc.node import Node
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.ground import blas_threads
from fedkernel.protocol import Protocol, Run, to_all
from fedkernel.site import Site
from fedkernel.site.client_app import client_app

CLIENTS = 5
SIZES = {"1 KB": (128, 300), "10 MB": (1310720, 20)}
"""Floats, and rounds."""
IN_A_ROW = 10
"""Rounds of one kind before the next kind's turn; the first so many are not counted."""

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
RAW = "/raw/Echo"


def node(address: str, folder: str) -> None:
    """Be a client of the toy pair."""
    tls, derived = read_tls(Path(folder), "site"), {}  # what is made of the table stays, as at the sites of a job
    X = np.zeros((2, 1))

    def find_site(context: Any, config: Any) -> Site:
        return Site(int(context.node_config["partition-id"]), X, None, lambda outputs: None, derived=derived)

    with blas_threads(1):  # as `fedkernel.engines.grpc.client_process` has it
        Node(client_app({EchoClient.__name__: EchoClient}, find_site), tls.name, {}).serve(address, tls, 10)


def message_node(address: str, folder: str) -> None:
    """Send Flower's messages back."""
    tls, app = read_tls(Path(folder), "site"), ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        array = message.content.array_records["arrays"]["values"].numpy()
        return Message(RecordDict({"arrays": ArrayRecord({"values": Array(array)})}), reply_to=message)

    Node(app, tls.name, {}).serve(address, tls, 10)


def raw_node(address: str, folder: str) -> None:
    """Send back what comes."""
    tls = read_tls(Path(folder), "site")
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    with grpc.secure_channel(address, credentials, UNLIMITED) as channel:
        back: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for data in channel.stream_stream(RAW)(iter(back.get, None)):
            back.put(data)
        back.put(None)


Turn = tuple[Callable[[], None], list[int]]
"""Carries out one round; and the processes that take part beside this one."""


@contextmanager
def processes(folder: Path, kind: str, port: int) -> Iterator[list[int]]:
    command = [sys.executable, __file__, "--be", kind, f"127.0.0.1:{port}"]
    started = [subprocess.Popen([*command, str(folder / f"c{number}")]) for number in range(CLIENTS)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.terminate()
            process.wait()


class Turns(EchoStrategy):
    """The toy pair's rounds, with those of the others between them."""

    def __init__(self, rounds: int, floats: int, others: list[Turn], own: list[int]) -> None:
        super().__init__(rounds, floats)
        self.pids = [own, *(pids for _, pids in others)]
        self.others = [carry_out for carry_out, _ in others]
        self.seconds: list[list[float]] = [[] for _ in self.pids]
        self.cpu: list[list[float]] = [[] for _ in self.pids]

    def protocol(self, run: Run) -> Protocol[int]:
        """Echo, and have the others do so."""
        for _ in range(0, self.rounds, IN_A_ROW):
            used = cpu_seconds(self.pids[0])
            for _ in range(IN_A_ROW):
                began = time.perf_counter()
                yield from to_all(Echo(values=self.values))
                self.seconds[0].append(time.perf_counter() - began)
            self.cpu[0].append(cpu_seconds(self.pids[0]) - used)
            for number, carry_out in enumerate(self.others, start=1):
                used = cpu_seconds(self.pids[number])
                for _ in range(IN_A_ROW):
                    began = time.perf_counter()
                    carry_out()
                    self.seconds[number].append(time.perf_counter() - began)
                self.cpu[number].append(cpu_seconds(self.pids[number]) - used)
        return self.rounds


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor time of this process and of others."""
    tasks = [path for pid in [os.getpid(), *pids] for path in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((path / "schedstat").read_text().split()[0]) for path in tasks) / 1e9


@contextmanager
def messages(folder: Path, tls: TLS, floats: int) -> Iterator[Turn]:
    hub = StreamGrid([f"c{number}" for number in range(CLIENTS)])
    with listening(hub, "127.0.0.1:0", tls) as port, processes(folder, "messages", port) as pids:
        hub.wait_for_all()

        def carry_out() -> None:
            content = RecordDict({"arrays": ArrayRecord({"values": Array(np.zeros(floats))})})
            sent = [Message(content, node, "train", group_id="1") for node in hub.get_node_ids()]
            for reply in hub.send_and_receive(sent):
                reply.content.array_records["arrays"]["values"].numpy()

        yield carry_out, pids


@contextmanager
def raw(folder: Path, tls: TLS, floats: int) -> Iterator[Turn]:
    boxes: queue.SimpleQueue[queue.SimpleQueue[bytes | None]] = queue.SimpleQueue()
    came = threading.Semaphore(0)

    def connect(incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        box: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def listen() -> None:
            for _ in incoming:
                came.release()

        threading.Thread(target=listen, daemon=True).start()
        boxes.put(box)
        yield from iter(box.get, None)

    server = grpc.server(ThreadPoolExecutor(CLIENTS), options=UNLIMITED)
    method = grpc.stream_stream_rpc_method_handler(connect)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("raw", {"Echo": method})])
    credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)], tls.authority, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    with processes(folder, "raw", port) as pids:
        nodes = [boxes.get() for _ in range(CLIENTS)]
        data = bytes(8 * floats)

        def carry_out() -> None:
            for box in nodes:
                box.put(data)
            for _ in nodes:
                came.acquire()

        yield carry_out, pids
        for box in nodes:
            box.put(None)
    server.stop(0).wait()


def in_turns(folder: Path, tls: TLS, floats: int, rounds: int) -> list[tuple[float, float]]:
    """Return the median seconds of a round, and of processor time, of the toy pair, Flower's messages and raw bytes."""
    hub = StreamGrid([f"c{number}" for number in range(CLIENTS)])
    with ExitStack() as stack:
        others = [stack.enter_context(kind(folder, tls, floats)) for kind in (messages, raw)]
        port = stack.enter_context(listening(hub, "127.0.0.1:0", tls))
        own = stack.enter_context(processes(folder, "node", port))
        hub.wait_for_all()
        strategy = Turns(rounds, floats, others, own)
        strategy.run(hub)
    measured = zip(strategy.seconds, strategy.cpu, strict=True)
    return [(statistics.median(seconds[IN_A_ROW:]), statistics.median(cpu[1:]) / IN_A_ROW) for seconds, cpu in measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="only the small payload")
    parser.add_argument("--be", nargs=3, metavar=("KIND", "ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        kinds: dict[str, Callable[[str, str], None]] = {"node": node, "messages": message_node, "raw": raw_node}
        kinds[arguments.be[0]](*arguments.be[1:])
        return
    table = Table("payload", "", "a round", "messages", "ratio", "raw", "ratio", box=None)
    with TemporaryDirectory(prefix="fedkernel-bench-") as temporary:
        folder = Path(temporary)
        make_certificates(folder, ["127.0.0.1"], [f"c{number}" for number in range(CLIENTS)])
        tls = read_tls(folder / "server", "server")
        for name, (floats, rounds) in list(SIZES.items())[: 1 if arguments.small else None]:
            measured = in_turns(folder, tls, floats, rounds)
            for what, (ours, *others) in zip(("seconds", "cpu"), zip(*measured, strict=True), strict=True):
                ratios = [text for other in others for text in (f"{1000 * other:.2f}", f"{ours / other:.2f}")]
                table.add_row(name, f"ms, {what}", f"{1000 * ours:.2f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()

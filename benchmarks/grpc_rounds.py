"""Seconds per round over gRPC with mutual TLS, 5 processes on this machine, against what moves as many bytes otherwise.

`python benchmarks/grpc_rounds.py`. A round is one of the toy pair of rounds.py: an array down and up again, per client.
"messages" are Flower's messages with that array over the same streams, without a pair: what remains is serialising and
moving. "raw" is a gRPC server that hands as many bytes to as many processes and gets them back: nothing of Flower or of
this project's is in it. Not a test: a busy machine makes every figure larger.
"""

import argparse
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from rich.console import Console
from rich.table import Table
from rounds import EchoClient, EchoStrategy

from fedkernel.engines.grpc.certificates import TLS, make_certificates, read_tls
from fedkernel.engines.grpc.hub import Hub
from fedkernel.engines.grpc.node import Node
from fedkernel.engines.grpc.serving import listening
from fedkernel.run.answering import client_app
from fedkernel.run.site import Site

CLIENTS = 5
SIZES = {"1 KB": (128, 300), "10 MB": (1310720, 20)}
"""Floats, and rounds."""

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
RAW = "/raw/Echo"


def node(address: str, folder: str) -> None:
    """Be a client of the toy pair."""
    tls = read_tls(Path(folder), "site")

    def find_site(context: Any, config: Any) -> Site:
        return Site(int(context.node_config["partition-id"]), np.zeros((2, 1)), None, lambda outputs: None)

    Node(client_app({EchoClient.__name__: EchoClient}, find_site), tls.name, {}).attend(address, tls, 10)


def message_node(address: str, folder: str) -> None:
    """Send Flower's messages back."""
    tls, app = read_tls(Path(folder), "site"), ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        array = message.content.array_records["arrays"]["values"].numpy()
        return Message(RecordDict({"arrays": ArrayRecord({"values": Array(array)})}), reply_to=message)

    Node(app, tls.name, {}).attend(address, tls, 10)


def raw_node(address: str, folder: str) -> None:
    """Send back what comes."""
    tls = read_tls(Path(folder), "site")
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    with grpc.secure_channel(address, credentials, UNLIMITED) as channel:
        back: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for data in channel.stream_stream(RAW)(iter(back.get, None)):
            back.put(data)
        back.put(None)


@contextmanager
def processes(folder: Path, kind: str, port: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--be", kind, f"127.0.0.1:{port}"]
    started = [subprocess.Popen([*command, str(folder / f"c{number}")]) for number in range(CLIENTS)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()


def ours(folder: Path, tls: TLS, floats: int, rounds: int) -> float:
    hub = Hub([f"c{number}" for number in range(CLIENTS)])
    with listening(hub, "127.0.0.1:0", tls) as port, processes(folder, "node", port):
        hub.wait_for_all()
        result = EchoStrategy(rounds, floats).run(hub)
    return statistics.median(row["seconds"] for row in result.history[2:])


def messages(folder: Path, tls: TLS, floats: int, rounds: int) -> float:
    hub, seconds = Hub([f"c{number}" for number in range(CLIENTS)]), []
    with listening(hub, "127.0.0.1:0", tls) as port, processes(folder, "messages", port):
        hub.wait_for_all()
        for _ in range(rounds):
            began = time.perf_counter()
            content = RecordDict({"arrays": ArrayRecord({"values": Array(np.zeros(floats))})})
            sent = [Message(content, node, "train", group_id="1") for node in hub.get_node_ids()]
            for reply in hub.send_and_receive(sent):
                reply.content.array_records["arrays"]["values"].numpy()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def raw(folder: Path, tls: TLS, floats: int, rounds: int) -> float:
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
    seconds = []
    with processes(folder, "raw", port):
        nodes = [boxes.get() for _ in range(CLIENTS)]
        data = bytes(8 * floats)
        for _ in range(rounds):
            began = time.perf_counter()
            for box in nodes:
                box.put(data)
            for _ in nodes:
                came.acquire()
            seconds.append(time.perf_counter() - began)
        for box in nodes:
            box.put(None)
    server.stop(0).wait()
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--be", nargs=3, metavar=("KIND", "ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        kinds: dict[str, Callable[[str, str], None]] = {"node": node, "messages": message_node, "raw": raw_node}
        kinds[arguments.be[0]](*arguments.be[1:])
        return
    table = Table("payload", "median s per round", "messages", "ratio", "raw", "ratio", box=None)
    with TemporaryDirectory(prefix="fedkernel-bench-") as temporary:
        folder = Path(temporary)
        make_certificates(folder, ["127.0.0.1"], [f"c{number}" for number in range(CLIENTS)])
        tls = read_tls(folder / "server", "server")
        for name, (floats, rounds) in SIZES.items():
            one, two, three = (measure(folder, tls, floats, rounds) for measure in (ours, messages, raw))
            ratios = (f"{two:.4f}", f"{one / two:.2f}", f"{three:.4f}", f"{one / three:.2f}")
            table.add_row(name, f"{one:.4f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()

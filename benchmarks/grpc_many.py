"""Rounds of 1 KB with many sites over loopback: light ones, hundreds to a process, that send back what they get.

What is measured is the coordinator's end, its processor seconds per round among them, which a busy machine hardly
changes. "bare bytes" is a server of grpc.aio that hands as many bytes to as many streams and gets them back.
"""

import argparse
import asyncio
import itertools
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from rich.console import Console
from rich.table import Table

from fedkernel.engines.grpc.frames import (
    INSTANCE,
    METHOD,
    NAME,
    OPTIONS,
    TRANSPORT,
    VERSION,
    Envelope,
    FrameDecoder,
    frames,
)
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.wire import flower_internals

ROUNDS = {100: 60, 1000: 12}
"""By sites."""

FLOATS, PER_PROCESS = 128, 500
RAW = "/raw/Echo"
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


def sent_back(request: bytes | bytearray) -> bytes:
    """Return Flower's reply with the content of a request."""
    message = flower_internals.from_bytes(request)
    reply = Message(message.content, reply_to=message)
    flower_internals.stamp(reply)
    return flower_internals.to_bytes(reply)


async def site(address: str, number: int, method: str) -> None:
    """Be a site that sends back what it gets."""
    async with grpc.aio.insecure_channel(address, [*OPTIONS, OWN_CONNECTION]) as channel:
        metadata = ((NAME, f"c{number}"), (INSTANCE, str(number)), (TRANSPORT, str(VERSION)))
        call, inbox = channel.stream_stream(method)(metadata=metadata), FrameDecoder(notes=True)
        async for frame in call:
            if method == RAW:
                await call.write(frame)
                continue
            item = inbox.decode(frame)
            if isinstance(item, Envelope):
                for answer in frames(Envelope(item.id, (sent_back(*item.parts),))):
                    await call.write(answer)


async def be_sites(address: str, first: int, last: int, method: str) -> None:
    """Be many; where the server has gone, all of them end."""
    await asyncio.gather(*(site(address, number, method) for number in range(first, last)), return_exceptions=True)


@contextmanager
def processes(count: int, port: int, method: str) -> Iterator[None]:
    command = [sys.executable, __file__, "--be", f"127.0.0.1:{port}"]
    bounds = [*range(0, count, PER_PROCESS), count]
    started = [
        subprocess.Popen([*command, str(first), str(last), method]) for first, last in itertools.pairwise(bounds)
    ]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()


def timed(rounds: int, go: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of a round, and the mean seconds of this process's processor time."""
    go()
    seconds, used = [], time.process_time()
    for _ in range(rounds):
        began = time.perf_counter()
        go()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), (time.process_time() - used) / rounds


def ours(count: int, rounds: int) -> tuple[float, float]:
    """Send Flower's messages by the hub."""
    hub = StreamGrid([f"c{number}" for number in range(count)], report=lambda text: None)
    with listening(hub, "127.0.0.1:0", None) as port, processes(count, port, METHOD):
        hub.wait_for_all()

        def go() -> None:
            content = RecordDict({"arrays": ArrayRecord({"values": Array(np.zeros(FLOATS))})})
            sent = [Message(content, node, "train", group_id="1") for node in hub.get_node_ids()]
            replies = list(hub.send_and_receive(sent, timeout=60))
            if len(replies) != count or any(reply.has_error() for reply in replies):
                raise SystemExit("not all sites answered")

        return timed(rounds, go)


def bare(count: int, rounds: int) -> tuple[float, float]:
    """Send bytes by a server of grpc.aio."""
    boxes: list[asyncio.Queue[bytes]] = []
    state: dict[str, Any] = {"left": 0}
    came, started = threading.Event(), threading.Event()

    async def connect(incoming: AsyncIterator[bytes], context: Any) -> None:
        box: asyncio.Queue[bytes] = asyncio.Queue()
        boxes.append(box)
        while True:
            await context.write(await box.get())
            await context.read()
            state["left"] -= 1
            if not state["left"]:
                came.set()

    async def serve() -> None:
        server = grpc.aio.server(options=OPTIONS)
        method = grpc.stream_stream_rpc_method_handler(connect)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("raw", {"Echo": method})])
        state.update(port=server.add_insecure_port("127.0.0.1:0"), loop=asyncio.get_running_loop(), end=asyncio.Event())
        await server.start()
        started.set()
        await state["end"].wait()
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    data = bytes(8 * FLOATS)

    def send() -> None:
        for box in boxes:
            box.put_nowait(data)

    def go() -> None:
        state["left"] = count
        came.clear()
        state["loop"].call_soon_threadsafe(send)
        came.wait()

    with processes(count, state["port"], RAW):
        while len(boxes) < count:
            time.sleep(0.05)
        figures = timed(rounds, go)
        state["loop"].call_soon_threadsafe(state["end"].set)
        thread.join()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--be", nargs=4, metavar=("ADDRESS", "FIRST", "LAST", "METHOD"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        address, first, last, method = arguments.be
        asyncio.run(be_sites(address, int(first), int(last), method))
        return
    table = Table(
        "sites", "median s per round", "coordinator's processor s", "bare bytes", "processor s", "ratio", box=None
    )
    for count, rounds in ROUNDS.items():
        (wall, used), (other_wall, other_used) = ours(count, rounds), bare(count, rounds)
        row = (wall, used, other_wall, other_used)
        table.add_row(str(count), *(f"{seconds:.4f}" for seconds in row), f"{used / other_used:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()

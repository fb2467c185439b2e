"""Seconds of four pairs' runs over gRPC between processes, with delays of 1, 30, 200 ms and 10, 100 Mbit/s.

Every site reaches the coordinator by a proxy on loopback that delays bytes by half of the round trip, each way, and
passes on no more than the link's bits a second. TCP ends there: lost packets and slow start are not in the figures. All
runs share the sites' processes and connections, with mutual TLS; a run's joining, a round, is in its seconds.
"""

import asyncio
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from fedkernel.engines.grpc import serve
from fedkernel.engines.grpc.certificates import make_certificates, read_tls
from fedkernel.flower_apps import APPS
from fedkernel.numerics import Linear
from fedkernel.run import Result
from fedkernel.strategies import DKPCA, CentroidKMeans, FKKMeans, VFedPCA
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

SITES = 5
NETWORKS = [(0, 1e6)] * 2 + [(delay, rate) for delay in (1, 30, 200) for rate in (100, 10)]
"""Round trip in milliseconds, and Mbit/s; the first, twice: the proxies alone, once to load all code."""
PAIRS = {"DKPCA": DKPCA(5, Linear(), center=True), "VFedPCA": VFedPCA(5)}
PAIRS |= {"CentroidKMeans": CentroidKMeans(10), "FKKMeans": FKKMeans(10)}


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: list[float]) -> None:
    """Pass bytes on, half a round trip after the link has taken them."""
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def receive() -> None:
        free = 0.0  # when the link has taken all before
        with suppress(OSError):  # an end has gone
            while piece := await reader.read(16384):
                free = max(free, time.monotonic()) + 8 * len(piece) / (1e6 * link[1])
                waiting.put_nowait((free + link[0] / 2000, piece))
                await asyncio.sleep(free - time.monotonic())  # the sender is held back, as by a full buffer
        waiting.put_nowait((time.monotonic(), b""))

    receiving, piece = asyncio.ensure_future(receive()), b" "
    with suppress(OSError):
        while piece:
            due, piece = await waiting.get()
            await asyncio.sleep(due - time.monotonic())
            writer.write(piece)
            await writer.drain()
    receiving.cancel()
    writer.close()


@contextmanager
def proxies(port: int, link: list[float]) -> Iterator[list[int]]:
    """Yield ports of a proxy for each site, whose `link`, round trip and Mbit/s, may change between runs."""
    started: queue.SimpleQueue[tuple[list[int], Callable[[], object]]] = queue.SimpleQueue()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(pass_on(reader, other_writer, link), pass_on(other_reader, writer, link))

    async def carry() -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        servers = [await asyncio.start_server(connect, "127.0.0.1", 0) for _ in range(SITES)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        started.put((ports, lambda: loop.call_soon_threadsafe(end.set)))
        await end.wait()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, carry())
        ports, end = started.get()
        yield ports
        end()


def write_runs(folder: Path) -> Iterator[RunSpec]:
    """Write the sites' tables, and yield the four pairs' runs over each network."""
    X = scale(load_digits().data)
    X = X[:, X.any(axis=0)]
    for place in range(len(NETWORKS)):
        for name, strategy in PAIRS.items():
            tables = np.array_split(X, SITES, axis=int(strategy.partition == "vertical"))
            files = [as_file(own, folder / f"{name}-{number}") for number, own in enumerate(tables)]
            own = {"strategy": name, "parameters": strategy.hyperparameters, "shards": files, "seed": 0}
            yield RunSpec(id=f"{name}-{place}", **own, clients=SITES)


def main() -> None:
    headings = [f"{name}: {what}" for what in ("s", "ms a round") for name in PAIRS]
    table = Table("round trip", "Mbit/s", *headings, box=None)
    names, link = [f"site-{number}" for number in range(SITES)], list(NETWORKS[0])
    with TemporaryDirectory(prefix="fedkernel-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        make_certificates(folder, ["127.0.0.1"], names)
        job = Job(runs=list(write_runs(folder)), apps=APPS, out=str(folder / "out"))

        def start(port: int) -> None:
            for name, own in zip(names, stack.enter_context(proxies(port, link)), strict=True):
                command = [sys.executable, "-m", "fedkernel.engines.grpc.client_process"]
                process = subprocess.Popen([*command, f"127.0.0.1:{own}", str(folder / name), "60"])
                stack.callback(process.wait)
                stack.callback(process.terminate)

        finished = serve(job, names, "127.0.0.1:0", read_tls(folder / "server", "server"), ready=start)
        for place, network in enumerate(NETWORKS):
            link[:] = network
            results = [Result.load(folder / "out" / str(next(finished))) for _ in PAIRS]
            figures = [*network, *(result.seconds for result in results)]
            figures += [1000 * result.seconds / (result.ledger.rounds + 1) for result in results]
            if place:
                table.add_row(*(f"{figure:.3g}" for figure in figures))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()

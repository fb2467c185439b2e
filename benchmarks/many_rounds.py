"""Memory and time of a run of many rounds, round by round: `make bench`. Not a test: it takes minutes.

The toy pair of rounds.py sends 1 KB down and up per client and round, in one process or in a process for each site,
over gRPC with mutual TLS. After round 1,000, the memory of each process should grow by less than 1 %, and the time of a
round by less than 10 %; a machine that does other things beside may be off by more than that.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from echo import FLOATS, Echo, EchoClient, EchoStrategy
from grpc_rounds import node
from rich.console import Console
from rich.table import Table

from fedkernel.engines.grpc.certificates import make_certificates, read_tls
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.local import LocalGrid
from fedkernel.protocol import Protocol, Run, to_all
from fedkernel.run import Journal
from fedkernel.site import Site
from fedkernel.site.client_app import client_app

SITES = ("c0", "c1", "c2")
PROCESSES = multiprocessing.get_context("spawn")
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(process: int | str = "self") -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE


class Watched(EchoStrategy):
    """Looks at the clock and at the memory of the processes every so many rounds."""

    def __init__(self, rounds: int, processes: dict[str, int | str], every: int) -> None:
        super().__init__(rounds, FLOATS)
        self.processes, self.every = processes, every
        self.seen: list[tuple[int, float, dict[str, int]]] = []

    def protocol(self, run: Run) -> Protocol[int]:
        """Echo, with other numbers each time."""
        began = time.perf_counter()
        seconds = []
        for number in range(1, self.rounds + 1):
            yield from to_all(Echo(values=self.values + number))
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
            if number % self.every == 0:
                memory = {name: resident(process) for name, process in self.processes.items()}
                self.seen.append((number, statistics.median(seconds), memory))
                seconds.clear()
                began = time.perf_counter()
        return self.rounds


def in_one_process(rounds: int, every: int, folder: Path) -> Watched:
    def find_site(context: Any, config: Any) -> Site:
        return Site(int(context.node_config["partition-id"]), np.zeros((2, 1)), None, lambda outputs: None)

    strategy = Watched(rounds, {"process": "self"}, every)
    journal = Journal(folder / "local", {"run": "local"}, LocalGrid.write_every)
    with LocalGrid(client_app({EchoClient.__name__: EchoClient}, find_site), clients=len(SITES)) as grid:
        strategy.run(grid, journal=journal)
    journal.remove()
    return strategy


@contextmanager
def _sites(folder: Path, port: int) -> Iterator[list[int]]:
    started = [PROCESSES.Process(target=node, args=(f"127.0.0.1:{port}", str(folder / name))) for name in SITES]
    for process in started:
        process.start()
    try:
        yield [process.pid or 0 for process in started]
    finally:
        for process in started:
            process.terminate()
            process.join()


def over_grpc(rounds: int, every: int, folder: Path) -> Watched:
    make_certificates(folder, ["127.0.0.1"], SITES)
    hub = StreamGrid(SITES)
    journal = Journal(folder / "grpc", {"run": "grpc"}, StreamGrid.write_every)
    with listening(hub, "127.0.0.1:0", read_tls(folder / "server", "server")) as port, _sites(folder, port) as pids:
        strategy = Watched(rounds, {"coordinator": "self", "a site": pids[0]}, every)
        hub.wait_for_all()
        strategy.run(hub, journal=journal)
    journal.remove()
    return strategy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1000)
    arguments = parser.parse_args()
    table = Table("engine", "round", "median s per round", "MB", box=None)
    growth = Table("engine", "of", "from the first line to the last", box=None)
    with TemporaryDirectory(prefix="fedkernel-bench-") as folder:
        for name, run in (("local", in_one_process), ("grpc", over_grpc)):
            seen = run(arguments.rounds, arguments.every, Path(folder)).seen
            for number, seconds, memory in seen:
                sizes = ", ".join(f"{which} {size / 1e6:.2f}" for which, size in memory.items())
                table.add_row(name, f"{number:,}", f"{seconds:.5f}", sizes)
            (_, before, first), (_, after, last) = seen[0], seen[-1]
            growth.add_row(name, "seconds", f"{after / before - 1:+.1%}")
            for which, size in first.items():
                growth.add_row(name, f"memory, {which}", f"{last[which] / size - 1:+.2%}")
    console = Console()
    console.print(table)
    console.print(growth)


if __name__ == "__main__":
    main()

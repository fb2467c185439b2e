"""Seconds per round that the engines add: `make bench`. Not a test: a busy machine makes every figure larger.

A toy pair sends 1 KB (128 floats) down and up per client and round, so that nothing but the engine is measured.
"""

import argparse
import statistics
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.table import Table

from fedkernel.arrays import FloatArray
from fedkernel.engines.ray import run_job
from fedkernel.flower_apps import APPS
from fedkernel.protocol.client import KernelClient
from fedkernel.protocol.messages import Reply, Request, Shape
from fedkernel.protocol.rounds import Protocol, Run, to_all
from fedkernel.run.job import Job, RunSpec
from fedkernel.run.result import Result
from fedkernel.strategy import KernelStrategy
from strategies import VFedPCA

FLOATS = 128
TARGETS = {("local", 5): 0.002, ("local", 50): 0.020, ("ray", 5): 0.15}
"""Seconds per round to reach, with 1 KB messages."""


class Echoed(Reply):
    """The request's array."""

    values: Annotated[FloatArray, Shape("n")]


class Echo(Request[Echoed]):
    """Asks for the array back."""

    values: Annotated[FloatArray, Shape("n")]


class EchoClient(KernelClient):
    """Sends back what it gets."""

    answers = (Echo,)

    def echo(self, ask: Echo) -> Echoed:
        """Return the array."""
        return Echoed(values=ask.values)


class EchoStrategy(KernelStrategy[int]):
    """As many rounds as asked."""

    client = EchoClient
    partition = "vertical"

    def __init__(self, rounds: int, floats: int) -> None:
        self.rounds, self.values = rounds, np.zeros(floats)

    def protocol(self, run: Run) -> Protocol[int]:
        """Echo."""
        for _ in range(self.rounds):
            yield from to_all(Echo(values=self.values))
        return self.rounds


def local(clients: int, floats: int, rounds: int) -> float:
    shards = [np.zeros((2, 1))] * clients
    result = EchoStrategy(rounds, floats).fit(shards)
    return statistics.median(row["seconds"] for row in result.history[1:])


def ray(clients: int, rounds: int) -> float:
    """Send about 1 KB by a registered pair: its vectors have N = 127 entries."""
    with TemporaryDirectory(prefix="fedkernel-bench-") as folder:
        files = [f"{folder}/client-{number}.npy" for number in range(clients)]
        for number, file in enumerate(files):
            np.save(file, np.random.default_rng(number).standard_normal((FLOATS - 1, 2)))
        parameters = {"rounds": rounds, "local_iterations": 1}
        run = RunSpec(id="bench", strategy=VFedPCA.__name__, parameters=parameters, shards=files, clients=clients)
        list(run_job(Job(runs=[run], apps=APPS, out=f"{folder}/out")))
        result = Result.load(f"{folder}/out/bench")
    return statistics.median(row["seconds"] for row in result.history[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-ray", action="store_true", help="only the local engine")
    arguments = parser.parse_args()
    table = Table("engine", "clients", "payload", "median s per round", "to reach", box=None)
    for clients, floats, name, rounds in (
        (5, FLOATS, "1 KB", 200),
        (50, FLOATS, "1 KB", 100),
        (5, 1310720, "10 MB", 10),
    ):
        goal = TARGETS.get(("local", clients)) if floats == FLOATS else None
        seconds = local(clients, floats, rounds)
        table.add_row("local", str(clients), name, f"{seconds:.4f}", "" if goal is None else f"<= {goal:g}")
    if not arguments.no_ray:
        table.add_row("ray", "5", "1 KB", f"{ray(5, 30):.4f}", f"<= {TARGETS['ray', 5]:g}")
    Console().print(table)


if __name__ == "__main__":
    main()

"""Seconds per round that the engines add: `make bench`. Not a test: a busy machine makes every figure larger.

A toy pair sends 1 KB (128 floats) down and up per client and round, so that nothing but the engine is measured.
"""

import argparse
import statistics
from tempfile import TemporaryDirectory

import numpy as np
from echo import FLOATS, EchoStrategy
from rich.console import Console
from rich.table import Table

from fedkernel.engines.ray import run_job
from fedkernel.flower_apps import APPS
from fedkernel.run import Result
from fedkernel.strategies import VFedPCA
from fedkernel.wire import Job, RunSpec

TARGETS = {("local", 5): 0.002, ("local", 50): 0.020, ("ray", 5): 0.15}
"""Seconds per round to reach, with 1 KB messages."""


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

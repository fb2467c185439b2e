"""A coordinator that is killed at random points, with its sites alive: `make bench`. Not a test: it takes minutes.

Each run's server is a process that is killed as soon as its journal has some random share of what it will have, and is
started again at once. The sites' processes are left alone, but for every second time that a method is tried, where one
is killed and started again with the server. What comes out must have the bits of a run that was left in peace: model,
history but for seconds, ledger.
"""

import argparse
import contextlib
import multiprocessing
import random
import socket
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from fedkernel import RBF
from fedkernel.engines.grpc.certificates import SERVER, TLS, make_certificates, read_tls
from fedkernel.engines.grpc.client_process import main as site
from fedkernel.engines.grpc.coordinator import LOOPBACK, serve
from fedkernel.engines.local import run_job
from fedkernel.flower_apps import APPS
from fedkernel.ground import load_parts
from fedkernel.run import Result
from fedkernel.run.journal import NAME
from fedkernel.strategies import ADMMKPCA, DisKPCA, FKKMeans
from fedkernel.wire import Job, RunSpec

SITES = ("a", "b", "c")
METHODS = {
    "FKKMeans, Lanczos": FKKMeans(10, 10, 60, iterations=4, solver="lanczos", coreset_size=60),
    "ADMMKPCA": ADMMKPCA(3, iterations=20, share_rows=True),
    "DisKPCA": DisKPCA(5, RBF(0.001), n_adaptive=60, share_rows=True),
}
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["fedkernel.flower_apps", "fedkernel.engines.grpc.coordinator", "fedkernel.strategies"]
)


def job_of(strategy: Any, folder: Path, *, journals: bool) -> Job:
    files = [str(folder / f"{name}.npy") for name in SITES]
    kind = type(strategy).__name__
    run = RunSpec(
        id="run", strategy=kind, parameters=strategy.hyperparameters, shards=files, seed=1, clients=len(SITES)
    )
    return Job(runs=[run], apps=APPS, out=str(folder / ("out" if journals else "whole")), journals=journals)


def coordinate(job: str, address: str, tls: TLS) -> None:
    for _ in serve(Job.from_json(job), SITES, address, tls):
        pass


def contents_of(folder: Path) -> tuple[Any, ...]:
    """Return what a run came to, to the bit, but for seconds."""
    result, model = Result.load(folder), load_parts(folder / "model.npz")
    history = [{name: value for name, value in row.items() if "seconds" not in name} for row in result.history]
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in model.arrays.items()}
    return arrays, model.fields, history, result.ledger


def drill(strategy: Any, folder: Path, share: float, *, site_too: bool) -> tuple[str, float]:
    """Kill the server of a run once, and perhaps a site; return where it was resumed, and the seconds that all took."""
    rows = load_digits().data[:300]
    for name, part in zip(SITES, np.array_split(rows, len(SITES)), strict=True):
        np.save(folder / f"{name}.npy", part)
    whole = job_of(strategy, folder, journals=False)
    list(run_job(whole))
    job, journal = job_of(strategy, folder, journals=True), folder / "out" / "run" / NAME
    # what a journal will have: that of a run in this process, less the memory of its sites
    make_certificates(folder / "tls", [LOOPBACK], SITES)
    tls = read_tls(folder / "tls" / SERVER, "server")
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{probe.getsockname()[1]}"
    rounds = Result.load(folder / "whole" / "run").ledger.rounds
    began, stop = time.monotonic(), 1 + int(share * rounds)

    def started(name: str) -> Any:
        process = PROCESSES.Process(target=site, args=(address, str(folder / "tls" / name), "60"))
        process.start()
        return process

    sites = [started(name) for name in SITES]
    server = PROCESSES.Process(target=coordinate, args=(job.model_dump_json(), address, tls))
    server.start()
    while server.is_alive() and _records(journal) < stop:
        time.sleep(0.0005)
    server.kill()
    server.join()
    if site_too:
        sites[-1].kill()
        sites[-1].join()
        sites[-1] = started(SITES[-1])
    server = PROCESSES.Process(target=coordinate, args=(job.model_dump_json(), address, tls))
    server.start()
    server.join()
    for process in sites:
        process.join()
    if [server.exitcode, *(process.exitcode for process in sites)] != [0] * (1 + len(SITES)):
        raise SystemExit("a process has failed")
    result = Result.load(folder / "out" / "run")
    if contents_of(folder / "out" / "run") != contents_of(folder / "whole" / "run"):
        raise SystemExit(f"{strategy!r}, killed after {stop} records: another result")
    return next((text.rpartition(" at ")[2] for text in result.findings), "not resumed"), time.monotonic() - began


def _records(journal: Path) -> int:
    """Return how many records a journal has, less the header; without reading what is in them."""
    count, place = -1, 0
    with contextlib.suppress(FileNotFoundError):
        size = journal.stat().st_size
        with journal.open("rb") as file:
            while place + 44 <= size:
                file.seek(place)
                place += 44 + int.from_bytes(file.read(8))
                count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)  # noqa: S311 - where to kill
    table = Table("method", "killed", "after", "resumed at", "seconds, both lives", "same bits", box=None)
    for point in range(arguments.points):
        name = list(METHODS)[point % len(METHODS)]
        share, site_too = rng.random(), point // len(METHODS) % 2 == 1
        with TemporaryDirectory(prefix="fedkernel-drill-") as folder:
            where, seconds = drill(METHODS[name], Path(folder), share, site_too=site_too)
        table.add_row(name, "server and site" if site_too else "server", f"{share:.0%}", where, f"{seconds:.1f}", "yes")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())

"""Parallel execution of many experiments, limited by processors and memory, each with its own folder."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from fedkernel.experiments.config import Experiment
from fedkernel.experiments.running.execution import Progress, run_experiment
from fedkernel.experiments.running.planning import run_ids
from fedkernel.ground import FedkernelError, InputError

MEMORY_SHARE, GB = 0.8, 1e9
LOST_PROCESS = "a process was killed, perhaps for lack of memory; the same command resumes the work"
NOT_BEGUN = "not begun: the process of another experiment was killed"


def experiments_in(folder: Path) -> list[Path]:
    """Return the configuration files of a folder, sorted by name."""
    if not (files := sorted(folder.glob("*.toml"))):
        raise InputError(f"{folder} holds no configuration files (*.toml)")
    return files


def run_all(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    jobs: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[Experiment, float, str | None]]:
    """Run each experiment in ``out/NAME``, skipping finished runs, and yield each with its seconds and error, if any.

    An exception ends its experiment alone; failed runs count as an error of their experiment.

    - `jobs`: most experiments at a time, by default the number of processors; fewer where their memory
      (``paper.memory``) exceeds the machine's.
    - `progress`: called about every second with the names of the running experiments.
    """
    jobs = jobs or os.cpu_count() or 1
    runs = {experiment.name: len(run_ids(experiment)) for experiment in experiments}
    if len(runs) < len(experiments):
        raise InputError("two experiments have the same name, and so the same folder")
    memory = MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GB
    waiting, running = list(experiments), dict[Future[str | None], tuple[Experiment, float]]()
    # Ctrl-C is for the pool's owner, who ends its processes
    deaf = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=deaf) as pool:
        try:
            while waiting or running:
                for experiment in startable(waiting, [its for its, _ in running.values()], jobs, memory):
                    table = (experiment.table, experiment.source, experiment.text)
                    future = pool.submit(_run_in_pool, table, out / experiment.name, restart)
                    running[future] = experiment, time.perf_counter()
                    waiting.remove(experiment)
                for future in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    experiment, began = running.pop(future)
                    yield experiment, time.perf_counter() - began, _error(future)
                if progress is not None:
                    done = sum(min(_finished(out / name), count) for name, count in runs.items())
                    progress(", ".join(its.name for its, _ in running.values()), done, sum(runs.values()))
        except BrokenProcessPool:  # with a process lost a pool begins no other
            yield from ((experiment, 0.0, LOST_PROCESS) for experiment, _ in running.values())
            yield from ((experiment, 0.0, NOT_BEGUN) for experiment in waiting)
        except BaseException:  # interrupted, also from outside: finished runs are on disk
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def startable(
    waiting: Sequence[Experiment], running: Sequence[Experiment], jobs: int, memory: float
) -> list[Experiment]:
    """Return the waiting experiments that can start now, in order. If none runs, one always can. `memory`: in GB."""
    begun = list(running)
    for experiment in waiting:
        needed = sum(1.0 if its.paper is None else its.paper.memory for its in [*begun, experiment])
        if not begun or (len(begun) < jobs and needed <= memory):
            begun.append(experiment)
    return begun[len(running) :]


def _run_in_pool(table: tuple[Mapping[str, Any], str, str], out: Path, restart: bool) -> str | None:
    """Run an experiment in a process of the pool; return its error, if any."""
    try:
        return run_experiment(Experiment.from_table(*table), out, restart=restart).summary or None
    except FedkernelError as error:
        return str(error)


def _error(future: Future[str | None]) -> str | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return LOST_PROCESS
    except Exception as error:
        return f"{type(error).__name__}: {error} (this is a defect; run it by itself with --debug)"


def _finished(folder: Path) -> int:
    """Return the number of finished runs in a folder, by counting lines."""
    try:
        return (folder / "runs.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0

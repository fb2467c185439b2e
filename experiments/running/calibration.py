"""How fast this machine computes: measured once, kept in the user's settings, read by `fedkernel run --dry-run`."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.linalg
import typer

from fedkernel.errors import InputError
from fedkernel.numerics import RBF, RandomFeatures
from fedkernel.protocol import Speeds, all_eigenpairs
from fedkernel.storage import write_whole
from fedkernel.threads import blas_threads

Clock = Callable[[], float]
FORMAT: Final = 1
REPEAT: Final = 3


def file_of() -> Path:
    """Return where the figures are: `speeds.json` in the folder of this user's settings."""
    return Path(typer.get_app_dir("fedkernel")) / "speeds.json"


def fingerprint() -> dict[str, Any]:
    """Return what tells machines apart: the cores, the BLAS and the threads that it may use."""
    from threadpoolctl import threadpool_info  # noqa: PLC0415 - looks all loaded libraries up

    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    names = sorted({f"{info['internal_api']} {info['version']} {info.get('architecture', '')}" for info in libraries})
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {"cores": _cores(), "blas": names, "OMP_NUM_THREADS": threads, "numpy": np.__version__}


def measured(clock: Clock = time.perf_counter) -> Iterator[tuple[str, float]]:
    """Measure this machine; yield each of the figures of `Speeds` with its name, but for the cores.

    Every core works at once, each on arrays of its own and with one BLAS thread, as clients do; the least of three.
    """
    rng = np.random.default_rng(0)
    cores = _cores()
    A = rng.standard_normal((1000, 1000))
    # Larger than a cache: vectors with such a table wait for memory.
    tall = [rng.standard_normal((40_000, 100)) for _ in range(cores)]
    vectors = rng.standard_normal((100, 2))
    entries = [rng.uniform(-3, 0, (1024, 200)) for _ in range(cores)]
    S = A[:600, :600] + A[:600, :600].T
    features = RandomFeatures(RBF(gamma=1.0), 200).map(1, 1)
    with blas_threads(1), ThreadPoolExecutor(cores) as pool:

        def least(work: Callable[[int], Any], amount: float) -> float:
            def once() -> float:
                began = clock()
                list(pool.map(work, range(cores)))
                return clock() - began

            once()
            return min(once() for _ in range(REPEAT)) / amount

        yield "product", least(lambda _: A @ A, 2 * 1000**3 / 1e9)
        yield "passing", least(lambda core: tall[core] @ vectors, tall[0].nbytes / 1e9)
        yield "exponential", least(lambda core: [np.exp(entries[core]) for _ in range(10)], 10 * entries[0].size / 1e6)
        # as the pairs compute them, of one column so that little else is to do
        yield "cosine", least(lambda _: [features(A[:, :1]) for _ in range(10)], 10 * len(A) * 200 / 1e6)
        own = all_eigenpairs(len(S)).eigen / 1e9
        yield "eigen", least(lambda _: scipy.linalg.eigh(S, driver="evd", check_finite=False), own)
    few, many = (_round(clients, clock) for clients in (2, 12))
    message = max((many - few) / 10, 0.0)
    yield "round", max(few - 2 * message, 0.0)
    yield "message", message


def _round(clients: int, clock: Clock) -> float:
    """Return the seconds that the local engine takes for a round in which nothing is computed, with 1 KB messages."""
    from experiments.running.echo import EchoStrategy  # noqa: PLC0415 - not for who only reads the figures

    shards = [np.zeros((2, 1))] * clients
    least = []
    for _ in range(REPEAT):
        durations = []
        for rounds in (5, 45):
            began = clock()
            EchoStrategy(rounds).fit(shards)
            durations.append(clock() - began)
        least.append((durations[1] - durations[0]) / 40)
    return max(min(least), 0.0)


def save(speeds: Speeds) -> Path:
    """Write the figures and whose they are; the file appears whole or not at all."""
    path = file_of()
    whole = {"format": FORMAT, "machine": fingerprint(), "speeds": dataclasses.asdict(speeds)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(json.dumps(whole, indent=1).encode() + b"\n"))
    return path


def load() -> Speeds | None:
    """Return what was measured on this machine; None: nothing, or it was another one.

    Raises
    ------
    InputError
        If the file cannot be read, or is none of these.
    """
    path = file_of()
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["format"] != FORMAT or whole["machine"] != fingerprint():
            return None
        speeds = Speeds(**whole["speeds"])
        figures = dataclasses.astuple(speeds)
        if any(isinstance(figure, bool) or not 0 <= figure < np.inf for figure in figures) or speeds.cores < 1:
            raise ValueError
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path} holds no calibration; `fedkernel calibrate` writes it anew") from None
    return speeds


def speeds_of(figures: dict[str, float]) -> Speeds:
    """Return the figures of `measured`, with this machine's cores."""
    return Speeds(**figures, cores=_cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

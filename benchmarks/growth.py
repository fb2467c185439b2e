"""How each pair's seconds grow with rows, clients, columns and components, measured and forecast: `make bench`.

    python benchmarks/growth.py [--quick] [--only DKPCA] [--repeat 2] [--cpu]

One of the four is varied at a time, over three sizes, on the local engine; the others stay at the pair's base. The
slopes are those of a line through the logarithms: 1 is proportional, 2 quadratic. The forecast is that of
`fedkernel run --dry-run`, by figures that are measured here first, as `fedkernel calibrate` does it. With `--cpu` all
of it is in processor seconds, of all threads together, which a busy machine changes less. Not a test.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import bare
import numpy as np
from live import Columns

from experiments.baselines import cohort
from experiments.running.calibration import Clock, measured, speeds_of
from fedkernel import RBF, KernelStrategy
from fedkernel.protocol import Speeds, seconds
from strategies import (
    ADMMKPCA,
    DKPCA,
    DisKPCA,
    FKKMeans,
    PeerVFedPCA,
    RFKKMeans,
    SpectralKMeans,
    UniformKPCA,
    VFedAKPCA,
    VFedPCA,
)

VARIED = ("rows", "clients", "columns", "components")


@dataclass(frozen=True)
class Size:
    """Of all clients together; peers' rows are a node's."""

    rows: int
    clients: int
    columns: int
    components: int


@dataclass(frozen=True)
class Grown:
    """A pair, its base, and what makes it of a size."""

    name: str
    base: Size
    strategy: Callable[[int, float], KernelStrategy[Any]]
    rows_each: bool = False
    fewest: int = 1


def _peers(k: int, gamma: float) -> KernelStrategy[Any]:
    return PeerVFedPCA(k, graph="ring", merge="eigenvalue", local_iterations=10, rounds=10)


def _admm(k: int, gamma: float) -> KernelStrategy[Any]:
    return ADMMKPCA(k, kernel=RBF(gamma=gamma), neighbors=2, iterations=8, tol=0, share_rows=True)


def _dkpca(k: int, gamma: float) -> KernelStrategy[Any]:
    return DKPCA(k, RBF(gamma=gamma), local_components=5 * k)


def _diskpca(k: int, gamma: float) -> KernelStrategy[Any]:
    return DisKPCA(k, RBF(gamma=gamma), n_adaptive=20 * k, share_rows=True)


def _uniform(k: int, gamma: float) -> KernelStrategy[Any]:
    return UniformKPCA(k, RBF(gamma=gamma), n_samples=20 * k, share_rows=True)


def _spectral(k: int, gamma: float) -> KernelStrategy[Any]:
    return SpectralKMeans(k, DisKPCA(k, RBF(gamma=gamma), n_adaptive=20 * k, share_rows=True), coreset_size=500)


GROWN = (
    Grown("DKPCA", Size(1600, 4, 80, 10), _dkpca),
    Grown("VFedPCA", Size(16000, 4, 160, 5), lambda k, _: VFedPCA(k, "eigenvalue", 10, 10)),
    Grown("VFedPCA exact", Size(16000, 4, 160, 5), lambda k, _: VFedPCA(k, tol=1e-8)),
    Grown("VFedAKPCA", Size(1200, 4, 80, 5), lambda k, _: VFedAKPCA(k, "eigenvalue", 10, 10)),
    Grown("PeerVFedPCA", Size(8000, 4, 160, 5), _peers, fewest=4),
    Grown("ADMMKPCA", Size(120, 6, 200, 1), _admm, rows_each=True, fewest=6),
    Grown("DisKPCA", Size(16000, 4, 40, 10), _diskpca),
    Grown("UniformKPCA", Size(16000, 4, 40, 10), _uniform),
    Grown(
        "FKKMeans, gram",
        Size(16000, 4, 40, 8),
        lambda k, _: FKKMeans(k, k, n_features=40, iterations=6, accuracy=0, solver="gram", coreset_size=500),
    ),
    Grown(
        "FKKMeans, Lanczos",
        Size(16000, 4, 40, 8),
        lambda k, _: FKKMeans(k, k, n_features=40, iterations=6, accuracy=0, solver="lanczos", coreset_size=500),
    ),
    Grown("RFKKMeans", Size(16000, 4, 40, 8), lambda k, _: RFKKMeans(k, n_features=40, coreset_size=500)),
    Grown("SpectralKMeans", Size(16000, 4, 40, 8), _spectral),
)
"""Every pair at a base of a second or less."""


def sizes(grown: Grown, varied: str, *, quick: bool) -> list[Size]:
    """Return the sizes of which one number is varied: half, once and twice the base; a quick look has two."""
    base = grown.base
    number = getattr(base, varied)
    # half, once and twice; a graph's nodes need some neighbours, so that they are never fewer than the base
    least = number if number == 1 or (varied == "clients" and grown.fewest == number) else number // 2
    steps = (least, 2 * least) if quick else (least, 2 * least, 4 * least)
    return [replace(base, **{varied: step}) for step in steps]


def tables(grown: Grown, size: Size) -> tuple[list[np.ndarray], float]:
    """Return the clients' tables, and a width that is right for all columns."""
    rows = size.rows * (size.clients if grown.rows_each else 1)
    X = bare.spread(rows, size.columns) + bare.clustered(rows, size.columns)
    axis = 1 if grown.strategy(size.components, 1.0).partition == "vertical" else 0
    return [part.copy() for part in np.array_split(X, size.clients, axis=axis)], 1 / (2 * float(X.var(axis=0).sum()))


def calibrated(clock: Clock) -> Speeds:
    """Return this machine's speeds by a clock; by one of processor time those of one core, which does all the work."""
    speeds = speeds_of(dict(measured(clock)))
    if clock is not time.process_time:
        return speeds
    arithmetic = ("product", "passing", "exponential", "cosine", "eigen")
    return replace(speeds, cores=1, **{name: getattr(speeds, name) / speeds.cores for name in arithmetic})


def measure(grown: Grown, size: Size, speeds: Speeds, repeat: int, clock: Clock) -> tuple[float, float]:
    """Return the least seconds of some runs, and what is forecast."""
    shards, gamma = tables(grown, size)
    strategy = grown.strategy(size.components, gamma)
    forecast = strategy.forecast_of_run(cohort(shards))
    if forecast is None:
        raise SystemExit(f"{grown.name} has no forecast")
    took = []
    for _ in range(repeat):
        began = clock()
        strategy.fit(shards)
        took.append(clock() - began)
    return min(took), seconds("local", forecast, size.clients, speeds=speeds)


def slope(numbers: Sequence[float], values: Sequence[float]) -> float:
    """Return that of the line through the logarithms."""
    return float(np.polyfit(np.log(numbers), np.log(values), 1)[0])


def rows_of(grown: Grown, speeds: Speeds, *, quick: bool, repeat: int, clock: Clock) -> Iterator[list[str]]:
    """Measure a pair; yield a row of the table for each number that is varied."""
    known: dict[Size, tuple[float, float]] = {}
    for varied in VARIED:
        steps = sizes(grown, varied, quick=quick)
        for size in steps:
            if size not in known:
                known[size] = measure(grown, size, speeds, repeat, clock)
        numbers = [getattr(size, varied) for size in steps]
        took, forecast = ([known[size][part] for size in steps] for part in (0, 1))
        at = f"{numbers[0]} to {numbers[-1]}"
        ratios = [expected / spent for spent, expected in zip(took, forecast, strict=True)]
        seconds_of = partial(map, "{:.3f}".format)
        row = [grown.name, varied, at, ", ".join(seconds_of(took)), ", ".join(seconds_of(forecast))]
        furthest = max(ratios, key=lambda ratio: abs(np.log(ratio)))
        yield [*row, f"{slope(numbers, took):.1f}", f"{slope(numbers, forecast):.1f}", f"{furthest:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes each, in place of three")
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="processor seconds")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    speeds = calibrated(clock)
    headings = ("pair", "varied", "from, to", "s", "forecast s", "slope", "forecast slope", "forecast / s, furthest")
    table = Columns(headings, (18, 10, 16, 21, 21, 5, 14, 22))
    for grown in GROWN:
        if arguments.only.lower() in grown.name.lower():
            rows = rows_of(grown, speeds, quick=arguments.quick, repeat=arguments.repeat, clock=clock)
            for row in rows:
                table.add(row)


if __name__ == "__main__":
    main()

"""Rounds, floats, memory and minutes of runs that no single machine holds, from forecasts and measured constants.

    python benchmarks/at_scale.py

Measured here, in this process: seconds of coordinator and site together for a message, and of a site for a row.
Assumed: LATENCY seconds a round beside them, and BANDWIDTH bytes a second into the coordinator. The coordinator holds
all replies of a round: at most the floats of the whole run. With a tree it holds FAN_IN sums, and a round takes its
latency at each level; methods whose replies are not only summed gain nothing from that. The wall: most sites, with as
many rows each, for which the coordinator needs at most MEMORY bytes and DAY seconds.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkernel import RBF
from fedkernel.protocol import Forecast, Member
from fedkernel.strategies import CentroidKMeans, CentroidKPCA, DisKPCA, FKKMeans, UniformKPCA
from fedkernel.strategy.method import Method

LATENCY, BANDWIDTH, FAN_IN = 0.2, 125e6, 100
MEMORY, DAY = 16e9, 86_400
COLUMNS = 30
KERNEL = RBF(width="columns")


@dataclass(frozen=True)
class Scenario:
    """A cohort of equal sites."""

    name: str
    sites: int
    rows: int


@dataclass(frozen=True)
class Pair:
    """A method, and whether all that goes up in numbers are sums."""

    name: str
    make: Callable[[], Method[Any]]
    sums: bool


SCENARIOS = (
    Scenario("10 million rows at 100 hospitals", 100, 100_000),
    Scenario("1 billion rows at 10,000 devices", 10_000, 100_000),
)
PAIRS = (
    Pair("CentroidKMeans", lambda: CentroidKMeans(10, kernel=KERNEL), True),
    Pair("CentroidKPCA", lambda: CentroidKPCA(10, KERNEL), True),
    Pair("FKKMeans, lloyd", lambda: FKKMeans(10, kernel=KERNEL, clusters="lloyd"), True),
    Pair("FKKMeans, coreset", lambda: FKKMeans(10, kernel=KERNEL, clusters="coreset"), False),
    Pair("DisKPCA", lambda: DisKPCA(10, KERNEL, share_rows=True), False),
    Pair("UniformKPCA", lambda: UniformKPCA(10, KERNEL, share_rows=True), False),
)


def tables(sites: int, rows: int) -> list[np.ndarray]:
    """Make ten clusters, divided among sites."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((10, COLUMNS))
    return [centers[rng.integers(10, size=rows)] + rng.standard_normal((rows, COLUMNS)) for _ in range(sites)]


def seconds(pair: Pair, sites: int, rows: int) -> tuple[float, int]:
    """Return the processor's seconds of a run, and its rounds."""
    data = tables(sites, rows)
    began = time.process_time()
    rounds = pair.make().fit(data).ledger.rounds
    return time.process_time() - began, rounds


def constants(pair: Pair) -> tuple[float, float]:
    """Return seconds for a message and for a row of a site, over a whole run."""
    seconds(pair, 2, 300)
    few, rounds = seconds(pair, 10, 200)
    many, _ = seconds(pair, 60, 200)
    small, _ = seconds(pair, 1, 5_000)
    large, _ = seconds(pair, 1, 45_000)
    return max(many - few, 0.0) / (50 * rounds), max(large - small, 0.0) / 40_000


def size(number: float) -> str:
    """Return a number with three digits and the letter of its power of a thousand."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {letter}"
    return f"{number:.3g}"


def minutes(forecast: Forecast, own: float, message: float, sites: int, levels: int = 1) -> float:
    """Return minutes of a run in which each inner node of a tree, or the coordinator alone, waits for `sites`."""
    return levels * (forecast.rounds * (LATENCY + sites * message) + 8 * own * sites / BANDWIDTH) / 60


def main() -> None:
    known = {pair.name: constants(pair) for pair in PAIRS}
    for scenario in SCENARIOS:
        print(f"{scenario.name}, {COLUMNS} columns; a round {LATENCY:g} s, {BANDWIDTH * 8 / 1e9:g} Gbit/s")
        print(
            f"{'pair':<18} {'rounds':>6} {'floats up':>10} {'of pooling':>10} {'bytes held':>10} {'minutes':>8} "
            f"{'wall, sites':>11} {f'tree of {FAN_IN}: held, minutes':>28}"
        )
        cohort = [Member(client, client + 1, scenario.rows, COLUMNS) for client in range(scenario.sites)]
        for pair in PAIRS:
            forecast = pair.make().forecast(cohort)
            assert forecast is not None  # noqa: S101
            message, row = known[pair.name]
            own = forecast.floats_up / scenario.sites
            table = scenario.rows * row / 60
            wall = min(MEMORY / (8 * own), DAY / (forecast.rounds * message + 8 * own / BANDWIDTH))
            levels = max(1, math.ceil(math.log(scenario.sites) / math.log(FAN_IN)))
            alone, relayed = table + minutes(forecast, own, message, scenario.sites), "not only sums"
            if pair.sums:
                relayed = f"{size(8 * own * FAN_IN)}, {table + minutes(forecast, own, message, FAN_IN, levels):.2g}"
            print(
                f"{pair.name:<18} {forecast.rounds:>6} {size(forecast.floats_up):>10} "
                f"{forecast.floats_up / (scenario.sites * scenario.rows * COLUMNS):>10.1e} "
                f"{size(8 * forecast.floats_up):>10} {alone:>8.2g} {size(wall):>11} {relayed:>28}"
            )
        print()
    for name, (message, row) in known.items():
        print(f"{name:<18} {1000 * message:.2f} ms a message, {1e6 * row:.1f} microseconds a row")


if __name__ == "__main__":
    main()

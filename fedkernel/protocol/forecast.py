"""What a run will take, before it runs: rounds, floats and memory by the method's formulas, seconds by the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from fedkernel.arrays import Precision
from fedkernel.protocol.work import CALLS_OF_A_MESSAGE, Computing, Speeds, Work, largest_computing

FLOAT = 8
"""Bytes."""

Meaning = Literal["exact", "at most", "about"]
MEANINGS: tuple[Meaning, ...] = ("exact", "at most", "about")
"""The run's own numbers; what it cannot exceed, where it may end early or send less; what such runs have taken."""


@dataclass(frozen=True)
class Forecast:
    """What a strategy's run will take; forecasts of one part after the other add up.

    Attributes
    ----------
    rounds : int
        As the ledger counts them: without the joining of the clients.
    floats_up, floats_down : int
        Of all clients in the whole run, as the ledger counts them: a letter goes up once and down once.
    memory : int
        Bytes, the most that one client holds at a time beside its rows: an estimate, whatever the meaning.
    meaning : {"exact", "at most", "about"}
        Of rounds and floats; see `MEANINGS`.
    computing : Computing
        What clients and coordinator compute: as much as the rounds above take, an estimate whatever the meaning.
    """

    rounds: int
    floats_up: int = 0
    floats_down: int = 0
    memory: int = 0
    meaning: Meaning = "exact"
    computing: Computing = field(default_factory=Computing)

    def __add__(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.rounds + other.rounds,
            self.floats_up + other.floats_up,
            self.floats_down + other.floats_down,
            max(self.memory, other.memory),
            max(self.meaning, other.meaning, key=MEANINGS.index),
            self.computing + other.computing,
        )


def pooled_floats(cohort: Sequence[Any], divided: str) -> int:
    """Return N d, the floats of members' whole table, which pooling sends; `divided` is a strategy's `partition`."""
    rows: list[int] = [own.rows for own in cohort]
    columns: list[int] = [own.columns for own in cohort]
    return rows[0] * sum(columns) if divided == "vertical" else sum(rows) * columns[0]


def whole_table(*floats: int) -> str:
    """Return the words that stand beside the floats of runs, of one table or of several."""
    return f"the whole table is N d = {' to '.join(f'{own:,}' for own in sorted({min(floats), max(floats)}))}"


def largest(forecasts: Sequence[Forecast]) -> Forecast:
    """Return the most that any of some runs takes, which is at most what each does where they differ."""
    most = Forecast(
        max(forecast.rounds for forecast in forecasts),
        max(forecast.floats_up for forecast in forecasts),
        max(forecast.floats_down for forecast in forecasts),
        max(forecast.memory for forecast in forecasts),
        max((forecast.meaning for forecast in forecasts), key=MEANINGS.index),
        largest_computing(forecast.computing for forecast in forecasts),
    )
    return most if most.meaning != "exact" or len(set(forecasts)) == 1 else replace(most, meaning="at most")


@dataclass(frozen=True)
class EngineCost:
    """Seconds that an engine adds to what the clients compute.

    Attributes
    ----------
    start : float
        Once, to start and stop it.
    round, client : float
        For each round, and for each client in it.
    megabyte : float
        For each megabyte that all clients together send or get.
    """

    start: float
    round: float
    client: float
    megabyte: float


ENGINE_COSTS: Mapping[str, EngineCost] = MappingProxyType(
    {
        "local": EngineCost(0.0, 0.00015, 0.00015, 0.00034),
        "grpc": EngineCost(4.0, 0.002, 0.0006, 0.00335),
        "ray": EngineCost(10.0, 0.088, 0.0024, 0.0033),
        "superlink": EngineCost(10.0, 6.0, 0.0, 0.05),
    }
)
"""Measured on 2 cores with flwr 1.41, 3 to 5 clients, local and ray also 50, on one machine: a network comes on top.

Seconds per round with 1 KB, and with 10 MB to and from every client: local 0.0009 and 0.035, 50 clients 0.0075 with
1 KB (`benchmarks/rounds.py`); grpc 0.005 and 0.34 (`benchmarks/grpc_rounds.py`); ray 0.10 and 0.43, 50 clients 0.21 and
3.4; superlink 5.6 to 8 and 3 more. The start of grpc is that of 5 processes here: sites that have joined need none.
"""

_LOCAL = ENGINE_COSTS["local"]
TYPICAL = Speeds(0.017, 0.14, 0.001, 0.011, 0.12, round=_LOCAL.round, message=_LOCAL.client, cores=2)
"""Of a machine that nobody has measured: two cores of a server of 2023, by `fedkernel calibrate`; no numba."""


SEPARATE = frozenset({"grpc"})
"""Engines whose sites are counted as machines of their own."""

ANOTHER_CORE = 0.45
"""What a core adds to the first for clients in threads, which wait for each other in Python.

By what `benchmarks/growth.py` measures of all pairs on two cores (docs/performance.md); with more it was not measured.
"""


def seconds(
    engine: str, forecast: Forecast, clients: int, wire: Precision = "float64", speeds: Speeds | None = None
) -> float:
    """Return what a run takes, the engine's start included; what is computed only where a machine's speeds are given.

    Clients share this machine's cores, those of the local engine as threads; those of `SEPARATE` engines have a machine
    like it each, with one core at work.
    """
    cost, computed = ENGINE_COSTS[engine], 0.0
    if speeds is not None:
        cores = 1 + ANOTHER_CORE * (speeds.cores - 1) if engine == "local" else speeds.cores
        computed = speeds.computing(forecast.computing, at_once=None if engine in SEPARATE else cores)
        answering = speeds.seconds(Work(passes=CALLS_OF_A_MESSAGE))
        if engine == "local":  # whose clients are threads: one at a time is in Python
            cost = replace(cost, round=speeds.round, client=speeds.message + answering)
        else:
            computed += forecast.rounds * answering
    moved = np.dtype(wire).itemsize * (forecast.floats_up + forecast.floats_down) / 1e6
    added = cost.start + forecast.rounds * (cost.round + clients * cost.client) + moved * cost.megabyte
    return computed + added

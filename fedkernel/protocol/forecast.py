"""Forecast of a run's rounds, floats and memory, by the method's formulas."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedkernel.numerics import lanczos_width

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
    """

    rounds: int
    floats_up: int = 0
    floats_down: int = 0
    memory: int = 0
    meaning: Meaning = "exact"

    def __add__(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.rounds + other.rounds,
            self.floats_up + other.floats_up,
            self.floats_down + other.floats_down,
            max(self.memory, other.memory),
            max(self.meaning, other.meaning, key=MEANINGS.index),
        )


def pooled_floats(cohort: Sequence[Any], divided: str) -> int:
    """Return N d, the floats of members' whole table, which pooling sends; `divided` is a strategy's `partition`."""
    rows: list[int] = [own.rows for own in cohort]
    columns: list[int] = [own.columns for own in cohort]
    return rows[0] * sum(columns) if divided == "vertical" else sum(rows) * columns[0]


def whole_table(*floats: int) -> str:
    """Return the words that stand beside the floats of runs, of one table or of several."""
    return f"the whole table is N d = {' to '.join(f'{own:,}' for own in sorted({min(floats), max(floats)}))}"


def forecast_share(forecast: Forecast, cohort: Sequence[Any]) -> float:
    """Return the numbers that leave a site for each entry of its table: in the mean over sites, of the smallest table.

    Letters to all peers of a site together count as if one read them.
    """
    entries: int = min(own.entries for own in cohort)
    return forecast.floats_up / len(cohort) / max(1, entries)


def largest(forecasts: Sequence[Forecast]) -> Forecast:
    """Return the most that any of some runs takes, which is at most what each does where they differ."""
    most = Forecast(
        max(forecast.rounds for forecast in forecasts),
        max(forecast.floats_up for forecast in forecasts),
        max(forecast.floats_down for forecast in forecasts),
        max(forecast.memory for forecast in forecasts),
        max((forecast.meaning for forecast in forecasts), key=MEANINGS.index),
    )
    return most if most.meaning != "exact" or len(set(forecasts)) == 1 else replace(most, meaning="at most")


def leading_bytes(size: int, pairs: int) -> int:
    """Return the most bytes that finding these takes, the matrix included.

    Lanczos has its basis, the products with that and what a restart makes of both; LAPACK a copy of the matrix, where
    all pairs are wanted its divide and conquer four.
    """
    width = lanczos_width(size, pairs)
    if width:
        return FLOAT * size * (size + 6 * pairs + 18 * width)
    return FLOAT * size * (2 * (size + pairs) if pairs < size else 5 * size)

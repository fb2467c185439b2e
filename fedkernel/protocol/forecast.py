"""Forecast of a run's rounds, floats and memory, by the method's formulas."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from fedkernel import numerics

TABLE_SHARE: Final = 0.5
"""Default of a site's limit on the disclosure ratio; strategies that choose their own sizes keep to it."""

LIMIT_ADVICE: Final = (
    "more by guards.table_share of its policy, join --table-share without one, or study approve --table-share; "
    "fedkernel check FILE --study STUDY computes the number of a whole run"
)
"""Advice to a site's operator on raising the limit of the disclosure ratio."""


def allowed_numbers(entries: int, share: float = TABLE_SHARE) -> int:
    """Return the largest count of numbers that may leave a site. `entries`: number of entries of the site's table."""
    return math.floor(share * entries)


def rounded_up(share: float) -> float:
    """Round a positive share up to two digits. A share just above a limit is then never shown as the limit."""
    digits = 1 - math.floor(math.log10(share))
    return float(math.ceil(round(share * 10.0**digits, 6)) / 10.0**digits)


def share_text(share: float) -> str:
    """Format a share with two digits, rounded up."""
    return f"{rounded_up(share):,.{max(1 - math.floor(math.log10(share)), 0)}f}" if share > 0 else "0"


def table_share(floats: Mapping[int, Mapping[int | None, int]], members: Iterable[Any]) -> float:
    """Return a run's largest disclosure ratio over sites and readers. `floats`: numbers sent, by site and reader."""
    readers = ((floats.get(member.client, {}), member.entries) for member in members)
    return max((number / max(1, entries) for numbers, entries in readers for number in numbers.values()), default=0.0)


FLOAT = 8
"""Bytes of a float."""

ForecastMeaning = Literal["exact", "at most", "about"]
MEANINGS: tuple[ForecastMeaning, ...] = ("exact", "at most", "about")
"""Meanings of a forecast's numbers: exact, an upper bound if runs may end early or send less, typical."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run's rounds, floats and memory; forecasts of consecutive parts add up.

    - `rounds`: as the ledger counts them: without the joining of the clients.
    - `floats_up`, `floats_down`: of all clients in the whole run; a letter goes up once and down once.
    - `memory`: bytes, the most that one client holds at a time beside its rows: an estimate, whatever the meaning.
    - `meaning`: of rounds and floats; see `MEANINGS`.
    """

    rounds: int
    floats_up: int = 0
    floats_down: int = 0
    memory: int = 0
    meaning: ForecastMeaning = "exact"

    def __add__(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.rounds + other.rounds,
            self.floats_up + other.floats_up,
            self.floats_down + other.floats_down,
            max(self.memory, other.memory),
            max(self.meaning, other.meaning, key=MEANINGS.index),
        )


def pooled_floats(cohort: Sequence[Any], divided: str) -> int:
    """Return the number of floats in all clients' tables, N d. `divided`: a strategy's `partition`."""
    rows: list[int] = [own.rows for own in cohort]
    columns: list[int] = [own.columns for own in cohort]
    return rows[0] * sum(columns) if divided == "vertical" else sum(rows) * columns[0]


def whole_table_text(*floats: int) -> str:
    """Format the size of whole tables in floats, as one number or a range, for comparison with a run's floats."""
    return f"the whole table is N d = {' to '.join(f'{own:,}' for own in sorted({min(floats), max(floats)}))}"


def forecast_share(forecast: Forecast, cohort: Sequence[Any]) -> float:
    """Return a site's mean forecast floats per entry of the smallest table. Letters count as if one reader had all."""
    entries: int = min(own.entries for own in cohort)
    return forecast.floats_up / len(cohort) / max(1, entries)


def largest_forecast(forecasts: Sequence[Forecast]) -> Forecast:
    """Return a forecast with the largest of each number in several forecasts. If they differ, it is an upper bound."""
    names = ("rounds", "floats_up", "floats_down", "memory")
    most: dict[str, int] = {name: max(getattr(own, name) for own in forecasts) for name in names}
    meaning = max((own.meaning for own in forecasts), key=MEANINGS.index)
    return Forecast(**most, meaning="at most" if meaning == "exact" and len(set(forecasts)) > 1 else meaning)


def leading_bytes(size: int, pairs: int) -> int:
    """Return an upper bound on the memory, in bytes, of finding leading eigenpairs, the matrix included."""
    if width := numerics.lanczos_width(size, pairs):  # its basis, the products with that and a restart's arrays of both
        return FLOAT * size * (size + 6 * pairs + 18 * width)
    # LAPACK has a copy of the matrix; its divide and conquer, if all pairs are wanted, four
    return FLOAT * size * (2 * (size + pairs) if pairs < size else 5 * size)

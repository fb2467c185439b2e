"""Comparison of two experiments' results: matched runs, and differences beyond noise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.results.rows import Run
from experiments.results.summaries import NOISE, Difference, Spread, by_setting, difference, measured
from fedkernel.models import ERROR_ROUNDING, metric_of

RELATIVE_ROUNDING = 1e-12
"""Relative difference of a figure between machines, from a library's order of summation."""


class Matched(NamedTuple):
    """Runs of two experiments by method and setting, each a list over seeds; `both` in the order of the first."""

    both: list[tuple[list[Run], list[Run]]]
    only_a: list[list[Run]]
    only_b: list[list[Run]]


def match(a: Iterable[Run], b: Iterable[Run]) -> Matched:
    """Pair the runs of two experiments with the same name and the same swept values."""
    ours, theirs = by_setting(a), by_setting(b)
    return Matched(
        [(runs, theirs[at]) for at, runs in ours.items() if at in theirs],
        [runs for at, runs in ours.items() if at not in theirs],
        [runs for at, runs in theirs.items() if at not in ours],
    )


@dataclass(frozen=True)
class ComparedFigure:
    """Figure of one method at one setting in the experiments A and B, with the difference.

    - `run`: the first of A; its name, kind, method and point are those of all.
    - `figure`: a metric, or a count of a run.
    - `a`, `b`: None where the figure does not apply.
    - `difference`: of B and A; None where one of them is.
    """

    run: Run
    figure: str
    a: Spread | None
    b: Spread | None
    difference: Difference | None

    @property
    def differs(self) -> bool:
        """True if A and B differ by more than `NOISE` standard errors, or at all with one seed.

        A figure of one experiment alone does not differ, nor do seconds, which depend on the machine.
        """
        return self._reason_for_equality() is None

    @property
    def verdict(self) -> str:
        """Verdict in words: the kind of the difference, and the better experiment."""
        if (alike := self._reason_for_equality()) is not None:
            return alike
        mean, better = self._difference.mean, metric_of(self.figure).better
        if math.isnan(mean):
            return f"{'A' if self.a is None or math.isnan(self.a.mean) else 'B'} not finite"
        side = "B" if (mean < 0) == (better == "lower") else "A"
        word = "differs" if better is None else f"{side} better"
        return word if self._difference.error is not None else f"{word}, 1 seed"

    @property
    def _difference(self) -> Difference:
        return self.difference or Difference(math.nan, None, paired=False)

    def _reason_for_equality(self) -> str | None:
        """Return the reason to treat A and B as equal; None if they differ."""
        if self.a is None or self.b is None:
            return "–" if self.a is self.b else f"only in {'B' if self.a is None else 'A'}"
        metric, mean, error = metric_of(self.figure), self._difference.mean, self._difference.error
        if metric.unit == "seconds":
            return "not judged"
        sizes = abs(self.a.mean), abs(self.b.mean)
        if math.isnan(mean):
            return "neither finite" if all(map(math.isnan, sizes)) else None
        if mean == 0 and not error:
            return "equal"
        if abs(mean) <= max(RELATIVE_ROUNDING * max(sizes), ERROR_ROUNDING if metric.axis == "orders" else 0.0):
            return "within rounding"
        return "within noise" if error is not None and abs(mean) <= NOISE * error else None


def compare_figure(both: Sequence[tuple[list[Run], list[Run]]], figure: str) -> list[ComparedFigure]:
    """Compare a figure wherever at least one experiment has it; `both` is from `match`."""
    compared = []
    for runs_a, runs_b in both:
        a, b = _by_seed(runs_a, figure), _by_seed(runs_b, figure)
        if not a and not b:
            continue
        spread_a, spread_b = (Spread.of([*side.values()]) if side else None for side in (a, b))
        compared.append(ComparedFigure(runs_a[0], figure, spread_a, spread_b, difference(a, b) if a and b else None))
    return compared


def _by_seed(runs: Iterable[Run], figure: str) -> dict[int, float]:
    return {run.seed: value for run in runs if (value := measured(run, figure)) is not None}

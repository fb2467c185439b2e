"""Two experiments side by side: what they have in common, and whether it differs by more than noise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.results.rows import Run
from experiments.results.summaries import NOISE, Difference, Spread, by_setting, difference, measured
from fedkernel.models import ROUNDING, metric_of

RELATIVE_ROUNDING = 1e-12
"""Share of a figure that differs from machine to machine, by the order in which a library adds up."""


class Matched(NamedTuple):
    """The runs of two experiments by method and setting, each a list over seeds.

    Attributes
    ----------
    both : list of (list of Run, list of Run)
        Those that both have, in the order of the first.
    only_a, only_b : list of list of Run
        Those that one has.
    """

    both: list[tuple[list[Run], list[Run]]]
    only_a: list[list[Run]]
    only_b: list[list[Run]]


def match(a: Iterable[Run], b: Iterable[Run]) -> Matched:
    """Put the runs of the same name at the same values of swept parameters together."""
    ours, theirs = by_setting(a), by_setting(b)
    return Matched(
        [(runs, theirs[at]) for at, runs in ours.items() if at in theirs],
        [runs for at, runs in ours.items() if at not in theirs],
        [runs for at, runs in theirs.items() if at not in ours],
    )


@dataclass(frozen=True)
class Compared:
    """A figure of one method at one setting in the experiments A and B.

    Attributes
    ----------
    run : Run
        The first of A: its name, kind, method and point are those of all.
    figure : str
        A metric, or what is counted of a run.
    a, b : Spread, optional
        None where it does not apply.
    difference : Difference, optional
        Of B and A; None where one of them is.
    """

    run: Run
    figure: str
    a: Spread | None
    b: Spread | None
    difference: Difference | None

    @property
    def differs(self) -> bool:
        """Whether they differ by more than is known to be noise: beyond `NOISE` standard errors, or with one seed.

        What only one has does not differ, and seconds are the machine's.
        """
        return self._alike() is None

    @property
    def verdict(self) -> str:
        """Say in words how they differ, and which is better."""
        if (alike := self._alike()) is not None:
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

    def _alike(self) -> str | None:
        """Say why they do not count as different; None if they do."""
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
        if abs(mean) <= max(RELATIVE_ROUNDING * max(sizes), ROUNDING if metric.axis == "orders" else 0.0):
            return "within rounding"
        return "within noise" if error is not None and abs(mean) <= NOISE * error else None


def compare_figure(both: Sequence[tuple[list[Run], list[Run]]], figure: str) -> list[Compared]:
    """Compare a figure wherever either experiment has it.

    Parameters
    ----------
    both : sequence of (list of Run, list of Run)
        As `match` returns them.
    figure : str
    """
    compared = []
    for runs_a, runs_b in both:
        a, b = _by_seed(runs_a, figure), _by_seed(runs_b, figure)
        if not a and not b:
            continue
        spread_a, spread_b = (Spread.of([*side.values()]) if side else None for side in (a, b))
        compared.append(Compared(runs_a[0], figure, spread_a, spread_b, difference(a, b) if a and b else None))
    return compared


def _by_seed(runs: Iterable[Run], figure: str) -> dict[int, float]:
    return {run.seed: value for run in runs if (value := measured(run, figure)) is not None}

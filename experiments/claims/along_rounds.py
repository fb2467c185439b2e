"""Criteria of ``[[claim]]`` tables about values along the outer iterations, for each seed or over the seeds."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import pydantic

from fedkernel.experiments.claims.evidence import Evidence, Uncheckable, place_text
from fedkernel.experiments.claims.verdicts import CheckedNumber, CheckedNumbers, ClaimCriteria
from fedkernel.experiments.results import Spread


class _RoundCriteria(ClaimCriteria):
    """Base of criteria about a value in the rounds of some methods, by outer iteration (see `by_iteration`).

    - `value`: name of the value.
    - `of`: names of the methods.
    """

    value: str
    of: list[str] = pydantic.Field(min_length=1)

    @property
    def methods(self) -> list[str]:
        """All methods that the claim is about."""
        return self.of


class Rate(_RoundCriteria):
    """Criterion on the slope of log value against log iteration t, averaged over seeds. A fall by 1 / t has slope -1.

    - `from`: first iteration that counts; those with value 0 do not.
    - `deviation`: whether it is the slope of the standard deviation over seeds, with the jackknife's standard error.
    """

    check: Literal["rate"]
    first: int = pydantic.Field(default=1, ge=1, alias="from")
    deviation: bool = False

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the slope of every method at every setting."""
        numbers, highest = [], 0.0
        for name, setting, curves in evidence.curves(self.of, self.where, self.value):
            where = place_text(setting.point, name)
            if not self.deviation:
                points = [self._points(name, curve, f" with seed {seed}") for seed, curve in curves.items()]
                numbers.append(CheckedNumber.mean([_slope(each) for each in points], where))
            elif (seeds := len(curves)) < 3:
                raise Uncheckable(f"{name!r} has fewer than three seeds, too few for the noise of a deviation")
            else:
                points = [self._points(name, _deviations(curves.values()))]
                without = [_deviations(curves[seed] for seed in curves if seed != left_out) for left_out in curves]
                slopes = Spread.of([_slope(self._points(name, each)) for each in without])
                error = (slopes.std or 0.0) * (seeds - 1) / math.sqrt(seeds)
                numbers.append(CheckedNumber(_slope(points[0]), where, seeds, error))
            highest = max(highest, *(t * value for each in points for t, value in each))
        what = f"standard deviation of {self.value}" if self.deviation else self.value
        return CheckedNumbers(numbers, "slope ", f"; t · {what} is at most {highest:.3g}")

    def _points(self, name: str, curve: Mapping[int, float], which: str = "") -> list[tuple[int, float]]:
        points = [(t, value) for t, value in curve.items() if t >= self.first and not value <= 0]
        if len(points) < 2:
            raise Uncheckable(f"{name!r} has fewer than two iterations with a {self.value} above 0{which}")
        return points


class Overlap(_RoundCriteria):
    """Criterion on the distance of two methods' curves, |a - b| / max(|a|, |b|), at every common iteration and seed.

    - `within`: largest distance.
    """

    check: Literal["overlap"]
    of: list[str] = pydantic.Field(min_length=2, max_length=2)
    at_most: float = pydantic.Field(alias="within", ge=0)

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the curves' distance at every setting, seed and iteration."""
        ours, theirs = (list(evidence.curves([name], self.where, self.value)) for name in self.of)
        numbers = [
            CheckedNumber(_distance(x, other[seed][t]), place_text(setting.point, t=t, seed=seed), len(setting.runs))
            for (_, setting, curves), (_, _, other) in zip(ours, theirs, strict=True)
            for seed, curve in curves.items()
            for t, x in curve.items()
            if t in other[seed]
        ]
        if not numbers:
            raise Uncheckable(f"{self.of[0]!r} and {self.of[1]!r} have no iteration in common")
        return CheckedNumbers(numbers, "apart by ")


class Bounded(_RoundCriteria):
    """Criterion on a value of the rounds at every iteration, for every seed.

    - `times_t`: the limits are for t times the value, below c / t where `at_most` is c.
    - `average`: the limits are for the mean over the iterations, averaged over seeds.
    """

    check: Literal["bounded"]
    times_t: bool = False
    average: bool = False

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return each method's value at every setting, iteration and seed, or the mean over iterations."""
        numbers = []
        for name, setting, values in evidence.curves(self.of, self.where, self.value):
            power = int(self.times_t)
            curves = {seed: {t: t**power * x for t, x in curve.items()} for seed, curve in values.items()}
            if self.average:
                means = [Spread.of(list(curve.values())).mean for curve in curves.values()]
                numbers.append(CheckedNumber.mean(means, place_text(setting.point, name)))
            else:
                numbers += [
                    CheckedNumber(x, place_text(setting.point, name, t=t, seed=seed), len(curves))
                    for seed, curve in curves.items()
                    for t, x in curve.items()
                ]
        what = f"{'mean ' if self.average else ''}{'t · ' if self.times_t else ''}{self.value} "
        return CheckedNumbers(numbers, what)


class Rise(_RoundCriteria):
    """Criterion on the relative rise of a value from one iteration to the next, for every seed."""

    check: Literal["rise"]

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the rise of every method at every setting, seed and iteration but the first."""
        numbers = []
        for name, setting, curves in evidence.curves(self.of, self.where, self.value):
            for seed, curve in curves.items():
                for (_, a), (t, b) in itertools.pairwise(sorted(curve.items())):
                    place, rise = place_text(setting.point, name, t=t, seed=seed), math.copysign(_distance(a, b), b - a)
                    numbers.append(CheckedNumber(rise, place, len(setting.runs)))
        if not numbers:
            raise Uncheckable(f"{', '.join(map(repr, self.of))}: no run has two iterations")
        return CheckedNumbers(numbers, "rises by ")


def _deviations(curves: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the curves' standard deviation at every iteration that all curves have."""
    curves = list(curves)
    common = set.intersection(*(set(curve) for curve in curves))
    spreads = {t: Spread.of([curve[t] for curve in curves]) for t in sorted(common)}
    return {t: math.nan if spread.std is None else spread.std for t, spread in spreads.items()}


def _slope(points: Sequence[tuple[int, float]]) -> float:
    x, y = np.log(np.array(points)).T
    x -= x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def _distance(x: float, y: float) -> float:
    return abs(x - y) / largest if (largest := max(abs(x), abs(y))) else 0.0

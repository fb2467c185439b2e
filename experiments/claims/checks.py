"""Criteria of ``[[claim]]`` tables about figures of whole runs; `along_rounds` has the criteria about curves.

Two methods are compared seed by seed, since they share the partition of a seed: the noise of a mean difference is that
of the pairs. A claim about several settings must hold at each of them; the numbers are those of the worst.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
import pydantic

from fedkernel.experiments.claims.along_rounds import Bounded, Overlap, Rate, Rise
from fedkernel.experiments.claims.evidence import Evidence, Setting, Uncheckable, Where, best_of, measure, place_text
from fedkernel.experiments.claims.verdicts import CheckedNumber, CheckedNumbers, ClaimCriteria
from fedkernel.experiments.results import Run, Spread, point_key
from fedkernel.models import check_metric

Measured = Annotated[str, pydantic.AfterValidator(lambda metric: check_metric(metric, counted=True))]
"""A metric, or a count of a whole run."""


OneOrMore = pydantic.BeforeValidator(
    lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]
)
Methods = str | Annotated[list[str], pydantic.Field(min_length=1)]


class Value(ClaimCriteria):
    """Criterion on a figure of a method's runs, averaged over seeds.

    - `metric`: name of the figure.
    - `of`: name of the method.
    - `best`: only the best setting counts.
    """

    check: Literal["value"]
    metric: Measured
    of: str
    best: bool = False

    @property
    def methods(self) -> list[str]:
        """The one method that the claim is about."""
        return [self.of]

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the figure at every setting."""
        settings = evidence.of(self.of, self.where)
        chosen = [best_of(settings, self.metric)] if self.best else settings
        values = [[measure(run, self.metric) for run in setting.runs.values()] for setting in chosen]
        places = [place_text(setting.point) for setting in chosen]
        note = f"; best {places[0]}" if len(settings) > len(chosen) else ""
        return CheckedNumbers([*map(CheckedNumber.mean, values, places)], note=note)


class Comparison(ClaimCriteria):
    """Criterion on the ratio or difference of two methods' figures with the same seed, averaged over seeds.

    - `metric`: name of the figures.
    - `of`: name of the method that is divided by `to`, or from which `to` is subtracted; several only with `at`.
    - `to`: name of the other method; several only with `at`.
    - `where_of`, `where_to`: as `where`, for one side. Settings are compared whose other parameters are the same.
    - `best`: on each side only the setting that is best on average counts.
    - `at`: a metric, such as ``floats_up``, or several to add up, at whose equal values the methods are compared: `to`
      has a curve for each seed, interpolated on logarithmic axes. Settings of `of` beyond its ends do not count.
    - `along`: with `at`, swept parameters by dotted path that make the curve, if not several methods in `to` do.
    - `iteration`: outer iteration whose value counts for `of`, in place of that at the end.
    """

    check: Literal["ratio", "difference"]
    metric: Measured
    of: Methods
    to: Methods
    where_of: Where = pydantic.Field(default_factory=dict)
    where_to: Where = pydantic.Field(default_factory=dict)
    best: bool = False
    at: Annotated[list[Measured], OneOrMore] = pydantic.Field(default_factory=list)
    along: list[str] = pydantic.Field(default_factory=list)
    iteration: int | None = pydantic.Field(default=None, ge=1)

    @pydantic.model_validator(mode="after")
    def _along_what(self) -> "Comparison":
        curve = bool(self.along or not isinstance(self.to, str))
        if (not self.at and (curve or not isinstance(self.of, str))) or (self.at and not curve):
            raise ValueError(
                "at, what is equal, needs along (or several methods in to), what makes the curve, and vice versa"
            )
        if bool(self.at) + (self.iteration is not None) + self.best > 1:
            raise ValueError("at, iteration and best exclude each other")
        return self

    @property
    def methods(self) -> list[str]:
        """Methods of both sides of the comparison."""
        return [*self._sides[0], *self._sides[1]]

    @property
    def _sides(self) -> list[list[str]]:
        return [[side] if isinstance(side, str) else side for side in (self.of, self.to)]

    @property
    def conditions(self) -> list[Where]:
        """Conditions on swept parameters, common to both sides and of each side."""
        return [self.where, self.where_of, self.where_to]

    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the ratio or difference at every pair of settings."""
        conditions = [self.where | self.where_of, self.where | self.where_to]
        sides = [
            [setting for name in names for setting in evidence.of(name, where)]
            for names, where in zip(self._sides, conditions, strict=True)
        ]
        fixed, note = {*conditions[0], *conditions[1], *self.along}, ""
        if self.at:
            label = f"at equal {' + '.join(self.at)} "
            return CheckedNumbers(self._compared_with_curves(sides[0], sides[1], fixed), label)
        if self.best:
            pairs = [(best_of(sides[0], self.metric), best_of(sides[1], self.metric))]
            if max(map(len, sides)) > 1:
                note = f"; best {' and '.join(place_text(best.point) for best in pairs[0])}"
        else:
            pairs = [(a, b) for a in sides[0] for b in sides[1] if _other_key(a, fixed) == _other_key(b, fixed)]
        return CheckedNumbers([self._compared(a, b) for a, b in pairs], note=note)

    def _compared(self, a: Setting, b: Setting) -> CheckedNumber:
        pairs = [(a.runs[seed], b.runs[seed]) for seed in a.runs if seed in b.runs]
        values = [(measure(x, self.metric, self.iteration), measure(y, self.metric)) for x, y in pairs]
        place = place_text(a.point) if a.point == b.point else f"{place_text(a.point)} and {place_text(b.point)}"
        return CheckedNumber.mean([self._ratio_or_difference(x, y) for x, y in values], place)

    def _ratio_or_difference(self, x: float, y: float) -> float:
        return x - y if self.check == "difference" else x / y if y else math.nan

    def _compared_with_curves(self, ours: list[Setting], theirs: list[Setting], fixed: set[str]) -> list[CheckedNumber]:
        """Compare each setting of `of` with the curve of `to` at the same values of all other parameters."""
        numbers = []
        for rest in dict.fromkeys(_other_key(setting, fixed) for setting in ours):
            side, curve = ([each for each in both if _other_key(each, fixed) == rest] for both in (ours, theirs))
            compared = [finding for setting in side if (finding := self._compared_with_curve(setting, curve))]
            if not compared:
                pairs = zip(self._sides, (side, curve), strict=True)
                ranges = [f"{', '.join(map(repr, names))} has {_range_text(its, self.at)}" for names, its in pairs]
                where = place_text(_other_values(side[0], fixed))
                raise Uncheckable(f"no common range of {' + '.join(self.at)}: {', '.join(ranges)} {where}".rstrip())
            numbers += compared
        return numbers

    def _compared_with_curve(self, setting: Setting, curve: list[Setting]) -> CheckedNumber | None:
        """Compare a setting with a curve at the setting's own value. Returns None if the curve does not reach it."""
        compared, values = [], []
        for seed, run in setting.runs.items():
            others = [each.runs[seed] for each in curve]
            points = sorted((_metric_sum(other, self.at), measure(other, self.metric)) for other in others)
            values.append(_metric_sum(run, self.at))
            if not points[0][0] <= values[-1] <= points[-1][0]:
                return None
            compared.append(self._ratio_or_difference(measure(run, self.metric), _interpolated(points, values[-1])))
        name, point = "" if isinstance(self.of, str) else setting.name, dict(setting.point)
        point[" + ".join(self.at)] = f"{Spread.of(values).mean:.6g}"
        return CheckedNumber.mean(compared, place_text(point, name))


AnyCheck = Annotated[Value | Comparison | Rate | Overlap | Bounded | Rise, pydantic.Field(discriminator="check")]


def _other_values(setting: Setting, fixed: Iterable[str]) -> Where:
    return {name: value for name, value in setting.point.items() if name not in fixed}


def _other_key(setting: Setting, fixed: Iterable[str]) -> str:
    return point_key(_other_values(setting, fixed))


def _metric_sum(run: Run, metrics: Iterable[str]) -> float:
    return sum(measure(run, metric) for metric in metrics)


def _range_text(settings: Iterable[Setting], metrics: list[str]) -> str:
    values = [_metric_sum(run, metrics) for setting in settings for run in setting.runs.values()]
    return f"{min(values):.6g} to {max(values):.6g}"


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """Interpolate linearly on logarithmic axes. Returns NaN unless all values are above 0."""
    if not all(value > 0 for point in points for value in point):
        return math.nan
    return math.exp(np.interp(math.log(x), *np.log(np.array(points)).T))

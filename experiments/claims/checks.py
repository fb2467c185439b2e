"""Checks of ``[[claim]]`` on figures of whole runs; `along_rounds` has those on curves.

Two methods are compared seed by seed, since they share the partition of a seed: the noise of a mean difference is that
of the pairs. A claim about several settings must hold at each of them; the numbers are those of the worst.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from experiments.claims.along_rounds import Bounded, Overlap, Rate, Rise
from experiments.claims.evidence import Evidence, Setting, Uncheckable, Where, best_of, measure, place
from experiments.claims.verdicts import Check, Finding, Findings
from experiments.results import Run, Spread, point_key
from fedkernel.models import check_metric

Measured = Annotated[str, pydantic.AfterValidator(lambda metric: check_metric(metric, counted=True))]
"""A metric, or a count of a whole run."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Methods = str | Annotated[list[str], pydantic.Field(min_length=1)]
"""The name of a method, or of several."""


class Value(Check):
    """Figure of a method's runs, mean over seeds; with `best` only at the setting with the best mean."""

    check: Literal["value"]
    metric: Measured
    of: str
    best: bool = False

    @property
    def methods(self) -> list[str]:
        """The one method."""
        return [self.of]

    def find(self, evidence: Evidence) -> Findings:
        """Return the figure at every setting."""
        settings = evidence.of(self.of, self.where)
        chosen = [best_of(settings, self.metric)] if self.best else settings
        numbers = [
            Finding.mean([measure(run, self.metric) for run in setting.runs.values()], place(setting.point))
            for setting in chosen
        ]
        return Findings(numbers, note=f"; best {place(chosen[0].point)}" if len(settings) > len(chosen) else "")


class Comparison(Check):
    """Ratio or difference of two methods' figures with the same seed, mean over seeds.

    Attributes
    ----------
    of, to : str or list of str
        Several methods only with `at`.
    where_of, where_to : dict
        As `where`, for one side only. Settings are compared that have the values of all other parameters in common.
    best : bool
        On each side only the setting counts where its metric is best on average.
    at : str or list of str, optional
        A metric, such as ``floats_up``, or several to add up: the two methods are compared at its equal values. `to`
        makes a curve for each seed, interpolated on logarithmic axes at the value of `of`. Settings of `of` beyond the
        curve's ends with any seed do not count.
    along : list of str
        With `at`, the swept parameters by dotted path that make the curve; methods in a list `to` make one too.
    iteration : int, optional
        The metric of `of` is its value in the rounds at this outer iteration, in place of that at the end.
    """

    check: Literal["ratio", "difference"]
    metric: Measured
    of: Methods
    to: Methods
    where_of: Where = pydantic.Field(default_factory=dict)
    where_to: Where = pydantic.Field(default_factory=dict)
    best: bool = False
    at: Annotated[list[Measured], pydantic.BeforeValidator(_listed)] = pydantic.Field(default_factory=list)
    along: list[str] = pydantic.Field(default_factory=list)
    iteration: int | None = pydantic.Field(default=None, ge=1)

    @pydantic.model_validator(mode="after")
    def _along_what(self) -> "Comparison":
        curve = bool(self.along or not isinstance(self.to, str))
        if (not self.at and (curve or not isinstance(self.of, str))) or (self.at and not curve):
            raise ValueError("at and along (or several methods in to) go together: what is equal, what makes the curve")
        if bool(self.at) + (self.iteration is not None) + self.best > 1:
            raise ValueError("at, iteration and best exclude each other")
        return self

    @property
    def methods(self) -> list[str]:
        """The methods of both sides."""
        return [*self._sides[0], *self._sides[1]]

    @property
    def _sides(self) -> list[list[str]]:
        return [[side] if isinstance(side, str) else side for side in (self.of, self.to)]

    @property
    def conditions(self) -> list[Where]:
        """The conditions of both sides and of each."""
        return [self.where, self.where_of, self.where_to]

    def find(self, evidence: Evidence) -> Findings:
        """Return the ratio or difference at every pair of settings."""
        conditions = [self.where | self.where_of, self.where | self.where_to]
        sides = [
            [setting for name in names for setting in evidence.of(name, where)]
            for names, where in zip(self._sides, conditions, strict=True)
        ]
        fixed, note = {*conditions[0], *conditions[1], *self.along}, ""
        if self.at:
            return Findings(self._on_curves(sides[0], sides[1], fixed), f"at equal {' + '.join(self.at)} ")
        if self.best:
            chosen = [best_of(side, self.metric) for side in sides]
            note = f"; best {' and '.join(place(best.point) for best in chosen)}" if max(map(len, sides)) > 1 else ""
            pairs = [(chosen[0], chosen[1])]
        else:
            pairs = [(a, b) for a in sides[0] for b in sides[1] if _rest(a, fixed) == _rest(b, fixed)]
        return Findings([self._compared(a, b) for a, b in pairs], note=note)

    def _compared(self, a: Setting, b: Setting) -> Finding:
        compared = [
            self._of_pair(measure(a.runs[seed], self.metric, self.iteration), measure(b.runs[seed], self.metric))
            for seed in (seed for seed in a.runs if seed in b.runs)
        ]
        return Finding.mean(
            compared, place(a.point) if a.point == b.point else f"{place(a.point)} and {place(b.point)}"
        )

    def _of_pair(self, x: float, y: float) -> float:
        return x - y if self.check == "difference" else x / y if y else math.nan

    def _on_curves(self, ours: list[Setting], theirs: list[Setting], fixed: set[str]) -> list[Finding]:
        """Compare each setting of `of` with the curve of `to` at the same values of all other parameters."""
        numbers = []
        for rest in dict.fromkeys(_rest(setting, fixed) for setting in ours):
            side, curve = ([each for each in settings if _rest(each, fixed) == rest] for settings in (ours, theirs))
            compared = [finding for setting in side if (finding := self._on_curve(setting, curve))]
            if not compared:
                of, to = (
                    f"{', '.join(map(repr, names))} has {_range(each, self.at)}"
                    for names, each in zip(self._sides, (side, curve), strict=True)
                )
                raise Uncheckable(
                    f"at no {' + '.join(self.at)} both: {of}, {to} {place(_other(side[0], fixed))}".rstrip()
                )
            numbers += compared
        return numbers

    def _on_curve(self, setting: Setting, curve: list[Setting]) -> Finding | None:
        """Compare a setting with a curve at the setting's own value; None if the curve does not reach it."""
        compared, values = [], []
        for seed, run in setting.runs.items():
            points = sorted((_sum(each.runs[seed], self.at), measure(each.runs[seed], self.metric)) for each in curve)
            values.append(_sum(run, self.at))
            if not points[0][0] <= values[-1] <= points[-1][0]:
                return None
            compared.append(self._of_pair(measure(run, self.metric), _between(points, values[-1])))
        name = "" if isinstance(self.of, str) else setting.name
        return Finding.mean(
            compared, place({**setting.point, " + ".join(self.at): f"{Spread.of(values).mean:.6g}"}, name)
        )


AnyCheck = Annotated[Value | Comparison | Rate | Overlap | Bounded | Rise, pydantic.Field(discriminator="check")]


def _other(setting: Setting, fixed: Iterable[str]) -> Where:
    return {name: value for name, value in setting.point.items() if name not in fixed}


def _rest(setting: Setting, fixed: Iterable[str]) -> str:
    return point_key(_other(setting, fixed))


def _sum(run: Run, metrics: Iterable[str]) -> float:
    return sum(measure(run, metric) for metric in metrics)


def _range(settings: Iterable[Setting], metrics: list[str]) -> str:
    values = [_sum(run, metrics) for setting in settings for run in setting.runs.values()]
    return f"{min(values):.6g} to {max(values):.6g}"


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Interpolate linearly on logarithmic axes; NaN unless all values are above 0."""
    if not all(value > 0 for point in points for value in point):
        return math.nan
    return math.exp(np.interp(math.log(x), *np.log(np.array(points)).T))

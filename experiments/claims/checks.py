"""What a ``[[claim]]`` may check: figures of whole runs, and curves along them.

Two methods are compared seed by seed, since they share the partition of a seed: the noise of a mean difference is that
of the pairs. What is checked at several settings of the sweep must hold at each of them; the numbers are those of the
worst.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
import pydantic

from experiments.claims.evidence import Evidence, Setting, Uncheckable, Where, best_of, measure, place
from experiments.claims.verdicts import Check, Finding, Findings
from experiments.results import Spread, point_key
from fedkernel.models import check_metric


def _metric(name: str) -> str:
    return check_metric(name, counted=True)


Measured = Annotated[str, pydantic.AfterValidator(_metric)]
"""A metric, also one that is counted of a whole run."""


class Value(Check):
    """A figure of a method's runs, mean over seeds.

    Attributes
    ----------
    metric, of : str
    best : bool
        Only the setting counts where the metric is best on average.
    """

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
    """A figure of one method's runs divided by, or minus, that of another's with the same seed, mean over seeds.

    Attributes
    ----------
    metric, of, to : str
    where_of, where_to : dict
        As `where`, for one side only. Settings are compared that have the values of all other parameters in common.
    best : bool
        On each side only the setting counts where its metric is best on average.
    at : str, optional
        A metric, such as ``floats_up``, at equal values of which the two are compared: by it `to` makes a curve along
        the sweep for each seed, which is interpolated, on logarithmic axes, at the value that `of` has. Settings of
        `of` whose value is beyond the curve's ends with any seed do not count.
    along : list of str
        With `at`, the swept parameters by dotted path that make the curve.
    iteration : int, optional
        What the rounds of `of` tell of the metric at this outer iteration counts, in place of the metric at the end.
    """

    check: Literal["ratio", "difference"]
    metric: Measured
    of: str
    to: str
    where_of: Where = pydantic.Field(default_factory=dict)
    where_to: Where = pydantic.Field(default_factory=dict)
    best: bool = False
    at: Measured | None = None
    along: list[str] = pydantic.Field(default_factory=list)
    iteration: int | None = pydantic.Field(default=None, ge=1)

    @pydantic.model_validator(mode="after")
    def _along_what(self) -> "Comparison":
        if (self.at is None) != (not self.along):
            raise ValueError("at and along go together: what is equal, and the swept parameters that make the curve")
        if (self.at is not None) + (self.iteration is not None) + self.best > 1:
            raise ValueError("at, iteration and best exclude each other")
        return self

    @property
    def methods(self) -> list[str]:
        """Both sides."""
        return [self.of, self.to]

    @property
    def conditions(self) -> list[Where]:
        """Those of both sides and of each."""
        return [self.where, self.where_of, self.where_to]

    def find(self, evidence: Evidence) -> Findings:
        """Return the ratio or difference at every pair of settings."""
        conditions = [self.where | self.where_of, self.where | self.where_to]
        sides = [evidence.of(name, where) for name, where in zip(self.methods, conditions, strict=True)]
        fixed, note = {*conditions[0], *conditions[1], *self.along}, ""
        if self.at is not None:
            return Findings(self._on_curves(self.at, sides[0], sides[1], fixed), f"at equal {self.at} ")
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

    def _on_curves(self, at: str, ours: list[Setting], theirs: list[Setting], fixed: set[str]) -> list[Finding]:
        """Compare each setting of `of` with the curve of `to` that has the values of all other parameters in common."""
        numbers = []
        for rest in dict.fromkeys(_rest(setting, fixed) for setting in ours):
            side, curve = ([each for each in settings if _rest(each, fixed) == rest] for settings in (ours, theirs))
            compared = [finding for setting in side if (finding := self._on_curve(at, setting, curve))]
            if not compared:
                of, to = (
                    f"{name!r} has {_range(each, at)}" for name, each in zip(self.methods, (side, curve), strict=True)
                )
                raise Uncheckable(f"at no {at} both: {of}, {to} {place(_other(side[0], fixed))}".rstrip())
            numbers += compared
        return numbers

    def _on_curve(self, at: str, setting: Setting, curve: list[Setting]) -> Finding | None:
        """Compare a setting with a curve at the value that it has; None if the curve does not reach that."""
        compared, values = [], []
        for seed, run in setting.runs.items():
            points = sorted((measure(each.runs[seed], at), measure(each.runs[seed], self.metric)) for each in curve)
            values.append(measure(run, at))
            if not points[0][0] <= values[-1] <= points[-1][0]:
                return None
            compared.append(self._of_pair(measure(run, self.metric), _between(points, values[-1])))
        return Finding.mean(compared, place({**setting.point, at: f"{Spread.of(values).mean:.6g}"}))


class Rate(Check):
    """The least-squares slope of log value against log t, mean over seeds: -1 where the value falls as 1 / t.

    Attributes
    ----------
    value : str
        Of the rounds, as `by_iteration` reads it. Iterations where it is 0 do not count.
    of : list of str
    from : int
        The first t that counts.
    """

    check: Literal["rate"]
    value: str
    of: list[str] = pydantic.Field(min_length=1)
    first: int = pydantic.Field(default=1, ge=1, alias="from")

    @property
    def methods(self) -> list[str]:
        """All methods whose slope is within the limits."""
        return self.of

    def find(self, evidence: Evidence) -> Findings:
        """Return the slope of every method at every setting."""
        numbers, highest = [], 0.0
        for name, setting, curves in evidence.curves(self.of, self.where, self.value):
            slopes = []
            for seed, curve in curves.items():
                points = [(t, value) for t, value in curve.items() if t >= self.first and not value <= 0]
                if len(points) < 2:
                    short = f"{name!r} has fewer than two iterations with a {self.value} above 0"
                    raise Uncheckable(f"{short} with seed {seed}")
                highest = max(highest, *(t * value for t, value in points))
                slopes.append(_slope(points))
            numbers.append(Finding.mean(slopes, place(setting.point, name)))
        return Findings(numbers, "slope ", f"; t · {self.value} is at most {highest:.3g}")


class Overlap(Check):
    """How far apart two curves are: |a - b| / max(|a|, |b|) at every iteration that both have, for every seed.

    Attributes
    ----------
    value : str
        As for `Rate`.
    of : list of two str
    within : float
        The limit.
    """

    check: Literal["overlap"]
    value: str
    of: list[str] = pydantic.Field(min_length=2, max_length=2)
    at_most: float = pydantic.Field(alias="within", ge=0)

    @property
    def methods(self) -> list[str]:
        """The two curves'."""
        return self.of

    def find(self, evidence: Evidence) -> Findings:
        """Return the distance at every setting, seed and iteration."""
        ours, theirs = (list(evidence.curves([name], self.where, self.value)) for name in self.of)
        numbers = [
            Finding(_apart(x, other[seed][t]), place(setting.point, t=t, seed=seed), len(setting.runs))
            for (_, setting, curves), (_, _, other) in zip(ours, theirs, strict=True)
            for seed, curve in curves.items()
            for t, x in curve.items()
            if t in other[seed]
        ]
        if not numbers:
            raise Uncheckable(f"{self.of[0]!r} and {self.of[1]!r} have no iteration in common")
        return Findings(numbers, "apart by ")


class _OfRounds(Check):
    """Of a value of the rounds, for some methods.

    Attributes
    ----------
    value : str
        As for `Rate`.
    of : list of str
    """

    value: str
    of: list[str] = pydantic.Field(min_length=1)

    @property
    def methods(self) -> list[str]:
        """All methods that the claim is about."""
        return self.of


class Bounded(_OfRounds):
    """A value of the rounds at every iteration, for every seed.

    Attributes
    ----------
    value, of
        As for `Rise`.
    times_t : bool
        The limits are for t times the value: it is below c / t where `at_most` is c.
    deviation : bool
        The limits are for the standard deviation over seeds, of each iteration that all of them have.
    """

    check: Literal["bounded"]
    times_t: bool = False
    deviation: bool = False

    def find(self, evidence: Evidence) -> Findings:
        """Return the value of every method at every setting, iteration and, unless it is their deviation, seed."""
        numbers = []
        for name, setting, curves in evidence.curves(self.of, self.where, self.value):
            seeds = len(setting.runs)
            if self.deviation and seeds < 2:
                raise Uncheckable(f"{name!r} has one seed {place(setting.point)}".rstrip())
            for t in sorted({t for curve in curves.values() for t in curve}):
                values = {seed: curve[t] * (t if self.times_t else 1) for seed, curve in curves.items() if t in curve}
                if not self.deviation:
                    numbers += [Finding(x, place(setting.point, name, t=t, seed=s), seeds) for s, x in values.items()]
                elif len(values) == seeds:
                    std = Spread.of(list(values.values())).std
                    numbers.append(Finding(math.nan if std is None else std, place(setting.point, name, t=t), seeds))
        if not numbers:
            raise Uncheckable(f"{', '.join(map(repr, self.of))}: no iteration that all seeds have")
        deviation = "standard deviation of " if self.deviation else ""
        return Findings(numbers, f"{deviation}{'t · ' if self.times_t else ''}{self.value} ")


class Rise(_OfRounds):
    """By how much a value of the rounds rises in an iteration, (b - a) / max(|a|, |b|), for every seed."""

    check: Literal["rise"]

    def find(self, evidence: Evidence) -> Findings:
        """Return the rise of every method at every setting, seed and iteration but the first."""
        numbers = [
            Finding(math.copysign(_apart(a, b), b - a), place(setting.point, name, t=t, seed=seed), len(setting.runs))
            for name, setting, curves in evidence.curves(self.of, self.where, self.value)
            for seed, curve in curves.items()
            for (_, a), (t, b) in itertools.pairwise(sorted(curve.items()))
        ]
        if not numbers:
            raise Uncheckable(f"{', '.join(map(repr, self.of))}: no run has two iterations")
        return Findings(numbers, "rises by ")


AnyCheck = Annotated[Value | Comparison | Rate | Overlap | Bounded | Rise, pydantic.Field(discriminator="check")]


def _other(setting: Setting, fixed: Iterable[str]) -> Where:
    return {name: value for name, value in setting.point.items() if name not in fixed}


def _rest(setting: Setting, fixed: Iterable[str]) -> str:
    return point_key(_other(setting, fixed))


def _range(settings: Iterable[Setting], metric: str) -> str:
    values = [measure(run, metric) for setting in settings for run in setting.runs.values()]
    return f"{min(values):.6g} to {max(values):.6g}"


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Interpolate linearly on logarithmic axes; what is not above 0 has no logarithm, and gives no number."""
    if not all(value > 0 for point in points for value in point):
        return math.nan
    return math.exp(np.interp(math.log(x), *np.log(np.array(points)).T))


def _slope(points: Sequence[tuple[int, float]]) -> float:
    x, y = np.log(np.array(points)).T
    x -= x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def _apart(x: float, y: float) -> float:
    return abs(x - y) / largest if (largest := max(abs(x), abs(y))) else 0.0

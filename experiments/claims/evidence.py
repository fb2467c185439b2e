"""Runs of an experiment as evidence for claims: by method and setting, seed by seed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fedkernel.experiments.results import Failure, Run, Spread, by_iteration, measured, point_key, setting
from fedkernel.ground import and_more
from fedkernel.models import metric_of

Where = dict[str, Any]  # values of swept parameters by dotted path


class Uncheckable(Exception):  # noqa: N818 - no error: a claim that waits for its runs
    """Signal that a claim cannot be decided; the text is the reason."""


class Setting(NamedTuple):
    """Runs of one method at one point of the sweep, by seed."""

    name: str
    point: dict[str, Any]
    runs: dict[int, Run]


class Evidence:
    """Runs of an experiment by method and setting, with the missing and failed ones. `due`: every point and seed."""

    def __init__(
        self,
        runs: Iterable[Run],
        due: Iterable[tuple[dict[str, Any], int]] | None = None,
        failed: Iterable[Failure] = (),
    ) -> None:
        self._runs = {(run.name, point_key(run.point), run.seed): run for run in runs}
        points = [(run.point, run.seed) for run in self._runs.values()] if due is None else due
        self._failed = {(failure.name, point_key(failure.point), failure.seed): failure for failure in failed}
        self._due = {(point_key(point), seed): point for point, seed in points}

    def of(self, name: str, where: Where) -> list[Setting]:
        """Return a method's runs at every setting with these swept values. Raises Uncheckable if a run is missing."""
        due = [at for at, point in self._due.items() if all(point.get(key) == where[key] for key in where)]
        finished = [at for at in due if (name, *at) in self._runs]
        if not due:
            raise Uncheckable(f"no run is planned{f' at {setting(where)}' if where else ''}")
        if len(finished) < len(due):
            of = f"of {name!r}{f' at {setting(where)}' if where else ''}"
            why = [failure for at in due if (failure := self._failed.get((name, *at)))]
            first = f"; {why[0].id} has failed{and_more(len(why) - 1)}: {why[0].cause}" if why else ""
            raise Uncheckable(f"{len(due) - len(finished)} of {len(due)} runs {of} are missing{first}")
        settings: dict[str, Setting] = {}
        for key, seed in finished:
            settings.setdefault(key, Setting(name, self._due[key, seed], {})).runs[seed] = self._runs[name, key, seed]
        return list(settings.values())

    def curves(
        self, names: Iterable[str], where: Where, value: str
    ) -> Iterator[tuple[str, Setting, dict[int, dict[int, float]]]]:
        """Yield each method at each setting with a value's curve for each seed, from `by_iteration`."""
        for name in names:
            for at_setting in self.of(name, where):
                curves = {seed: by_iteration(run, value) for seed, run in at_setting.runs.items()}
                if not all(curves.values()):
                    raise Uncheckable(f"no round of {name!r} has {value} and an iteration t")
                yield name, at_setting, curves


def measure(run: Run, metric: str, iteration: int | None = None) -> float:
    """Return a metric or a count of a run, at its end or at an outer iteration."""
    if iteration is not None:
        if (at := by_iteration(run, metric).get(iteration)) is None:
            raise Uncheckable(f"no round of {run.name!r} has {metric} at t = {iteration}")
        return at
    if (value := measured(run, metric)) is None:
        raise Uncheckable(f"{run.name!r} has no {metric} with seed {run.seed}")
    return value


def best_of(settings: Sequence[Setting], metric: str) -> Setting:
    """Return the setting whose metric is best on average."""
    sign = 1 if metric_of(metric).better == "higher" else -1

    def merit(at_setting: Setting) -> float:
        mean = Spread.of([measure(run, metric) for run in at_setting.runs.values()]).mean
        return -math.inf if math.isnan(mean) else sign * mean

    return max(settings, key=merit)


def place_text(point: Where, name: str = "", **more: int) -> str:
    """Return the text of a setting, after the method's name if there is one."""
    at = setting({**point, **more})
    return " ".join([*([repr(name)] if name else []), *([f"at {at}"] if at else [])])

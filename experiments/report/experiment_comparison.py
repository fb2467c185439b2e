"""Comparison of two experiments: matched runs, differences beyond noise, and the tables of these."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedkernel.experiments.report import cells
from fedkernel.experiments.report.page_tables import TRAFFIC
from fedkernel.experiments.report.table_formats import Layout
from fedkernel.experiments.results import NOISE, Difference, Run, Spread, by_setting, difference, measured
from fedkernel.models import ERROR_ROUNDING, Metric, metric_of

Pair = tuple[list[Run], list[Run]]  # runs of A and of B with one method and setting, over seeds
RELATIVE_ROUNDING = 1e-12  # difference of a figure between machines, from a library's order of summation


def match(a: Iterable[Run], b: Iterable[Run]) -> tuple[list[Pair], list[list[Run]], list[list[Run]]]:
    """Pair the runs of two experiments by name and swept values. Also return the runs that A or B alone has."""
    ours, theirs = by_setting(a), by_setting(b)
    both = [(runs, theirs[at]) for at, runs in ours.items() if at in theirs]
    only_a = [runs for at, runs in ours.items() if at not in theirs]
    return both, only_a, [runs for at, runs in theirs.items() if at not in ours]


@dataclass(frozen=True)
class ComparedFigure:
    """Metric or count of one method at one setting in the experiments A and B, with the difference.

    `run` is the first of A; its name, kind, method and point are those of all. `a`, `b`, `difference`: None where the
    figure does not apply.
    """

    run: Run
    figure: str
    a: Spread | None
    b: Spread | None
    difference: Difference | None

    @property
    def differs(self) -> bool:
        """True if A and B differ by more than `NOISE` standard errors, or at all with one seed. Seconds never do."""
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
        """Return the reason to treat A and B as equal, or None if they differ."""
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


def compare_figure(both: Sequence[Pair], figure: str) -> list[ComparedFigure]:
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


COSTS = ("floats_up", "floats_down", "rounds", "seconds")
IN_FULL = ("a_mean", "a_std", "a_seeds", "b_mean", "b_std", "b_seeds", "difference", "standard_error", "paired")


def metric_table(compared: Sequence[ComparedFigure], sides: str) -> Layout:
    """Lay out one metric's comparison, a row for each method and setting. `sides`: names of A and B for the title."""
    swept, metric = cells.swept_of(c.run.point for c in compared), metric_of(compared[0].figure)
    ways = dict.fromkeys(c.difference.paired for c in compared if c.difference and c.difference.error is not None)
    sides_ = [c.a for c in compared], [c.b for c in compared]
    counts = [" to ".join(map(str, sorted({s.n for s in side if s}))) for side in sides_]
    if counts[0] != counts[1]:
        over = f"over {counts[0] or 'no'} seeds of A and {counts[1] or 'no'} of B"
    else:
        over = f"over {counts[0]} seed{'s' if ways else ''}"
    what = " or ".join("seed by seed" if paired else "of means over different seeds" for paired in ways)
    noise = f"; B − A ± {NOISE:g} standard errors, {what}" if ways else ", without an estimate of noise"
    difference = f"B − A{f' ± {NOISE:g} s.e.' if ways else ''}"
    headings = ["Method", *cells.short_names(swept), "A", "B", difference, "verdict"]
    rows = []
    for c in compared:
        figures = [_side(c.a, metric), _side(c.b, metric), _difference(c), c.verdict]
        rows.append([c.run.name, *cells.settings(c.run.point, swept), *figures])
    caption = f"mean{' ± standard deviation' if ways else ''} {over}{noise}"
    return Layout(headings, rows, 1 + len(swept), f"{metric.heading} ({sides})", caption)


def cost_table(costs: Mapping[str, Sequence[ComparedFigure]], sides: str) -> Layout:
    """Lay out the mean costs in `COSTS`, A's and B's where they differ. A star marks more than noise."""
    rows = [*zip(*(costs[name] for name in COSTS), strict=True)]
    swept = cells.swept_of(row[0].run.point for row in rows)
    texts = [[row[0].run.name, *cells.settings(row[0].run.point, swept), *map(_cost, row)] for row in rows]
    starred = "; * differs by more than noise" if any(c.differs for row in rows for c in row) else ""
    caption = f"mean, A → B where they differ{starred}; seconds are not judged"
    headings = ["Method", *cells.short_names(swept), *TRAFFIC.values()]
    return Layout(headings, texts, 1 + len(swept), f"what it took ({sides})", caption)


def compared_in_full(compared: Sequence[ComparedFigure]) -> tuple[list[str], list[list[object]]]:
    """Lay out comparisons with all their digits, a row each; None where a figure does not apply."""
    swept = cells.swept_of(c.run.point for c in compared)
    rows: list[list[object]] = []
    for c in compared:
        figures: list[object] = [c.figure, metric_of(c.figure).better]
        for side in (c.a, c.b):
            figures += [None, None, 0] if side is None else [side.mean, side.std, side.n]
        d = c.difference
        figures += [None, None, None] if d is None else [d.mean, d.error, d.paired]
        key = [c.run.name, c.run.kind, c.run.method, *(c.run.point.get(name) for name in swept)]
        rows.append([*key, *figures, c.verdict])
    return ["name", "kind", "method", *swept, "figure", "better", *IN_FULL, "verdict"], rows


def _side(spread: Spread | None, metric: Metric) -> str:
    write = cells.writer(metric.name)
    return cells.with_spread(spread, write) if spread and metric.counted else cells.written(spread, metric.name)


def _difference(c: ComparedFigure) -> str:
    """Format the mean of B minus the mean of A, with the range that chance explains."""
    if c.difference is None or not math.isfinite(c.difference.mean):
        return cells.NOT_APPLICABLE
    metric, mean, error = metric_of(c.figure), c.difference.mean, c.difference.error
    if mean == 0 and not error:
        return "0"
    if metric.axis == "orders" and abs(mean) < ERROR_ROUNDING:
        return metric.written(mean)
    return f"{mean:+{',.6g' if metric.counted else '#.3g'}}" + (f" ± {NOISE * error:#.2g}" if error else "")


def _cost(c: ComparedFigure) -> str:
    if c.a is None or c.b is None:  # every run has its costs
        return cells.NOT_APPLICABLE
    write = cells.writer(c.figure)
    return " → ".join(dict.fromkeys((write(c.a.mean), write(c.b.mean)))) + (" *" if c.differs else "")

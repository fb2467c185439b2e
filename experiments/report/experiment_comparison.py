"""Tables that compare two experiments: one for each metric, one for costs, and all figures in full."""

import math
from collections.abc import Mapping, Sequence

from experiments.report.cells import NOT_APPLICABLE, settings, short_names, swept_of, with_spread, writer, written
from experiments.report.page_tables import TRAFFIC
from experiments.report.table_formats import Layout
from experiments.results import NOISE, ComparedFigure, Spread
from fedkernel.models import ERROR_ROUNDING, Metric, metric_of

COSTS = ("floats_up", "floats_down", "rounds", "seconds")
IN_FULL = ("a_mean", "a_std", "a_seeds", "b_mean", "b_std", "b_seeds", "difference", "standard_error", "paired")


def metric_table(compared: Sequence[ComparedFigure], sides: str) -> Layout:
    """Lay out one metric's comparison, a row for each method and setting; `sides` names A and B in the title."""
    swept, metric = swept_of(c.run.point for c in compared), metric_of(compared[0].figure)
    ways = dict.fromkeys(c.difference.paired for c in compared if c.difference and c.difference.error is not None)
    sides_ = [c.a for c in compared], [c.b for c in compared]
    counts = [" to ".join(map(str, sorted({s.n for s in side if s}))) for side in sides_]
    if counts[0] != counts[1]:
        over = f"over {counts[0] or 'no'} seeds of A and {counts[1] or 'no'} of B"
    else:
        over = f"over {counts[0]} seed{'s' if ways else ''}"
    what = " or ".join("seed by seed" if paired else "of means over different seeds" for paired in ways)
    noise = f"; B − A ± {NOISE:g} standard errors, {what}" if ways else ", without an estimate of noise"
    headings = ["Method", *short_names(swept), "A", "B", f"B − A{f' ± {NOISE:g} s.e.' if ways else ''}", "verdict"]
    rows = [
        [c.run.name, *settings(c.run.point, swept), _side(c.a, metric), _side(c.b, metric), _difference(c), c.verdict]
        for c in compared
    ]
    caption = f"mean{' ± standard deviation' if ways else ''} {over}{noise}"
    return Layout(headings, rows, 1 + len(swept), f"{metric.heading} ({sides})", caption)


def cost_table(costs: Mapping[str, Sequence[ComparedFigure]], sides: str) -> Layout:
    """Lay out the runs' mean costs, A's and B's where they differ; a star marks more than noise.

    `costs` is by the names of `COSTS`, all of the same methods and settings; `sides` names A and B in the title.
    """
    rows = [*zip(*(costs[name] for name in COSTS), strict=True)]
    swept = swept_of(row[0].run.point for row in rows)
    cells = [[row[0].run.name, *settings(row[0].run.point, swept), *map(_cost, row)] for row in rows]
    starred = "; * differs by more than noise" if any(c.differs for row in rows for c in row) else ""
    caption = f"mean, A → B where they differ{starred}; seconds are not judged"
    return Layout(
        ["Method", *short_names(swept), *TRAFFIC.values()], cells, 1 + len(swept), f"what it took ({sides})", caption
    )


def compared_in_full(compared: Sequence[ComparedFigure]) -> tuple[list[str], list[list[object]]]:
    """Lay out comparisons with all their digits, a row each; None where a figure does not apply.

    Headings are ``name``, ``kind``, ``method``, each swept parameter, ``figure``, ``better`` ("lower" or "higher"), the
    `IN_FULL`, ``verdict``.
    """
    swept = swept_of(c.run.point for c in compared)
    rows: list[list[object]] = []
    for c in compared:
        figures: list[object] = []
        for side in (c.a, c.b):
            figures += [None, None, 0] if side is None else [side.mean, side.std, side.n]
        d = c.difference
        figures += [None, None, None] if d is None else [d.mean, d.error, d.paired]
        key = [
            c.run.name,
            c.run.kind,
            c.run.method,
            *(c.run.point.get(name) for name in swept),
            c.figure,
            metric_of(c.figure).better,
        ]
        rows.append([*key, *figures, c.verdict])
    return ["name", "kind", "method", *swept, "figure", "better", *IN_FULL, "verdict"], rows


def _side(spread: Spread | None, metric: Metric) -> str:
    return with_spread(spread, writer(metric.name)) if spread and metric.counted else written(spread, metric.name)


def _difference(c: ComparedFigure) -> str:
    """Format the mean of B minus that of A, with the range of chance."""
    if c.difference is None or not math.isfinite(c.difference.mean):
        return NOT_APPLICABLE
    metric, mean, error = metric_of(c.figure), c.difference.mean, c.difference.error
    if mean == 0 and not error:
        return "0"
    if metric.axis == "orders" and abs(mean) < ERROR_ROUNDING:
        return metric.written(mean)
    return f"{mean:+{',.6g' if metric.counted else '#.3g'}}" + (f" ± {NOISE * error:#.2g}" if error else "")


def _cost(c: ComparedFigure) -> str:
    if c.a is None or c.b is None:  # every run has its costs
        return NOT_APPLICABLE
    write = writer(c.figure)
    a, b = write(c.a.mean), write(c.b.mean)
    return (a if a == b else f"{a} → {b}") + (" *" if c.differs else "")

"""Text of table cells: swept values, metrics, counts, sizes, seconds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.filesize import decimal

from fedkernel.experiments.results import Spread
from fedkernel.models import metric_of
from fedkernel.protocol import share_text

NOT_APPLICABLE = "–"  # cell of a figure that does not apply


def swept_of(points: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of all swept parameters of some points, in order of first appearance."""
    return list(dict.fromkeys(name for point in points for name in point))


def short_names(swept: Sequence[str]) -> list[str]:
    """Return the last part of each dotted path, or the whole path where two end alike."""
    last = [name.rsplit(".", 1)[-1] for name in swept]
    return [end if last.count(end) == 1 else name for name, end in zip(swept, last, strict=True)]


def settings(point: Mapping[str, Any], swept: Iterable[str]) -> list[str]:
    """Format a point's values of the swept parameters, one cell each."""
    values = [point.get(name, NOT_APPLICABLE) for name in swept]
    return [f"{value:g}" if isinstance(value, float) else str(value) for value in values]


def written(spread: Spread | None, name: str) -> str:
    """Format a metric over seeds; an exact zero is "0"."""
    if spread is None:
        return NOT_APPLICABLE
    if spread.low == spread.high == 0:
        return "0"
    if not math.isfinite(spread.mean):
        return "not finite"
    return metric_of(name).written(spread.mean, spread.std)


def with_spread(spread: Spread, write: Callable[[float], str]) -> str:
    """Format a mean and, if there is one, its standard deviation."""
    return f"{write(spread.mean)} ± {write(spread.std)}" if spread.std else write(spread.mean)


def count(value: float) -> str:
    """Format a count, or a mean of counts."""
    if value >= 1e9:
        return f"{value / 1e9:.2f} G"
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:.1f}"


def seconds(value: float) -> str:
    """Format a duration in seconds."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


def writer(figure: str) -> Callable[[float], str]:
    """Return the formatter for a figure's unit: seconds, bytes, shares or counts."""
    writers = {"seconds": seconds, "bytes": lambda value: decimal(round(value)), "numbers per entry": share_text}
    return writers.get(metric_of(figure).unit, count)

"""Sub-protocol that computes kernel widths by rules such as the median distance, before a strategy's protocol.

`fedkernel.numerics.widths` defines the rules. Their cost, with M clients and d columns (d_m each), and their error
against the pooled rows:

| rule | partition | rounds | floats up | floats down | error |
|---|---|---|---|---|---|
| `mean`, also a Laplacian's | horizontal | 2 | M (d + 1) | M d | rounding |
| `mean`, also a Laplacian's | vertical | 1 | M | 0 | rounding |
| `scale` | both | 2 | 2 M | M | rounding |
| `median` | vertical | 1 | M P, P = min(N / 2, 5000) | 0 | of a sample, below |
| `median` | horizontal | 1 | 2 d for each 10 to 19 of at most 2000 rows of a client | 0 | of a model, below |
| `dimension`, `columns` | both | 0 | 0 | 0 | none |

All but the last `median` are sums over the clients (`to_sum`).

Vertical: the median over P pairs of rows, no row in two of them, the same at all sites. Where rows are drawn
independently, so are the pairs' distances, and the share of all distances that are below the median is between 1/2 - e
and 1/2 + e with probability 1 - p, e = sqrt(ln(2 / p) / (2 P)) (Dvoretzky, Kiefer, Wolfowitz; Massart 1990): of 5000
pairs 0.019, of 1000 0.043, of 89 0.144, each with 95%.

Horizontal: rows of different sites form no pairs, since the rows stay. Sites send mean and variances of groups of at
least 10 neighbouring rows, and the median is over some 1500 points drawn from these, normal in each group. Where 4
sites share iris, wine, breast cancer, digits and diabetes, as they are and standardised, with rows at random and
sorted by class, from 0.42 to 0.58 of all pooled distances are below it, and it is 0.9 to 1.1 times the pooled median,
as ``pytest tests/kernel_width/test_kernel_width.py -k median_of_rows`` checks. No bound is proven. Many heaps of fewer
than 10 rows, far apart, would be taken for fewer wide ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.spatial.distance import pdist

from fedkernel.ground import BLOCK_ROWS, EPS, Division, FloatArray, InputError, generator
from fedkernel.kernel_width import client
from fedkernel.numerics import Kernel, widths
from fedkernel.protocol import FLOAT, AtMost, Forecast, Member, Plan, Protocol, Run, once, to_all, to_sum

Width: TypeAlias = dict[str, float]  # result of a rule: the sigma or the gamma of a kernel, by this name

MOST_POINTS = 1500  # most points that represent the rows of all groups; at least 200, for tables with many columns


def settle_widths(run: Run, partition: Division, kernels: Sequence[Kernel]) -> Protocol[dict[Kernel, Kernel]]:
    """Compute rule-based widths, and return each kernel's replacement with numeric width. Equal rules run once."""
    by_rule: dict[str, Width] = {}
    for rule in _rules(kernels):
        by_rule[rule] = yield from _RULES[rule].measure(run, partition)
    return {kernel: widths.with_rule_value(kernel, by_rule[widths.rule_name(kernel)]) for kernel in kernels}


def width_plan(kernels: Iterable[Kernel], partition: Division) -> Plan:
    """Return the planned requests of `settle_widths`."""
    return tuple(step for rule in _rules(kernels) for step in _RULES[rule].plan(partition))


def width_forecast(kernels: Iterable[Kernel], partition: Division, cohort: Sequence[Member]) -> Forecast:
    """Forecast the rounds, floats and memory of `settle_widths`."""
    widest = max(member.columns for member in cohort)
    memory = FLOAT * 2 * widest * min(max(member.rows for member in cohort), BLOCK_ROWS)
    forecasts = [_RULES[rule].forecast(partition, cohort) for rule in _rules(kernels)]
    return sum(forecasts, Forecast(0, memory=memory if forecasts else 0))


def _rules(kernels: Iterable[Kernel]) -> list[str]:
    return list(dict.fromkeys(widths.rule_name(kernel) for kernel in kernels if kernel.rule is not None))


def _columns(cohort: Sequence[Member], partition: Division) -> int:
    """Return the number d of columns of the pooled table."""
    return sum(member.columns for member in cohort) if partition == "vertical" else cohort[0].columns


def _rows(run: Run, partition: Division) -> int:
    """Return the number N of rows of the pooled table."""
    return run.members[0].rows if partition == "vertical" else run.rows


def _mean(run: Run, partition: Division, power: client.Power = 2) -> Protocol[Width]:
    """Compute the width from the rows' differences from their mean. With a vertical partition, means stay at sites."""
    rows, mean = _rows(run, partition), None
    if partition == "horizontal":
        mean = (yield from to_sum(client.SumColumns())).sums / rows
    differences = (yield from to_sum(client.MeasureSquares(mean=mean, power=power))).squares
    center = np.zeros(1) if mean is None else mean
    if power == 1:
        return {"sigma": widths.difference_sigma(rows, center, differences)}
    return {"gamma": widths.fk_gamma(rows, center, differences)}


def _mean_plan(partition: Division, power: client.Power = 2) -> Plan:
    measured = once(client.MeasureSquares, power=power)
    return (measured,) if partition == "vertical" else (once(client.SumColumns), measured)


def _mean_forecast(partition: Division, cohort: Sequence[Member]) -> Forecast:
    M, d = len(cohort), _columns(cohort, partition)
    return Forecast(1, M) if partition == "vertical" else Forecast(2, M * (d + 1), M * d)


def _scale(run: Run, partition: Division) -> Protocol[Width]:
    """Compute the width from the mean of all entries, and the squared differences from it."""
    rows, d = _rows(run, partition), _columns(run.members, partition)
    entries = yield from to_sum(client.SumEntries())
    mean = entries.total / (rows * d)
    about_it = yield from to_sum(client.MeasureEntries(mean=mean))
    return {"gamma": widths.scale_gamma(rows, about_it.squares, d * mean**2)}


def _scale_plan(partition: Division) -> Plan:
    return once(client.SumEntries), once(client.MeasureEntries)


def _scale_forecast(partition: Division, cohort: Sequence[Member]) -> Forecast:
    return Forecast(2, 2 * len(cohort), len(cohort))


def _median(run: Run, partition: Division) -> Protocol[Width]:
    """Compute the width from the median distance of row pairs or, if sites hold rows, of points drawn from groups."""
    if partition == "vertical":
        pairs = min(run.members[0].rows // 2, client.MOST_PAIRS)
        if pairs == 0:
            raise InputError("rows = 1, but a median distance needs at least 2")
        total = yield from to_sum(client.MeasurePairs(pairs=pairs))
        sigma = float(np.sqrt(np.median(total.squares)))
    else:
        groups = yield from to_all(client.DescribeGroups())
        own = [member.rows * reply.sizes / reply.sizes.sum() for member, reply in zip(run.members, groups, strict=True)]
        means = np.vstack([reply.means for reply in groups])
        variances = np.vstack([reply.variances for reply in groups])
        sigma = median_of_groups(means, variances, np.concatenate(own))
    if sigma == 0.0:
        raise InputError("the median distance between rows is 0, so it cannot be a width; most rows are equal")
    return {"sigma": sigma}


def median_of_groups(means: FloatArray, variances: FloatArray, weights: FloatArray) -> float:
    """Return the median distance of points from normal groups. `means`, `variances` (G, d). `weights` (G,): rows."""
    d = means.shape[1]
    count = min(MOST_POINTS, max(200, client.MOST_GROUPED_ENTRIES // d))
    places = (np.arange(count) + 0.5) / count * weights.sum()
    groups = np.searchsorted(np.cumsum(weights), places)
    points = np.sqrt(variances[groups]) * generator("points of groups", d).standard_normal((count, d))
    points += means[groups]
    sigma = float(np.median(pdist(points)))
    # means and variances are rounded: those of equal rows differ by about eps of their length
    return sigma if sigma > 100 * EPS * float(np.median(np.linalg.norm(points, axis=1))) else 0.0


def _median_plan(partition: Division) -> Plan:
    if partition == "vertical":
        return (once(client.MeasurePairs, pairs=AtMost(client.MOST_PAIRS)),)
    return (once(client.DescribeGroups, groups=128),)


def _median_forecast(partition: Division, cohort: Sequence[Member]) -> Forecast:
    if partition == "vertical":
        pairs = min(cohort[0].rows // 2, client.MOST_PAIRS)
        memory = 3 * FLOAT * pairs * max(member.columns for member in cohort)
        return Forecast(1, len(cohort) * pairs, memory=memory)
    d = cohort[0].columns
    grouped = [client.grouped_rows(member.rows, d) for member in cohort]
    return Forecast(1, 2 * d * sum(map(client.count_groups, grouped)), memory=2 * FLOAT * d * max(grouped))


def _dimension(run: Run, partition: Division) -> Protocol[Width]:
    """Compute the width from the number of columns, known since the clients' introduction."""
    yield from ()
    return {"sigma": widths.dimension_sigma(_columns(run.members, partition))}


class _Rule(NamedTuple):
    """Protocol, plan and forecast of one rule for kernel widths."""

    measure: Callable[[Run, Division], Protocol[Width]]
    plan: Callable[[Division], Plan]
    forecast: Callable[[Division, Sequence[Member]], Forecast]


_RULES: Mapping[str, _Rule] = {
    "mean": _Rule(_mean, _mean_plan, _mean_forecast),
    "mean difference": _Rule(partial(_mean, power=1), partial(_mean_plan, power=1), _mean_forecast),
    "scale": _Rule(_scale, _scale_plan, _scale_forecast),
    "median": _Rule(_median, _median_plan, _median_forecast),
    "dimension": _Rule(_dimension, lambda partition: (), lambda partition, cohort: Forecast(0)),
}

"""Statistical tests for sites whose columns differ in mean or spread from all other sites' columns.

Each column has two tests, of the site's cells against all others'. Their level is shared out over both tests, all
columns and all sites (Bonferroni), so that a run of similar sites has a false alarm with probability
`FALSE_ALARM_LEVEL` at most. Means: Welch's t-test. Standard deviations: the logarithm of the variances' ratio, whose
variance is (k - 1) (1/n + 1/n') for sites with the same kurtosis k; k is the site's own, but at least `KURTOSIS`. A
finding must also matter, since with many rows everything differs: means `LEAST_SHIFT` standard deviations of the others
apart, or standard deviations that differ by a factor of `LEAST_SPREAD`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtr

from fedkernel.ground import EPS, FloatArray, printable
from fedkernel.preparing.messages import CompareColumns, Differences
from fedkernel.preparing.scaling import Moments, moments_of
from fedkernel.protocol import Member

FALSE_ALARM_LEVEL = 1e-6
LEAST_SHIFT, LEAST_SPREAD = 0.5, 2.0
KURTOSIS = 9.0  # kurtosis of an exponential distribution; a normal one has 3
FEWEST = 3  # fewest cells of a column, at the site and at all others together, for a comparison
LARGEST_RATIO = 1e9  # largest reported ratio, since ratios have no limit if the others' columns are constant
UNIT_FACTOR = 3.0  # least ratio of mean and standard deviation that suggests a different unit; feet and metres have 3.3

ALIKE_FACTOR = 3.0  # largest factor between these ratios for a different unit: chance makes 2 and more at 20 rows
LEAST_GAIN_SHARE = 2 / 3  # least share of a column's largest gain with which a site is reported


def differences(own: FloatArray, ask: CompareColumns) -> Differences:
    """Compare a site's columns (n, p) with all other sites'. Missing cells are NaN. `ask`: sums of all sites."""
    apart = own - ask.center
    counts = np.isfinite(own).sum(axis=0).astype(np.float64)
    deviations, squares = np.nansum(apart, axis=0), np.nansum(apart**2, axis=0)
    here = moments_of(counts, ask.center, deviations, squares, ddof=1)
    others = np.maximum(ask.squares - squares, 0.0)
    there = moments_of(ask.counts - counts, ask.center, ask.deviations - deviations, others, ddof=1)
    compared = (here.counts >= FEWEST) & (there.counts >= FEWEST)
    level = FALSE_ALARM_LEVEL / (2 * max(1, ask.sites) * max(1, len(ask.center)))
    with np.errstate(all="ignore"):  # constant or short columns: see `compared` and `LARGEST_RATIO`
        distance = np.abs(here.means - there.means)
        # a constant column is off by rounding
        distance[distance <= 1e3 * EPS * np.maximum(np.abs(here.means), np.abs(there.means))] = 0.0
        errors = here.variances / here.counts, there.variances / there.counts
        freedom = sum(errors) ** 2 / (errors[0] ** 2 / (here.counts - 1) + errors[1] ** 2 / (there.counts - 1))
        t = np.where(distance > 0, distance / np.sqrt(sum(errors)), 0.0)
        deviation, deviation_there = np.sqrt(here.variances), np.sqrt(there.variances)
        shifted = (2 * stdtr(np.where(np.isfinite(freedom), freedom, 1e9), -t) <= level) & (
            distance >= LEAST_SHIFT * deviation_there
        )
        fourth = np.nansum((own - here.means) ** 4, axis=0) / here.counts
        fourth /= (here.variances * (1 - 1 / here.counts)) ** 2
        kurtosis = np.maximum(np.where(np.isfinite(fourth), fourth, KURTOSIS), KURTOSIS)
        logarithm = np.abs(np.log(here.variances / there.variances))
        z = logarithm / np.sqrt((kurtosis - 1) * (1 / here.counts + 1 / there.counts))
        spread = (2 * ndtr(-z) <= level) & (logarithm >= 2 * np.log(LEAST_SPREAD))
        places = np.flatnonzero(compared & (shifted | spread))
        means, spreads = here.means / there.means, deviation / deviation_there
        gains = _gains(moments_of(ask.counts, ask.center, ask.deviations, ask.squares, ddof=1), here, there)
    return Differences(
        columns=places.astype(np.int32),
        means=_rounded(means[places]),
        spreads=_rounded(spreads[places]),
        gains=_rounded(gains[places]),
    )


def _gains(whole: Moments, here: Moments, there: Moments) -> FloatArray:
    """Return the log-likelihood gain, in nats per cell, of separate normal distributions for a site and the others."""
    floor = 1e-18 * whole.variances
    total, own, others = (
        column.counts * np.log(np.maximum(column.variances, floor)) for column in (whole, here, there)
    )
    return (total - own - others) / (2 * whole.counts)


def _rounded(ratios: FloatArray) -> FloatArray:
    """Round numbers to two digits: enough to recognise a fault, and little more."""
    limited = np.nan_to_num(np.clip(ratios, -LARGEST_RATIO, LARGEST_RATIO), nan=0.0)
    return np.array([float(f"{ratio:.2g}") for ratio in limited.tolist()])


class Finding(NamedTuple):
    """Column of a site that differs from the others'. `ratio`: of the means or standard deviations, see `text`."""

    column: str
    site: str
    ratio: float
    text: str


def findings(names: Sequence[str], members: Sequence[Member], replies: Sequence[Differences]) -> list[Finding]:
    """Collect the sites' findings, without columns that differ only because another site is an outlier.

    An outlying site also makes every other site differ from the rest; but separating the outlier gains much more. So a
    column is reported only with at least `LEAST_GAIN_SHARE` of its largest gain.
    """
    largest: npt.NDArray[np.float64] = np.zeros(len(names))
    for reply in replies:
        np.maximum.at(largest, reply.columns, reply.gains)
    named: list[Finding] = []
    for member, reply in zip(members, replies, strict=True):
        for place, mean, spread, gain in zip(
            reply.columns.tolist(), reply.means.tolist(), reply.spreads.tolist(), reply.gains.tolist(), strict=True
        ):
            if gain >= LEAST_GAIN_SHARE * largest[place]:
                ratio, text = coordinator_sentence(printable(names[place]), member.label, mean, spread)
                named.append(Finding(names[place], member.label, ratio, text))
    return named


def site_sentence(site: str, column: str, mean: float, spread: float) -> str:
    """Return the site's own sentence on a column that differs, without saying which side is at fault."""
    text = f"{column} differs between {site} and the others: mean {mean:g} times, standard deviation {spread:g} times"
    may_be = _beyond(spread, UNIT_FACTOR) and _beyond(abs(mean), UNIT_FACTOR)
    return f"{text}; one of them may have a different unit" if may_be else text


def coordinator_sentence(column: str, site: str, mean: float, spread: float) -> tuple[float, str]:
    """Return the ratio of a site's column to the others', and the coordinator's sentence on it."""
    if _beyond(spread, UNIT_FACTOR) and (1 / ALIKE_FACTOR <= abs(mean) / spread <= ALIKE_FACTOR):
        return mean, f"{column}: {site}'s mean is {mean:g} times the others'; a different unit?"
    if not 0 < 1 / LEAST_SPREAD < spread < LEAST_SPREAD:
        text = f"{column}: {site}'s standard deviation is {spread:g} times the others', and its mean {mean:g} times"
        return spread, text
    return mean, f"{column}: {site}'s mean is {mean:g} times the others', by more than chance explains"


def _beyond(ratio: float, factor: float) -> bool:
    return ratio >= factor or 0 < ratio <= 1 / factor

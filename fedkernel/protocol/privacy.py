"""Differential privacy of a run by noise on its sums: bounds of rows, the noise's size and its draws.

All that leaves in a run, but for what is listed below, has (epsilon, delta)-differential privacy against the
coordinator together with ``colluders`` other sites, a number that the study says, for one row added or removed at one
site. For a row replaced by another it is (2 epsilon, (1 + exp(epsilon)) delta).

A longer row is shortened to the length ``radius``, a row of random features to length 1: this bounds its part of a sum.
Each site adds its share of discrete Gaussian noise before the masks; the shares of all but the colluders are enough.

Not protected:

- Numbers of rows (with ``missing = "drop"``, of rows without an empty cell), names of columns and their kinds, numbers
  or text, computing times, and whether a table is fit: its numbers finite, no cell empty that must not be, its ids
  different. A site refuses nothing else by its rows.
- Rows against more than ``colluders`` sites. A site that only says that it adds noise counts as one.
- Results that stay at a site, from whoever reads the site's folder.
- Rows at simulated sites, whose noise follows from the run's seed.
- Rows by which units or ``radius`` were chosen: both must come from public knowledge.
- Several runs together: their epsilons and deltas add up; a site's ``limits.total.epsilon`` limits the epsilons. With a
  new folder or outbox, or one restored from a backup, a site forgets both, and may draw a repeated run's noise anew.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedkernel.data import Prepare
from fedkernel.ground import FloatArray, InputError, Rows, ShareableError, value_object
from fedkernel.protocol.messages import Done, Request
from fedkernel.protocol.plan import Plan

ADJACENCY = "one row added or removed at one site"

ROW_BITS, NOISE_BITS = 16, 34
"""Steps of a row's entries are 2^-16 of its bound, and those of noise 2^-34 of the sensitivity: finer, for any square.

Sums of up to `MOST_ROWS` rows and of their products are then exact in float64, so that a row adds no more than stated.
"""

MOST_ROWS = 1 << 20

MOST_STEPS = 2.0**48
"""Largest standard deviation of noise in steps: of more than 2^53 float64 cuts the last off, and opendp the largest."""

PRIVACY_NEEDS = (
    'privacy needs sums = "masked", so that a site\'s own share of the noise is enough, and no align, evaluate or '
    "compare, whose answers and refusals have no noise"
)

STATED = (
    'scale = "none", or a table of centre and unit of each column, such as { age = [60, 12] }; missing = "refuse", '
    '"drop" or "center"; drift = "ignore"; log with a clip from above 0; categories with a level "*" for all others'
)
"""Preparation that takes no number from the rows and, but for empty cells, refuses none."""

INSTALL = "privacy needs opendp and dp-accounting: pip install 'fedkernel[privacy]'"


@value_object()
class Privacy:
    """Differential privacy of a run.

    - `epsilon`: privacy loss of the whole run (docs/explanation/privacy.md); smaller is more private.
    - `delta`: additive part of the guarantee; with a large one any row might be shown.
    - `radius`: L2 norm that longer rows are shortened to; from public knowledge, not from the rows.
    - `colluders`: most sites that may tell the coordinator their noise, or add none.
    - `releases`: number of sums that share epsilon and delta; 0: those of the plan.
    """

    epsilon: Annotated[float, Field(ge=1e-3)]
    radius: Annotated[float, Field(ge=1e-6, le=1e9)]
    delta: Annotated[float, Field(ge=1e-30, le=1e-4)] = 1e-5
    colluders: Annotated[int, Field(ge=0)] = 1
    releases: Annotated[int, Field(ge=0)] = 0

    @property
    def text(self) -> str:
        """All fields as JSON, for a request's header."""
        return json.dumps(vars(self))

    @property
    def meaning(self) -> str:
        """The guarantee in a sentence."""
        bound = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        return f"{bound} for {ADJACENCY}, in {self.releases} sums with noise, of rows no longer than {self.radius:g}"

    @property
    def multiplier(self) -> float:
        """The noise's standard deviation z in each sum, in multiples of its sensitivity.

        Source: Dong, Roth, Su: Gaussian Differential Privacy, JRSS B 84 (2022), corollary 3.3 (composition): s sums are
        as private as one with z / sqrt(s).
        """
        return _deviation(self.epsilon, self.delta) * math.sqrt(self.releases)

    def scales(self, sensitivities: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
        """Return the noise's standard deviation in each array of a sum, 0.0 for arrays of sensitivity 0.

        Arrays with more entries get a larger share of the budget, by the root of their number: that makes the mean
        squared noise least, in multiples of the sensitivities.
        """
        shares = {name: math.sqrt(sizes[name]) for name, bound in sensitivities.items() if bound}
        spread = math.sqrt(sum(shares.values()))
        return {
            name: self.multiplier * bound * spread / math.sqrt(shares[name]) if bound else 0.0
            for name, bound in sensitivities.items()
        }

    def own_scales(self, sensitivities: Mapping[str, float], sizes: Mapping[str, int], sites: int) -> dict[str, float]:
        """Return the standard deviation of one site's noise in each array.

        Source: Kairouz, Liu, Steinke: The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
        Aggregation, ICML 2021. The shares of all sites but the colluders have together the whole deviation.
        """
        honest = max(1, sites - self.colluders)
        return {name: scale / math.sqrt(honest) for name, scale in self.scales(sensitivities, sizes).items()}

    def check_sites(self, sites: int) -> None:
        """Raise InputError if all sites may collude."""
        if sites <= self.colluders:
            text = f"privacy.colluders = {self.colluders}, but must be less than the number of sites, {sites}"
            raise InputError(text)


def basis_of_privacy() -> dict[str, str]:
    """Return the basis of the guarantee for a receipt: neighbouring tables, mechanism and accountant, with versions."""
    accountant = f"privacy loss of one Gaussian (dp-accounting {version('dp-accounting')})"
    mechanism = f"discrete Gaussian (opendp {version('opendp')})"
    return {"adjacency": ADJACENCY, "mechanism": mechanism, "accountant": accountant}


@cache
def _deviation(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of Gaussian noise on one sum of sensitivity 1."""
    try:
        from dp_accounting.pld import common, privacy_loss_mechanism  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(INSTALL) from None
    loss = privacy_loss_mechanism.GaussianPrivacyLoss
    return float(loss.from_privacy_guarantee(common.DifferentialPrivacyParameters(epsilon, delta)).standard_deviation)


def check_covered(prepare: Prepare | None, *, masked: bool, where: str = "") -> None:
    """Raise InputError if a run with privacy would send facts about rows without noise.

    `masked`: all but its preparation are masked sums. `where`: beginning of the error text.
    """
    if not masked:
        raise InputError(f"{where}{PRIVACY_NEEDS}")
    if prepare is not None and (faults := [*prepare.measured, *prepare.refusing]):
        raise InputError(f"{where}privacy: prepare with {', '.join(faults)} tells of cells; allowed: {STATED}")


def count_releases(plan: Plan | None, answers: Sequence[type[Request[Any]]]) -> int:
    """Return the number of sums in a plan; InputError if a reply can have no noise.

    `answers`: the requests that its client answers.
    """
    if plan is None:
        raise InputError("privacy needs a method with a plan of its requests")
    kinds = {kind.__name__: kind for kind in answers}
    number = 0
    for step in plan:
        for planned in step.requests:
            if planned.reply != Done.__name__:
                check_noise(kinds.get(planned.request, Request))
                number += step.times
    return number


def check_noise(request: type[Request[Any]]) -> None:
    """Raise ShareableError if the answer to a request can have no noise. A site then computes no answer."""
    reply = request.reply_type
    if reply is not Done and request.sensitivity is Request.sensitivity:
        text = f"privacy: {reply.__name__} has no noise, as one row may change it by any amount"
        raise ShareableError(f"{text}; allowed: methods such as CentroidKMeans, of which only bounded sums leave")


def step_of(sensitivity: float) -> float:
    """Return the step of the noise on a sum, a power of 2."""
    return 2.0 ** (math.frexp(sensitivity)[1] - NOISE_BITS)


def draw_noise(number: int, scale: float, step: float, rng: np.random.Generator | None = None) -> FloatArray:
    """Draw discrete Gaussian noise (number,) in multiples of a step. `scale`: the noise's standard deviation.

    Source: Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, NeurIPS 2020. A sum of discrete
    Gaussians is not itself one. With steps of 2^-34 of the sensitivity it differs from one by less than exp(-2^60), and
    so does a discrete Gaussian from the continuous one for which epsilon is computed.

    From the operating system's generator by opendp, or rounded normal numbers of `rng`, for simulated sites. Raises
    ShareableError if float64 would round them.
    """
    if scale / step > MOST_STEPS:
        text = f"noise of {scale / step:.1g} steps would be rounded"
        raise ShareableError(f"{text}; allowed: at most {MOST_STEPS:.1g}, by a larger epsilon or fewer sums")
    if rng is not None:
        return np.rint(rng.standard_normal(number) * (scale / step)) * step
    try:
        import opendp.prelude as dp  # noqa: PLC0415 - an extra, and takes seconds
    except ImportError:
        raise InputError(INSTALL) from None
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return np.array(dp.m.make_gaussian(*integers, scale=scale / step)([0] * number), dtype=np.float64) * step


def each_alone(function: Callable[[Rows], FloatArray], rows: Rows) -> FloatArray:
    """Apply a function to each of the rows (n, d) by itself. In a block, the last bits depend on other rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.vstack([function(rows[row : row + 1]) for row in range(rows.shape[0])])


def bounded_rows(rows: Rows, radius: float) -> Rows:
    """Return rows (n, d) shortened to a length. Entries are truncated to multiples of a step, `ROW_BITS` bits below it.

    Rows with infinite numbers are 0, since their refusal would have no noise.
    """
    step, most = 2.0 ** (math.frexp(radius)[1] - ROW_BITS), (1 - 2.0**-40) * radius
    if isinstance(rows, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            short = np.nan_to_num(rows * (most / np.maximum(lengths, most)))
        return np.asarray(np.trunc(short / step) * step)
    lengths = np.sqrt(np.bincount(rows.tocoo().row, np.square(rows.data), rows.shape[0]))
    shortened = rows.multiply((most / np.maximum(lengths, most))[:, np.newaxis]).tocsr()
    shortened.data = np.trunc(shortened.data / step) * step
    return shortened

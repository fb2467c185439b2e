"""Verdicts on sentences of a paper: a number from the runs, its limits, and the conclusion."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
import pydantic

from fedkernel.experiments.claims.evidence import Evidence, Uncheckable, Where
from fedkernel.experiments.results import NOISE, Failure, Run, mean_and_error
from fedkernel.ground import unknown_name


class Verdict(StrEnum):
    """Verdicts on a paper's sentence, the worst first."""

    FAILS = "does not hold"
    NOISE = "holds within noise"
    HOLDS = "holds"
    IDENTITY = "is an identity"
    UNTESTABLE = "not testable here"


@dataclass(frozen=True)
class Claim:
    """Sentence of a paper with its verdict and numbers in this experiment.

    - `text`: the sentence.
    - `verdict`: it holds where the value is inside the limits by `NOISE` standard errors or more, and does not where it
      is outside by more; between them it holds within noise. A sentence that cannot fail is an identity where it holds.
      Where a run is missing, or the setting is not run or cannot decide it, it is not testable here.
    - `numbers`: the numbers in words, for a reader; the reason for not being testable; the remark of its table.
    - `value`: the number that the limits are for; of several settings that of the worst.
    - `standard_error`: of `value`, a mean over seeds; None with one seed, which gives no estimate of noise, and where
      every seed by itself must be within the limits.
    - `where`: the setting, method, iteration or seed of the value; "" where there is only one.
    """

    text: str
    verdict: Verdict
    numbers: str
    value: float | None = None
    standard_error: float | None = None
    where: str = ""


class CheckedNumber(NamedTuple):
    """Number to be compared with a claim's limits, with its setting, number of seeds and standard error."""

    value: float
    place: str
    seeds: int
    error: float | None = None

    @classmethod
    def mean(cls, values: Sequence[float], place: str) -> "CheckedNumber":
        """Return the mean of one number per seed, with the mean's standard error."""
        mean, error = mean_and_error(values)
        return cls(mean, place, len(values), error)


class CheckedNumbers(NamedTuple):
    """All numbers to be compared with a claim's limits, with their name and a note for the reader."""

    numbers: list[CheckedNumber]
    label: str = ""
    note: str = ""


class ClaimCriteria(pydantic.BaseModel, ABC):
    """Table ``[[claim]]``: a paper's sentence and the limits of a number from the runs.

    - `text`: the sentence.
    - `check`: type of the criterion, which decides the other keys.
    - `kind`: an identity holds in any correct program. Of an untestable sentence the experiment has only a stand-in,
      whose number decides nothing.
    - `why`: remark after the numbers; required if untestable.
    - `where`: values of swept parameters of the runs that count.
    - `at_most`, `at_least`: limits, themselves allowed; one of them is required.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    text: str = pydantic.Field(min_length=1)
    kind: Literal["finding", "identity", "untestable"] = "finding"
    why: str = ""
    where: Where = {}
    at_most: float | None = None
    at_least: float | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _known(cls, table: Any) -> Any:
        names = [field.alias or name for name, field in cls.model_fields.items()]
        if isinstance(table, Mapping) and (unknown := [key for key in table if key not in names]):
            raise ValueError(unknown_name(unknown[0], names))
        return table

    @pydantic.model_validator(mode="after")
    def _limited(self) -> "ClaimCriteria":
        if self.at_most is None and self.at_least is None:
            raise ValueError("at_most or at_least is required")
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least = {self.at_least:g}, but must not be above at_most = {self.at_most:g}")
        if self.kind == "untestable" and not self.why:
            raise ValueError("why is required of kind = 'untestable'")
        return self

    @property
    @abstractmethod
    def methods(self) -> list[str]:
        """Names of the methods that the claim is about."""

    @property
    def conditions(self) -> list[Where]:
        """Conditions on swept parameters that runs must meet."""
        return [self.where]

    @abstractmethod
    def find(self, evidence: Evidence) -> CheckedNumbers:
        """Return the numbers to be compared with the limits."""

    def judge(self, evidence: Evidence) -> Claim:
        """Compare all numbers with the limits, and return the claim with the worst number."""
        try:
            numbers, label, note = self.find(evidence)
        except Uncheckable as reason:
            return Claim(self.text, Verdict.UNTESTABLE, str(reason))
        order = list(Verdict)
        worst = min(numbers, key=lambda it: (order.index(self._verdict(it)), self._distance_inside(it.value)))
        noise = f", standard error {worst.error:.2g}," if worst.error else ""
        seeds = f"{worst.seeds} seed{'' if worst.seeds == 1 else 's'}"
        place = f"; the worst is {worst.place}" if len(numbers) > 1 and worst.place else ""
        ends = (("at least", self.at_least), ("at most", self.at_most))
        limits = " and ".join(f"{words} {limit:.12g}" for words, limit in ends if limit is not None)
        text = f"{label}{self._number_text(worst.value)}{noise} against {limits} ({seeds}{place}{note})"
        text += f". {self.why}" if self.why else ""
        verdict = self._verdict(worst)
        if self.kind == "untestable":
            verdict = Verdict.UNTESTABLE
        elif self.kind == "identity" and verdict is Verdict.HOLDS:  # an identity that fails remains a failure
            verdict = Verdict.IDENTITY
        return Claim(self.text, verdict, text, worst.value, worst.error, worst.place)

    def _verdict(self, number: CheckedNumber) -> Verdict:
        inside, noise = self._distance_inside(number.value), NOISE * (number.error or 0.0)
        if inside >= noise:
            return Verdict.HOLDS
        return Verdict.NOISE if inside >= -noise else Verdict.FAILS

    def _distance_inside(self, x: float) -> float:
        """Return a number's distance from the nearest limit, negative outside of the limits."""
        if not math.isfinite(x):
            return -math.inf
        below = math.inf if self.at_most is None else self.at_most - x
        return min(below, math.inf if self.at_least is None else x - self.at_least)

    def _number_text(self, x: float) -> str:
        """Format a number with three digits, or with enough to show its side of the limits."""
        if not math.isfinite(x):
            return "no finite number"
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        whole = len(f"{abs(x):.0f}")
        texts = (f"{x:.{digits}g}" for digits in range(whole if 3 < whole < 10 else 3, 18))
        return next(text for text in texts if all(np.sign(float(text) - at) == np.sign(x - at) for at in limits))


def check_claims(
    claims: Iterable[ClaimCriteria],
    runs: Iterable[Run],
    due: Iterable[tuple[dict[str, Any], int]] | None = None,
    failed: Iterable[Failure] = (),
) -> list[Claim]:
    """Return the claims with their verdicts, in order. The other parameters are as for `Evidence`."""
    evidence = Evidence(runs, due, failed)
    return [claim.judge(evidence) for claim in claims]

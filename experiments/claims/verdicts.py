"""Sentences of a paper held against an experiment's runs: what was found, its limits, and whether the sentence held."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pydantic

from experiments.claims.evidence import Evidence, Uncheckable, Where
from experiments.results import Run
from fedkernel.validation import unknown_name


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, whether it held in this experiment, and the numbers that say so.

    `passed` is None if it could not be checked; `numbers` says why.
    """

    text: str
    passed: bool | None
    numbers: str

    @property
    def verdict(self) -> str:
        """Say in words whether it held."""
        return {True: "holds", False: "does not hold", None: "not checked"}[self.passed]


class Finding(NamedTuple):
    """A number that a check found, where, and over how many seeds; with its standard deviation if it is their mean."""

    value: float
    place: str
    seeds: int
    std: float | None = None


class Findings(NamedTuple):
    """All numbers that must be within a claim's limits, what they are, and what else to tell."""

    numbers: list[Finding]
    what: str = ""
    note: str = ""


class Check(pydantic.BaseModel, ABC):
    """A ``[[claim]]`` table: a sentence and the limits of a number.

    Attributes
    ----------
    text : str
        The sentence.
    where : dict
        Only runs with these values of swept parameters count.
    at_most, at_least : float
        The limits, themselves allowed; one of them is required.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    text: str = pydantic.Field(min_length=1)
    where: Where = {}
    at_most: float | None = None
    at_least: float | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _known(cls, table: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        if isinstance(table, Mapping) and (unknown := [key for key in table if key not in known]):
            raise ValueError(unknown_name(unknown[0], known))
        return table

    @pydantic.model_validator(mode="after")
    def _limited(self) -> "Check":
        if self.at_most is None and self.at_least is None:
            raise ValueError("at_most or at_least is required")
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least = {self.at_least:g}, but must not be above at_most = {self.at_most:g}")
        return self

    @property
    @abstractmethod
    def methods(self) -> list[str]:
        """The names of the methods that it is about."""

    @property
    def conditions(self) -> list[Where]:
        """All values of swept parameters that it asks for."""
        return [self.where]

    @abstractmethod
    def find(self, evidence: Evidence) -> Findings:
        """Return the numbers that the limits are for."""

    def judge(self, evidence: Evidence) -> Claim:
        """Say whether all numbers are within the limits, and tell the worst."""
        try:
            numbers, what, note = self.find(evidence)
        except Uncheckable as reason:
            return Claim(self.text, None, str(reason))
        worst = min(numbers, key=lambda number: self._margin(number.value))
        std = f" ± {worst.std:.2g}" if worst.std else ""
        seeds = f"{worst.seeds} seed{'' if worst.seeds == 1 else 's'}"
        place = f"; the worst is {worst.place}" if len(numbers) > 1 and worst.place else ""
        sentence = f"{what}{self._written(worst.value)}{std} against {self._limits()} ({seeds}{place}{note})"
        return Claim(self.text, self._margin(worst.value) >= 0, sentence)

    def _margin(self, x: float) -> float:
        """Return how far inside the limits a number is, negative outside."""
        if not math.isfinite(x):
            return -math.inf
        below = math.inf if self.at_most is None else self.at_most - x
        return min(below, math.inf if self.at_least is None else x - self.at_least)

    def _written(self, x: float) -> str:
        """Write a number with three digits, those before the point, or as many as show its side of the limits."""
        if not math.isfinite(x):
            return "no finite number"
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        whole = len(f"{abs(x):.0f}")
        texts = (f"{x:.{digits}g}" for digits in range(whole if 3 < whole < 10 else 3, 18))
        return next(text for text in texts if all(np.sign(float(text) - at) == np.sign(x - at) for at in limits))

    def _limits(self) -> str:
        ends = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{words} {limit:.12g}" for words, limit in ends if limit is not None)


def check_claims(
    claims: Iterable[Check], runs: Iterable[Run], due: Iterable[tuple[dict[str, Any], int]] | None = None
) -> list[Claim]:
    """Hold claims against runs.

    Parameters
    ----------
    claims : iterable of Check
    runs : iterable of Run
    due : iterable of (dict, int), optional
        As for `Evidence`: a claim that needs a run of these which is not there is not checked.

    Returns
    -------
    list of Claim
        One for each claim, in their order.
    """
    evidence = Evidence(runs, due)
    return [claim.judge(evidence) for claim in claims]

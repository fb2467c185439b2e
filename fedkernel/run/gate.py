"""What passes at a site: each request and each reply is held to its policy and to the plan of the study it approved.

How much has passed before stands in the last line of the record of what left (`fedkernel.run.outbox`), where it
survives the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pydantic
from pydantic import Field

from fedkernel.errors import InputError, RefusedError
from fedkernel.protocol.plan import Place, Plan, advance, once
from fedkernel.run.job import SHORT, RunSpec
from fedkernel.run.joining import HashIds, Introduce, TakeRows
from fedkernel.run.policy import Leaving, Limits, Policy

Count = Annotated[int, Field(ge=0)]

JOINING: Plan = (once(Introduce),)
ALIGNING: Plan = (once(HashIds), once(TakeRows))
"""What is asked before a run's own plan: of all, and where rows are compared."""


class Sums(pydantic.BaseModel):
    """How much has left.

    Attributes
    ----------
    begun : int
        Of one run how often it began, in all how many runs.
    floats, rows, bytes : int
        Floats in letters, too.
    seconds : float
        Computed for it.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    begun: Count = 0
    floats: Count = 0
    rows: Count = 0
    bytes: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def plus(self, leaving: Leaving) -> "Sums":
        """Return the sums with one more reply."""
        return Sums(
            begun=self.begun,
            floats=self.floats + leaving.floats + leaving.letters,
            rows=self.rows + leaving.rows,
            bytes=self.bytes + leaving.bytes,
            seconds=self.seconds + leaving.seconds,
        )


class Standing(pydantic.BaseModel):
    """Where a site stands.

    Attributes
    ----------
    total : Sums
        Of all runs.
    run : Sums
        Of the run of the line, however often it began.
    place : Place
        In its plan.
    replies : dict of str to int
        How many of each type have left since it began last.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    total: Sums = Sums()
    run: Sums = Sums()
    place: Place = Place()
    replies: dict[str, Count] = {}

    def with_reply(self, leaving: Leaving) -> "Standing":
        """Return where the site stands once one more reply has left."""
        replies = self.replies | {leaving.reply: self.replies.get(leaving.reply, 0) + 1}
        return self.model_copy(
            update={"run": self.run.plus(leaving), "total": self.total.plus(leaving), "replies": replies}
        )

    def with_seconds(self, seconds: float) -> "Standing":
        """Return where the site stands once something was computed, of which nothing left."""
        sums = {name: getattr(self, name) for name in ("run", "total")}
        more = {name: part.model_copy(update={"seconds": part.seconds + seconds}) for name, part in sums.items()}
        return self.model_copy(update=more)


class Asking(NamedTuple):
    """A request as the gate sees it: its type, its parameters, the shapes of its arrays."""

    request: str
    fields: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Gate:
    """A site's policy, and what it has approved of a run.

    Attributes
    ----------
    policy : Policy
    run : RunSpec
    study : str
        SHA-256 of the study that was approved; empty: none was, since the policy asks for none.
    """

    policy: Policy
    run: RunSpec
    study: str = ""

    def admit(self, standing: Standing, asking: Asking) -> Standing:
        """Return where the site stands once it has taken a request; RefusedError if it does not take it."""
        if asking.request == Introduce.__name__:
            standing = self._begun(standing)
        for sums, limits, where in self._limits(standing):
            if limits.seconds is not None and sums.seconds >= limits.seconds:
                rule = f"{where}.seconds"
                raise RefusedError(rule, f"{sums.seconds:.3g} s were computed, {limits.seconds:g} are allowed ({rule})")
        self.policy.check_request(asking.fields)
        if self.run.plan is None:
            return standing
        try:
            plan = (*JOINING, *(ALIGNING if self.run.align else ()), *self.run.plan)
            place = advance(plan, standing.place, *asking)
        except InputError as error:
            whose = f"study {self.study[:SHORT]}" if self.study else f"run {self.run.id!r}"
            raise RefusedError("plan", f"{error} (plan of {whose})") from None
        return standing.model_copy(update={"place": place})

    def release(self, standing: Standing, leaving: Leaving) -> tuple[Standing, str]:
        """Return where the site stands once a reply has left, and the rule that lets it; RefusedError if none does."""
        before = {where: sums for sums, _, where in self._limits(standing)}
        after = standing.with_reply(leaving)
        rule = self.policy.check_reply(leaving, after.replies[leaving.reply])
        for sums, limits, where in self._limits(after):
            for name in ("floats", "rows", "bytes"):
                most, amount = getattr(limits, name), getattr(sums, name)
                # what adds nothing is not refused for what left before
                if most is not None and amount > most and (name == "bytes" or amount > getattr(before[where], name)):
                    what = f"with {leaving.reply}, {amount:,} {name} would have left, but {most:,} are allowed"
                    raise RefusedError(f"{where}.{name}", f"{what} ({where}.{name})")
        return after, rule

    def _begun(self, standing: Standing) -> Standing:
        """Begin the run, perhaps once more: its plan from its beginning."""
        again, rules = standing.run.begun, self.policy.study
        if again >= rules.attempts:
            text = f"run {self.run.id!r} began {again} times, as often as allowed (study.attempts)"
            raise RefusedError("study.attempts", text)
        if not again and rules.runs is not None and standing.total.begun >= rules.runs:
            raise RefusedError("study.runs", f"{standing.total.begun} runs have begun, as many as allowed (study.runs)")
        run = standing.run.model_copy(update={"begun": again + 1})
        total = standing.total.model_copy(update={"begun": standing.total.begun + (not again)})
        return Standing(total=total, run=run)

    def _limits(self, standing: Standing) -> tuple[tuple[Sums, Limits, str], ...]:
        limits = self.policy.limits
        return (standing.run, limits.run, "limits.run"), (standing.total, limits.total, "limits.total")

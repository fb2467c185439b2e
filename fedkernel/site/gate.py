"""Check of every request and reply against the site's policy and the approved plan.

Totals are kept in the outbox's last line, so limits survive a restart.
"""

from dataclasses import dataclass
from typing import Annotated

import pydantic
from pydantic import Field

from fedkernel.ground import InputError, RefusedError
from fedkernel.protocol import Plan, PlanPosition, advance, once
from fedkernel.site.policy import Leaving, Limits, Policy
from fedkernel.site.raw_request import Asking
from fedkernel.wire import (
    RULE,
    SHORT,
    HashIds,
    Introduce,
    RunSpec,
    ShowShare,
    TakeRows,
    TakeShares,
    check_commitments,
    check_shares,
)

Count = Annotated[int, Field(ge=0)]

JOINING: Plan = (once(Introduce),)
SEEDING: Plan = (once(ShowShare), once(TakeShares))
ALIGNING: Plan = (once(HashIds), once(TakeRows))
"""Joining requests before a run's own plan: of all runs, with a joint seed, with aligned rows."""


class Sums(pydantic.BaseModel):
    """Totals of everything that has left a site, of one run or of all runs.

    `begun`: starts of one run, or number of runs begun. `floats`: including those in letters. `refused`: requests, of
    all runs together. `seconds`: computing time.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    begun: Count = 0
    floats: Count = 0
    rows: Count = 0
    bytes: Count = 0
    refused: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def plus(self, leaving: Leaving) -> "Sums":
        """Return the totals with one more reply."""
        return self.model_copy(
            update={
                "floats": self.floats + leaving.floats + leaving.letters,
                "rows": self.rows + leaving.rows,
                "bytes": self.bytes + leaving.bytes,
                "seconds": self.seconds + leaving.seconds,
            }
        )


class Standing(pydantic.BaseModel):
    """A site's totals, and the progress of one run there.

    - `total`, `run`: of all runs, and of this run over all its starts.
    - `place`: position in the run's plan.
    - `replies`, `taken`: replies of each type, and requests, since the latest start.
    - `commitments`: digest of the sites' commitments; empty: not shown yet.
    - `seed`: the joint seed.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    total: Sums = Sums()
    run: Sums = Sums()
    place: PlanPosition = PlanPosition()
    replies: dict[str, Count] = {}
    taken: Count = 0
    commitments: str = ""
    seed: Count | None = None

    def with_reply(self, leaving: Leaving) -> "Standing":
        """Return the totals with one more reply."""
        replies = self.replies | {leaving.reply: self.replies.get(leaving.reply, 0) + 1}
        return self.model_copy(
            update={"run": self.run.plus(leaving), "total": self.total.plus(leaving), "replies": replies}
        )

    def with_refusal(self, seconds: float) -> "Standing":
        """Return the totals with one more refusal and its computing time."""
        run = self.run.model_copy(update={"seconds": self.run.seconds + seconds})
        update = {"refused": self.total.refused + 1, "seconds": self.total.seconds + seconds}
        return self.model_copy(update={"run": run, "total": self.total.model_copy(update=update)})


@dataclass(frozen=True)
class Gate:
    """A site's policy and approved run, as checks of requests and replies.

    `study`: SHA-256 of the approved study; empty: the policy asks for none. `client`: the site's client number.
    `share`: of the run's seed. `key`: 64 hexadecimal digits that identify the run, also among others of that id.
    """

    policy: Policy
    run: RunSpec
    study: str = ""
    client: int = 0
    share: str = ""
    key: str = "0" * 64

    def admit(self, standing: Standing, asking: Asking) -> Standing:
        """Return the totals after a request; RefusedError if policy, plan or joint seed forbid it."""
        if asking.request == Introduce.__name__:
            standing = self._begun(standing)
        for sums, limits, where in self._limits(standing):
            if limits.seconds is not None and sums.seconds >= limits.seconds:
                rule = f"{where}.seconds"
                raise RefusedError(rule, f"{sums.seconds:.3g} s were computed, {limits.seconds:g} are allowed ({rule})")
        self.policy.check_request(asking.fields)
        place = standing.place
        if self.run.plan is not None:
            seeding, aligning = SEEDING if self.run.joint_seed else (), ALIGNING if self.run.align else ()
            try:
                plan = (*JOINING, *seeding, *aligning, *self.run.plan)
                seeds = None if standing.seed is None else (self.run.seed, standing.seed)
                place = advance(plan, place, asking.request, asking.fields, asking.shapes, seeds=seeds)
            except InputError as error:
                owner = f"study {self.study[:SHORT]}" if self.study else f"run {self.run.id!r}"
                raise RefusedError("plan", f"{error} (plan of {owner})") from None
        update = {"place": place, "taken": standing.taken + 1, **self._seeded(standing, asking)}
        return standing.model_copy(update=update)

    def release(self, standing: Standing, leaving: Leaving) -> tuple[Standing, str]:
        """Return the totals after a reply, and the rule that allows it; RefusedError if a rule forbids it."""
        before = {where: sums for sums, _, where in self._limits(standing)}
        after = standing.with_reply(leaving)
        rule = self.policy.check_reply(leaving, after.replies[leaving.reply])
        for sums, limits, where in self._limits(after):
            for name in ("floats", "rows", "bytes"):
                most, amount = getattr(limits, name), getattr(sums, name)
                # a reply that adds nothing is not refused for earlier ones
                if most is not None and amount > most and (name == "bytes" or amount > getattr(before[where], name)):
                    what = f"with {leaving.reply}, {amount:,} {name} would have left, but {most:,} are allowed"
                    raise RefusedError(f"{where}.{name}", f"{what} ({where}.{name})")
        return after, rule

    def _begun(self, standing: Standing) -> Standing:
        """Start the run, first or again, at the beginning of its plan."""
        starts, rules = standing.run.begun, self.policy.study
        if starts >= rules.attempts:
            text = f"run {self.run.id!r} began {starts} times, as often as its policy allows (study.attempts)"
            raise RefusedError("study.attempts", text)
        if not starts and rules.runs is not None and standing.total.begun >= rules.runs:
            raise RefusedError("study.runs", f"{standing.total.begun} runs have begun, as many as allowed (study.runs)")
        run = standing.run.model_copy(update={"begun": starts + 1})
        total = standing.total.model_copy(update={"begun": standing.total.begun + (not starts)})
        return Standing(total=total, run=run)

    def _seeded(self, standing: Standing, asking: Asking) -> dict[str, str | int]:
        """Return a request's update of the joint seed's state; RefusedError for other requests before the seed."""
        if not self.run.joint_seed or asking.request == Introduce.__name__:
            return {}
        sites = len(self.run.sites or ())
        if asking.request == ShowShare.__name__ and not standing.commitments:
            commitments = asking.fields.get("commitments")
            return {"commitments": check_commitments(commitments, sites, self.client, self.share)}
        if asking.request == TakeShares.__name__ and standing.seed is None:
            return {"seed": check_shares(asking.fields.get("shares"), sites, standing.commitments)}
        if standing.seed is None:
            raise RefusedError(RULE, f"all sites draw the seed of run {self.run.id!r}, but have not yet ({RULE})")
        return {}

    def _limits(self, standing: Standing) -> tuple[tuple[Sums, Limits, str], ...]:
        limits = self.policy.limits
        return (standing.run, limits.run, "limits.run"), (standing.total, limits.total, "limits.total")

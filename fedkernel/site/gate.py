"""Check of every request and reply at a site against its policy and the approved plan.

Totals are kept in the outbox's last line, so limits survive a restart.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
from pydantic import Field

from fedkernel import wire
from fedkernel.ground import InputError, RefusedError, open_for_owner, sync_folder
from fedkernel.protocol import Plan, PlanPosition, Privacy, advance, once, share_text
from fedkernel.site.policy import EPSILON_RULE, SHARE_RULE, Limits, Policy, ReplySize
from fedkernel.site.raw_request import RawRequest

Count = Annotated[int, Field(ge=0)]

JOINING_PLAN: Plan = (once(wire.Introduce),)
SEEDING_PLAN: Plan = (once(wire.ShowShare), once(wire.TakeShares))
ALIGNING_PLAN: Plan = (once(wire.HashIds), once(wire.TakeRows))
"""Requests before a run's own plan: of all runs, of runs with a joint seed, and with aligned rows."""

PUBLIC = ("Done", "Introduction", "Share", "Prepared")
"""Reply types that leave without noise in a run with privacy: they depend on no row, but for the number of rows."""

ENDED = "a reply of masked sums was refused, which ends the run at this site until it starts again (study.sums)"


class Totals(pydantic.BaseModel, extra="forbid", frozen=True):
    """Totals of a site's replies and computing time, in one run or in all runs.

    `begun`: starts of the run, or number of runs begun. `floats`: including those in letters. `share`: these per table
    entry (`TotalLimits`). `epsilon`: of all runs begun. `refused`: number of refused requests, in all runs together.
    `seconds`: computing time.
    """

    begun: Count = 0
    floats: Count = 0
    share: Annotated[float, Field(ge=0)] = 0.0
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    rows: Count = 0
    bytes: Count = 0
    refused: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def plus(self, size: ReplySize) -> "Totals":
        """Return these totals plus the sizes of one more reply."""
        names = ("share", "rows", "bytes", "seconds")
        sizes = {"floats": size.floats + size.letters} | {name: getattr(size, name) for name in names}
        return self.model_copy(update={name: getattr(self, name) + more for name, more in sizes.items()})


class RunProgress(pydantic.BaseModel, extra="forbid", frozen=True):
    """Progress of one run at a site, with the totals of the run and of all runs.

    - `total`, `run`: totals of all runs, and of this run over all its starts.
    - `place`: position in the run's plan.
    - `replies`, `taken`: number of replies by type, and of requests, since the latest start.
    - `commitments`: digest of the sites' commitments to the joint seed; empty: not received yet.
    - `seed`: the joint seed; None: not drawn yet.
    - `masked`: the last round with a reply under masks, since the latest start. `sums`: number of such replies.
    - `privacy`: of the run.
    - `ended`: whether a computed reply of masked sums was refused since then: each refusal tells of one site's numbers.
    """

    total: Totals = Totals()
    run: Totals = Totals()
    place: PlanPosition = PlanPosition()
    replies: dict[str, Count] = {}
    taken: Count = 0
    commitments: str = ""
    seed: Count | None = None
    masked: Count = 0
    sums: Count = 0
    privacy: Privacy | None = None
    ended: bool = False

    def with_reply(self, size: ReplySize) -> "RunProgress":
        """Return the progress with one more reply."""
        replies = self.replies | {size.reply: self.replies.get(size.reply, 0) + 1}
        return self.model_copy(update={"run": self.run.plus(size), "total": self.total.plus(size), "replies": replies})

    def with_refusal(self, seconds: float, *, ends: bool) -> "RunProgress":
        """Return the progress after a refusal and its seconds. `ends`: the run then ends until it starts again."""
        run = self.run.model_copy(update={"seconds": self.run.seconds + seconds})
        update = {"refused": self.total.refused + 1, "seconds": self.total.seconds + seconds}
        total = self.total.model_copy(update=update)
        return self.model_copy(update={"run": run, "total": total, "ended": self.ended or ends})


@dataclass(frozen=True)
class Gate:
    """Checks of a run's requests and replies against the site's policy and the approved run.

    `study`: SHA-256 of the approved one; empty: not required. `client`: the site's number. `share`: its share of the
    joint seed. `key`: 64 hexadecimal digits that identify the run among all of its id.
    """

    policy: Policy
    run: wire.RunSpec
    study: str = ""
    client: int = 0
    share: str = ""
    key: str = "0" * 64

    def admit(self, progress: RunProgress, request: RawRequest) -> RunProgress:
        """Return the run's progress after a request. Raises RefusedError if policy, plan or joint seed forbid it."""
        if request.name == wire.Introduce.__name__:
            progress = self._started(progress)
        if progress.ended:
            raise RefusedError("study.sums", ENDED)
        for sums, limits, where in self._limits(progress):
            if limits.seconds is not None and sums.seconds >= limits.seconds:
                text = f"{sums.seconds:.3g} s of computing are used up, of {limits.seconds:g} allowed ({where}.seconds)"
                raise RefusedError(f"{where}.seconds", text)
        self.policy.check_request(request.fields)
        place = progress.place
        if self.run.plan is not None:
            seeding, aligning = SEEDING_PLAN if self.run.joint_seed else (), ALIGNING_PLAN if self.run.align else ()
            try:
                plan = (*JOINING_PLAN, *seeding, *aligning, *self.run.plan)
                seeds = None if progress.seed is None else (self.run.seed, progress.seed)
                place = advance(plan, place, request.name, request.fields, request.shapes, seeds=seeds)
            except InputError as error:
                owner = f"study {self.study[: wire.HASH_DIGITS]}" if self.study else f"run {self.run.id!r}"
                raise RefusedError("plan", f"{error} (plan of {owner})") from None
        update = {"place": place, "taken": progress.taken + 1, **self._seed_update(progress, request)}
        return progress.model_copy(update=update)

    def release(self, progress: RunProgress, size: ReplySize) -> tuple[RunProgress, str]:
        """Return the progress after a reply, and the rule that allows it. Raises RefusedError if a rule forbids it."""
        before = {where: sums for sums, _, where in self._limits(progress)}
        after = progress.with_reply(size)
        if size.masked:
            if size.round <= progress.masked:
                text = f"masks of round {size.round} would be reused: one has left in round {progress.masked}"
                raise RefusedError("study.sums", f"{text} (study.sums)")
            after = after.model_copy(update={"masked": size.round, "sums": progress.sums + 1})
        if (privacy := self.run.privacy) is not None and size.reply not in PUBLIC:
            if not size.masked:
                raise RefusedError("study.privacy", f"{size.reply} would leave without noise (study.privacy)")
            if after.sums > privacy.releases:
                text = f"{size.reply} would be sum {after.sums} with noise, of {privacy.releases} that epsilon is for"
                raise RefusedError("study.privacy", f"{text} (study.privacy)")
        rule = self.policy.check_reply(size, after.replies[size.reply])
        for sums, limits, where in self._limits(after):
            for name in ("floats", "rows", "bytes"):
                most, amount = getattr(limits, name), getattr(sums, name)
                # a reply that adds nothing is not refused for earlier ones
                if most is not None and amount > most and (name == "bytes" or amount > getattr(before[where], name)):
                    what = f"with {size.reply}, {amount:,} {name} would leave, but {most:,} are allowed"
                    raise RefusedError(f"{where}.{name}", f"{what} ({where}.{name})")
        most_shares = self.policy.limits.total.allowed_share(self.policy.guards.table_share)
        if after.total.share > most_shares and size.share:
            what = f"with {size.reply}, {share_text(after.total.share)} numbers for each entry of the table would leave"
            raise RefusedError(SHARE_RULE, f"{what} in all runs, but {most_shares:g} are allowed ({SHARE_RULE})")
        return after, rule

    def _started(self, progress: RunProgress) -> RunProgress:
        """Return the progress of a run that starts or restarts. Raises RefusedError if the policy forbids the start."""
        starts, rules = progress.run.begun, self.policy.study
        if starts >= rules.attempts:
            text = f"run {self.run.id!r} was started {starts} times, as often as the policy allows (study.attempts)"
            raise RefusedError("study.attempts", text)
        if not starts and rules.runs is not None and progress.total.begun >= rules.runs:
            text = f"{progress.total.begun} runs have begun, as many as the policy allows (study.runs)"
            raise RefusedError("study.runs", text)
        total = progress.total.model_copy(update={"begun": progress.total.begun + (not starts)})
        if not starts or not self.study:  # a study's repeated start repeats its replies, with their noise
            own = 0.0 if self.run.privacy is None else self.run.privacy.epsilon
            total = total.model_copy(update={"epsilon": total.epsilon + own})
            if fault := self.policy.limits.total.epsilon_fault(self.run.id, own, total.epsilon):
                raise RefusedError(EPSILON_RULE, f"{fault} ({EPSILON_RULE})")
        run = progress.run.model_copy(update={"begun": starts + 1})
        return RunProgress(total=total, run=run, privacy=self.run.privacy)

    def _seed_update(self, progress: RunProgress, request: RawRequest) -> dict[str, str | int]:
        """Return the joint seed's fields that a request changes. Raises RefusedError if the request comes too early."""
        if not self.run.joint_seed or request.name == wire.Introduce.__name__:
            return {}
        sites = len(self.run.sites or ())
        if request.name == wire.ShowShare.__name__ and not progress.commitments:
            commitments = request.fields.get("commitments")
            return {"commitments": wire.check_commitments(commitments, sites, self.client, self.share)}
        if request.name == wire.TakeShares.__name__ and progress.seed is None:
            return {"seed": wire.check_shares(request.fields.get("shares"), sites, progress.commitments)}
        if progress.seed is None:
            text = f"the joint seed of run {self.run.id!r} is not drawn yet ({wire.JOINT_SEED_RULE})"
            raise RefusedError(wire.JOINT_SEED_RULE, text)
        return {}

    def _limits(self, progress: RunProgress) -> tuple[tuple[Totals, Limits, str], ...]:
        limits = self.policy.limits
        return (progress.run, limits.run, "limits.run"), (progress.total, limits.total, "limits.total")


ENTRY_BYTES = 64  # bytes of an entry: a request's hash and the hash of its letters


class Requests:
    """File with hashes of a run's requests, letters and masked replies, to refuse other ones after a restart.

    Since rounds increase, too, no restart puts a label's masks on two different replies. `run`: the run's `Gate.key`.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / "asked" / run

    def check(self, place: int, request: RawRequest, letters: bytes | None = None) -> None:
        """Raise RefusedError if a request, or its letters if given, differs from that of the run's previous start."""
        try:
            with open(self._path, "rb") as file:
                file.seek(ENTRY_BYTES * place)
                before = file.read(ENTRY_BYTES)
        except FileNotFoundError:
            return
        expected = request.sha256 if letters is None else _whole(request, letters)
        if len(before) == ENTRY_BYTES and not before.startswith(expected):
            same = before.startswith(request.sha256)
            what = "delivers other letters, or gets other masked numbers, than in" if same else "differs from"
            raise RefusedError(
                "study.attempts",
                f"request {place + 1} of the run ({request.name}) {what} the run's previous start; repeat it unchanged "
                "or start a new study (study.attempts)",
            )

    def note(self, place: int, request: RawRequest, letters: bytes) -> None:
        """Write the hashes of a request and its letters at the request's position in the run."""
        self._path.parent.mkdir(0o700, exist_ok=True)
        with open(self._path, "r+b" if self._path.exists() else "xb", opener=open_for_owner) as file:
            file.seek(ENTRY_BYTES * place)
            file.write(_whole(request, letters))
            if letters:  # or a power cut could lose them, and other numbers leave under the same masks
                file.flush()
                os.fsync(file.fileno())
                sync_folder(self._path.parent)


def _whole(request: RawRequest, letters: bytes) -> bytes:
    """Return the `ENTRY_BYTES` bytes of a request's entry in the file."""
    return request.sha256 + letters.ljust(ENTRY_BYTES - len(request.sha256), b"\0")

"""Check of a study against each policy rule before it starts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fedkernel.ground import RefusedError, own_short_names, short_names
from fedkernel.protocol import PlannedRequest, is_seeded
from fedkernel.site.policy import MessageRules, Policy, not_summed
from fedkernel.wire import RunSpec, Study

FREELY = MessageRules()


class Verdict(NamedTuple):
    """A rule's result for a study; `allowed` is None if only the run can decide."""

    rule: str
    text: str
    allowed: bool | None


def verdicts(policy: Policy, study: Study) -> Iterator[Verdict]:
    """Check a study against each rule that can be decided before it starts."""
    for name, rule in _RULES.items():
        faults = dict.fromkeys(fault for run in study.runs for fault in rule.faults(policy, run))
        yield from (Verdict(name, fault, False) for fault in faults or ())
        if not faults:
            yield Verdict(name, rule.says(policy, study), True)


def check_run(policy: Policy, run: RunSpec) -> None:
    """Raise RefusedError at the first rule that a run breaks."""
    for name, rule in _RULES.items():
        for fault in rule.faults(policy, run):
            raise RefusedError(name, f"{fault} ({name})")


# --- the rules


def _too_few_sites(policy: Policy, run: RunSpec) -> Iterator[str]:
    if (sites := len(run.sites or ())) < policy.study.min_sites:
        yield f"run {run.id!r} has {sites} sites, but must have {policy.study.min_sites} or more"


def _other_pair(policy: Policy, run: RunSpec) -> Iterator[str]:
    ours = own_short_names("clients")
    willing = [*ours, *ours.values()] if policy.study.pairs is None else policy.study.pairs
    known = short_names("clients")
    if run.pair is not None and run.pair not in {whole for name in willing for whole in (name, known.get(name))}:
        yield f"run {run.id!r} is answered by {run.pair}, which is not allowed without --allow {run.pair}"


def _kernels(policy: Policy, run: RunSpec) -> Iterator[str]:
    for parameters in _parameters(run):
        yield from policy.study.kernel_faults(parameters, settled=False)


def _parameters(run: RunSpec) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of the strategy and of its plan's requests, which a coordinator could alter."""
    yield run.parameters
    yield from (planned.fields for step in run.plan or () for planned in step.requests)


def _too_many_components(policy: Policy, run: RunSpec) -> Iterator[str]:
    for parameters in _parameters(run):
        yield from (f"run {run.id!r} has {fault}" for fault in policy.study.component_faults(parameters, settled=False))


def _no_plan(policy: Policy, run: RunSpec) -> Iterator[str]:
    if policy.study.plan and run.plan is None:
        yield f"run {run.id!r} does not say what it will ask"


def _chosen_seed(policy: Policy, run: RunSpec) -> Iterator[str]:
    rule = policy.study.joint_seed
    if not run.joint_seed and (rule == "always" or (rule == "needed" and is_seeded(run.plan))):
        yield f"run {run.id!r} has a seed that its coordinator chose, but all sites must draw it"


def _rows(policy: Policy, run: RunSpec) -> Iterator[str]:
    if run.shares_rows and not policy.share_rows:
        yield f"run {run.id!r} has rows of each site sent as they are, which is not allowed without --share-rows"


def _messages(policy: Policy, run: RunSpec) -> Iterator[str]:
    times: Counter[str] = Counter()
    for step in run.plan or ():
        for planned in step.requests:
            times[planned.reply] += step.times
            yield from _message_faults(policy, planned)
    for reply, number in times.items():
        most = None if policy.messages is None else policy.messages.get(reply, policy.messages.get("*", FREELY)).times
        if most is not None and number > most:
            yield f"{reply} is asked for up to {number} times, but {most} are allowed"


def _message_faults(policy: Policy, planned: PlannedRequest) -> Iterator[str]:
    try:
        if policy.rules_of(planned.reply).only_summed and not planned.summed:
            yield not_summed(planned.reply)
    except RefusedError as refusal:
        yield str(refusal)


def _says_of_messages(policy: Policy, study: Study) -> str:
    if policy.messages is None:
        return "what the plan has"
    replies = {planned.reply for run in study.runs for step in run.plan or () for planned in step.requests}
    others = sorted(policy.messages.keys() - replies - {"*"})
    return "every reply is allowed" + (f"; no reply of the study is called {', '.join(others)}" if others else "")


class _Rule(NamedTuple):
    faults: Callable[[Policy, RunSpec], Iterator[str]]
    says: Callable[[Policy, Study], str]


_RULES: dict[str, _Rule] = {
    "study.min_sites": _Rule(_too_few_sites, lambda policy, study: f"{policy.study.min_sites} sites or more"),
    "study.pairs": _Rule(
        _other_pair, lambda policy, study: f"answered by {', '.join(policy.study.pairs or ['a client of fedkernel'])}"
    ),
    "study.kernels": _Rule(
        _kernels,
        lambda policy, study: "any kernel" if policy.study.kernels is None else ", ".join(policy.study.kernels),
    ),
    "study.n_components": _Rule(
        _too_many_components, lambda policy, study: f"{policy.study.n_components or 'any number of'} components"
    ),
    "study.plan": _Rule(
        _no_plan, lambda policy, study: "says what it asks" if policy.study.plan else "may leave open what it asks"
    ),
    "study.joint_seed": _Rule(
        _chosen_seed,
        lambda policy, study: (
            "the seed may be chosen"
            if policy.study.joint_seed == "never"
            else "all sites draw the seed" + " where it is needed" * (policy.study.joint_seed == "needed")
        ),
    ),
    "limits.total.rows": _Rule(
        _rows, lambda policy, study: "rows may leave as they are" if policy.share_rows else "no row leaves as it is"
    ),
    "messages": _Rule(_messages, _says_of_messages),
}

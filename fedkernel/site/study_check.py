"""Check of a study before it starts, by each policy rule that needs only the study's description."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fedkernel.ground import RefusedError, own_short_names, short_names
from fedkernel.protocol import is_seeded
from fedkernel.site.policy import EPSILON_RULE, EXEMPT, MOST_EPSILON, Policy, not_masked_text, not_summed_text
from fedkernel.wire import UNASKED_BY, RunSpec, Study


class Verdict(NamedTuple):
    """Verdict of one policy rule on a study. `allowed` is None if only the run itself can decide."""

    rule: str
    text: str
    allowed: bool | None


def verdicts(policy: Policy, study: Study) -> Iterator[Verdict]:
    """Yield the verdict of each policy rule that can be decided before the study starts."""
    meanings = _meanings(policy, study)
    for name, faults_of in _FAULTS.items():
        faults = dict.fromkeys(fault for run in study.runs for fault in faults_of(policy, run))
        yield from [Verdict(name, fault, False) for fault in faults] or [Verdict(name, meanings[name], True)]


def check_run(policy: Policy, run: RunSpec) -> None:
    """Raise RefusedError for the first policy rule that a run breaks."""
    for name, faults_of in _FAULTS.items():
        for fault in faults_of(policy, run):
            raise RefusedError(name, f"{fault} ({name})")


def _too_few_sites(policy: Policy, run: RunSpec) -> Iterator[str]:
    if (sites := len(run.sites or ())) < policy.study.min_sites:
        yield f"run {run.id!r} has {sites} sites, but must have at least {policy.study.min_sites}"


def _forbidden_client(policy: Policy, run: RunSpec) -> Iterator[str]:
    ours = own_short_names("clients")
    allowed = [*ours, *ours.values()] if policy.study.pairs is None else policy.study.pairs
    addresses = short_names("clients")
    if run.pair is not None and run.pair not in {whole for name in allowed for whole in (name, addresses.get(name))}:
        yield f"run {run.id!r} has client {run.pair}, which needs --allow {run.pair}"


def _kernels(policy: Policy, run: RunSpec) -> Iterator[str]:
    for parameters in _parameters(run):
        yield from policy.study.kernel_faults(parameters, settled=False)


def _parameters(run: RunSpec) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of a run's strategy, and of each planned request, which might differ."""
    yield run.parameters
    yield from (planned.fields for step in run.plan or () for planned in step.requests)


def _too_many_components(policy: Policy, run: RunSpec) -> Iterator[str]:
    for parameters in _parameters(run):
        yield from (f"run {run.id!r} has {fault}" for fault in policy.study.component_faults(parameters, settled=False))


def _no_plan(policy: Policy, run: RunSpec) -> Iterator[str]:
    if policy.study.plan and run.plan is None:
        yield f"run {run.id!r} has no request plan"


def _chosen_seed(policy: Policy, run: RunSpec) -> Iterator[str]:
    rule = policy.study.joint_seed
    if not run.joint_seed and (rule == "always" or (rule == "needed" and is_seeded(run.plan))):
        yield f"run {run.id!r} has a seed chosen by its coordinator, but all sites must draw it together"


def _plain_sums(policy: Policy, run: RunSpec) -> Iterator[str]:
    if policy.study.sums == "masked":
        if run.sums != "masked":
            yield f"run {run.id!r} has sums = {run.sums!r}, but must have masked ones"
        replies = {planned.reply for step in run.plan or () for planned in step.requests if not planned.summed}
        for reply in sorted(replies.difference(EXEMPT)):
            without = f"; a study without: {UNASKED_BY[reply]}" if reply in UNASKED_BY else ""
            yield f"{not_masked_text(reply)}{without}"


def _epsilon(policy: Policy, run: RunSpec) -> Iterator[str]:
    own = 0.0 if run.privacy is None else run.privacy.epsilon
    if fault := policy.limits.total.epsilon_fault(run.id, own, own):
        yield fault


def _rows(policy: Policy, run: RunSpec) -> Iterator[str]:
    if run.shares_rows and not policy.share_rows:
        yield f"run {run.id!r} sends raw rows of each site, which needs --share-rows"


def _messages(policy: Policy, run: RunSpec) -> Iterator[str]:
    times: Counter[str] = Counter()
    for step in run.plan or ():
        for planned in step.requests:
            times[planned.reply] += step.times
            try:
                if policy.rules_of(planned.reply).only_summed and not planned.summed:
                    yield not_summed_text(planned.reply)
            except RefusedError as refusal:
                yield str(refusal)
    messages = policy.messages or {}
    for reply, number in times.items():
        rules = messages.get(reply, messages.get("*"))
        if rules is not None and rules.times is not None and number > rules.times:
            yield f"{reply} is requested up to {number} times, but {rules.times} are allowed"


_FAULTS: dict[str, Callable[[Policy, RunSpec], Iterator[str]]] = {
    "study.min_sites": _too_few_sites,
    "study.pairs": _forbidden_client,
    "study.kernels": _kernels,
    "study.n_components": _too_many_components,
    "study.plan": _no_plan,
    "study.joint_seed": _chosen_seed,
    "study.sums": _plain_sums,
    EPSILON_RULE: _epsilon,
    "limits.total.rows": _rows,
    "messages": _messages,
}


def _meanings(policy: Policy, study: Study) -> dict[str, str]:
    """Return by rule the verdict's text on a study that keeps to the rule."""
    rules, epsilon = policy.study, policy.limits.total.epsilon
    replies = {planned.reply for run in study.runs for step in run.plan or () for planned in step.requests}
    others = ", ".join(sorted((policy.messages or {}).keys() - replies - {"*"}))
    allowed = "all replies allowed" + (f"; the study has no reply named {others}" if others else "")
    drawn = "all sites draw the seed" + " where it is needed" * (rules.joint_seed == "needed")
    spent = f"{MOST_EPSILON:g} in each run with noise" if epsilon is None else f"{epsilon} in all runs, before and now"
    return {
        "study.min_sites": f"at least {rules.min_sites} sites",
        "study.pairs": f"client: {', '.join(rules.pairs or ['any of fedkernel'])}",
        "study.kernels": "any kernel" if rules.kernels is None else ", ".join(rules.kernels),
        "study.n_components": f"{rules.n_components or 'any number of'} components",
        "study.plan": "plan present" if rules.plan else "plan optional",
        "study.joint_seed": "the coordinator may choose the seed" if rules.joint_seed == "never" else drawn,
        "study.sums": "only masked sums leave" if rules.sums == "masked" else "sums may be plain",
        EPSILON_RULE: f"epsilon {spent}",
        "limits.total.rows": "raw rows may leave" if policy.share_rows else "no raw row leaves",
        "messages": "all replies of the plan" if policy.messages is None else allowed,
    }

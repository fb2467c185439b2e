"""Recommendation rules of `fedkernel advise`, also printed in docs/which-method.md."""

from typing import Any, NamedTuple

from experiments.commands.advise_candidates import CANDIDATES, Candidate, Situation
from fedkernel.ground import InputError
from fedkernel.protocol import Forecast, Plan
from fedkernel.strategy import KernelStrategy

DIVIDED = {"vertical": "columns", "horizontal": "rows"}


def rules() -> str:
    """Return the rules as a table in Markdown, for docs/which-method.md."""
    lines = ["| divided | wanted | take | where | because | shown by |", "| --- | --- | --- | --- | --- | --- |"]
    for candidate in CANDIDATES:
        peers = ", peers" if candidate.peers else ""
        what = DIVIDED[candidate.kind.partition] + peers
        where = candidate.condition or "*named, not recommended*"
        shown = f"[{candidate.evidence}](results/README.md#{candidate.evidence})"
        lines.append(
            f"| {what} | {', '.join(candidate.goals)} | {candidate.name} | {where} | {candidate.reason} | {shown} |"
        )
    return "\n".join(lines) + "\n"


class Advice(NamedTuple):
    """Advice on one candidate in a situation.

    - `refusal`: reason against the candidate; "" if it fits.
    - `strategy`: None if the candidate does not fit.
    """

    candidate: Candidate
    refusal: str = ""
    strategy: KernelStrategy[Any] | None = None
    forecast: Forecast | None = None
    plan: Plan | None = None


def advise(situation: Situation) -> list[Advice]:
    """Return advice on all candidates: the recommended first, then suitable ones, then the refused."""
    advice = [_advice_on(candidate, situation) for candidate in CANDIDATES]
    return sorted(advice, key=lambda each: (bool(each.refusal), not _is_recommended(each, situation)))


def _is_recommended(advice: Advice, situation: Situation) -> bool:
    candidate, forecast = advice.candidate, advice.forecast
    return bool(candidate.condition) and forecast is not None and candidate.is_recommended(situation, forecast)


def _advice_on(candidate: Candidate, situation: Situation) -> Advice:
    if candidate.kind.partition != situation.divided:
        kinds = DIVIDED[candidate.kind.partition], DIVIDED[situation.divided]
        return Advice(candidate, "is for divided {}, but {} are divided".format(*kinds))
    if situation.no_trusted_coordinator and not candidate.peers:
        return Advice(candidate, "needs a trusted coordinator")
    if situation.goal not in candidate.goals:
        return Advice(candidate, f"finds {' and '.join(candidate.goals)}, not {situation.goal}")
    try:
        strategy = candidate.strategy(situation)
        return Advice(
            candidate, "", strategy, strategy.forecast(situation.cohort), strategy.plan(len(situation.cohort), 0)
        )
    except InputError as error:
        return Advice(candidate, str(error))

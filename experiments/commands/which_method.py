"""Which method: the rules of `fedkernel advise` held against a situation; docs/which-method.md has the same."""

from dataclasses import dataclass
from typing import Any

from experiments.commands.candidates import CANDIDATES, Candidate, Situation
from fedkernel.errors import InputError
from fedkernel.protocol import Forecast
from fedkernel.strategy import KernelStrategy


def rules() -> str:
    """Return the rules as a table in Markdown, as docs/which-method.md has it."""
    lines = ["| divided | wanted | take | where | because | shown by |", "| --- | --- | --- | --- | --- | --- |"]
    for candidate in CANDIDATES:
        peers = ", peers" if candidate.peers else ""
        what = {"vertical": "columns", "horizontal": "rows"}[candidate.kind.partition] + peers
        where = candidate.when or "*named, not recommended*"
        shown = f"[{candidate.evidence}](results/README.md#{candidate.evidence})"
        lines.append(
            f"| {what} | {', '.join(candidate.goals)} | {candidate.name} | {where} | {candidate.because} | {shown} |"
        )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Advice:
    """What a candidate comes to in a situation.

    Attributes
    ----------
    candidate : Candidate
    strategy : KernelStrategy, optional
        None: it does not fit.
    forecast : Forecast, optional
    refusal : str
        Why it does not fit; "" where it does.
    """

    candidate: Candidate
    strategy: KernelStrategy[Any] | None
    forecast: Forecast | None
    refusal: str = ""


def advise(situation: Situation) -> list[Advice]:
    """Return what there is for a situation: the recommended first, then what fits, then what does not."""
    fitting: list[Advice] = []
    refused: list[Advice] = []
    for candidate in CANDIDATES:
        if (reason := _elsewhere(candidate, situation)) is not None:
            refused.append(Advice(candidate, None, None, reason))
            continue
        try:
            strategy = candidate.strategy(situation)
            forecast = strategy.forecast(situation.cohort)
        except InputError as error:
            refused.append(Advice(candidate, None, None, str(error)))
            continue
        fitting.append(Advice(candidate, strategy, forecast))
    fitting.sort(key=lambda advice: not _is_recommended(advice, situation))
    return [*fitting, *refused]


def _is_recommended(advice: Advice, situation: Situation) -> bool:
    return advice.forecast is not None and advice.candidate.holds(situation, advice.forecast)


def _elsewhere(candidate: Candidate, situation: Situation) -> str | None:
    """Return why a pair is for another situation; None: it is for this one."""
    if candidate.kind.partition != situation.divided:
        divided = {"vertical": "columns", "horizontal": "rows"}
        return f"is for divided {divided[candidate.kind.partition]}, but {divided[situation.divided]} are divided"
    if situation.peers and not candidate.peers:
        return "needs a coordinator that is trusted with what it is sent"
    if situation.goal not in candidate.goals:
        return f"finds {' and '.join(candidate.goals)}, not {situation.goal}"
    return None

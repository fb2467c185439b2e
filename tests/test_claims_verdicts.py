"""Every kind of check can come out each way: rows where it holds, and the same rows doctored until it does not."""

from typing import Any

import pytest
from claim_rows import curved, judged, measured

from experiments.claims import Verdict
from experiments.results import Run


def errors_of(*errors: float) -> list[Run]:
    """Make a run of A with each error, and of B with 1 for each seed."""
    return [*measured("A", list(errors)), *measured("B", [1.0] * len(errors))]


def falling(*powers: float) -> list[Run]:
    """Make a run of A for each power, whose error falls as t to that power."""
    return curved("A", *([t**power for t in range(1, 6)] for power in powers))


def along(*values: float) -> list[Run]:
    """Make two runs of A with a value of 1, the last with these at its last iterations, and two of B with 1 only."""
    last = [*([1.0] * (4 - len(values))), *values]
    return [*curved("A", [1.0] * 4, last), *curved("B", [1.0] * 4, [1.0] * 4)]


CHECKS: dict[str, tuple[dict[str, Any], dict[Verdict, list[Run]]]] = {
    "value": (
        {"metric": "error", "of": "A", "at_most": 1},
        {
            Verdict.HOLDS: errors_of(0.7, 0.8, 0.9),  # .8, standard error .058
            Verdict.NOISE: errors_of(0.7, 0.8, 1.2),  # .9, .153
            Verdict.FAILS: errors_of(1.1, 1.2, 1.3),
        },
    ),
    "ratio": (
        {"metric": "error", "of": "A", "to": "B", "at_least": 1},
        {
            Verdict.HOLDS: errors_of(1.1, 1.2, 1.3),
            Verdict.NOISE: errors_of(0.7, 0.8, 1.2),
            Verdict.FAILS: errors_of(0.7, 0.8, 0.9),
        },
    ),
    "difference": (
        {"metric": "error", "of": "A", "to": "B", "at_most": 0},
        {
            Verdict.HOLDS: errors_of(0.7, 0.8, 0.9),
            Verdict.NOISE: errors_of(0.9, 1.0, 1.3),
            Verdict.FAILS: errors_of(1.1, 1.2, 1.3),
        },
    ),
    "rate": (
        {"value": "recover_error", "of": ["A"], "at_most": -1},
        {
            Verdict.HOLDS: falling(-1.1, -1.2, -1.3),
            Verdict.NOISE: falling(-1.2, -1.1, -0.7),
            Verdict.FAILS: falling(-0.7, -0.8, -0.9),
        },
    ),
    # of these every seed and iteration must be within the limit: no mean, so no noise
    "overlap": (
        {"value": "recover_error", "of": ["A", "B"], "within": 0.1},
        {Verdict.HOLDS: along(1.1), Verdict.FAILS: along(1.2)},
    ),
    "bounded": (
        {"value": "recover_error", "of": ["A"], "at_most": 1.1},
        {Verdict.HOLDS: along(1.1), Verdict.FAILS: along(1.2)},
    ),
    "rise": (
        {"value": "recover_error", "of": ["A"], "at_most": 0},
        {Verdict.HOLDS: along(0.9), Verdict.FAILS: along(0.9, 0.91)},
    ),
}


@pytest.mark.parametrize(
    ("check", "verdict"), [(check, verdict) for check, (_, rows) in CHECKS.items() for verdict in rows]
)
def test_each_check_has_the_verdict_that_its_rows_are_doctored_for(check: str, verdict: Verdict) -> None:
    claim, rows = CHECKS[check]
    assert judged(rows[verdict], check=check, **claim).verdict is verdict


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_can_be_made_without_a_run_that_it_needs(check: str) -> None:
    claim, rows = CHECKS[check]
    due = [({}, seed) for seed in {run.seed for run in rows[Verdict.HOLDS]}]
    assert judged(rows[Verdict.HOLDS], due, check=check, **claim).verdict is Verdict.HOLDS
    (first, *others) = rows[Verdict.HOLDS]
    assert first.name == "A"
    assert judged(others, due, check=check, **claim).verdict is Verdict.UNTESTABLE

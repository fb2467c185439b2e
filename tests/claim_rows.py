"""Rows as runs leave them, made by hand to hold claims against."""

from typing import Any

import pydantic
from report_runs import a_run as run_of_report

from fedkernel.experiments.claims import AnyCheck, Claim, check_claims
from fedkernel.experiments.results import Run

CLIENTS = "partition.clients"


def a_run(name: str, seed: int = 0, *, curves: dict[str, list[float]] | None = None, **changed: Any) -> Run:
    """Make a run with two rounds in each iteration, of which the second has the values of the curves."""
    traffic = {"floats_up": 10, "floats_down": 0, "bytes_up": 80, "bytes_down": 0}
    history = []
    for t in range(1, 1 + max((len(curve) for curve in (curves or {}).values()), default=0)):
        last = {value: curve[t - 1] for value, curve in (curves or {}).items() if t <= len(curve)}
        for values in ({}, last):
            row = {"round": len(history) + 1, "phase": "Step", "seconds": 0.1, "clients": 2, **traffic}
            history.append(row | {"values": {"t": t, **values}})
    own = {"clients": 2, "rounds": len(history), **traffic, "seconds": 1.0, "history": history}
    return run_of_report(name, seed, **{"parameters": {}, "metrics": {}, "phases": {}, **own, **changed})


def measured(name: str, errors: list[float | None], metric: str = "error", **changed: Any) -> list[Run]:
    """Make a run for each seed, with a metric."""
    return [a_run(name, seed, metrics={metric: error}, **changed) for seed, error in enumerate(errors)]


def curved(name: str, *curves: list[float], value: str = "recover_error", **changed: Any) -> list[Run]:
    """Make a run for each seed, with a value of each iteration."""
    return [a_run(name, seed, curves={value: curve}, **changed) for seed, curve in enumerate(curves)]


def judged(runs: list[Run], due: list[tuple[dict[str, Any], int]] | None = None, **claim: Any) -> Claim:
    check = pydantic.TypeAdapter(AnyCheck).validate_python({"text": "It is so.", **claim})
    (judgement,) = check_claims([check], runs, due)
    assert judgement.text == "It is so."
    return judgement

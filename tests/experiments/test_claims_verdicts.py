"""Checks come out each way: rows where one holds, and the same doctored until it does not; more: test_claims.py."""

import math

import numpy as np
import pytest
from claim_rows import CLIENTS, a_run, curved, judged, measured

from fedkernel.experiments.claims import Verdict
from fedkernel.experiments.results import by_iteration


def errors_of(*errors):
    """Make a run of A with each error, and of B with 1 for each seed."""
    return [*measured("A", list(errors)), *measured("B", [1.0] * len(errors))]


def spreading(*powers):
    """Make runs of A whose deviations from 10 at t are 1, -1, 0, ... times t to these powers."""
    signs = (1, -1, 0)
    return curved("A", *([10 + s * t**power for t in range(1, 6)] for s, power in zip(signs, powers, strict=True)))


def along(*values):
    """Make two runs of A with a value of 1, the last with these at its last iterations, and two of B with 1 only."""
    last = [*([1.0] * (4 - len(values))), *values]
    return [*curved("A", [1.0] * 4, last), *curved("B", [1.0] * 4, [1.0] * 4)]


POINTS = "strategy.A.points"


def at_costs(*errors):
    """Make runs of A at 200 and 800 floats, with half B's error and with this share of it for each seed.

    The curve of B is a line on logarithmic axes, so that at 200 and 800 floats it is 0.32 and 0.08 wherever its points
    are, which differ by seed. A's first and last points, at 2 and 9999 floats, are beyond its ends.
    """
    runs = []
    for seed, error in enumerate(errors):
        b = (100, 400, 1600, 300) if seed % 2 == 0 else (50, 800, 1600, 70)
        for point, (floats, ours) in enumerate(((2, 9.0), (200, 0.32 * 0.5), (800, 0.08 * error), (9999, 9.0)), 1):
            runs.append(a_run("A", seed, point={POINTS: point}, metrics={"error": ours}, floats_up=floats))
            theirs = {"metrics": {"error": 64 / b[point - 1]}, "floats_up": b[point - 1]}
            runs.append(a_run("B", seed, point={POINTS: point}, **theirs))
    return runs


def passing(*shares):
    """Make runs of A with this hundredth of B's error at t = 4, and as large as it before and after."""
    runs = curved("A", *([1.0, 1.0, 1.0, share / 100, 1.0] for share in shares))
    return [*runs, *measured("B", [1.0] * len(shares), "recover_error")]


def tried(make, *of_each):
    """Make the runs of each verdict: that it holds, that noise hides it, that it fails."""
    return {verdict: make(*values) for verdict, values in zip(VERDICTS, of_each, strict=True)}


VERDICTS = (Verdict.HOLDS, Verdict.NOISE, Verdict.FAILS)
ROWS = {
    "ratio": tried(errors_of, (1.1, 1.2, 1.3), (0.7, 0.8, 1.2), (0.7, 0.8, 0.9)),
    "difference": tried(errors_of, (0.7, 0.8, 0.9), (0.9, 1.0, 1.3), (1.1, 1.2, 1.3)),
    "at equal cost": tried(at_costs, (0.7, 0.8, 0.9), (0.7, 0.8, 1.2), (1.1, 1.2, 1.3)),
    "at an iteration": tried(passing, (0.7, 0.8, 0.9), (0.7, 0.8, 1.2), (1.1, 1.2, 1.3)),
    # of these every seed and iteration must be within the limit: no mean, so no noise
    "overlap": {Verdict.HOLDS: along(1.1), Verdict.FAILS: along(1.2)},
    "bounded": {Verdict.HOLDS: along(1.1), Verdict.FAILS: along(1.2)},
    "below c / t": {Verdict.HOLDS: along(1.0), Verdict.FAILS: along(1.01)},  # at t = 4
    "deviation": tried(spreading, (-1.1, -1.1, -1.1), (-1.3, -0.9, -0.9), (-0.9, -0.9, -0.9)),
    "on average": {
        Verdict.HOLDS: along(0.9, 0.9, 0.9, 0.8),  # 1 and .875
        Verdict.NOISE: along(1.2, 1.2, 1.2, 1.2),
        Verdict.FAILS: along(1.2, 1.2, 1.2, 1.2)[1:2],
    },
    "rise": {Verdict.HOLDS: along(0.9), Verdict.FAILS: along(0.9, 0.91)},
}
ERROR, CURVE = {"metric": "error", "of": "A"}, {"value": "recover_error", "of": ["A"]}
RATIO = {"check": "ratio", **ERROR, "to": "B"}
CLAIMS = {
    "ratio": {**RATIO, "at_least": 1},
    "difference": {"check": "difference", **ERROR, "to": "B", "at_most": 0},
    "at equal cost": {**RATIO, "at": "floats_up", "along": [POINTS], "at_most": 1},
    "at an iteration": {**RATIO, "metric": "recover_error", "iteration": 4, "at_most": 0.01},
    "overlap": {"check": "overlap", "value": "recover_error", "of": ["A", "B"], "within": 0.1},
    "bounded": {"check": "bounded", **CURVE, "at_most": 1.1},
    "below c / t": {"check": "bounded", **CURVE, "times_t": True, "at_most": 4},
    "deviation": {"check": "rate", **CURVE, "deviation": True, "at_most": -1},
    "on average": {"check": "bounded", **CURVE, "average": True, "at_most": 1.1},
    "rise": {"check": "rise", **CURVE, "at_most": 0},
}


@pytest.mark.parametrize(("check", "verdict"), [(check, verdict) for check, rows in ROWS.items() for verdict in rows])
def test_each_check_has_the_verdict_that_its_rows_are_doctored_for(check, verdict):
    assert judged(ROWS[check][verdict], **CLAIMS[check]).verdict is verdict


def test_curves_are_interpolated_on_logarithmic_axes_seed_by_seed():
    claim = CLAIMS["at equal cost"]
    worst = judged(at_costs(0.7, 0.8, 1.2), **claim)
    assert worst.value == pytest.approx(0.9)
    assert worst.standard_error == pytest.approx(math.sqrt(0.14 / 2 / 3))
    assert worst.where == f"at {POINTS} = 3, floats_up = 800"
    assert worst.numbers.startswith("at equal floats_up 0.9, standard error 0.15, against at most 1 (3 seeds; the")
    least = judged(at_costs(0.7, 0.8, 1.2), **{**claim, "at_most": None, "at_least": 0.4})
    assert (least.value, least.where) == (pytest.approx(0.5), f"at {POINTS} = 2, floats_up = 200")
    both = judged(at_costs(1.5), **claim | {"check": "difference", "at_most": 0})
    assert both.value == pytest.approx(0.08 * 0.5)


def test_several_methods_make_a_curve_too():
    """The points of B as methods of one point each, those of A as two."""
    of_two = at_costs(0.7, 0.8, 1.2)
    runs = [run.model_copy(update={"name": f"{run.name}{run.point[POINTS]}", "point": {}}) for run in of_two]
    claim = {"metric": "error", "at": "floats_up", "to": ["B1", "B3", "B2"], "at_most": 1}
    worst = judged(runs, check="ratio", of=["A2", "A3"], **claim)
    assert (worst.verdict, worst.where) == (Verdict.NOISE, "'A3' at floats_up = 800")
    assert worst.value == judged(of_two, **CLAIMS["at equal cost"]).value
    verdict = judged(runs, check="ratio", of="A1", **claim)
    apart = "no common range of floats_up: 'A1' has 2 to 2, 'B1', 'B3', 'B2' has 50 to 1600"
    assert (verdict.verdict, verdict.numbers) == (Verdict.UNTESTABLE, apart)


def test_what_is_equal_may_be_a_sum_or_an_error():
    """With what A and B download, 5 and 0, A's points are at 205 and 805 floats of B's curve 64 / floats."""
    runs = [run.model_copy(update={"floats_down": 5 if run.name == "A" else 0}) for run in at_costs(1.0)]
    claim = CLAIMS["at equal cost"] | {"at": ["floats_up", "floats_down"]}
    worst = judged(runs, **claim)
    assert worst.value == pytest.approx(805 / 800)
    assert worst.numbers.startswith("at equal floats_up + floats_down 1.01 against")
    # A takes 2 and 200 floats for errors that B comes to with 64 / error of its own: the ratio at .16 is 200 / 400
    claim = {"check": "ratio", "metric": "floats_up", "of": "A", "to": "B", "at": "error", "along": [POINTS]}
    verdict = judged(at_costs(0.1), **claim, at_most=0.5001)  # A's last error, .008, is beyond B's smallest, .04
    assert (verdict.verdict, verdict.value) == (Verdict.HOLDS, pytest.approx(0.5))


def test_curves_that_do_not_meet_or_have_no_logarithm_and_an_iteration_that_is_not_reached_decide_nothing():
    claim = CLAIMS["at equal cost"]
    apart = [run for run in at_costs(0.5, 0.5) if run.name == "B" or run.floats_up == 2]
    due = [({POINTS: point}, seed) for point in (1,) for seed in (0, 1)]
    verdict = judged(apart, due, **claim)
    assert verdict.verdict is Verdict.UNTESTABLE
    assert verdict.numbers == "no common range of floats_up: 'A' has 2 to 2, 'B' has 50 to 100"
    zero = [run.model_copy(update={"metrics": {"error": 0.0}}) if run.name == "B" else run for run in at_costs(0.5)]
    assert judged(zero, **claim).numbers.startswith("at equal floats_up no finite number against")
    claim = CLAIMS["at an iteration"] | {"iteration": 6}
    verdict = judged(passing(0.5), **claim)
    assert (verdict.verdict, verdict.numbers) == (Verdict.UNTESTABLE, "no round of 'A' has recover_error at t = 6")


def test_the_rate_of_a_deviation_is_that_over_seeds_and_its_error_the_jackknifes():
    claim = CLAIMS["deviation"]
    exact = judged(spreading(-2, -2, -2), **claim)  # any two of the curves are as far apart as t^-2
    assert (exact.value, exact.standard_error) == (pytest.approx(-2), pytest.approx(0, abs=1e-9))
    runs = spreading(-1.3, -0.9, -0.9)
    curves = [by_iteration(run, "recover_error") for run in runs]

    def slope(chosen):
        std = [np.std([curve[t] for curve in chosen], ddof=1) for t in range(1, 6)]
        return float(np.polyfit(np.log(range(1, 6)), np.log(std), 1)[0])

    without = [slope([curve for curve in curves if curve is not left_out]) for left_out in curves]
    verdict = judged(runs, **claim)
    assert verdict.value == pytest.approx(slope(curves))
    assert verdict.standard_error == pytest.approx(math.sqrt(2 / 3 * sum((x - np.mean(without)) ** 2 for x in without)))
    two = judged(runs[:2], **claim)
    assert (two.verdict, two.numbers[:32]) == (Verdict.UNTESTABLE, "'A' has fewer than three seeds, ")


def test_curves_are_apart_for_each_setting_of_what_makes_none():
    """With 5 clients A is at twice its errors with 2: each is compared with its own curve, and the worst decides."""
    runs = [
        run.model_copy(update={"point": run.point | {CLIENTS: clients}, "metrics": {"error": error}})
        for run in at_costs(0.8, 0.8)
        for clients in (2, 5)
        for error in [run.metrics["error"] * (2 if clients == 5 and run.name == "A" else 1)]
    ]
    claim = CLAIMS["at equal cost"]
    worst = judged(runs, **claim)
    assert (worst.verdict, worst.value) == (Verdict.FAILS, pytest.approx(1.6))
    assert worst.where == f"at {POINTS} = 3, {CLIENTS} = 5, floats_up = 800"
    assert judged(runs, **claim, where={CLIENTS: 2}).value == pytest.approx(0.8)

"""A claim holds exactly where its numbers do, tells them, and is not taken to hold before its runs are there."""

import math
import re
from typing import Any

import pydantic
import pytest

from experiments.claims import AnyCheck, Claim, check_claims
from experiments.results import Run

CLIENTS = "partition.clients"


def a_run(name: str, seed: int = 0, *, curves: dict[str, list[float]] | None = None, **changed: Any) -> Run:
    """Make a run with two rounds in each iteration, of which the second has the values of the curves."""
    traffic = {"floats_up": 10, "floats_down": 0, "bytes_up": 80, "bytes_down": 0}
    history = []
    for t in range(1, 1 + max((len(curve) for curve in (curves or {}).values()), default=0)):
        last = {value: curve[t - 1] for value, curve in (curves or {}).items() if t <= len(curve)}
        for values in ({}, last):
            row = {
                "round": len(history) + 1,
                "phase": "Step",
                "seconds": 0.1,
                "clients": 2,
                "values": {"t": t, **values},
            }
            history.append(row | traffic)
    row = {
        "id": f"{name}__{changed.get('point', {})}__seed={seed}",
        "name": name,
        "kind": "strategy",
        "method": "DKPCA",
        "parameters": {},
        "seed": seed,
        "engine": "local",
        "clients": 2,
        "metrics": {},
        "rounds": len(history),
        **traffic,
        "seconds": 1.0,
        "history": history,
    }
    return Run.model_validate({**row, **changed})


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


# figures of whole runs


def test_a_value_is_a_mean_over_seeds_and_its_limits_are_allowed() -> None:
    runs = measured("A", [0.1, 0.2, 0.6])  # mean 0.3; deviations -0.2, -0.1, 0.3: std sqrt(0.14 / 2) = 0.265
    claim = {"check": "value", "metric": "error", "of": "A"}
    for limits, passed in (
        ({"at_most": 0.31}, True),
        ({"at_most": 0.29}, False),
        ({"at_least": 0.29}, True),
        ({"at_least": 0.31}, False),
        ({"at_least": 0.2, "at_most": 0.4}, True),
        ({"at_least": 0.31, "at_most": 0.4}, False),
    ):
        assert judged(runs, **claim, **limits).passed is passed, limits
    assert judged(runs, **claim, at_most=1).numbers == "0.3 ± 0.26 against at most 1 (3 seeds)"
    both = judged(runs[:1], **claim, at_least=0.05, at_most=0.2)
    assert both.numbers == "0.1 against at least 0.05 and at most 0.2 (1 seed)"
    assert judged(measured("A", [0.25]), **claim, at_most=0.25, at_least=0.25).passed is True


def test_a_ratio_and_a_difference_are_taken_seed_by_seed() -> None:
    runs = [*measured("A", [1.0, 6.0]), *measured("B", [2.0, 3.0])]
    # 1/2 and 6/3: mean 1.25 (the ratio of the means would be 1.4); 1 - 2 and 6 - 3: mean 1
    claim = {"metric": "error", "of": "A", "to": "B"}
    assert judged(runs, check="ratio", at_most=1.25, **claim).numbers == "1.25 ± 1.1 against at most 1.25 (2 seeds)"
    assert judged(runs, check="ratio", at_least=1.3, **claim).passed is False
    assert judged(runs, check="difference", at_least=1, **claim).numbers == "1 ± 2.8 against at least 1 (2 seeds)"
    assert judged(list(reversed(runs)), check="ratio", at_most=1.25, **claim).passed is True


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("floats_up", 5.0),
        ("floats_down", 4.0),
        ("bytes_up", 3.0),
        ("bytes_down", 2.0),
        ("rounds", 7.0),
        ("seconds", 0.5),
    ],
)
def test_a_ratio_of_costs(metric: str, expected: float) -> None:
    costs = {"floats_up": 50, "floats_down": 40, "bytes_up": 30, "bytes_down": 20, "rounds": 70, "seconds": 5.0}
    tens = dict.fromkeys(costs, 10)
    runs = [a_run("A", **costs), a_run("B", **tens)]
    claim = judged(runs, check="ratio", metric=metric, of="A", to="B", at_most=expected, at_least=expected)
    assert claim.passed is True
    assert claim.numbers.startswith(f"{expected:g} against")


@pytest.mark.parametrize(("ours", "theirs"), [(1.0, 0.0), (0.0, 0.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_what_is_not_a_finite_number_holds_no_claim(ours: float, theirs: float) -> None:
    runs = [*measured("A", [ours]), *measured("B", [theirs])]
    for limits in ({"at_most": 1e300}, {"at_least": -1e300}):
        claim = judged(runs, check="ratio", metric="error", of="A", to="B", **limits)
        assert claim.passed is False
        assert claim.numbers.startswith("no finite number against")


def test_numbers_have_the_digits_that_show_their_side_of_the_limit() -> None:
    counted = judged([a_run("A", floats_up=1234567)], check="value", metric="floats_up", of="A", at_most=1234568)
    assert (counted.passed, counted.numbers) == (True, "1234567 against at most 1234568 (1 seed)")
    claim = {"check": "value", "metric": "error", "of": "A", "at_most": 1}
    for value, passed, written in ((1.00004, False, "1.00004"), (0.99996, True, "0.99996"), (1 / 3, True, "0.333")):
        verdict = judged(measured("A", [value]), **claim)
        assert (verdict.passed, verdict.numbers) == (passed, f"{written} against at most 1 (1 seed)")


# settings of a sweep


def swept(name: str, errors: dict[int, float], metric: str = "error") -> list[Run]:
    return [run for at, error in errors.items() for run in measured(name, [error] * 2, metric, point={CLIENTS: at})]


def test_a_claim_must_hold_at_every_setting_and_tells_the_worst() -> None:
    runs = [*swept("A", {2: 1.0, 5: 3.0, 10: 2.0}), *swept("B", {2: 1.0, 5: 2.0, 10: 4.0})]  # ratios 1, 1.5, 0.5
    claim = {"check": "ratio", "metric": "error", "of": "A", "to": "B"}
    high, low = judged(runs, **claim, at_most=1.2), judged(runs, **claim, at_least=0.4)
    assert (high.passed, low.passed) == (False, True)
    assert high.numbers == "1.5 against at most 1.2 (2 seeds; the worst is at partition.clients = 5)"
    assert low.numbers == "0.5 against at least 0.4 (2 seeds; the worst is at partition.clients = 10)"
    value = judged(runs, check="value", metric="error", of="B", at_most=3.9)
    assert value.numbers == "4 against at most 3.9 (2 seeds; the worst is at partition.clients = 10)"


def test_where_restricts_both_sides_or_one() -> None:
    runs = [*swept("A", {2: 1.0, 5: 3.0}), *swept("B", {2: 4.0, 5: 2.0})]
    claim = {"check": "difference", "metric": "error", "of": "A", "to": "B", "at_most": 100}
    for where, expected in (
        ({"where": {CLIENTS: 2}}, "-3 against at most 100 (2 seeds)"),
        ({"where_of": {CLIENTS: 5}, "where_to": {CLIENTS: 2}}, "-1 against at most 100 (2 seeds)"),
        ({"where": {CLIENTS: 5}, "where_to": {CLIENTS: 2}}, "-1 against at most 100 (2 seeds)"),
        (  # against both settings of B: 3 - 4 and 3 - 2
            {"where_of": {CLIENTS: 5}},
            "1 against at most 100 (2 seeds; the worst is at partition.clients = 5)",
        ),
        (  # both settings of A against one of B: 1 - 2 and 3 - 2
            {"where_to": {CLIENTS: 5}},
            "1 against at most 100 (2 seeds; the worst is at partition.clients = 5)",
        ),
    ):
        assert judged(runs, **claim, **where).numbers == expected, where


def test_settings_are_compared_that_have_all_else_in_common() -> None:
    rank = "strategy.A.rank"
    errors = {(2, 1): 1.0, (2, 9): 2.0, (5, 1): 30.0, (5, 9): 40.0}
    runs = [
        run
        for name, factor in (("A", 1.0), ("B", 10.0))
        for (clients, r), error in errors.items()
        for run in measured(name, [factor * error], point={CLIENTS: clients, rank: r})
    ]
    # A of rank 9 over B of rank 1, with equally many clients: 2 / 10 and 40 / 300
    claim = {"check": "ratio", "metric": "error", "of": "A", "to": "B", "where_of": {rank: 9}, "where_to": {rank: 1}}
    assert judged(runs, **claim, at_most=0.25).numbers == (
        "0.2 against at most 0.25 (1 seed; the worst is at partition.clients = 2, strategy.A.rank = 9 "
        "and at partition.clients = 2, strategy.A.rank = 1)"
    )
    assert judged(runs, **claim, at_least=0.13).numbers.startswith("0.133 against")


@pytest.mark.parametrize(("metric", "best_of_a", "best_of_b"), [("error", 2, 5), ("nmi", 5, 10)])
def test_the_best_setting_of_each_side_is_the_largest_or_smallest_by_metric(
    metric: str, best_of_a: int, best_of_b: int
) -> None:
    of_a, of_b = {2: 0.1, 5: 0.4, 10: 0.2}, {2: 0.5, 5: 0.3, 10: 0.8}
    runs = [*swept("A", of_a, metric), *swept("B", of_b, metric)]
    expected = of_a[best_of_a] - of_b[best_of_b]
    claim = {"check": "difference", "metric": metric, "best": True}
    verdict = judged(runs, **claim, of="A", to="B", at_least=expected - 1e-9)
    places = f"best at partition.clients = {best_of_a} and at partition.clients = {best_of_b}"
    assert verdict.passed is True
    assert verdict.numbers.startswith(f"{expected:.3g}")
    assert verdict.numbers.endswith(f"(2 seeds; {places})")
    value = judged(runs, check="value", metric=metric, best=True, of="A", at_most=1)
    assert value.numbers == f"{of_a[best_of_a]} against at most 1 (2 seeds; best at partition.clients = {best_of_a})"


# curves along a run


@pytest.mark.parametrize("power", [-2.0, -1.0, -0.5, 0.0])
def test_the_rate_of_a_power_is_its_exponent(power: float) -> None:
    runs = curved("A", [3 * t**power for t in range(1, 9)], [5 * t**power for t in range(1, 9)])
    claim = {"check": "rate", "value": "recover_error", "of": ["A"]}
    assert judged(runs, **claim, at_most=power + 1e-9).passed is True
    verdict = judged(runs, **claim, at_most=power - 1e-3)
    assert verdict.passed is False
    highest = 4 * max(t ** (1 + power) for t in range(1, 9))  # the mean of 3 and 5, times t
    assert verdict.numbers.endswith(f"(2 seeds; t · recover_error is at most {highest:.3g})")


def test_a_rate_is_that_of_the_mean_from_a_first_iteration_on() -> None:
    runs = curved("A", [9.0, 9.0, 4.0, 4.0], [9.0, 9.0, 4.0, 0.0])  # means 9, 9, 4, 2
    slope = math.log(2 / 4) / math.log(4 / 3)  # two points: -2.41
    claim = {"check": "rate", "value": "recover_error", "of": ["A"], "from": 3}
    verdict = judged(runs, **claim, at_most=slope + 1e-9)
    assert verdict.passed is True
    assert verdict.numbers.endswith("t · recover_error is at most 12)")
    assert judged(runs, **claim, at_most=slope - 1e-9).passed is False
    assert judged(runs, **{**claim, "from": 1}, at_most=slope).passed is False


def test_a_rate_must_hold_for_every_method_and_setting() -> None:
    runs = [
        run
        for name, clients, power in (("A", 2, -2), ("A", 5, -1), ("B", 2, -3), ("B", 5, -0.5))
        for run in curved(name, [t**power for t in range(1, 5)], point={CLIENTS: clients})
    ]
    claim = {"check": "rate", "value": "recover_error", "at_most": -0.8}
    assert judged(runs, **claim, of=["A"]).passed is True
    verdict = judged(runs, **claim, of=["A", "B"])
    assert verdict.passed is False
    assert verdict.numbers.startswith(
        "slope -0.5 against at most -0.8 (1 seed; the worst is 'B' at partition.clients = 5"
    )
    assert judged(runs, **claim, of=["A", "B"], where={CLIENTS: 2}).passed is True


def test_iterations_without_an_error_have_no_logarithm_and_do_not_count() -> None:
    claim = {"check": "rate", "value": "recover_error", "of": ["A"], "at_most": -1}
    assert judged(curved("A", [1.0, 0.25, 0.0]), **claim).numbers.startswith("slope -2 against")
    verdict = judged(curved("A", [1.0, 0.0, 0.0]), **claim)
    assert (verdict.passed, verdict.numbers) == (None, "'A' has fewer than two iterations with a recover_error above 0")
    assert judged(curved("A", [1.0, math.nan, 0.1]), **claim).passed is False


def test_curves_overlap_by_their_largest_relative_distance_of_any_seed_and_iteration() -> None:
    runs = [*curved("A", [10.0, 8.0, 0.0], [10.0, 5.0, 1.0]), *curved("B", [10.0, 10.0, 0.0], [9.0, 5.0])]
    # 0, 2 / 10, nothing of 0; 1 / 10, 0; B's second seed has no third iteration
    claim = {"check": "overlap", "value": "recover_error"}
    for of in (["A", "B"], ["B", "A"]):
        assert judged(runs, **claim, of=of, within=0.2).passed is True
        assert judged(runs, **claim, of=of, within=0.19).numbers == (
            "apart by 0.2 against at most 0.19 (2 seeds; the worst is at t = 2, seed = 0)"
        )
    assert judged(runs, **claim, of=["A", "A"], within=0).passed is True
    assert judged([*curved("A", [1.0]), *curved("B", [-1.0])], **claim, of=["A", "B"], within=1.9).passed is False


def test_curves_below_0_are_as_far_apart_as_their_mirror_images() -> None:
    runs = [*curved("A", [-2.0], value="gain"), *curved("B", [-1.0], value="gain")]  # by half of |-2|, not all of -1
    verdict = judged(runs, check="overlap", value="gain", of=["A", "B"], within=0.5)
    assert verdict == Claim("It is so.", True, "apart by 0.5 against at most 0.5 (1 seed)")


def test_a_value_is_bounded_at_every_iteration_of_every_seed() -> None:
    runs = [*curved("A", [3, 4, 5], [3, 7, 2], value="rank"), *curved("B", [1, 1, 1], [6, 6, 6], value="rank")]
    claim = {"check": "bounded", "value": "rank", "of": ["A", "B"]}
    assert judged(runs, **claim, at_most=7).passed is True
    most = judged(runs, **claim, at_most=6.5)
    assert most.numbers == "7 against at most 6.5 (2 seeds; the worst is 'A' at t = 2, seed = 1)"
    least = judged(runs, **claim, at_least=1.5)
    assert least.numbers == "1 against at least 1.5 (2 seeds; the worst is 'B' at t = 1, seed = 0)"
    assert judged(runs, **{**claim, "of": ["A"]}, at_least=2, at_most=7).passed is True


def test_a_value_rises_by_its_largest_step_upwards() -> None:
    claim = {"check": "rise", "value": "gain", "of": ["A"], "at_most": -0.5}
    verdict = judged(curved("A", [-2.0, -4.0], [-4.0, -3.0], value="gain"), **claim)
    assert verdict.numbers == "rises by 0.25 against at most -0.5 (2 seeds; the worst is 'A' at t = 2, seed = 1)"


def test_floats_of_an_iteration_are_the_sum_over_its_rounds() -> None:
    claim = {"check": "bounded", "value": "floats_up", "of": ["A"], "at_least": 20, "at_most": 20}
    assert judged(curved("A", [1.0, 1.0]), **claim).passed is True, "two rounds of 10"


# what is not there yet


CLAIMS: dict[str, dict[str, Any]] = {
    "value": {"metric": "error", "of": "A", "at_most": 100},
    "ratio": {"metric": "error", "of": "B", "to": "A", "at_most": 100},
    "difference": {"metric": "error", "of": "A", "to": "B", "at_most": 100},
    "rate": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
    "overlap": {"value": "recover_error", "of": ["B", "A"], "within": 100},
    "bounded": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
    "rise": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
}


@pytest.mark.parametrize("check", CLAIMS)
def test_no_claim_holds_before_all_its_runs_are_there(check: str) -> None:
    due: list[tuple[dict[str, Any], int]] = [({CLIENTS: clients}, seed) for clients in (2, 5) for seed in (0, 1)]
    runs = {
        (name, point[CLIENTS], seed): a_run(
            name, seed, curves={"recover_error": [1.0, 0.5]}, metrics={"error": 1.0}, point=point
        )
        for name in ("A", "B")
        for point, seed in due
    }
    claim = {"check": check, **CLAIMS[check]}
    assert judged(list(runs.values()), due, **claim).passed is True
    for absent in (at for at in runs if at[0] == "A"):
        verdict = judged([run for at, run in runs.items() if at != absent], due, **claim)
        assert (verdict.passed, verdict.verdict) == (None, "not checked")
        assert verdict.numbers == "1 of 4 runs of 'A' are missing"
        elsewhere = {CLIENTS: 7 - absent[1]}
        rest = [run for at, run in runs.items() if at != absent]
        assert judged(rest, due, **claim, where=elsewhere).passed is True
        assert judged(rest, **claim).passed is None  # the other method shows that there will be such a run
    assert judged([], due, **claim).numbers.startswith("4 of 4 runs of ")
    assert judged([], **claim).passed is None


@pytest.mark.parametrize("check", CLAIMS)
def test_what_no_run_tells_cannot_be_checked(check: str) -> None:
    silent = [*measured("A", [None]), *measured("B", [1.0])]
    verdict = judged(silent, check=check, **CLAIMS[check])
    assert verdict.passed is None
    assert re.search(
        r"'A' has no error with seed 0|no round of 'B' tells recover_error and its iteration t", verdict.numbers
    )


def test_curves_without_an_iteration_in_common_cannot_be_compared() -> None:
    a, (b,) = curved("A", [1.0]), curved("B", [1.0, 1.0])
    later = [b.model_copy(update={"history": b.history[2:]})]
    verdict = judged([*a, *later], check="overlap", value="recover_error", of=["A", "B"], within=1)
    assert (verdict.passed, verdict.numbers) == (None, "'A' and 'B' have no iteration in common")

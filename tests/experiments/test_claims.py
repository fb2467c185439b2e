"""A claim holds exactly where its numbers do, tells them, and is not taken to hold before its runs are there."""

import math
import re

import pytest
from claim_rows import CLIENTS, a_run, curved, judged, measured

from fedkernel.experiments.claims import Claim, Verdict

HOLDS, NOISE, FAILS, UNTESTABLE = Verdict.HOLDS, Verdict.NOISE, Verdict.FAILS, Verdict.UNTESTABLE


def test_a_value_is_a_mean_over_seeds_and_its_limits_are_allowed():
    runs = measured("A", [0.1, 0.2, 0.6])  # mean 0.3; deviations -0.2, -0.1, 0.3: std sqrt(0.14 / 2), error 0.153
    claim = {"check": "value", "metric": "error", "of": "A"}
    for limits, verdict in (
        ({"at_most": 0.61}, HOLDS),
        ({"at_most": 0.6}, NOISE),
        ({"at_most": 0}, NOISE),
        ({"at_most": -0.01}, FAILS),
        ({"at_least": -0.01}, HOLDS),
        ({"at_least": 0}, NOISE),
        ({"at_least": 0.6}, NOISE),
        ({"at_least": 0.61}, FAILS),
        ({"at_least": -0.01, "at_most": 0.61}, HOLDS),
        ({"at_least": -0.01, "at_most": 0.4}, NOISE),
        ({"at_least": 0.61, "at_most": 4}, FAILS),
    ):
        assert judged(runs, **claim, **limits).verdict is verdict, limits
    assert judged(runs, **claim, at_most=1).numbers == "0.3, standard error 0.15, against at most 1 (3 seeds)"
    both = judged(runs[:1], **claim, at_least=0.05, at_most=0.2)
    assert both.numbers == "0.1 against at least 0.05 and at most 0.2 (1 seed)"


def test_equal_numbers_have_no_noise_and_limits_are_allowed():
    claim = {"check": "value", "metric": "error", "of": "A"}
    for seeds in (1, 3, 7):  # the mean of three or seven 0.1 rounds to another number
        verdict = judged(measured("A", [0.1] * seeds), **claim, at_most=0.1, at_least=0.1)
        assert (verdict.verdict, verdict.value) == (HOLDS, 0.1)
        assert verdict.standard_error == (None if seeds == 1 else 0)
        assert judged(measured("A", [0.1] * seeds), **claim, at_most=0.0999).verdict is FAILS


def test_a_judgement_has_its_numbers_apart():
    runs = [*swept("A", {2: 1.0, 5: 3.0}), *swept("B", {2: 1.0, 5: 2.0})]
    verdict = judged(runs, check="ratio", metric="error", of="A", to="B", at_most=1.2)
    where = "at partition.clients = 5"
    numbers = f"1.5 against at most 1.2 (2 seeds; the worst is {where})"
    assert verdict == Claim("It is so.", FAILS, numbers, value=1.5, standard_error=0, where=where)
    without = judged([], check="value", metric="error", of="A", at_least=1)
    assert without == Claim("It is so.", UNTESTABLE, "no run is planned")


def test_an_identity_is_one_where_it_holds_and_what_is_untestable_is_decided_by_no_number():
    claim = {"check": "value", "metric": "error", "of": "A", "at_most": 0.2, "why": "It follows."}
    for error, kind, verdict in (
        (0.1, "identity", Verdict.IDENTITY),
        (0.3, "identity", FAILS),
        (0.1, "untestable", UNTESTABLE),
        (0.3, "untestable", UNTESTABLE),
    ):
        judgement = judged(measured("A", [error]), **claim, kind=kind)
        assert (judgement.verdict, judgement.value) == (verdict, error)
        assert judgement.numbers == f"{error} against at most 0.2 (1 seed). It follows."
    assert judged([], **claim, kind="identity").verdict is UNTESTABLE


def test_ratios_those_of_costs_too_and_differences_are_taken_seed_by_seed():
    runs = [*measured("A", [1.0, 6.0]), *measured("B", [2.0, 3.0])]
    # 1/2 and 6/3: mean 1.25 (the ratio of the means would be 1.4), 0.75 from either; 1 - 2 and 6 - 3: mean 1
    claim = {"metric": "error", "of": "A", "to": "B"}
    ratio = judged(runs, check="ratio", at_most=1.25, **claim)
    assert ratio.numbers == "1.25, standard error 0.75, against at most 1.25 (2 seeds)"
    difference = judged(runs, check="difference", at_least=1, **claim)
    assert difference.numbers == "1, standard error 2, against at least 1 (2 seeds)"
    assert judged(list(reversed(runs)), check="ratio", at_most=1.25, **claim) == ratio
    costs = {"floats_up": 50, "floats_down": 40, "bytes_up": 30, "bytes_down": 20, "rounds": 70, "seconds": 5.0}
    runs = [a_run("A", **costs), a_run("B", **dict.fromkeys(costs, 10))]
    for metric, cost in costs.items():
        assert judged(runs, check="ratio", metric=metric, of="A", to="B", at_most=8).value == cost / 10


@pytest.mark.parametrize(("ours", "theirs"), [(1.0, 0.0), (0.0, 0.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_what_is_not_a_finite_number_holds_no_claim(ours, theirs):
    runs = [*measured("A", [ours]), *measured("B", [theirs])]
    for limits in ({"at_most": 1e300}, {"at_least": -1e300}):
        claim = judged(runs, check="ratio", metric="error", of="A", to="B", **limits)
        assert claim.verdict is FAILS
        assert claim.numbers.startswith("no finite number against")


def test_numbers_have_the_digits_that_show_their_side_of_the_limit():
    counted = judged([a_run("A", floats_up=1234567)], check="value", metric="floats_up", of="A", at_most=1234568)
    assert (counted.verdict, counted.numbers) == (HOLDS, "1234567 against at most 1234568 (1 seed)")
    claim = {"check": "value", "metric": "error", "of": "A", "at_most": 1}
    for value, held, written in ((1.00004, FAILS, "1.00004"), (0.99996, HOLDS, "0.99996"), (1 / 3, HOLDS, "0.333")):
        verdict = judged(measured("A", [value]), **claim)
        assert (verdict.verdict, verdict.numbers) == (held, f"{written} against at most 1 (1 seed)")


def swept(name, errors, metric="error"):
    return [run for at, error in errors.items() for run in measured(name, [error] * 2, metric, point={CLIENTS: at})]


def test_a_claim_must_hold_at_every_setting_and_tells_the_worst():
    runs = [*swept("A", {2: 1.0, 5: 3.0, 10: 2.0}), *swept("B", {2: 1.0, 5: 2.0, 10: 4.0})]  # ratios 1, 1.5, 0.5
    claim = {"check": "ratio", "metric": "error", "of": "A", "to": "B"}
    high, low = judged(runs, **claim, at_most=1.2), judged(runs, **claim, at_least=0.4)
    assert (high.verdict, low.verdict) == (FAILS, HOLDS)
    assert high.numbers == "1.5 against at most 1.2 (2 seeds; the worst is at partition.clients = 5)"
    assert low.numbers == "0.5 against at least 0.4 (2 seeds; the worst is at partition.clients = 10)"
    value = judged(runs, check="value", metric="error", of="B", at_most=3.9)
    assert value.numbers == "4 against at most 3.9 (2 seeds; the worst is at partition.clients = 10)"


def test_where_restricts_both_sides_or_one():
    runs = [*swept("A", {2: 1.0, 5: 3.0}), *swept("B", {2: 4.0, 5: 2.0})]
    claim = {"check": "difference", "metric": "error", "of": "A", "to": "B", "at_most": 100}
    for where, expected in (
        ({"where": {CLIENTS: 2}}, "-3 against at most 100 (2 seeds)"),
        ({"where_of": {CLIENTS: 5}, "where_to": {CLIENTS: 2}}, "-1 against at most 100 (2 seeds)"),
        ({"where": {CLIENTS: 5}, "where_to": {CLIENTS: 2}}, "-1 against at most 100 (2 seeds)"),
        # against both settings of B: 3 - 4 and 3 - 2; and both of A against one of B: 1 - 2 and 3 - 2
        ({"where_of": {CLIENTS: 5}}, "1 against at most 100 (2 seeds; the worst is at partition.clients = 5)"),
        ({"where_to": {CLIENTS: 5}}, "1 against at most 100 (2 seeds; the worst is at partition.clients = 5)"),
    ):
        assert judged(runs, **claim, **where).numbers == expected, where


def test_settings_are_compared_that_have_all_else_in_common():
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
def test_the_best_setting_of_each_side_is_the_largest_or_smallest_by_metric(metric, best_of_a, best_of_b):
    of_a, of_b = {2: 0.1, 5: 0.4, 10: 0.2}, {2: 0.5, 5: 0.3, 10: 0.8}
    runs = [*swept("A", of_a, metric), *swept("B", of_b, metric)]
    expected = of_a[best_of_a] - of_b[best_of_b]
    claim = {"check": "difference", "metric": metric, "best": True}
    verdict = judged(runs, **claim, of="A", to="B", at_least=expected - 1e-9)
    places = f"best at partition.clients = {best_of_a} and at partition.clients = {best_of_b}"
    assert verdict.verdict is HOLDS
    assert verdict.numbers.startswith(f"{expected:.3g}")
    assert verdict.numbers.endswith(f"(2 seeds; {places})")
    value = judged(runs, check="value", metric=metric, best=True, of="A", at_most=1)
    assert value.numbers == f"{of_a[best_of_a]} against at most 1 (2 seeds; best at partition.clients = {best_of_a})"


def test_the_worst_is_first_by_verdict_and_then_by_its_distance_from_the_limit():
    """Inside but noisy is worse than near and sure, outside within noise better than nearer and surely outside."""
    errors = {2: [0.99, 0.99], 5: [0.0, 1.6], 10: [0.6, 1.2], 20: [0.1, 2.1]}  # distances .01, .2, .1, -.1
    claim = {"check": "value", "metric": "error", "of": "A", "at_most": 1}
    runs = {at: measured("A", values, point={CLIENTS: at}) for at, values in errors.items()}
    for settings, verdict, worst in (([2], HOLDS, 2), ([2, 5, 10], NOISE, 10), ([2, 5, 10, 20], NOISE, 20)):
        judgement = judged([run for at in settings for run in runs[at]], **claim)
        assert (judgement.verdict, judgement.where) == (verdict, f"at partition.clients = {worst}")
    outside = measured("A", [1.05, 1.05], point={CLIENTS: 50})
    judgement = judged([run for same in runs.values() for run in same] + outside, **claim)
    assert (judgement.verdict, judgement.where) == (FAILS, "at partition.clients = 50")


@pytest.mark.parametrize("power", [-2.0, -1.0, -0.5, 0.0])
def test_the_rate_of_a_power_is_its_exponent(power):
    runs = curved("A", [3 * t**power for t in range(1, 9)], [5 * t**power for t in range(1, 9)])
    claim = {"check": "rate", "value": "recover_error", "of": ["A"]}
    assert judged(runs, **claim, at_most=power + 1e-9).verdict is HOLDS
    verdict = judged(runs, **claim, at_most=power - 1e-3)
    assert verdict.verdict is FAILS
    highest = 5 * max(t ** (1 + power) for t in range(1, 9))
    assert verdict.numbers.endswith(f"(2 seeds; t · recover_error is at most {highest:.3g})")


def test_a_rate_is_the_mean_of_the_seeds_slopes_from_a_first_iteration_on():
    runs = curved("A", [9.0, 9.0, 4.0, 4.0], [9.0, 9.0, 4.0, 2.0])
    steep = math.log(2 / 4) / math.log(4 / 3)  # two points: slopes 0 and -2.41
    claim = {"check": "rate", "value": "recover_error", "of": ["A"], "from": 3}
    verdict = judged(runs, **claim, at_most=2)
    assert verdict.value == pytest.approx(steep / 2)
    assert verdict.standard_error == pytest.approx(-steep / 2)  # of two numbers, half their distance
    assert verdict.numbers.endswith("t · recover_error is at most 16)")
    verdicts = [judged(runs, **claim, at_most=limit).verdict for limit in (1.21, 1.2, -3.61, -3.62)]
    assert verdicts == [HOLDS, NOISE, NOISE, FAILS]
    assert judged(runs, **{**claim, "from": 1}, at_most=2).value > steep / 2


def test_a_rate_must_hold_for_every_method_and_setting():
    runs = [
        run
        for name, clients, power in (("A", 2, -2), ("A", 5, -1), ("B", 2, -3), ("B", 5, -0.5))
        for run in curved(name, [t**power for t in range(1, 5)], point={CLIENTS: clients})
    ]
    claim = {"check": "rate", "value": "recover_error", "at_most": -0.8}
    assert judged(runs, **claim, of=["A"]).verdict is HOLDS
    verdict = judged(runs, **claim, of=["A", "B"])
    assert verdict.verdict is FAILS
    assert verdict.numbers.startswith("slope -0.5 against at most -0.8 (1 seed; the worst is 'B' at partition.clients")
    assert judged(runs, **claim, of=["A", "B"], where={CLIENTS: 2}).verdict is HOLDS


def test_iterations_without_an_error_have_no_logarithm_and_do_not_count():
    claim = {"check": "rate", "value": "recover_error", "of": ["A"], "at_most": -1}
    assert judged(curved("A", [1.0, 0.25, 0.0]), **claim).numbers.startswith("slope -2 against")
    verdict = judged(curved("A", [1.0, 0.0, 0.0]), **claim)
    assert verdict.verdict is UNTESTABLE
    assert verdict.numbers == "'A' has fewer than two iterations with a recover_error above 0 with seed 0"
    assert judged(curved("A", [1.0, math.nan, 0.1]), **claim).verdict is FAILS


def test_curves_overlap_by_their_largest_relative_distance_below_0_too():
    runs = [*curved("A", [10.0, 8.0, 0.0], [10.0, 5.0, 1.0]), *curved("B", [10.0, 10.0, 0.0], [9.0, 5.0])]
    # 0, 2 / 10, nothing of 0; 1 / 10, 0; B's second seed has no third iteration
    claim = {"check": "overlap", "value": "recover_error"}
    apart = "apart by 0.2 against at most 0.19 (2 seeds; the worst is at t = 2, seed = 0)"
    for of in (["A", "B"], ["B", "A"]):
        assert judged(runs, **claim, of=of, within=0.2).verdict is HOLDS
        assert judged(runs, **claim, of=of, within=0.19).numbers == apart
    assert judged(runs, **claim, of=["A", "A"], within=0).verdict is HOLDS
    assert judged([*curved("A", [1.0]), *curved("B", [-1.0])], **claim, of=["A", "B"], within=1.9).verdict is FAILS
    runs = [*curved("A", [-2.0], value="gain"), *curved("B", [-1.0], value="gain")]  # by half of |-2|, not all of -1
    verdict = judged(runs, check="overlap", value="gain", of=["A", "B"], within=0.5)
    assert (verdict.verdict, verdict.numbers) == (HOLDS, "apart by 0.5 against at most 0.5 (1 seed)")


def test_a_value_is_bounded_at_every_iteration_of_every_seed_and_rises_by_its_largest_step():
    runs = [*curved("A", [3, 4, 5], [3, 7, 2], value="rank"), *curved("B", [1, 1, 1], [6, 6, 6], value="rank")]
    claim = {"check": "bounded", "value": "rank", "of": ["A", "B"]}
    assert judged(runs, **claim, at_most=7).verdict is HOLDS
    most = judged(runs, **claim, at_most=6.5)
    assert most.numbers == "rank 7 against at most 6.5 (2 seeds; the worst is 'A' at t = 2, seed = 1)"
    least = judged(runs, **claim, at_least=1.5)
    assert least.numbers == "rank 1 against at least 1.5 (2 seeds; the worst is 'B' at t = 1, seed = 0)"
    assert judged(runs, **{**claim, "of": ["A"]}, at_least=2, at_most=7).verdict is HOLDS
    claim = {"check": "rise", "value": "gain", "of": ["A"], "at_most": -0.5}
    verdict = judged(curved("A", [-2.0, -4.0], [-4.0, -3.0], value="gain"), **claim)
    assert verdict.numbers == "rises by 0.25 against at most -0.5 (2 seeds; the worst is 'A' at t = 2, seed = 1)"
    claim = {"check": "bounded", "value": "floats_up", "of": ["A"], "at_least": 20, "at_most": 20}
    assert judged(curved("A", [1.0, 1.0]), **claim).verdict is HOLDS, "two rounds of 10"


CLAIMS = {
    "value": {"metric": "error", "of": "A", "at_most": 100},
    "ratio": {"metric": "error", "of": "B", "to": "A", "at_most": 100},
    "difference": {"metric": "error", "of": "A", "to": "B", "at_most": 100},
    "rate": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
    "overlap": {"value": "recover_error", "of": ["B", "A"], "within": 100},
    "bounded": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
    "rise": {"value": "recover_error", "of": ["B", "A"], "at_most": 100},
}


@pytest.mark.parametrize("check", CLAIMS)
def test_no_claim_holds_before_all_its_runs_are_there(check):
    due = [({CLIENTS: clients}, seed) for clients in (2, 5) for seed in (0, 1)]
    own = {"curves": {"recover_error": [1.0, 0.5]}, "metrics": {"error": 1.0}}
    runs = {(name, at[CLIENTS], seed): a_run(name, seed, point=at, **own) for name in "AB" for at, seed in due}
    claim = {"check": check, **CLAIMS[check]}
    assert judged(list(runs.values()), due, **claim).verdict is HOLDS
    for absent in (at for at in runs if at[0] == "A"):
        verdict = judged([run for at, run in runs.items() if at != absent], due, **claim)
        assert verdict.verdict is UNTESTABLE
        assert verdict.numbers == "1 of 4 runs of 'A' are missing"
        elsewhere = {CLIENTS: 7 - absent[1]}
        rest = [run for at, run in runs.items() if at != absent]
        assert judged(rest, due, **claim, where=elsewhere).verdict is HOLDS
        assert judged(rest, **claim).verdict is UNTESTABLE  # the other method shows that there will be such a run
    assert judged([], due, **claim).numbers.startswith("4 of 4 runs of ")
    assert judged([], **claim).verdict is UNTESTABLE


@pytest.mark.parametrize("check", CLAIMS)
def test_what_no_run_tells_cannot_be_checked(check):
    silent = [*measured("A", [None]), *measured("B", [1.0])]
    verdict = judged(silent, check=check, **CLAIMS[check])
    assert verdict.verdict is UNTESTABLE
    assert re.search(r"'A' has no error with seed 0|no round of 'B' has recover_error and an", verdict.numbers)


def test_curves_without_an_iteration_in_common_cannot_be_compared():
    a, (b,) = curved("A", [1.0]), curved("B", [1.0, 1.0])
    later = [b.model_copy(update={"history": b.history[2:]})]
    verdict = judged([*a, *later], check="overlap", value="recover_error", of=["A", "B"], within=1)
    assert (verdict.verdict, verdict.numbers) == (UNTESTABLE, "'A' and 'B' have no iteration in common")

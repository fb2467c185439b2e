"""Report options and claims of a configuration are read, and those that cannot be are refused."""

import json

import pytest
from configs import TINY, experiment, refusal

from fedkernel.experiments.config import Experiment


def claim(check, fields):
    """Write an override with a claim."""
    return f'claim=[{{text = "So it is.", check = "{check}", {fields}}}]'


def test_report_options_are_read_with_defaults(tmp_path):
    silent = experiment(tmp_path).report
    assert (silent.plots, silent.metric, silent.by_iteration, silent.reference) == (True, None, [], True)
    options = experiment(tmp_path, 'report={metric="distance", by_iteration = ["rank", "floats_up"], reference=false}')
    assert (options.report.plots, options.report.metric, options.report.reference) == (True, "distance", False)
    assert options.report.by_iteration == ["rank", "floats_up"]


def test_claims_are_read_in_order_each_with_the_fields_of_its_check(tmp_path):
    text = f"""{TINY}
[sweep]
"partition.clients" = [2, 4]
[[claim]]
text = "A ratio"
check = "ratio"
metric = "floats_up"
of = "a"
to = "c"
where_of = {{ "partition.clients" = 4 }}
at_most = 0.5
[[claim]]
text = "A rate"
check = "rate"
value = "recover_error"
of = ["a", "v1.5 of b, best"]
from = 3
at_most = -0.8
[[claim]]
text = "An overlap"
check = "overlap"
value = "error"
of = ["a", "c"]
within = 0.01
"""
    read = experiment(tmp_path, text=text)
    ratio, rate, overlap = read.claim
    assert [claim.text for claim in read.claim] == ["A ratio", "A rate", "An overlap"]
    assert [claim.methods for claim in read.claim] == [["a", "c"], ["a", "v1.5 of b, best"], ["a", "c"]]
    assert (ratio.at_most, ratio.at_least, ratio.conditions) == (0.5, None, [{}, {"partition.clients": 4}, {}])
    assert (rate.first, rate.at_most) == (3, -0.8)  # type: ignore[union-attr]
    assert overlap.at_most == 0.01
    assert Experiment.from_table(json.loads(json.dumps(read.table)), "config.json").claim == read.claim


def test_a_run_is_due_at_every_combination_of_swept_values_for_every_seed(tmp_path):
    assert experiment(tmp_path).settings_and_seeds == [({}, 0), ({}, 1)]
    swept = experiment(tmp_path, "sweep.partition.clients=[2, 4]", "sweep.strategy.a.n_components=[1, 2]", "seeds=[5]")
    points = [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert swept.settings_and_seeds == [({"partition.clients": m, "strategy.a.n_components": k}, 5) for m, k in points]


OF_A = 'metric = "error", of = "a"'
RATIO = f'{OF_A}, to = "c", at_most = 1'
KINDS = ("value", "ratio", "difference", "rate", "overlap", "bounded", "rise")
UNKNOWN = "'nmm' is not known (allowed: error, distance, "
ONLY = "only 'a', 'v1.5 of b, best', 'c'"


def ratio(more="", a='"a"', c='"c"'):
    """Write an override with a claim of the ratio, of other methods or with more fields."""
    return claim("ratio", f'metric = "error", of = {a}, to = {c}, at_most = 1{more}')


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("report.metric=nmm", f"report.metric: {UNKNOWN}"),
        ("report.also=['nmi', 'nmm']", f"report.also.1: {UNKNOWN}"),
        ("report.by_iteration=['t', 't']", "report.by_iteration: 't' is listed twice, but the values must differ"),
        ("claim={}", "claim: its table must be written with double brackets, [[claim]]"),
        ('claim=[{text = "x"}]', "check is required in the 1st claim"),
        (claim("equal", RATIO), f"claim.0.check = 'equal' is not known (allowed: {', '.join(KINDS)})"),
        (ratio(", colour = 1"), "claim.0: colour is not a known name here (allowed: text, kind, why, where, at_most"),
        (claim("value", RATIO), "claim.0: to is not a known name here (allowed: "),
        (claim("overlap", 'value = "x", of = ["a", "c"]'), "within is required in the 1st claim"),
        (ratio(', kind = "untestable"'), "claim.0: why is required of kind = 'untestable'"),
        (claim("value", OF_A), "claim.0: at_most or at_least is required"),
        (claim("value", f"{OF_A}, at_most = 1, at_least = 2"), "claim.0: at_least = 2, but must not be above at_most"),
        (claim("value", f"{OF_A}, at_most = nan"), "claim.0.at_most = nan: input should be a finite"),
        (claim("value", 'metric = "nmm", of = "a", at_most = 1'), f"claim.0.metric: {UNKNOWN}"),
        (ratio(c='"b"'), f"claim.0: there is no method named 'b', {ONLY}"),
        (claim("rate", 'value = "x", of = ["a", "d"], at_most = 1'), f"claim.0: there is no method named 'd', {ONLY}"),
        (ratio(', at = "floats_up"'), "claim.0: at, what is equal, needs along (or several methods in to)"),
        (ratio(', at = "floats_upp", along = ["x"]'), "claim.0.at: 'floats_upp' is not known"),
        (ratio(', at = "floats_up", along = ["x"], best = true'), "claim.0: at, iteration and best exclude"),
        (ratio(', at = "floats_up", along = ["x"]'), "claim.0: along has 'x', which is not swept"),
        (ratio(", iteration = 4, best = true"), "claim.0: at, iteration and best exclude"),
        (ratio(c='["c"]'), "claim.0: at, what is equal, needs along (or several"),
        (ratio(a='["a"]'), "claim.0: at, what is equal, needs along (or several"),
        (ratio(', at = "floats_up"', c='["c", "d"]'), f"claim.0: there is no method named 'd', {ONLY}"),
        (ratio(', where = {"partition.clients" = 2}'), "claim.0: 'partition.clients' is not swept (swept: nothing)"),
    ],
)
def test_report_options_and_claims_that_cannot_be_are_refused(tmp_path, override, says):
    message = refusal(tmp_path, override)
    assert message.startswith("tiny.toml: ")
    assert says in message


@pytest.mark.parametrize("where", ["where", "where_of", "where_to"])
def test_a_claim_about_a_setting_that_is_not_run_is_refused(tmp_path, where):
    sweep = "sweep.partition.clients=[2, 4]"
    for override, says in (
        ('"partition.clients" = 3', "claim.0: partition.clients = 3, but must be one of 2, 4"),
        ('"partition.client" = 2', "claim.0: 'partition.client' is not swept (swept: 'partition.clients')"),
        ("partition = {clients = 2}", "claim.0: 'partition' is not swept (swept: 'partition.clients')"),
    ):
        assert refusal(tmp_path, sweep, claim("ratio", f"{RATIO}, {where} = {{{override}}}")) == f"tiny.toml: {says}"

"""Sweeps and cases of a configuration are combined, land where they should, and have readable ids."""

import numpy as np
import pytest
from configs import TINY, experiment, refusal

from fedkernel import RBF, Linear
from fedkernel.data import DataSpec, load
from fedkernel.experiments.running import plan
from fedkernel.experiments.running.planning import points, run_id
from fedkernel.numerics.widths import median_sigma


def test_sweeps_are_combined_and_land_where_they_should(tmp_path):
    swept = experiment(
        tmp_path, "sweep.partition.clients=[2, 4]", "sweep.strategy.*.n_components=[1, 2, 3]", "seeds=[5, 6]"
    )
    settings = list(points(swept))
    expected = [(clients, k) for clients in (2, 4) for k in (1, 2, 3)]
    assert [tuple(point.values.values()) for point in settings] == expected
    for point, (clients, k) in zip(settings, expected, strict=True):
        assert point.experiment.clients == clients
        assert [method.parameters["n_components"] for method in point.experiment.strategy] == [k, k]
        assert point.experiment.baseline[0].parameters == {}
    runs = plan(swept)
    assert len(runs) == 6 * 2 * 3
    assert len({run.id for run in runs}) == len(runs)
    assert {len(run.shards) for run in runs} == {2, 4}


def test_tables_are_swept_as_other_values_are(tmp_path):
    kernels = '[{type = "linear"}, {type = "rbf", gamma = 0.5}]'
    runs = plan(experiment(tmp_path, f"sweep={{'strategy.a.kernel' = {kernels}}}", "seeds=[0]"))
    assert [repr(run.strategy.kernel) for run in runs if run.method.name == "a"] == [  # type: ignore[attr-defined]
        repr(Linear()),
        repr(RBF(gamma=0.5)),
    ]


def test_a_width_by_rule_and_its_factors_are_those_of_each_settings_own_data(tmp_path):
    sweep = 'sweep={"data.scale" = ["none", "standard"], "strategy.a.kernel.factor" = [0.5, 2.0]}'
    runs = plan(experiment(tmp_path, 'strategy.a.kernel={type = "rbf", width = "median"}', sweep, "seeds=[0]"))
    gammas = [run.strategy.kernel.gamma for run in runs if run.method.name == "a"]  # type: ignore[attr-defined]
    sigmas = [median_sigma(load(DataSpec("iris", scale=scale)).X) for scale in ("none", "standard")]
    expected = [1 / (2 * (factor * sigma) ** 2) for sigma in sigmas for factor in (0.5, 2.0)]
    np.testing.assert_allclose(gammas, expected, rtol=1e-12)
    assert gammas[0] != gammas[2]


def test_ids_are_readable_and_fit_for_folders_and_long_ones_are_cut_and_stay_unique(tmp_path):
    swept = experiment(tmp_path, 'sweep={"partition.clients" = [2], "strategy.v1.5 of b, best.center" = ["rows"]}')
    (point,) = points(swept)
    ids = [run_id(method, point, 7) for method in point.experiment.strategy]
    tail = "__partition.clients=2__strategy.v1.5-of-b,-best.center=rows__seed=7"
    assert ids == [f"a{tail}", f"v1.5-of-b,-best{tail}"]
    text = TINY.replace('"a"', f'"{"ä" * 200}1"').replace('"v1.5 of b, best"', f'"{"ä" * 200}2"')
    ids = [run.id for run in plan(experiment(tmp_path, text=text))]
    assert len(set(ids)) == 6
    assert max(len(id_.encode()) for id_ in ids) <= 150


# cases

CASES = [
    'case.data=[{case="three", "data.name"="wine"}, {case="four", "data.name"="iris"}]',
    'case.size=[{"strategy.a.n_components"=1, "baseline.c.n_components"=2}, '
    '{"strategy.a.n_components"=2, "baseline.c.n_components"=1}]',
]


def test_cases_of_several_kinds_are_combined_and_may_give_a_whole_table(tmp_path):
    swept = experiment(tmp_path, *CASES, "seeds=[0]")
    assert swept.swept == {"case": ["three", "four"], "strategy.a.n_components": [1, 2]}
    second = {"data.name": "wine", "strategy.a.n_components": 2, "baseline.c.n_components": 1}
    assert swept.changes(swept.settings[1]) == second
    runs = plan(swept)
    pairs = [(run.point.values["case"], run.strategy.n_components) for run in runs if run.method.name == "a"]  # type: ignore[attr-defined]
    assert pairs == [("three", 1), ("three", 2), ("four", 1), ("four", 2)]
    assert [run.parameters["n_components"] for run in runs if run.method.name == "c"] == [2, 1, 2, 1]
    assert {run.point.experiment.data.name for run in runs} == {"wine", "iris"}  # type: ignore[union-attr]
    assert runs[0].id.startswith("a__case=three__strategy.a.n_components=1__")
    runs = plan(experiment(tmp_path, 'case=[{case="few", "data.name"="blobs", "data.options"={n=40}}]'))
    assert [shard.shape[0] for shard in runs[0].shards] == [40, 40]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (('case.data={"data.name"="wine"}',), "case: its table must be written with double brackets, [[case]]"),
        ((*CASES, 'case.more=[{"baseline.c.n_components"=2}]'), "is in case.size already; it can be in one only"),
        (('case.data=[{case="a"}, {"data.name"="wine"}]',), "case.data.1 has 'data.name', but all must have the keys"),
        (('case=[{case="a", "data.rows"=9}, {case="a", "data.rows"=8}]',), "case: case: 'a' is listed twice"),
        (
            ('case=[{name="a"}]',),
            "'name' cannot be swept, only what is inside data, partition, prepare, privacy, strategy,",
        ),
        (
            ('sweep={case=["a"]}',),
            "'case' cannot be swept, only what is inside data, partition, prepare, privacy, strategy,",
        ),
        (("case=[{data={name='wine'}}]",), 'a dotted path must be in quotes, such as "partition.clients" (found'),
    ],
)
def test_cases_that_cannot_be_are_refused(tmp_path, overrides, says):
    assert says in refusal(tmp_path, *overrides)

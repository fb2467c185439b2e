"""A configuration means what it says: values land where they should, and whatever is wrong is told in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris

from experiments.config import Experiment, as_json, read_config
from experiments.plan import plan, points, run_id
from fedkernel.errors import InputError
from fedkernel.kernels import kernel_from
from fedkernel.widths import dimension_sigma, median_sigma, with_width

TINY = """
name = "tiny"
seeds = [0, 1]
[data]
name = "iris"
[partition]
clients = 2
[[strategy]]
name = "a"
method = "DKPCA"
n_components = 2
[[strategy]]
name = "v1.5 of b, best"
method = "VFedPCA"
rounds = 2
[[baseline]]
name = "c"
method = "central PCA"
"""


def write(tmp_path: Path, text: str = TINY) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def table(tmp_path: Path, *overrides: str, text: str = TINY) -> dict[str, Any]:
    return read_config(write(tmp_path, text), overrides)[0]


def experiment(tmp_path: Path, *overrides: str) -> Experiment:
    return Experiment.from_table(table(tmp_path, *overrides), "tiny.toml")


def claim(check: str, fields: str) -> str:
    """Write an override with a claim."""
    return f'claim=[{{text = "So it is.", check = "{check}", {fields}}}]'


def refusal(tmp_path: Path, *overrides: str, text: str = TINY) -> str:
    """Return the one sentence that reading, checking and planning end with."""
    with pytest.raises(InputError) as caught:
        plan(table(tmp_path, *overrides, text=text), "tiny.toml")
    message = str(caught.value)
    assert "\n" not in message
    return message


# reading


def test_a_file_is_read_with_defaults_where_it_is_silent(tmp_path: Path) -> None:
    path = write(tmp_path)
    read, text = read_config(path)
    found = Experiment.from_table(read, "tiny.toml")
    assert text == TINY
    assert (found.seeds, found.clients, found.engine, found.threads) == ([0, 1], 2, "local", 1)
    assert [method.name for method in found.strategy] == ["a", "v1.5 of b, best"]
    assert found.strategy[0].parameters == {"n_components": 2}
    assert found.baseline[0].parameters == {}


def test_the_quickstart_and_every_paper_are_valid() -> None:
    folder = Path(__file__).parents[1] / "experiments"
    for path in (folder / "quickstart.toml", *folder.glob("papers/*.toml")):
        assert list(points(read_config(path)[0], path.name)), path


def test_the_kept_text_tells_the_overrides_and_is_still_toml(tmp_path: Path) -> None:
    path = write(tmp_path)
    text = read_config(path, ['strategy.*.kernel={type="rbf",\ngamma=1}', "seeds=[3]"])[1]
    assert "strategy.*.kernel={type=" in text
    assert "seeds=[3]" in text
    again = tmp_path / "again.toml"
    again.write_text(text, encoding="utf-8")
    assert read_config(again)[0] == read_config(path)[0]


# overrides


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("adaptive", "adaptive"),
        ('"adaptive"', "adaptive"),
        ("[1, 2]", [1, 2]),
        ('{ type = "rbf", gamma = 0.1 }', {"type": "rbf", "gamma": 0.1}),
        ("a=b", "a=b"),
    ],
)
def test_an_override_is_toml_or_else_a_plain_string(tmp_path: Path, written: str, value: Any) -> None:
    set_to = table(tmp_path, f"strategy.a.it = {written}")["strategy"][0]["it"]
    assert set_to == value
    assert type(set_to) is type(value)


def test_overrides_reach_tables_entries_by_name_and_all_entries(tmp_path: Path) -> None:
    made = table(
        tmp_path,
        "partition.clients=3",
        "data.scale=standard",
        "strategy.v1.5 of b, best.rounds=7",
        "strategy.*.n_components=1",
        "strategy.a.kernel.type=linear",
        "baseline.c.n_components=3",
        "strategy.a.n_components=4",
    )
    assert made["partition"]["clients"] == 3
    assert made["data"] == {"name": "iris", "scale": "standard"}
    assert made["strategy"] == [
        {"name": "a", "method": "DKPCA", "n_components": 4, "kernel": {"type": "linear"}},
        {"name": "v1.5 of b, best", "method": "VFedPCA", "rounds": 7, "n_components": 1},
    ]
    assert made["baseline"][0]["n_components"] == 3


def test_of_two_names_that_fit_the_longer_one_is_meant(tmp_path: Path) -> None:
    text = TINY.replace('"v1.5 of b, best"', '"a.b"')
    assert table(tmp_path, "strategy.a.b.rounds=9", text=text)["strategy"][1]["rounds"] == 9


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("partition.clients", "'partition.clients' must have the form key=value"),
        ("strategy.b.rounds=1", "strategy.b.rounds: there is no entry named 'b', only 'a', 'v1.5 of b, best'"),
        ("strategy.rounds=1", "strategy.rounds: say which, as in strategy.NAME.rounds, or * for all"),
        ("name.x.y=1", "name.x.y: name is a value, with nothing inside"),
        ("name.x=1", "name.x: name is a value, with nothing inside"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(tmp_path: Path, override: str, says: str) -> None:
    message = refusal(tmp_path, override)
    assert message.startswith("--set ")
    assert says in message


# sweeps


def test_sweeps_are_combined_and_land_where_they_should(tmp_path: Path) -> None:
    made = table(tmp_path, "sweep.partition.clients=[2, 4]", "sweep.strategy.*.n_components=[1, 2, 3]", "seeds=[5, 6]")
    found = list(points(made, "tiny.toml"))
    expected = [(clients, k) for clients in (2, 4) for k in (1, 2, 3)]
    assert [tuple(point.values.values()) for point in found] == expected
    for point, (clients, k) in zip(found, expected, strict=True):
        assert point.experiment.clients == clients
        assert [method.parameters["n_components"] for method in point.experiment.strategy] == [k, k]
        assert point.experiment.baseline[0].parameters == {}
    runs = plan(made, "tiny.toml")
    assert len(runs) == 6 * 2 * 3
    assert len({run.id for run in runs}) == len(runs)
    assert {len(run.shards) for run in runs} == {2, 4}


def test_ids_are_readable_and_fit_for_folders(tmp_path: Path) -> None:
    made = table(tmp_path, 'sweep={"partition.clients" = [2], "strategy.v1.5 of b, best.center" = ["rows"]}')
    (point,) = points(made, "tiny.toml")
    ids = [run_id(method, point, 7) for method in point.experiment.strategy]
    tail = "__partition.clients=2__strategy.v1.5-of-b,-best.center=rows__seed=7"
    assert ids == [f"a{tail}", f"v1.5-of-b,-best{tail}"]


def test_long_ids_are_cut_and_stay_unique(tmp_path: Path) -> None:
    text = TINY.replace('"a"', f'"{"ä" * 200}1"').replace('"v1.5 of b, best"', f'"{"ä" * 200}2"')
    ids = [run.id for run in plan(table(tmp_path, text=text), "tiny.toml")]
    assert len(set(ids)) == 6
    assert max(len(one.encode()) for one in ids) <= 150


# cases

CASES = [
    'case.data=[{case="three", "data.name"="wine"}, {case="four", "data.name"="iris"}]',
    'case.size=[{"strategy.a.n_components"=1, "baseline.c.n_components"=2}, '
    '{"strategy.a.n_components"=2, "baseline.c.n_components"=1}]',
]


def test_cases_of_several_kinds_are_combined_and_a_name_changes_nothing(tmp_path: Path) -> None:
    made = table(tmp_path, *CASES, "seeds=[0]")
    found = Experiment.from_table(made, "tiny.toml")
    assert found.swept == {"case": ["three", "four"], "strategy.a.n_components": [1, 2]}
    assert found.changes(found.settings[1]) == {
        "data.name": "wine",
        "strategy.a.n_components": 2,
        "baseline.c.n_components": 1,
    }
    runs = plan(made, "tiny.toml")
    assert [(run.point.values["case"], run.strategy().n_components) for run in runs if run.method.name == "a"] == [  # type: ignore[attr-defined]
        ("three", 1),
        ("three", 2),
        ("four", 1),
        ("four", 2),
    ]
    assert [run.parameters["n_components"] for run in runs if run.method.name == "c"] == [2, 1, 2, 1]
    assert {run.point.experiment.data.name for run in runs} == {"wine", "iris"}  # type: ignore[union-attr]
    assert runs[0].id.startswith("a__case=three__strategy.a.n_components=1__")


def test_a_case_may_give_a_whole_table(tmp_path: Path) -> None:
    runs = plan(table(tmp_path, 'case=[{case="few", "data.name"="blobs", "data.options"={n=40}}]'), "tiny.toml")
    assert [shard.shape[0] for shard in runs[0].shards] == [40, 40]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (('case.data={"data.name"="wine"}',), "case: its table must be written with double brackets, [[case]]"),
        ((*CASES, 'case.more=[{"baseline.c.n_components"=2}]'), "is in case.size already; it can be in one only"),
        (('case.data=[{case="a"}, {"data.name"="wine"}]',), "case.data.1 has 'data.name', but all must have the keys"),
        (('case=[{case="a", "data.rows"=9}, {case="a", "data.rows"=8}]',), "case: case: 'a' stands twice"),
        (('case=[{name="a"}]',), "'name' cannot be swept, only what is inside data, partition, strategy, baseline"),
        (('sweep={case=["a"]}',), "'case' cannot be swept, only what is inside data, partition, strategy, baseline"),
        (
            ("case=[{data={name='wine'}}]",),
            'a dotted path must stand in quotes, such as "partition.clients" (found dat',
        ),
    ],
)
def test_cases_that_cannot_be_are_refused(tmp_path: Path, overrides: tuple[str, ...], says: str) -> None:
    assert says in refusal(tmp_path, *overrides)


# kernel widths by rule


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
@pytest.mark.parametrize("rule", ["median", "mean", "dimension"])
def test_a_width_by_rule_is_the_rules_number_on_the_pooled_data(tmp_path: Path, kind: str, rule: str) -> None:
    X = load_iris().data
    sigma = {"median": median_sigma(X), "dimension": dimension_sigma(4)}.get(rule)
    gamma = len(X) ** 2 / (4 * (pdist(X) ** 2).sum())  # each pair twice, as the paper sums
    if sigma is not None:
        gamma = 1 / (2 * sigma**2) if kind == "rbf" else 1 / sigma
    run = plan(table(tmp_path, f'strategy.a.kernel={{type = "{kind}", width = "{rule}"}}'), "tiny.toml")[0]
    np.testing.assert_allclose(run.strategy().kernel.gamma, gamma, rtol=1e-12)


@pytest.mark.parametrize(("kernel", "sigma"), [({"type": "rbf"}, 0.2), ({"type": "laplacian"}, 3)], ids=str)
def test_a_factor_multiplies_the_width(kernel: dict[str, str], sigma: float) -> None:
    X = load_iris().data
    for rule in ("median", "mean", "dimension"):
        one = kernel_from(with_width({**kernel, "width": rule}, X))
        other = kernel_from(with_width({**kernel, "width": rule, "factor": sigma}, X))
        # a Laplacian's gamma is 1 / sigma where the rule gives a sigma, as it gives that of the mean distance
        power = 1 if kernel["type"] == "laplacian" and rule != "mean" else 2
        np.testing.assert_allclose(other.gamma, one.gamma / sigma**power, rtol=1e-12)  # type: ignore[union-attr]


def test_kernels_within_a_method_have_widths_by_rule_too(tmp_path: Path) -> None:
    run = plan(
        table(
            tmp_path,
            'strategy=[{name="s", method="SpectralKMeans", n_clusters=3}]',
            *(f"strategy.s.components.{one}" for one in ("share_rows=true", "n_adaptive=7", "kernel.type=rbf")),
            *(f"strategy.s.components.kernel.{one}" for one in ("width=median", "factor=0.5")),
            "baseline=[]",
            "partition.kind=horizontal",
        ),
        "tiny.toml",
    )[0]
    strategy = run.strategy()
    assert strategy.components.n_adaptive == 7  # type: ignore[attr-defined]
    sigma = 0.5 * median_sigma(load_iris().data)
    np.testing.assert_allclose(strategy.components.kernel.gamma, 1 / (2 * sigma**2), rtol=1e-12)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ('{type="rbf", factor=2}', "kernel.factor is for a kernel.width by rule; without it, give sigma or gamma"),
        ('{type="rbf", width="median", factor=0}', "kernel.factor = 0, but must be a number above 0"),
        ('{type="rbf", width="median", factor=true}', "kernel.factor = True, but must be a number above 0"),
        ('{type="rbf", width="median", gamma=1}', "kernel.width and kernel.gamma are the same thing"),
        ('{type="rbf", width="median", sigma=1}', "kernel.width and kernel.sigma are the same thing"),
        ('{type="linear", width="median"}', "for rbf and laplacian kernels, not for type = 'linear'"),
        ('{type="rbf", width="middle"}', "kernel.width = 'middle', but must be one of median, mean, dimension"),
        ('{type="rbf", width=["median"]}', "kernel.width = ['median'], but must be one of median, mean, dimension"),
        ('{width="median"}', "kernel.type is required"),
        ('{type="rbff"}', "kernel.type = 'rbff' is not known (allowed: linear, rbf, laplacian, polynomial, sigmoid, "),
        ('{type="rbf", gamma=-1}', "kernel.gamma = -1: input should be greater than 0"),
        ('{type="rbf"}', "gamma is required where columns are split over clients"),
        ("rbf", "kernel = 'rbf': input should be a table"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused(tmp_path: Path, kernel: str, says: str) -> None:
    message = refusal(tmp_path, f"strategy.a.kernel={kernel}")
    assert message.startswith("tiny.toml: strategy 'a': ")
    assert says in message


# reports and claims


def test_report_options_are_read_with_defaults(tmp_path: Path) -> None:
    silent = experiment(tmp_path).report
    assert (silent.plots, silent.metric, silent.by_iteration, silent.reference) == (True, None, [], True)
    told = experiment(tmp_path, 'report={metric = "distance", by_iteration = ["rank", "floats_up"], reference = false}')
    assert (told.report.plots, told.report.metric, told.report.reference) == (True, "distance", False)
    assert told.report.by_iteration == ["rank", "floats_up"]


def test_claims_are_read_in_order_each_with_the_fields_of_its_check(tmp_path: Path) -> None:
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
    made = table(tmp_path, text=text)
    found = Experiment.from_table(made, "tiny.toml")
    ratio, rate, overlap = found.claim
    assert [one.text for one in found.claim] == ["A ratio", "A rate", "An overlap"]
    assert [one.methods for one in found.claim] == [["a", "c"], ["a", "v1.5 of b, best"], ["a", "c"]]
    assert (ratio.at_most, ratio.at_least, ratio.conditions) == (0.5, None, [{}, {"partition.clients": 4}, {}])
    assert (rate.first, rate.at_most) == (3, -0.8)  # type: ignore[union-attr]
    assert overlap.at_most == 0.01
    assert Experiment.from_table(json.loads(as_json(made)), "config.json").claim == found.claim


def test_a_run_is_due_at_every_combination_of_swept_values_for_every_seed(tmp_path: Path) -> None:
    assert experiment(tmp_path).due == [({}, 0), ({}, 1)]
    swept = experiment(tmp_path, "sweep.partition.clients=[2, 4]", "sweep.strategy.a.n_components=[1, 2]", "seeds=[5]")
    points = [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert swept.due == [({"partition.clients": m, "strategy.a.n_components": k}, 5) for m, k in points]


RATIO = 'metric = "error", of = "a", to = "c", at_most = 1'


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("report.metric=nmm", "report.metric: 'nmm' is not known (allowed: error, distance, "),
        ("report.by_iteration=rank", "report.by_iteration = 'rank': input should be a valid list"),
        ("report.by_iteration=['']", "report.by_iteration.0 = '': string should have at least 1 character"),
        ("report.by_iteration=['t', 't']", "report.by_iteration: 't' stands twice, but the values must differ"),
        ("report.reference=never", "report.reference = 'never': input should be a valid boolean"),
        ("claim={}", "claim: its table must be written with double brackets, [[claim]]"),
        ('claim=[{text = "x"}]', "claim.0.check is required"),
        (
            claim("equal", RATIO),
            "claim.0.check = 'equal' is not known (allowed: value, ratio, difference, rate, overlap, bounded)",
        ),
        (
            claim("ratio", f"{RATIO}, colour = 1"),
            "claim.0: colour is not a known name here (allowed: text, where, at_most, at_least, check, ",
        ),
        (claim("rate", 'value = "x", of = ["a"], first = 2'), "claim.0: first is not a known name here (allowed: "),
        (claim("value", RATIO), "claim.0: to is not a known name here (allowed: "),
        (claim("ratio", 'metric = "error", of = "a", at_most = 1'), "claim.0.to is required"),
        (claim("overlap", 'value = "x", of = ["a", "c"]'), "claim.0.within is required"),
        (claim("overlap", 'value = "x", of = ["a"], within = 1'), "list should have at least 2 items"),
        (claim("overlap", 'value = "x", of = ["a", "c"], within = -1'), "claim.0.within = -1: input should be greater"),
        (claim("bounded", 'value = "x", of = "a", at_most = 1'), "claim.0.of = 'a': input should be a valid list"),
        (claim("rate", 'value = "x", of = ["a"], from = 0, at_most = 1'), "claim.0.from = 0: input should be greater"),
        (claim("value", 'metric = "error", of = "a"'), "claim.0: at_most or at_least is required"),
        (claim("rate", 'value = "x", of = ["a"]'), "claim.0: at_most or at_least is required"),
        (
            claim("value", 'metric = "error", of = "a", at_most = 1, at_least = 2'),
            "claim.0: at_least = 2, but must not be above at_most = 1",
        ),
        (
            claim("value", 'metric = "error", of = "a", at_most = nan'),
            "claim.0.at_most = nan: input should be a finite",
        ),
        (
            claim("value", 'metric = "nmm", of = "a", at_most = 1'),
            "claim.0.metric: 'nmm' is not known (allowed: error, distance, ",
        ),
        (
            claim("ratio", RATIO.replace('"c"', '"b"')),
            "claim.0: there is no method named 'b', only 'a', 'v1.5 of b, best', 'c'",
        ),
        (
            claim("rate", 'value = "x", of = ["a", "d"], at_most = 1'),
            "claim.0: there is no method named 'd', only 'a', 'v1.5 of b, best', 'c'",
        ),
        (
            claim("ratio", f'{RATIO}, where = {{"partition.clients" = 2}}'),
            "claim.0: 'partition.clients' is not swept (swept: nothing)",
        ),
    ],
)
def test_report_options_and_claims_that_cannot_be_are_refused(tmp_path: Path, override: str, says: str) -> None:
    message = refusal(tmp_path, override)
    assert message.startswith("tiny.toml: ")
    assert says in message


@pytest.mark.parametrize("where", ["where", "where_of", "where_to"])
def test_a_claim_about_a_setting_that_is_not_run_is_refused(tmp_path: Path, where: str) -> None:
    sweep = "sweep.partition.clients=[2, 4]"
    for asked, says in (
        ('"partition.clients" = 3', "claim.0: partition.clients = 3, but must be one of 2, 4"),
        ('"partition.client" = 2', "claim.0: 'partition.client' is not swept (swept: 'partition.clients')"),
        ("partition = {clients = 2}", "claim.0: 'partition' is not swept (swept: 'partition.clients')"),
    ):
        assert refusal(tmp_path, sweep, claim("ratio", f"{RATIO}, {where} = {{{asked}}}")) == f"tiny.toml: {says}"


# whatever is wrong


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("colour=red", "colour is not a known name here (allowed: name, title, seeds, engine, "),
        ("partition.client=3", "partition.client is not a known name here (allowed: kind, method, clients, "),
        ("strategy.a.colour=1", "strategy 'a': DKPCA: colour is not a known name here (allowed: n_components, "),
        ("strategy.a.method=PCA", "strategy 'a': method = 'PCA', but must be one of "),
        ("baseline.c.method=DKPCA", "baseline 'c': method = 'DKPCA', but must be one of central PCA, "),
        ("strategy.a.method=3", "strategy.a.method = 3: input should be a valid string"),
        ("strategy.a.n_components=two", "n_components = 'two': input should be a valid integer"),
        ("strategy.a.n_components=151", "n_components = 151, but must be at most the number of rows, 150"),
        ("strategy.a.local_components=0", "greater than or equal to 1 or input should be 'adaptive'"),
        ("partition.clients=many", "partition.clients = 'many': input should be a valid integer"),
        ("partition.clients=5", "partition: clients = 5: the data has 4 columns; allowed: at most 4 clients"),
        ("partition.kind=horizontal", "partition.kind = 'horizontal', but DKPCA needs 'vertical'"),
        ("seeds=0", "seeds = 0: input should be a valid list"),
        ("seeds=[]", "seeds = []: list should have at least 1 item"),
        ("seeds=[-1]", "seeds.0 = -1: input should be greater than or equal to 0"),
        (f"seeds=[{2**63}]", f"input should be less than {2**63}"),
        ("seeds=[1, 2, 1]", "seeds: 1 stands twice"),
        ("engine=cloud", "engine = 'cloud', but must be one of local, ray"),
        ("name=..", "name = '..': string should match"),
        ("baseline.c.name=a", "name = 'a' stands twice, but names must be unique"),
        ("baseline.c.name=a!", "'a' and 'a!' would both have runs with the id 'a__seed=0'"),
        ("data.name=irsi", "data: data set 'irsi' is not known (did you mean iris"),
        ("data=iris", "data = 'iris': input should be a table"),
        ("data={}", "data.name is required"),
        ('data={shards = ["x.npy"]}', "partition has no meaning with data.shards"),
        ("strategy={}", "strategy: its table must be written with double brackets, [[strategy]]"),
        ("sweep.partition.clients=[]", "sweep.partition.clients = []: list should have at least 1 item"),
        ("sweep.partition.clients=[2, 2]", "sweep.partition.clients: 2 stands twice"),
        (
            "sweep.partition.clients=[2, 5]",
            "sweep partition.clients = 5: partition: clients = 5: the data has 4 columns",
        ),
        ("sweep.partition.clients=[2, 'x']", "sweep: partition.clients = 'x': input should be a valid integer"),
        ("sweep.strategy.b.rounds=[1]", "sweep strategy.b.rounds: there is no entry named 'b', only 'a', "),
        ("sweep={partition = {clients = [2]}}", 'must stand in quotes, such as "partition.clients" (found partition'),
        ("sweep.engine=['ray']", "'engine' cannot be swept, only what is inside data, partition, strategy, baseline"),
    ],
)
def test_a_wrong_value_is_named_with_file_key_value_and_what_is_allowed(
    tmp_path: Path, override: str, says: str
) -> None:
    message = refusal(tmp_path, override)
    assert message.startswith(("tiny.toml: ", "--set "))
    assert says in message


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ('[data]\nname = "iris"', "data is required"),
        ("clients = 2", "partition.clients is required (or sizes, or columns)"),
        ('name = "tiny"', "name is required"),
        ('name = "a"', "strategy.0.name is required"),
        ('method = "DKPCA"', "strategy.a.method is required"),
        (TINY[TINY.index("[[strategy]]") :], "at least one [[strategy]] or [[baseline]] is needed"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, without: str, says: str) -> None:
    assert refusal(tmp_path, text=TINY.replace(without, "", 1)) == f"tiny.toml: {says}"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    bad, binary = write(tmp_path, "name = "), tmp_path / "binary.toml"
    binary.write_bytes(b'name = "\xff"')
    for path, says in (
        (tmp_path / "none.toml", f"there is no configuration file {tmp_path / 'none.toml'}"),
        (tmp_path, f"{tmp_path} cannot be read: Is a directory"),
        (binary, f"{binary} is not a text file in UTF-8 (byte 8)"),
        (bad, f"{bad} is not valid TOML: Invalid value (at end of document)"),
    ):
        with pytest.raises(InputError) as caught:
            read_config(path)
        assert str(caught.value) == says

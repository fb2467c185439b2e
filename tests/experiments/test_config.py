"""A configuration, its sweeps and claims mean what they say, and whatever is wrong is told in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
from configs import TINY, experiment, refusal, table, write
from refusals import refusing
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris

from fedkernel import RBF, InputError, Linear
from fedkernel.data import DataSpec, load
from fedkernel.experiments.config import Experiment, read_config
from fedkernel.experiments.running import plan
from fedkernel.experiments.running.planning import points, run_id
from fedkernel.numerics import dimension_sigma
from fedkernel.numerics.widths import median_sigma


def test_a_file_is_read_with_defaults_where_it_is_silent(tmp_path):
    path = write(tmp_path)
    read = read_config(path)
    assert (read.text, read.source) == (TINY, str(path))
    assert (read.seeds, read.clients, read.engine, read.threads) == ([0, 1], 2, "local", 1)
    assert [method.name for method in read.strategy] == ["a", "v1.5 of b, best"]
    assert read.strategy[0].parameters == {"n_components": 2}
    assert read.baseline[0].parameters == {}
    assert list(points(read_config(Path(__file__).parents[2] / "experiments" / "quickstart.toml")))


def test_the_kept_text_tells_the_overrides_and_is_still_toml(tmp_path):
    path = write(tmp_path)
    text = read_config(path, ['strategy.*.kernel={type="rbf",\ngamma=1}', "seeds=[3]"]).text
    assert "strategy.*.kernel={type=" in text
    assert "seeds=[3]" in text
    again = tmp_path / "again.toml"
    again.write_text(text, encoding="utf-8")
    assert read_config(again).table == read_config(path).table


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
def test_an_override_is_toml_or_else_a_plain_string(tmp_path, written, value):
    set_to = table(tmp_path, f"strategy.a.it = {written}")["strategy"][0]["it"]
    assert set_to == value
    assert type(set_to) is type(value)


def test_overrides_reach_tables_entries_by_name_and_all_entries(tmp_path):
    changed = table(
        tmp_path,
        "partition.clients=3",
        "data.scale=standard",
        "strategy.v1.5 of b, best.rounds=7",
        "strategy.*.n_components=1",
        "strategy.a.kernel.type=linear",
        "baseline.c.n_components=3",
        "strategy.a.n_components=4",
    )
    assert changed["partition"]["clients"] == 3
    assert changed["data"] == {"name": "iris", "scale": "standard"}
    assert changed["strategy"] == [
        {"name": "a", "method": "DKPCA", "n_components": 4, "kernel": {"type": "linear"}},
        {"name": "v1.5 of b, best", "method": "VFedPCA", "rounds": 7, "n_components": 1},
    ]
    assert changed["baseline"][0]["n_components"] == 3
    # of two names that fit the longer one is meant
    text = TINY.replace('"v1.5 of b, best"', '"a.b"')
    assert table(tmp_path, "strategy.a.b.rounds=9", text=text)["strategy"][1]["rounds"] == 9


@pytest.mark.parametrize("factor", [1, 0.2])
@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
@pytest.mark.parametrize("rule", ["median", "mean", "dimension"])
def test_a_width_by_rule_is_the_rules_number_on_the_pooled_data(tmp_path, kind, rule, factor):
    X = load_iris().data
    sigma = {"median": median_sigma(X), "dimension": dimension_sigma(4)}.get(rule)
    gamma = len(X) ** 2 / (4 * (pdist(X) ** 2).sum())  # each pair twice, as the paper sums
    if kind == "laplacian":
        gamma = len(X) / (np.sqrt(2) * np.abs(X - X.mean(axis=0)).sum())
    if sigma is not None:
        gamma = 1 / (2 * sigma**2) if kind == "rbf" else 1 / sigma
    gamma /= factor ** (2 if kind == "rbf" else 1)
    kernel = f'{{type = "{kind}", width = "{rule}", factor = {factor}}}'
    run = plan(experiment(tmp_path, f"strategy.a.kernel={kernel}"))[0]
    np.testing.assert_allclose(run.strategy.kernel.gamma, gamma, rtol=1e-12)  # type: ignore[attr-defined]


def test_kernels_within_a_method_have_widths_by_rule_too(tmp_path):
    kernel = '{type = "rbf", width = "median", factor = 0.5}'
    components = f"{{share_rows = true, n_adaptive = 7, kernel = {kernel}}}"
    method = f'{{name = "s", method = "SpectralKMeans", n_clusters = 3, components = {components}}}'
    overrides = (f"strategy=[{method}]", "baseline=[]", "partition.kind=horizontal")
    strategy = plan(experiment(tmp_path, *overrides))[0].strategy
    assert strategy.components.n_adaptive == 7
    sigma = 0.5 * median_sigma(load_iris().data)
    np.testing.assert_allclose(strategy.components.kernel.gamma, 1 / (2 * sigma**2), rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ('{type="rbf", gamma=1, factor=2}', "kernel: factor is for a width by rule, not for a given gamma"),
        ('{type="rbf", width="median", factor=0}', "kernel.factor = 0: input should be greater than 0"),
        ('{type="rbf", width="median", gamma=1}', "kernel: width and gamma are the same thing"),
        ('{type="rbf", width="median", sigma=1}', "kernel: width and sigma are the same thing"),
        ('{type="linear", width="median"}', "kernel.width is not a known name here (allowed: type)"),
        ('{type="rbf", gama=1}', "kernel.gama is not a known name here (did you mean gamma? allowed: gamma, sigma, "),
        ('{type="rbf", width="middle"}', "kernel.width = 'middle': input should be 'median', 'mean', 'scale', "),
        ('{type="rbf", width="columns"}', 'width = "columns" is not for columns that are split over clients'),
        ("3", "kernel: 3 is no kernel; allowed: a name such as 'rbf', or a table with its type"),
        ("rbff", "kernel.type = 'rbff' is not known (allowed: linear, rbf, laplacian, polynomial, sigmoid, "),
    ],
)
def test_a_kernel_that_cannot_be_is_refused(tmp_path, kernel, says):
    message = refusal(tmp_path, f"strategy.a.kernel={kernel}")
    assert message.startswith("tiny.toml: strategy 'a': ")
    assert says in message


OF_A = 'metric = "error", of = "a"'
RATIO = f'{OF_A}, to = "c", at_most = 1'
KINDS = ("value", "ratio", "difference", "rate", "overlap", "bounded", "rise")
UNKNOWN = "'nmm' is not known (allowed: error, distance, "
ONLY = "only 'a', 'v1.5 of b, best', 'c'"
SITES = "is for sites that hold their own data and join fedkernel serve (sites)"
ONLY_INSIDE = "cannot be swept, only what is inside data, partition, prepare, privacy, strategy,"


def claim(check, fields):
    """Write an override with a claim."""
    return f'claim=[{{text = "So it is.", check = "{check}", {fields}}}]'


def ratio(more="", a='"a"', c='"c"'):
    """Write an override with a claim of the ratio, of other methods or with more fields."""
    return claim("ratio", f'metric = "error", of = {a}, to = {c}, at_most = 1{more}')


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("partition.clients", "--set 'partition.clients' must have the form key=value"),
        ("strategy.b.rounds=1", "--set strategy.b.rounds: there is no entry named 'b', only 'a', 'v1.5 of b, best'"),
        ("strategy.rounds=1", "name one, as in strategy.NAME.rounds, or use * for all"),
        ("name.x.y=1", "--set name.x.y: name is a value, with nothing inside"),
        ("name.x=1", "--set name.x: name is a value, with nothing inside"),
        ("colour=red", "colour is not a known name here (allowed: name, title, seeds, engine, "),
        ("partition.client=3", "partition.client is not a known name here (did you mean clients? allowed: kind,"),
        ('data={shards=["x.npy"], scale="none"}', "data: scale = 'none' is for a data set that is divided in "),
        ('data={sites=["a"], shards=["x.npy"]}', "(shards); allowed here: shards, missing, forms, columns, label, "),
        ('data={shards=["x.csv"], forms={"x.csv"={heder=3}}}', "data.forms.x.csv.heder is not a known name here (did"),
        ('data={shards=["x.csv"], forms={header=3}}', "data.forms: header is of one file; allowed: its table, ["),
        ('data={shards=["x.npy"], share_model=true}', f"share_model = True {SITES}, but this table is of files in "),
        ('data={name="iris", header=3}', "header = 3 is for files in one place, one for each client (shards), but"),
        ('data={sites=["a"], identities={b="1"}}', "identities has keys of b; allowed: one for each of the sites"),
        ("privacy={epsilon=1.0, radius=1.0}", 'privacy needs sums = "masked", so that'),
        ('data={sites=["a"], identities={a="1f"}}', "data: identities.a = '1f' is no public key; allowed: 128 hexade"),
        ('data={sites=["rome"], rows=9}', "(sites); allowed here: sites, missing, share_model, joint_seed,"),
        ('data={sites=["rome"], row=9}', "data.row is not a known name here (allowed: sites, missing, share_model,"),
        ("strategy.a.colour=1", "strategy 'a': DKPCA: colour is not a known name here (allowed: n_components, "),
        ("strategy.a.method=PCA", "VFedPCA, or an address such as my_lab.pairs:Name"),
        ("baseline.c.method=DKPCA", "baseline 'c': method = 'DKPCA', but must be one of "),
        ("strategy.a.n_components=two", "n_components = 'two': input should be a valid integer"),
        ("strategy.a.n_components=151", "n_components = 151, but must be at most the number of rows, 150"),
        ("strategy.a.local_components=0", "greater than or equal to 1 or input should be 'adaptive'"),
        ("partition.clients=5", "partition: clients = 5, but must be at most 4, since the data has 4 columns"),
        ("partition.kind=horizontal", "partition.kind = 'horizontal', but DKPCA needs 'vertical'"),
        ("seeds=[]", "seeds = []: input should have at least 1 entries"),
        ("seeds=[-1]", "seeds.0 = -1: input should be greater than or equal to 0"),
        (f"seeds=[{2**63}]", f"input should be less than {2**63}"),
        ("seeds=[1, 2, 1]", "seeds: 1 is listed twice"),
        ("engine=cloud", "engine = 'cloud', but must be one of local, ray"),
        ("name=..", "name = '..': string should match"),
        ("folder=sets", "folder: 'sets' must be an absolute path; by default it is the folder of the file"),
        ("baseline.c.name=a", "name = 'a' is listed twice, but the values must differ"),
        ("baseline.c.name=a!", "'a' and 'a!' would both have runs with the id 'a__seed=0'"),
        ("data.name=irsi", "data: data set 'irsi' is not known (did you mean iris"),
        ("data={}", "data: name is required, or shards or sites"),
        ('data={shards = ["x.npy"]}', "partition has no meaning with data.shards"),
        ("strategy={}", "strategy: its table must be written with double brackets, [[strategy]]"),
        ("sweep.partition.clients=[]", "sweep.partition.clients = []: input should have at least 1 entries"),
        ("sweep.partition.clients=[2, 2]", "sweep.partition.clients: 2 is listed twice"),
        ("sweep.partition.clients=[2, 5]", "sweep partition.clients = 5: partition: clients = 5, but must be at most"),
        ("sweep.strategy.b.rounds=[1]", "sweep strategy.b.rounds: there is no entry named 'b', only 'a', "),
        ("sweep={partition = {clients = [2]}}", 'must be in quotes, such as "partition.clients" (found partition'),
        ("sweep.engine=['ray']", f"'engine' {ONLY_INSIDE}"),
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
def test_a_wrong_value_is_named_with_file_key_value_and_what_is_allowed(tmp_path, override, says):
    message = refusal(tmp_path, override)
    in_file = override.startswith(("claim", "report"))
    assert message.startswith("tiny.toml: " if in_file else ("tiny.toml: ", "--set "))
    assert says in message


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('[data]\nname = "iris"', "", "data is required"),
        ("clients = 2", "", "partition.clients is required (or sizes, or columns)"),
        ('name = "tiny"', "", "name is required"),
        ('name = "a"', "", "name is required in the 1st strategy"),
        ('method = "DKPCA"', 'metod = "DKPCA"', "strategy.a.method is required (is metod meant for it?)"),
        (TINY[TINY.index("[[strategy]]") :], "", "at least one [[strategy]] or [[baseline]] is needed"),
        # a mistyped name is told before the one that is missing
        ("n_components = 2", "n_component = 2", "strategy 'a': DKPCA: n_component is not a known name here (did you"),
        ("[data]", "[dat]", "dat is not a known name here (did you mean data? allowed: name, "),
        ('name = "iris"', 'nam = "iris"', "data.nam is not a known name here (did you mean name? allowed: name, scale"),
    ],
)
def test_what_is_missing_or_mistyped_is_named(tmp_path, right, wrong, says):
    assert refusal(tmp_path, text=TINY.replace(right, wrong, 1)).startswith(f"tiny.toml: {says}")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    bad, binary = write(tmp_path, "name = "), tmp_path / "binary.toml"
    binary.write_bytes(b'name = "\xff"')
    deep, deeper = (tmp_path / f"{levels}.toml" for levels in (51, 20_000))
    for path in (deep, deeper):
        levels = int(path.stem)
        path.write_text(f"x = {'[' * levels}{']' * levels}")
    for path, says in (
        (tmp_path / "none.toml", f"there is no configuration file {tmp_path / 'none.toml'}"),
        (tmp_path, f"{tmp_path} cannot be read: Is a directory"),
        (binary, f"{binary} is not a text file in UTF-8 (byte 8)"),
        (bad, f"{bad} is not valid TOML: Invalid value (at end of document)"),
        (deep, f"{deep} has tables or lists nested too deeply; allowed: 50 levels"),
        (deeper, f"{deeper} has tables or lists nested too deeply; allowed: 50 levels"),
    ):
        with refusing(start=says):
            read_config(path)


def test_a_number_of_6000_digits_and_a_hundred_thousand_sites_are_one_sentence(tmp_path):
    (tmp_path / "digits.toml").write_text(f"seed = {'7' * 6000}")
    with pytest.raises(InputError, match=r"digits.toml is not valid TOML: Exceeds the limit \(4300 digits\)"):
        read_config(tmp_path / "digits.toml")
    sites = ", ".join(f'"s{number}"' for number in range(100_000))
    assert "data.sites = " in (said := refusal(tmp_path, text=TINY.replace('name = "iris"', f"sites = [{sites}]")))
    assert "at most 10000" in said
    assert len(said) < 1000


def test_sweeps_are_combined_and_land_where_they_should(tmp_path):
    sweeps = ("sweep.partition.clients=[2, 4]", "sweep.strategy.*.n_components=[1, 2, 3]")
    swept = experiment(tmp_path, *sweeps, "seeds=[5, 6]")
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
        (('case=[{name="a"}]',), f"'name' {ONLY_INSIDE}"),
        (('sweep={case=["a"]}',), f"'case' {ONLY_INSIDE}"),
        (("case=[{data={name='wine'}}]",), 'a dotted path must be in quotes, such as "partition.clients" (found'),
    ],
)
def test_cases_that_cannot_be_are_refused(tmp_path, overrides, says):
    assert says in refusal(tmp_path, *overrides)


def test_report_options_are_read_with_defaults(tmp_path):
    silent = experiment(tmp_path).report
    assert (silent.plots, silent.metric, silent.by_iteration, silent.reference) == (True, None, [], True)
    options = experiment(tmp_path, 'report={metric="distance", by_iteration = ["rank", "floats_up"], reference=false}')
    assert (options.report.plots, options.report.metric, options.report.reference) == (True, "distance", False)
    assert options.report.by_iteration == ["rank", "floats_up"]


def test_claims_are_read_in_order_each_with_the_fields_of_its_check(tmp_path):
    claims = (
        'text="Ratio", check="ratio", metric="floats_up", of="a", to="c", where_of={"partition.clients"=4},at_most=0.5',
        'text="Rate", check="rate", value="recover_error", of=["a", "v1.5 of b, best"], from=3, at_most=-0.8',
        'text="Overlap", check="overlap", value="error", of=["a", "c"], within=0.01',
    )
    read = experiment(tmp_path, "sweep.partition.clients=[2, 4]", f"claim=[{{{'}, {'.join(claims)}}}]")
    ratio, rate, overlap = read.claim
    assert [claim.text for claim in read.claim] == ["Ratio", "Rate", "Overlap"]
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


@pytest.mark.parametrize("where", ["where", "where_of", "where_to"])
def test_a_claim_about_a_setting_that_is_not_run_is_refused(tmp_path, where):
    sweep = "sweep.partition.clients=[2, 4]"
    for override, says in (
        ('"partition.clients" = 3', "claim.0: partition.clients = 3, but must be one of 2, 4"),
        ('"partition.client" = 2', "claim.0: 'partition.client' is not swept (swept: 'partition.clients')"),
        ("partition = {clients = 2}", "claim.0: 'partition' is not swept (swept: 'partition.clients')"),
    ):
        assert refusal(tmp_path, sweep, claim("ratio", f"{RATIO}, {where} = {{{override}}}")) == f"tiny.toml: {says}"

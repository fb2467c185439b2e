"""A configuration means what it says: values land where they should, and whatever is wrong is told in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configs import TINY, experiment, refusal, table, write
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris

from fedkernel.experiments.config import read_config
from fedkernel.experiments.running import plan
from fedkernel.experiments.running.planning import points
from fedkernel.ground import InputError
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


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("partition.clients", "'partition.clients' must have the form key=value"),
        ("strategy.b.rounds=1", "strategy.b.rounds: there is no entry named 'b', only 'a', 'v1.5 of b, best'"),
        ("strategy.rounds=1", "name one, as in strategy.NAME.rounds, or use * for all"),
        ("name.x.y=1", "name.x.y: name is a value, with nothing inside"),
        ("name.x=1", "name.x: name is a value, with nothing inside"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(tmp_path, override, says):
    message = refusal(tmp_path, override)
    assert message.startswith("--set ")
    assert says in message


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
    strategy: Any = plan(experiment(tmp_path, *overrides))[0].strategy
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
        ('{type="linear", width="median"}', "kernel.width is not a known name here"),
        ('{type="rbf", width="middle"}', "kernel.width = 'middle': input should be 'median', 'mean', 'scale', "),
        ('{type="rbf", width="columns"}', 'width = "columns" is not for columns that are split over clients'),
        ("rbff", "kernel.type = 'rbff' is not known (allowed: linear, rbf, laplacian, polynomial, sigmoid, "),
    ],
)
def test_a_kernel_that_cannot_be_is_refused(tmp_path, kernel, says):
    message = refusal(tmp_path, f"strategy.a.kernel={kernel}")
    assert message.startswith("tiny.toml: strategy 'a': ")
    assert says in message


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("colour=red", "colour is not a known name here (allowed: name, title, seeds, engine, "),
        ("partition.client=3", "partition.client is not a known name here (did you mean clients? allowed: kind,"),
        ('data={shards=["x.npy"], scale="none"}', "data.scale is not a known name here (allowed: shards, missing,"),
        (
            'data={sites=["a"], identities={b="1"}}',
            "data: identities has keys of b; allowed: one for each of the sites",
        ),
        ('data={sites=["a"], identities={a="1f"}}', "data: identities.a = '1f' is no public key; allowed: 128 hexade"),
        ('data={sites=["rome"], rows=9}', "data.rows is not a known name here (allowed: sites, missing, share_model,"),
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
        ("data={}", "data.name is required"),
        ('data={shards = ["x.npy"]}', "partition has no meaning with data.shards"),
        ("strategy={}", "strategy: its table must be written with double brackets, [[strategy]]"),
        ("sweep.partition.clients=[]", "sweep.partition.clients = []: input should have at least 1 entries"),
        ("sweep.partition.clients=[2, 2]", "sweep.partition.clients: 2 is listed twice"),
        ("sweep.partition.clients=[2, 5]", "sweep partition.clients = 5: partition: clients = 5, but must be at most"),
        ("sweep.strategy.b.rounds=[1]", "sweep strategy.b.rounds: there is no entry named 'b', only 'a', "),
        ("sweep={partition = {clients = [2]}}", 'must be in quotes, such as "partition.clients" (found partition'),
        (
            "sweep.engine=['ray']",
            "'engine' cannot be swept, only what is inside data, partition, prepare, privacy, strategy,",
        ),
    ],
)
def test_a_wrong_value_is_named_with_file_key_value_and_what_is_allowed(tmp_path, override, says):
    message = refusal(tmp_path, override)
    assert message.startswith(("tiny.toml: ", "--set "))
    assert says in message


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('[data]\nname = "iris"', "", "data is required"),
        ("clients = 2", "", "partition.clients is required (or sizes, or columns)"),
        ('name = "tiny"', "", "name is required"),
        ('name = "a"', "", "name is required in the 1st strategy"),
        ('method = "DKPCA"', "", "strategy.a.method is required"),
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
        with pytest.raises(InputError) as caught:
            read_config(path)
        assert str(caught.value).startswith(says)


def test_a_number_of_6000_digits_and_a_hundred_thousand_sites_are_one_sentence(tmp_path):
    (tmp_path / "digits.toml").write_text(f"seed = {'7' * 6000}")
    with pytest.raises(InputError, match=r"digits.toml is not valid TOML: Exceeds the limit \(4300 digits\)"):
        read_config(tmp_path / "digits.toml")
    sites = ", ".join(f'"s{number}"' for number in range(100_000))
    assert "data.sites = " in (said := refusal(tmp_path, text=TINY.replace('name = "iris"', f"sites = [{sites}]")))
    assert "at most 10000" in said
    assert len(said) < 1000

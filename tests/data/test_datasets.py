"""Named data, downloaded ones too: one kind of table, and every mistake one sentence that says what is allowed."""

import dataclasses
import math
from urllib.error import HTTPError, URLError

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from refusals import refusing
from scipy import sparse
from sklearn.utils import Bunch

from fedkernel.data import GENERATED, DataSpec, PartitionSpec, available, check_matrix, load
from fedkernel.data.sources import BUNDLED, FETCHED
from fedkernel.ground import InputError
from fedkernel.site import simulated_partition

SPECS = TypeAdapter(DataSpec)
tables = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("name", [*BUNDLED, *GENERATED])
def test_sets_that_need_nothing(name):
    data = load(name)
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert np.isfinite(data.X).all()
    assert data.y is None or data.y.shape == data.X.shape[:1]
    assert len(set(data.columns)) == data.X.shape[1]
    assert (data.name, bool(data.source)) == (name, True)
    assert {line.name: line.shape for line in available()}[name] == data.X.shape
    if name == "wine":
        bunch = sklearn.datasets.load_wine()
        np.testing.assert_array_equal(data.X, bunch.data)
        np.testing.assert_array_equal(data.y, bunch.target)
        assert data.columns == tuple(bunch.feature_names)


@pytest.mark.parametrize(
    ("name", "spectrum"),
    [("geometric", [5000 * 0.75**i for i in range(50)]), ("plateau", [5000.0] * 10 + [2500.0] + [50.0] * 39)],
)
@pytest.mark.parametrize(("n", "d"), [(60, 80), (90, 20)])
def test_generated_spectrum(name, spectrum, n, d):
    X = load(DataSpec(name, options={"n": n, "d": d})).X
    assert X.shape == (n, d)
    expected = np.zeros(min(n, d))
    expected[:50] = spectrum[: min(n, d)]
    np.testing.assert_allclose(np.linalg.svd(X, compute_uv=False) ** 2, expected, rtol=1e-8, atol=1e-8)


def test_a_transposed_table_has_samples_as_columns_scaled_by_feature():
    spec = DataSpec("wine", scale="standard", classes=(0, 1))
    table, samples = load(spec), load(dataclasses.replace(spec, transposed=True))
    np.testing.assert_array_equal(samples.X, table.X.T)
    assert samples.y is None
    assert len(samples.columns) == len(table.X)


def test_densities_are_of_points_within_three_deviations():
    X = load(DataSpec("densities", options={"n": 2000, "d": 40})).X
    highest = 1 / math.sqrt(2 * math.pi)
    assert highest * math.exp(-4.5) < X.min() < X.max() <= highest
    # The means over z of phi(z) and phi(z)^2, z uniform within 3: integrals of Gaussians of deviations 1 and 1 / sqrt 2
    assert X.mean() == pytest.approx(math.erf(3 / math.sqrt(2)) / 6, rel=0.01)
    assert np.square(X).mean() == pytest.approx(math.erf(3) / (12 * math.sqrt(math.pi)), rel=0.01)
    deviations = highest / load(DataSpec("densities", options={"n": 2000, "d": 40, "mixture": True})).X.max(axis=0)
    np.testing.assert_allclose(deviations, deviations.round(), rtol=1e-4)
    assert len(set(deviations.round())) > 10
    assert set(deviations.round()) <= set(range(1, 41))


@pytest.mark.parametrize("name", GENERATED)
def test_generated_sets_depend_on_their_seed_alone(name):
    size = "n_blob" if name == "rare-clusters" else "n"

    def made(spec_seed, **options):
        return load(DataSpec(name, seed=spec_seed, options={size: 20, **options})).X

    first = made(3)
    np.testing.assert_array_equal(first, made(3))
    np.testing.assert_array_equal(first, made(8, seed=3))
    assert not any(np.array_equal(first, made(other)) for other in range(4, 24))


def test_generated_options_reach_the_generator():
    data = load(DataSpec("blobs", options={"n": 40, "d": 7, "centers": 4, "spread": 1e-6}))
    assert data.X.shape == (40, 7)
    assert sorted(set(data.y)) == [0, 1, 2, 3]
    assert max(np.ptp(data.X[data.y == label], axis=0).max() for label in range(4)) < 1e-4
    circles = load(DataSpec("circles", options={"noise": 0, "factor": 0.25}))
    np.testing.assert_allclose(np.linalg.norm(circles.X, axis=1), np.where(circles.y == 1, 0.25, 1.0))


def test_rows_are_a_seeded_subset_in_the_original_order():
    whole, part = load("diabetes"), load(DataSpec("diabetes", rows=50, seed=1))
    where = [int(np.flatnonzero((row == whole.X).all(axis=1))[0]) for row in part.X]
    assert where == sorted(set(where))
    np.testing.assert_array_equal(whole.y[where], part.y)
    np.testing.assert_array_equal(part.X, load(DataSpec("diabetes", rows=50, seed=1)).X)
    assert not np.array_equal(part.X, load(DataSpec("diabetes", rows=50, seed=2)).X)
    for share, rows in ((0.113, 50), (0.0001, 1), (1, 442)):
        counted, part = load(DataSpec("diabetes", rows=rows, seed=1)), load(DataSpec("diabetes", share=share, seed=1))
        np.testing.assert_array_equal(part.X, counted.X)


@pytest.mark.parametrize("classes", [(0, 3, 8), ("0", "3", "8")])
def test_classes_keep_the_rows_with_these_labels(classes):
    whole, part = load("digits"), load(DataSpec("digits", classes=classes))
    np.testing.assert_array_equal(part.X, whole.X[np.isin(whole.y, [0, 3, 8])])
    assert set(part.y) == {0, 3, 8}
    assert set(load(DataSpec("digits", classes=classes, rows=100)).y) <= {0, 3, 8}


def test_one_class_against_the_rest_makes_two(folder):
    whole, two = load("digits"), load(DataSpec("digits", against_rest="3"))
    np.testing.assert_array_equal(two.X, whole.X)
    np.testing.assert_array_equal(two.y, whole.y == 3)
    assert two.y.dtype.kind == "i"
    of_three = load(DataSpec("digits", classes=(0, 3, 8), rows=100, against_rest=8))
    np.testing.assert_array_equal(of_three.y, load(DataSpec("digits", classes=(0, 3, 8), rows=100)).y == 8)
    # labels may be text, or whole floats
    np.savez(folder / "text.npz", X=np.eye(3), y=np.array(["a", "b", "a"]))
    np.savez(folder / "floats.npz", X=np.eye(3), y=np.array([1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(load(DataSpec("text", classes=["a"])).X, np.eye(3)[[0, 2]])
    np.testing.assert_array_equal(load(DataSpec("floats", classes=[1])).X, np.eye(3)[[0, 2]])


@given(X=tables)
def test_scales(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("scales") / "any.npz"
    np.savez(path, X=np.column_stack([X, np.full(len(X), 0.1)]))  # one column is constant for sure
    scaled = {scale: load(DataSpec(f"npz:{path}", scale=scale)).X for scale in ("standard", "minmax", "center")}
    rows = load(DataSpec(f"npz:{path}", scale="unit-norm")).X
    size = np.abs(X).max() + 1
    for Z in scaled.values():
        assert (Z[:, -1] == 0).all()
    wide = np.ptp(X, axis=0) > 1e-6 * size
    standard, minmax, center = (Z[:, :-1] for Z in scaled.values())
    np.testing.assert_allclose(center, X - X.mean(axis=0), atol=1e-12 * size)
    np.testing.assert_allclose(standard[:, wide], ((X - X.mean(0)) / X.std(0).clip(1e-300))[:, wide], atol=1e-6)
    np.testing.assert_allclose(minmax[:, wide].min(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(minmax[:, wide].max(axis=0), 1, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    np.savez(path, X=[[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(load(DataSpec(f"npz:{path}", scale="unit-norm")).X, [[0, 0], [0.6, 0.8]])
    chosen = load(DataSpec("wine", classes=(0,), rows=20, scale="standard")).X  # scaled after they are chosen
    np.testing.assert_allclose(chosen.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize(
    "spec",
    [
        DataSpec("a b", "unit-norm", rows=7, classes=(3, "x"), seed="run"),
        DataSpec("iris", share=0.1, against_rest="3"),
        DataSpec("blobs", options={"n": 3, "d": 9}, transposed=True),
    ],
    ids=lambda spec: spec.name,
)
def test_specs_go_through_json_and_serve_as_keys(spec):
    again = SPECS.validate_json(SPECS.dump_json(spec))
    assert again == spec
    assert {spec: "found"}[again] == "found"


def test_data_of_the_runs_seed_are_those_of_that_number_and_nothing_without_a_run():
    for name, options in (("geometric", {"n": 20}), ("diabetes", {})):
        each, third = (DataSpec(name, rows=10, seed=seed, options=options) for seed in ("run", 3))
        assert each.drawn(3) == third
        assert third.drawn(5) == third
        runs = ((each, 3), (third, 8), (each, 8))
        drawn, expected, other = (simulated_partition(spec, PartitionSpec(), 2, seed).shards[0] for spec, seed in runs)
        np.testing.assert_array_equal(drawn, expected)
        assert not np.array_equal(drawn, other)
        with pytest.raises(InputError, match="seed = 'run', but data that are loaded for no run need a number"):
            load(each)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "name is required"),
        ({"name": "iris", "scale": "log"}, "scale = 'log': input should be 'none', 'standard'"),
        ({"name": "iris", "rows": 0}, "rows = 0: input should be greater than 0"),
        ({"name": "iris", "share": 1.5}, "share = 1.5: input should be less than or equal to 1"),
        ({"name": "iris", "share": 0.5, "rows": 5}, "rows = 5 and share = 0.5 are the same thing"),
        ({"name": "iris", "classes": []}, "at least 1 entries"),
        ({"name": "iris", "seed": -1}, "seed = -1"),
        ({"name": "iris", "seed": "each"}, "seed = 'each': input should be a valid integer"),
        ({"name": "iris", "sede": 1}, "sede is not a known name here"),
        ({"name": "iris", "options": {"n": 5}}, "only generated sets have any (geometric, plateau, blobs"),
        ({"name": "blobs", "options": {"size": 5}}, "Blobs: size is not a known name here (allowed: n, d, centers"),
        ({"name": "blobs", "options": {"n": 0}}, "Blobs: n = 0: input should be greater than 0"),
        ({"name": "iris", "sparse": True, "transposed": True}, "transposed = true is not for sparse = true"),
        ({"name": "circles", "options": {"factor": 1}}, "factor = 1: input should be less than 1"),
        # those that do not fit the data
        ({"name": "irsi"}, "'irsi' is not known (did you mean iris"),
        ({"name": "fetch:kddcup99"}, "'fetch:kddcup99' is not known"),
        ({"name": "openml:"}, "allowed: iris, wine"),
        ({"name": "nothing-like-it"}, "openml:NAME, openml:ID, npz:PATH.npz"),
        ({"name": "iris", "rows": 151}, "rows = 151, but must be at most what data set 'iris' has, 150"),
        ({"name": "iris", "classes": [0], "rows": 51}, "rows = 51, but must be at most what data set 'iris' has, 50"),
        ({"name": "iris", "classes": [0, 7]}, "'iris' has no label '7'; allowed: 0, 1, 2"),
        ({"name": "geometric", "classes": [0]}, "'geometric' has no labels"),
        ({"name": "geometric", "against_rest": 0}, "against_rest = [0]: data set 'geometric' has no labels"),
        ({"name": "iris", "against_rest": 7}, "against_rest: data set 'iris' has no label '7'; allowed: 0, 1, 2"),
    ],
)
def test_invalid_specs(table, text):
    with refusing(text):
        load(DataSpec(**table))


@given(
    X=hnp.arrays(
        st.sampled_from([np.int8, np.float32, np.float64, np.bool_]),
        st.tuples(st.integers(1, 5), st.integers(1, 5)),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_check_matrix_keeps_values(X):
    checked = check_matrix(X, "X")
    assert checked.dtype == np.float64
    assert checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, X)
    np.testing.assert_array_equal(check_matrix(np.asfortranarray(X), "X"), X)


@given(data=st.data(), X=tables, bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_check_matrix_finds_the_first_bad_value(data, X, bad):
    row, column = data.draw(st.integers(0, X.shape[0] - 1)), data.draw(st.integers(0, X.shape[1] - 1))
    X[row, column] = X[-1, -1] = bad
    with refusing(start=f"shard 3: the value in row {row}, column {column} (counted from 0) is {bad}"):
        check_matrix(X, "shard 3")


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (sparse.eye(3, format="csr"), "shard is a sparse matrix"),
        ([[1, 2], [3]], "shard has rows of different lengths"),
        ([["1"]], "shard holds values of type <U1"),
        (None, "shard holds values of type object"),
        (1.0, "shard has shape ()"),
        (np.zeros((2, 2, 2)), "shard has shape (2, 2, 2)"),
        (np.zeros((2, 0)), "shard has shape (2, 0)"),
    ],
)
def test_check_matrix_says_what_is_allowed(X, text):
    with refusing("; allowed: ", start=text):
        check_matrix(X, "shard")


def test_the_list_holds_what_can_be_loaded_and_all_tables_that_scikit_learn_bundles(folder):
    loaders = {name.removeprefix("load_") for name in sklearn.datasets.__all__ if name.startswith("load_")}
    assert set(BUNDLED) == loaders - {"files", "svmlight_file", "svmlight_files", "sample_image", "sample_images"}
    np.savez(folder / "mine.npz", X=np.zeros((4, 7)))
    np.savez(folder / "none.npz", Z=np.zeros(1))
    lines = {line.name: line for line in available()}
    assert {*BUNDLED, *GENERATED, *(f"fetch:{name}" for name in FETCHED)} <= set(lines)
    assert lines["npz:mine"].shape == load("npz:mine").X.shape
    assert {lines[name].note for name in BUNDLED} == {"no labels", ""}
    assert lines["npz:none"].shape is None
    assert "cannot be used" in lines["npz:none"].note
    assert {line.kind for line in lines.values()} == {"bundled", "generated", "fetch", "openml", "npz"}


def patch_fetcher(monkeypatch, name, result):
    """Replace a scikit-learn fetcher by one that raises or returns `result`; what it was called with is returned."""
    calls = []

    def fetch(*, n_retries=3, delay=1.0, **options):
        calls.append({"n_retries": n_retries, "delay": delay, **options})
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(sklearn.datasets, f"fetch_{name}", fetch)
    return calls


@pytest.mark.parametrize("name", FETCHED)
def test_fetched_sets_are_taken_from_scikit_learn(monkeypatch, name):
    calls = patch_fetcher(monkeypatch, name, Bunch(data=np.eye(3, dtype=np.float32), target=np.array([0, 1, 1])))
    data = load(f"fetch:{name}")
    np.testing.assert_array_equal(data.X, np.eye(3))
    np.testing.assert_array_equal(data.y, [0, 1, 1])
    assert data.X.dtype == np.float64
    assert data.columns == ("x0", "x1", "x2")
    assert calls == [{"n_retries": 1, "delay": 0.5}]


OFFLINE = ("'fetch:covtype' (581012 x 54, about 11 MB) must be downloaded once", "network", "iris")


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        (URLError("no route to host"), OFFLINE),
        (TimeoutError("too slow"), OFFLINE),
        (ConnectionResetError("reset"), OFFLINE),
        (HTTPError("https://x", 404, "Not Found", None, None), ("the server answered 404 Not Found",)),
        (ValueError("No known OpenML dataset"), ("cannot be loaded: No known OpenML dataset",)),
        (PermissionError(13, "Permission denied"), ("cannot be loaded: [Errno 13] Permission denied",)),
    ],
)
def test_a_download_that_fails_is_one_sentence(monkeypatch, folder, error, texts):
    patch_fetcher(monkeypatch, "covtype", error)
    with pytest.raises(InputError) as caught:
        load("fetch:covtype")
    message = str(caught.value)
    assert "\n" not in message
    assert all(text in message for text in texts)
    assert ("network" in message) == (str(folder / "cache") in message) == (texts is OFFLINE)


@pytest.mark.parametrize(("name", "query"), [("openml:61", {"data_id": 61}), ("openml:iris", {"name": "iris"})])
def test_openml_by_name_and_by_number(monkeypatch, name, query):
    labels = np.array(["setosa", "virginica"], dtype=object)
    bunch = Bunch(data=np.eye(2), target=labels, feature_names=["a", "b"], categories={}, url="https://openml/d/61")
    calls = patch_fetcher(monkeypatch, "openml", bunch)
    data = load(name)
    assert query.items() <= calls[0].items()
    assert data.y.tolist() == ["setosa", "virginica"]
    assert data.y.dtype.kind == "U"
    assert (data.columns, data.source) == (("a", "b"), "https://openml/d/61")
    bunch |= {"feature_names": ["age", "job"], "categories": {"job": ["x", "y"], "class": []}}
    patch_fetcher(monkeypatch, "openml", Bunch(**bunch))
    with pytest.raises(InputError, match=rf"'{name}': 1 columns are not numeric \(job\)"):
        load(name)


def test_sparse_sets_are_kept_or_made_dense_after_rows_are_chosen_or_refused(monkeypatch):
    monkeypatch.setattr("fedkernel.data.datasets.DENSE_CELLS", 1000)
    X = np.diag(np.arange(1.0, 101.0))
    patch_fetcher(monkeypatch, "rcv1", Bunch(data=sparse.csr_matrix(X), target=sparse.eye(100, format="csr")))
    data = load(DataSpec("fetch:rcv1", rows=10))
    assert data.y is None  # several labels per row
    rows = data.X.argmax(axis=1)
    assert len(set(rows)) == 10
    np.testing.assert_array_equal(data.X, X[rows])
    kept = load(DataSpec("fetch:rcv1", sparse=True)).X
    assert isinstance(kept, sparse.csr_array)
    np.testing.assert_array_equal(kept.toarray(), X)
    with pytest.raises(InputError, match=r"100 x 100 is too large to be made dense; allowed: rows <= 10$"):
        load(DataSpec("fetch:rcv1", rows=100))

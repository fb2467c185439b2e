"""Sparse rows: brought into order, refused where they cannot be, and on their way through partitions and plans."""

from collections import Counter

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusing
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from small_table import D, X, spoilt

from fedkernel.clients import fk_kmeans
from fedkernel.data import DataSpec, PartitionSpec, as_table, available, check_rows, load, split
from fedkernel.experiments.baselines import Baseline
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.running import plan
from fedkernel.ground import InputError
from fedkernel.numerics import fk_gamma, moments, with_width
from fedkernel.numerics.widths import median_sigma

DOCUMENTS = {"n": 60, "d": 50, "topics": 3, "length": 8.0}

pytestmark = pytest.mark.usefixtures("folder")


def assert_sparse(X, dense):
    assert isinstance(X, sparse.csr_array)
    assert X.dtype == np.float64
    assert X.has_canonical_format
    assert X.data.all()
    np.testing.assert_array_equal(X.toarray(), dense)


@pytest.mark.parametrize("spec", [{}, {"rows": 20, "seed": 3}, {"classes": (0, 2)}, {"classes": (0,), "rows": 5}])
def test_a_sparse_set_is_kept_sparse_or_made_dense_with_the_same_numbers(spec):
    csr, dense = (load(DataSpec("documents", options=DOCUMENTS, sparse=s, **spec)) for s in (True, False))
    assert isinstance(dense.X, np.ndarray)
    assert_sparse(csr.X, dense.X)
    np.testing.assert_array_equal(csr.y, dense.y)
    assert csr.columns == dense.columns


def test_sparse_npz_files_and_their_unit_norm(folder):
    X = sparse.random_array((9, 6), density=0.4, rng=np.random.default_rng(0), format="coo")
    sparse.save_npz(folder / "mine.npz", X)
    np.testing.assert_array_equal(load("npz:mine").X, X.toarray())
    assert_sparse(load(DataSpec("mine", sparse=True)).X, X.toarray())
    assert {line.name: line.shape for line in available()}["npz:mine"] == (9, 6)
    X.data[3] = np.nan
    sparse.save_npz(folder / "mine.npz", X)
    with pytest.raises(InputError, match=rf"mine\.npz: the value in row {X.row[3]}, column {X.col[3]} \(counted"):
        load(DataSpec("mine", rows=1, sparse=True))
    sparse.save_npz(folder / "mine.npz", sparse.csr_array([[3.0, 0, 4.0], [0, 0, 0], [0, -2.0, 0]]))
    X = load(DataSpec("mine", sparse=True, scale="unit-norm")).X
    assert isinstance(X, sparse.csr_array)
    np.testing.assert_allclose(X.toarray(), [[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0]])


@pytest.mark.parametrize("name", ["iris", "blobs"])
def test_a_dense_set_is_not_sparse_nor_a_scaled_one(name):
    with pytest.raises(InputError, match=rf"^sparse = true: data set '{name}' .* is dense; allowed with it: sparse ="):
        load(DataSpec(name, sparse=True))
    for scale in ("standard", "minmax", "center"):
        text = f"scale = '{scale}' with sparse = true would fill the zeros; allowed: none, unit-norm"
        with pytest.raises(InputError, match=text):
            DataSpec("documents", sparse=True, scale=scale)


def test_rare_clusters():
    data = load("rare-clusters")
    assert data.X.shape == (1300 + 12 * 12, 20)
    assert Counter(data.y.tolist()) == {0: 1300} | dict.fromkeys(range(1, 13), 12)
    assert len(set(data.y[:200].tolist())) > 3  # in random order
    centers = np.array([data.X[data.y == label].mean(axis=0) for label in range(13)])
    spread = data.X - centers[data.y]
    assert spread.std() == pytest.approx(0.3, rel=0.02)
    assert np.abs(centers[0]).max() < 0.05
    assert centers[1:].std() == pytest.approx(6.0, rel=0.15)
    small = load(DataSpec("rare-clusters", options={"n_blob": 5, "n_clusters": 2, "cluster_size": 3, "d": 4}))
    assert small.X.shape == (11, 4)


def test_documents_look_like_text_of_weighted_counts():
    data = load(DataSpec("documents", sparse=True))
    assert data.X.shape == (2000, 5000)
    np.testing.assert_allclose(np.square(data.X).sum(axis=1), 1)
    words = np.diff(data.X.indptr)
    assert 35 < words.mean() < 60  # different ones among about 60
    assert words.min() >= 1
    assert words.max() > words.min() + 10
    # documents of one topic are more like each other than like those of others
    similar = (data.X @ data.X.T).toarray()
    same = data.y[:, None] == data.y
    assert similar[same].mean() > 5 * similar[~same].mean()
    options = {"n": 40, "d": 6, "topics": 1, "length": 30.0}
    specs = (DataSpec("documents", options=options | more) for more in ({"weights": "counts"}, {}))
    counts, X = (load(spec).X for spec in specs)
    expected = normalize(np.log1p(counts) * TfidfTransformer().fit(counts).idf_)
    np.testing.assert_allclose(X, expected, rtol=1e-12)


KINDS = st.sampled_from(["horizontal", "vertical"])


@given(seed=st.integers(0, 99), kind=KINDS, clients=st.integers(1, 5), shuffle=st.booleans())
def test_sparse_parts_are_those_of_the_dense_table(seed, kind, clients, shuffle):
    X = sparse.random_array((9, 7), density=0.3, rng=np.random.default_rng(seed), format="csc")
    spec = PartitionSpec(kind=kind, clients=clients, shuffle=shuffle)
    parts, dense = (split(spec, table, y=np.arange(9) % 3, seed=seed) for table in (X, X.toarray()))
    for index, same, shard, expected in zip(parts.indices, dense.indices, parts.shards, dense.shards, strict=True):
        np.testing.assert_array_equal(index, same)
        assert_sparse(shard, expected)
    if kind == "horizontal":
        np.testing.assert_array_equal(np.concatenate(parts.labels), np.concatenate(dense.labels))


@pytest.mark.parametrize("rows", [3, 40, 1200])
def test_widths_of_sparse_rows_are_those_of_dense_ones(rows):
    X = sparse.random_array((rows, 30), density=0.2, rng=np.random.default_rng(rows), format="csr")
    dense = X.toarray()
    assert median_sigma(X) == pytest.approx(median_sigma(dense), rel=1e-12)
    assert fk_gamma(*moments(X)) == pytest.approx(fk_gamma(*moments(dense)), rel=1e-12)
    for rule in ("median", "mean", "dimension"):
        settled, expected = (with_width({"type": "rbf", "width": rule}, rows) for rows in (X, dense))
        assert (settled.pop("type"), expected.pop("type")) == ("rbf", "rbf")
        assert settled == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InputError, match="the median distance between rows is 0"):
        median_sigma(sparse.csr_array(np.tile(dense[0] / 3, (5, 1))))


def test_a_baseline_moves_the_stored_numbers():
    X = sparse.csr_array(np.eye(5))
    baseline = Baseline("central kernel k-means", {"n_clusters": 2})
    assert baseline.floats_up([X, X[:2]]) == 7
    assert baseline.floats_up([X.toarray(), X[:2].toarray()]) == 35
    assert Baseline("isolated kernel k-means", {"n_clusters": 2}).floats_up([X]) == 0
    baseline.check([X, X[:2]])


def experiment(**data):
    strategy = {"name": "a", "method": "FKKMeans", "n_clusters": 3, "kernel": {"type": "rbf", "width": "median"}}
    partition = {} if "shards" in data else {"kind": "horizontal", "method": "iid", "clients": 3}
    table = {"name": "words", "data": data, "partition": partition, "strategy": [strategy]}
    return Experiment.from_table(table, "words.toml")


def test_sparse_rows_are_planned_with_for_a_pair_that_takes_them_and_else_refused(folder, monkeypatch):
    sentence = "words.toml: strategy 'a': the data of client 0 is sparse, but FKKMeans takes dense rows only; allowed: "
    with refusing(whole=f"{sentence}data.sparse = false, or files of dense tables"):
        plan(experiment(name="documents", options=DOCUMENTS, sparse=True))
    sparse.save_npz(folder / "s.npz", sparse.csr_array(np.eye(9)))
    np.save(folder / "d.npy", np.eye(9))
    files = [str(folder / "d.npy"), str(folder / "s.npz")]
    with pytest.raises(InputError, match=r"s\.npz is sparse, but FKKMeans takes dense rows only"):
        plan(experiment(shards=files))
    (dense,) = plan(experiment(name="documents", options=DOCUMENTS))
    monkeypatch.setattr(fk_kmeans.FKKMeansClient, "table", staticmethod(as_table))
    (run,) = plan(experiment(name="documents", options=DOCUMENTS, sparse=True))
    assert all(isinstance(shard, sparse.csr_array) for shard in run.shards)
    assert run.parameters["kernel"]["sigma"] == pytest.approx(dense.parameters["kernel"]["sigma"], rel=1e-12)
    for shard, expected in zip(run.shards, dense.shards, strict=True):
        assert_sparse(shard, expected)


def scrambled(dtype=np.float64, index=np.int64):
    """Return a CSR matrix with columns out of order, a duplicate, a stored zero, and its dense counterpart."""
    data, columns, starts = [3, 1, 2, 0, 5], [2, 0, 2, 1, 1], [0, 3, 4, 5]
    csr = sparse.csr_array((np.array(data, dtype), np.array(columns, index), np.array(starts, index)), shape=(3, 4))
    return csr, np.array([[1, 0, 5, 0], [0, 0, 0, 0], [0, 5, 0, 0.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_in_order(dtype, kind):
    csr, dense = scrambled(dtype)
    given_rows = kind(csr)
    before = [part.copy() for part in (given_rows.data, given_rows.indices, given_rows.indptr)]
    checked = check_rows(given_rows, "X")
    assert isinstance(checked, sparse.csr_array)
    assert checked.dtype == np.float64
    assert checked.indices.dtype == checked.indptr.dtype == np.int32
    np.testing.assert_array_equal(checked.data, [1, 5, 5])
    np.testing.assert_array_equal(checked.indices, [0, 2, 1])
    np.testing.assert_array_equal(checked.toarray(), dense)
    for part, old in zip((given_rows.data, given_rows.indices, given_rows.indptr), before, strict=True):
        np.testing.assert_array_equal(part, old)
    given_rows.has_canonical_format = True  # which says nothing
    np.testing.assert_array_equal(check_rows(given_rows, "X").data, [1, 5, 5])
    assert np.shares_memory(check_rows(checked, "X").data, checked.data), "in order, they are not copied"
    assert check_rows(X, "X") is X
    with pytest.raises(InputError, match="row 17, column 2"):  # of dense rows, as of a matrix
        check_rows(spoilt(np.inf, 17, 2), "X")


def test_explicit_zeros_alone_are_dropped_from_a_copy():
    given_rows = sparse.csr_array(np.array([[1.0, 2.0], [3.0, 4.0]]))
    given_rows.data[1] = 0
    checked = check_rows(given_rows, "X")
    np.testing.assert_array_equal(checked.data, [1, 3, 4])
    np.testing.assert_array_equal(given_rows.data, [1, 0, 3, 4])
    cancelled = sparse.csr_array((np.array([1.0, -1.0, 2.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_array_equal(check_rows(cancelled, "X").data, [2])
    assert cancelled.nnz == 3


@given(
    dense=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0.0, -0.0, 1.5, -2.0])
    ),
    form=st.sampled_from(["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]),
    matrix=st.booleans(),
)
def test_every_sparse_format_gives_the_same_rows(dense, form, matrix):
    checked = check_rows((sparse.csr_matrix if matrix else sparse.csr_array)(dense).asformat(form), "X")
    assert isinstance(checked, sparse.csr_array)
    assert checked.has_canonical_format
    assert checked.nnz == np.count_nonzero(dense)
    np.testing.assert_array_equal(checked.toarray(), dense)


def broken():
    csr = sparse.csr_array(X)
    csr.indices = csr.indices.copy()
    csr.indices[3] = D + 1
    return csr


@pytest.mark.parametrize(
    ("given_rows", "text"),
    [
        (sparse.csr_array(X * 1j), "X holds values of type complex128; allowed: real numbers only"),
        (sparse.csr_array((0, 3)), "X has shape (0, 3); allowed: (rows, columns) with at least 1 x 1"),
        (sparse.coo_array(np.ones(3)), "X has shape (3,); allowed: (rows, columns) with at least 1 x 1"),
        (broken(), "X is a damaged sparse matrix ("),
    ],
)
def test_sparse_rows_that_are_refused(given_rows, text):
    with refusing(start=text):
        check_rows(given_rows, "X")

"""Data sets that are downloaded: taken from scikit-learn's fetchers, and one sentence where they cannot be loaded."""

from urllib.error import HTTPError, URLError

import numpy as np
import pytest
import sklearn.datasets
from scipy import sparse
from sklearn.utils import Bunch

from fedkernel.data import DataSpec, load
from fedkernel.data.sources import FETCHED
from fedkernel.ground import InputError

pytestmark = pytest.mark.usefixtures("folder")


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


def test_sparse_sets_are_made_dense_after_rows_are_chosen_or_refused(monkeypatch):
    monkeypatch.setattr("fedkernel.data.datasets.DENSE_CELLS", 1000)
    X = np.diag(np.arange(1.0, 101.0))
    patch_fetcher(monkeypatch, "rcv1", Bunch(data=sparse.csr_matrix(X), target=sparse.eye(100, format="csr")))
    data = load(DataSpec("fetch:rcv1", rows=10))
    assert data.y is None  # several labels per row
    rows = data.X.argmax(axis=1)
    assert len(set(rows)) == 10
    np.testing.assert_array_equal(data.X, X[rows])
    with pytest.raises(InputError, match=r"100 x 100 is too large to be made dense; allowed: rows <= 10$"):
        load(DataSpec("fetch:rcv1", rows=100))

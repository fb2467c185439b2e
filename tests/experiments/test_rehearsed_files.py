"""An experiment over the files that the sites have, on one machine: the numbers that the sites get together."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refusing
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, RBF, FKKMeans, InputError, Result
from fedkernel.data import as_classes
from fedkernel.experiments.config import Experiment, read_config
from fedkernel.experiments.running import plan, run_experiment
from fedkernel.experiments.running.file_tables import raw_tables

CANCER, WINE = load_breast_cancer(), load_wine()
X = StandardScaler().fit_transform(CANCER.data)
rng = np.random.default_rng(0)


def experiment(folder: Path, data: str, method: str) -> Experiment:
    (folder / "study.toml").write_text(f'name="study"\n[report]\nplots=false\n[data]\n{data}\n[[strategy]]\n{method}\n')
    return read_config(folder / "study.toml")


CLUSTERS = 'name = "clusters"\nmethod = "FKKMeans"\nn_clusters = 2\nn_features = 50\niterations = 5\nsolver = "gram"'
ALONE = """
[[baseline]]
name = "alone"
method = "isolated kernel k-means"
n_clusters = 2
kernel = {type = "rbf", gamma = 0.03}"""
COMPONENTS = 'name="components"\nmethod="DKPCA"\nn_components=2\nlocal_components=40\nkernel={type="rbf", gamma=0.05}'


def test_rows_in_files_of_three_kinds_with_columns_in_any_order_are_the_arrays_they_hold(tmp_path, monkeypatch):
    """Bit for bit, and the agreement is with the files' own labels; the paths count from the folder of the TOML.

    Rows without a label are among the others, but what compares with labels leaves them out, and says so.
    """
    parts = np.array_split(np.arange(len(X)), 3)
    frames = [pd.DataFrame(X[part], columns=CANCER.feature_names) for part in parts]
    for frame, part in zip(frames, parts, strict=True):
        frame.insert(4, "diagnosis", CANCER.target_names[CANCER.target[part]])
        frame.insert(0, "patient", [f"{row:05}" for row in part])
    unlabelled = [0, 7, 100]
    frames[1].loc[unlabelled, "diagnosis"] = ""
    sites = tmp_path / "sites"
    sites.mkdir()
    frames[0].to_csv(sites / "a.csv", index=False)
    frames[1].iloc[:, ::-1].to_csv(sites / "b.csv", index=False)
    frames[2].iloc[:, rng.permutation(frames[2].shape[1])].to_parquet(sites / "c.parquet")
    data = 'shards = ["sites/[ab].csv", "sites/c.parquet"]\nid = "patient"\nlabel = "diagnosis"'
    study = experiment(tmp_path, data, CLUSTERS + ALONE)
    monkeypatch.chdir(sites)
    row, alone = run_experiment(study, tmp_path / "out").rows
    known = ~np.isin(np.arange(len(X)), parts[1][unlabelled])
    sentence = "3 of 569 rows have no label; metrics that compare with labels leave them out"
    assert ([sentence], sentence) == (alone.findings, row.findings[-1])
    assert alone.metrics["nmi"] > 0.2
    result = Result.load(tmp_path / "out" / "results" / row.id)
    expected = FKKMeans(2, n_features=50, iterations=5, solver="gram").fit([X[part] for part in parts])
    labels = np.concatenate([expected.outputs[client]["labels"] for client in range(3)])
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(result.outputs[client]["labels"], expected.outputs[client]["labels"])
        np.testing.assert_array_equal(result.outputs[client]["ids"], [f"{place:05}" for place in part])
    assert row.metrics["nmi"] == normalized_mutual_info_score(CANCER.target[known], labels[known]) > 0.5
    frames[0].iloc[1:].to_csv(sites / "a.csv", index=False)
    with refusing(f"{sites / 'a.csv'}: changed since runs in {tmp_path / 'out'} finished; choose another folder"):
        run_experiment(study, tmp_path / "out")
    assert [raw.names for raw in raw_tables(study.data, "horizontal")] == [tuple(CANCER.feature_names)] * 3


def test_columns_in_files_are_aligned_by_ids_as_between_sites(tmp_path):
    """Rows that a file lacks are dropped, the label is in one file only, and each run has an order of its own."""
    wine = StandardScaler().fit_transform(WINE.data)
    table = pd.DataFrame(wine, columns=WINE.feature_names, index=pd.Index([f"p{i:03}" for i in range(178)], name="id"))
    table.iloc[rng.permutation(178), :5].to_csv(tmp_path / "a.csv")
    labelled = table.iloc[:, 5:9].assign(kind=WINE.target)
    labelled.iloc[rng.permutation(178)].iloc[8:].to_csv(tmp_path / "b.csv")
    turned = table.iloc[rng.permutation(178), 9:]
    np.savez(tmp_path / "c.npz", X=turned.to_numpy(), ids=[*turned.index], columns=np.array([*turned.columns]))
    study = experiment(tmp_path, 'shards = ["a.csv", "b.csv", "c.npz"]\nlabel = "kind"\nid = "id"', COMPONENTS)
    outcome = run_experiment(study, tmp_path / "out")
    result = Result.load(tmp_path / "out" / "results" / outcome.rows[0].id)
    (planned,) = plan(study)
    assert len(planned.shards[0]) == 170
    in_order = table.loc[[*raw_tables(study.data, "vertical", planned.id, planned.seed)[0].ids]]
    np.testing.assert_array_equal(np.hstack(planned.shards), in_order)
    strategy = DKPCA(2, RBF(gamma=0.05), local_components=40)
    columns = (slice(5), slice(5, 9), slice(9, None))
    arrays = [np.ascontiguousarray(in_order.to_numpy()[:, own]) for own in columns]
    expected = strategy.fit(arrays)
    np.testing.assert_array_equal(result.model.eigenvectors_, expected.model.eigenvectors_)
    reference = strategy.central(arrays)
    assert outcome.rows[0].metrics["error"] == strategy.judge(expected, arrays, reference)["error"]
    np.testing.assert_array_equal(planned.all_classes, labelled.kind[in_order.index])
    with pytest.raises(InputError, match=r"of the 178 ids of all sites some are missing: 8 at .*b.csv"):
        plan(experiment(tmp_path, 'shards = ["a.csv", "b.csv"]\nmissing = "refuse"\nid = "id"', COMPONENTS))


@pytest.mark.parametrize(
    ("changes", "data", "method", "sentence"),
    [
        ({"b.csv": "x,y\n1,2\n3,\n"}, "", CLUSTERS, "b.csv: row 3 (row 1 has the names), column 'y' holds no value"),
        ({"b.csv": "x,y\n1,two\n3,4\n"}, "", CLUSTERS, "b.csv: column 'y' holds text; allowed: numbers, its levels in"),
        ({"b.csv": "x,z\n1,2\n3,4\n"}, "", CLUSTERS, "b.csv has no column 'y', which a.csv has"),
        (
            {"b.csv": "x,y,z\n1,2,3\n"},
            "",
            CLUSTERS,
            "b.csv has a column 'z', which a.csv lacks; allowed: the same columns",
        ),
        ({}, 'id = "y"\ncolumns = ["y"]', CLUSTERS, "columns names 'y', which is the id; allowed: columns of the"),
        ({"b.csv": "u,v\n1,2\n"}, 'label = "kind"', COMPONENTS, "data.label names 'kind', which no file has; the"),
        ({"b.csv": None}, "", CLUSTERS, "study.toml: data.shards: there is no file"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_one_sentence(tmp_path, changes, data, method, sentence):
    files = {"a.csv": "x,y\n1,2\n3,4\n", "b.csv": "y,x\n2,1\n4,3\n"} | changes
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    with refusing(sentence):
        plan(experiment(tmp_path, f'shards = ["a.csv", "b.csv"]\n{data}', method))


def test_a_pattern_without_a_file_and_an_option_that_no_file_has_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no file matches .*\*.csv; allowed: "):
        experiment(tmp_path, 'shards = ["*.csv"]', CLUSTERS)
    with pytest.raises(InputError, match=r"data: rows = 3 is for a data set .*; allowed here: shards, missing, "):
        experiment(tmp_path, 'shards = ["a.csv"]\nrows = 3', CLUSTERS)


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        (["1", "0"], [1, 0]),
        (["1.0", "2"], [1, 2]),
        (["1.5", "2"], [1.5, 2.0]),
        (["01", "1"], ["01", "1"]),
        (["a", "1"], ["a", "1"]),
        (["nan", "1"], ["nan", "1"]),
        (["2", None, "1"], [2, None, 1]),
    ],
)
def test_labels_are_numbers_where_all_are(texts, classes):
    labels = as_classes(np.array(texts, dtype=object))
    assert labels.tolist() == classes
    assert labels.dtype.kind == np.array(classes).dtype.kind

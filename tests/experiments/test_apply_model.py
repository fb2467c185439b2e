"""Models that know their columns, and the commands that apply them to raw files."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from command_line import call
from model_files import contents, refused
from named_sites import find, vertical
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, RBF, FKKMeans, KernelPCA, Linear, Result, UniformKPCA
from fedkernel.data import NO_LABEL, DataSpec, Preparation, Prepare, RawTable, SiteFile, contingency, load
from fedkernel.experiments.commands.received_models import ReceivedModels
from fedkernel.ground import InputError, rows_as_csv
from fedkernel.models import FittedModel, LandmarkPCA, NodeComponents, class_names, load_model, save_model
from fedkernel.site import RunRows
from fedkernel.wire import Projecting

IRIS = load_iris(as_frame=True)
NAMES = ["sepal, length", "sepal width", "petal length", "petal width"]
X = StandardScaler().fit_transform(IRIS.data)
FRAMES = [pd.DataFrame(part, columns=NAMES) for part in np.array_split(X[np.random.default_rng(0).permutation(150)], 3)]
MEAN, STD = IRIS.data.to_numpy().mean(axis=0), IRIS.data.to_numpy().std(axis=0)
PREPARED = Preparation(Prepare(missing="mean"), tuple(NAMES), MEAN, MEAN, STD)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """A result of clusters of frames' rows, and its folder."""
    folder = tmp_path_factory.mktemp("clusters")
    result = FKKMeans(n_clusters=3, kernel=RBF(gamma=0.25), solver="gram").fit(FRAMES)
    result.save(folder)
    return result, folder


def write(path, frame):
    frame.to_csv(path, index=False)
    return path


def patients(folder):
    """A file with the model's columns in another order, ids, a diagnosis and a column of text that no model has."""
    frame = pd.DataFrame(X, columns=NAMES)[NAMES[::-1]]
    frame.insert(1, "note", "none")
    frame["diagnosis"] = [IRIS.target_names[kind] for kind in IRIS.target]
    frame["patient"] = [f"00{row}" for row in range(150)]
    return write(folder / "patients.csv", frame)


def test_a_result_keeps_its_columns_and_preparation(tmp_path, clusters):
    result, _ = clusters
    assert result.columns == tuple(NAMES)
    assert result.strategy == "fedkernel.strategies.fk_kmeans:FKKMeans"
    result = Result(result.model, columns=result.columns, preparation=PREPARED, strategy=result.strategy)
    result.save(tmp_path)
    again = Result.load(tmp_path)
    assert (again.columns, again.strategy) == (result.columns, result.strategy)
    assert again.preparation.to_table() == PREPARED.to_table()
    np.testing.assert_array_equal(again.model.predict(X), result.model.predict(X))
    assert DKPCA(n_components=2).fit([frame.reset_index(drop=True) for frame in FRAMES]).columns == ()
    # files that older versions wrote, and those of models and arrays alone, have no such parts
    model = LandmarkPCA(Linear(), X[:5], np.eye(5)[:, :2], np.ones(2))
    assert "about" not in json.loads(str(contents(model.save(tmp_path / "old.npz"))["header"]))
    for file in (tmp_path / "old.npz", save_model(np.eye(2), tmp_path / "array.npz")):
        fitted = FittedModel.load(file)
        assert (fitted.columns, fitted.preparation, fitted.strategy) == ((), None, "")
    np.testing.assert_array_equal(FittedModel.load(tmp_path / "old.npz").transform(X).values, model.transform(X))
    for number, about in enumerate(({"columns": "abc"}, {"columns": [1]}, {"preparation": {"prepare": {}}})):
        path = save_model(result.model, tmp_path / f"{number}.npz", about)
        assert "damaged fedkernel model" in refused(path, FittedModel.load)
        load_model(path)


EXPERIMENT = """
name = "iris"
{data}
[[strategy]]
name = "clusters"
method = "RFKKMeans"
n_clusters = 3
n_features = 32
kernel = {{ type = "rbf", gamma = 0.5 }}
"""
NAMED_SET = '[data]\nname = "iris"\nscale = "{}"\n[partition]\nkind = "horizontal"\nclients = 3\n'
FILES = '[data]\nshards = ["iris-*.csv"]\n'


@pytest.mark.parametrize("scale", ["standard", "minmax", "center", "in files"])
def test_the_model_of_an_experiment_is_applied_by_name(tmp_path, scale):
    """To the raw file, whose columns stand in another order: as the data set's were scaled."""
    data = FILES if scale == "in files" else NAMED_SET.format(scale)
    (tmp_path / "run.toml").write_text(EXPERIMENT.format(data=data))
    for site in range(3):
        write(tmp_path / f"iris-{site}.csv", IRIS.data[site::3])
    call("run", tmp_path / "run.toml", "--out", tmp_path / "out")
    write(tmp_path / "next.csv", IRIS.data[IRIS.feature_names[::-1]].assign(note="none"))
    call("predict", tmp_path / "out", tmp_path / "next.csv", "--out", tmp_path / "labels.csv")
    fitted = FittedModel.load(tmp_path / "out" / "results" / "clusters__seed=0" / "model.npz")
    assert fitted.columns == tuple(IRIS.feature_names)
    expected = fitted.model.predict(load(DataSpec("iris", scale=scale if scale != "in files" else "none")).X)
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "labels.csv")["label"], expected)
    assert len(set(expected)) == 3


def test_columns_are_found_by_name(clusters, caplog):
    caplog.set_level("INFO", logger="fedkernel.models.fitted_model")
    result, _ = clusters
    frame = pd.DataFrame(X, columns=NAMES)
    other = frame[NAMES[::-1]].assign(more=1.0)
    np.testing.assert_array_equal(result.fitted.predict(other).values, result.model.predict(X))
    assert "the model has no such columns: more" in caplog.text
    assert "put in the model's order, by name" in caplog.text
    np.testing.assert_array_equal(result.fitted.predict(X).values, result.model.predict(X))
    for by_order in (result.model.predict, NodeComponents(RBF(0.1), X, X).transform):
        with pytest.raises(InputError, match="X has column names, which a model does not know"):
            by_order(other)
    for table, text in (
        (frame.drop(columns=NAMES[1:3]), "the frame has no column 'sepal width' (and 1 more), which the model was"),
        (RawTable.of_array(np.where(X > 2, np.nan, X), NAMES), "holds no value"),
        (RawTable({name: np.array(["a"], dtype=object) for name in NAMES}), "column 'sepal, length' holds text"),
    ):
        with pytest.raises(InputError, match=re.escape(text)):
            result.fitted.predict(table)
    # raw rows are prepared as scikit-learn's scaler does it, and left out where a cell is empty and fitting left such
    preparation = Preparation(Prepare(missing="drop"), tuple(NAMES), MEAN, MEAN, STD)
    fitted = FittedModel(result.model, result.columns, preparation)
    holes = IRIS.data.to_numpy().copy()
    coordinates = fitted.transform(RawTable.of_array(holes, NAMES)).values
    np.testing.assert_allclose(coordinates, result.model.transform(X), rtol=0, atol=1e-12)
    holes[[3, 77], 1] = np.nan
    applied = fitted.predict(RawTable.of_array(holes, NAMES))
    np.testing.assert_array_equal(applied.kept, np.delete(np.arange(150), [3, 77]))
    np.testing.assert_array_equal(applied.values, result.model.predict(X)[applied.kept])


def test_predict_and_transform_from_the_shell(tmp_path, clusters):
    result, folder = clusters
    file, out = patients(tmp_path), tmp_path / "labels.csv"
    done = call("predict", folder, file, "--id", "patient", "--out", out, "--label", "diagnosis")
    assert "left out, since the model has no such columns: note" in done.stderr
    sheet = pd.read_csv(out, dtype={"id": str})
    assert list(sheet.columns) == ["id", "label"]
    assert list(sheet["id"]) == [f"00{row}" for row in range(150)]
    labels = result.model.predict(X)
    np.testing.assert_array_equal(sheet["label"], labels)
    for cluster in range(3):  # the table beside, of clusters and classes
        counts = np.bincount(IRIS.target[labels == cluster], minlength=3)
        assert [str(cluster), *map(str, counts)] in [line.split() for line in done.stderr.splitlines()]

    before = out.read_bytes()
    refused = call("transform", folder, file, "--out", out, code=2).stderr
    assert "exists already; allowed: a new name, or --overwrite" in refused
    assert out.read_bytes() == before
    call("transform", folder / "model.npz", file, "--out", out, "--overwrite", "--id", "patient")
    coordinates = [list(map(float, line.split(",")[1:])) for line in out.read_text().splitlines()[1:]]
    np.testing.assert_array_equal(coordinates, result.model.transform(X))
    call("transform", folder, file, "--out", tmp_path / "rows.npz")
    stored = contents(tmp_path / "rows.npz")
    np.testing.assert_array_equal(stored["embedding"], result.model.transform(X))
    np.testing.assert_array_equal(stored["row"], np.arange(150))
    assert call("predict", folder, file).stdout.splitlines()[:2] == ["row,label", f"0,{labels[0]}"]


def test_clusters_are_called_by_their_classes(tmp_path, clusters):
    """At the site, for itself: by a file with a diagnosis, and from then on by the copy of the model that it wrote."""
    result, folder = clusters
    file, named = patients(tmp_path), tmp_path / "named.npz"
    naming = ("--label", "diagnosis", "--name-classes", "--save-model", named)
    lines = call("predict", folder, file, *naming, "--out", tmp_path / "first.csv").stderr.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("cluster "))
    table = lines[first : first + 4]
    labels = result.model.predict(X)
    counts = pd.crosstab(labels, IRIS.target_names[IRIS.target])  # in the order of their names
    assert table[0].split() == ["cluster", *counts.columns]
    assert [[int(cell) for cell in line.split()[2:]] for line in table[1:]] == counts.to_numpy().tolist()
    kinds, met = contingency(np.array([0, 2, 2]), np.array(["10", NO_LABEL, "9"]), 4)
    assert (kinds, met.tolist()) == (["9", "10", NO_LABEL], [[0, 1, 0], [0, 0, 0], [1, 0, 1], [0, 0, 0]])
    expected = [IRIS.target_names[np.argmax(np.bincount(IRIS.target[labels == cluster]))] for cluster in labels]
    assert list(pd.read_csv(tmp_path / "first.csv")["class"]) == expected
    next_week = write(tmp_path / "next.csv", pd.DataFrame(X[:7], columns=NAMES))
    call("predict", named, next_week, "--out", tmp_path / "next-labels.csv")
    assert list(pd.read_csv(tmp_path / "next-labels.csv")["class"]) == expected[:7]
    assert class_names(np.array([0, 0, 0, 2]), ["b", "a", None, None], 3) == ("a", "1", "2")
    assert "--label COLUMN" in call("predict", folder, file, "--name-classes", code=2).stderr


def test_models_of_which_there_is_none_to_apply(tmp_path, clusters):
    _, folder = clusters
    file = patients(tmp_path)
    vertical = DKPCA(n_components=2).fit([X[:, :2], X[:, 2:]])
    vertical.save(tmp_path / "out" / "results" / "a")
    assert "serve FOLDER --project" in call("transform", tmp_path / "out", file, code=2).stderr
    UniformKPCA(n_components=2, n_samples=9, share_rows=True).fit(FRAMES).save(tmp_path / "out" / "results" / "b")
    text = call("transform", tmp_path / "out", file, code=2).stderr
    assert f"{tmp_path / 'out'} holds 2 models; choose one: " in text.replace("\n", "")
    text = call("predict", tmp_path / "out" / "results" / "b", file, code=2).stderr
    assert "LandmarkPCA has no clusters; allowed: transform" in text
    assert "holds no model" in call("predict", tmp_path, file, code=2).stderr
    assert "allowed: .csv, .npz" in call("predict", folder, file, "--out", tmp_path / "a.txt", code=2).stderr
    assert isinstance(load_model(tmp_path / "out" / "results" / "a" / "model.npz"), KernelPCA)


def test_a_site_keeps_a_sheet_beside_what_it_keeps(tmp_path):
    """By id; coordinates only where a spreadsheet could show them."""
    site = find(vertical(tmp_path)[0])
    rows = {"labels": np.array([1, 0]), "ids": np.array(["007", "a,b"])}
    site.keep(rows | {"embedding": np.array([[0.1, 2.0], [-1 / 3, 4.0]])})
    expected = ["id,label,coordinate 1,coordinate 2", "007,1,0.1,2.0", f'"a,b",0,{-1 / 3!r},4.0']
    assert (tmp_path / "north" / "trial.csv").read_text().splitlines() == expected
    site.keep(rows | {"embedding": np.ones((2, 51))})
    assert list(pd.read_csv(tmp_path / "north" / "trial.csv").columns) == ["id", "label"]
    site.keep({"alpha": np.ones((2, 3))})
    assert contents(tmp_path / "north" / "trial.npz").keys() == {"alpha", "(run)"}


def test_whatever_model_a_server_sends_the_site_stays_and_says_so(tmp_path):
    """One that unpacks to more than it may: test_drills.py."""
    rows, texts = np.arange(4), list[str]()
    RunRows(1, rows, rows.astype(str), "0" * 64).save(tmp_path, "trial")
    pd.DataFrame(X[:4], columns=NAMES).assign(patient=list("abcd")).to_csv(tmp_path / "new.csv", index=False)
    new = SiteFile(tmp_path / "new.csv", id="patient")
    short = FittedModel(KernelPCA(np.array([1.0]), np.full((3, 1), 3**-0.5), Linear())).save(tmp_path / "short.npz")
    ReceivedModels(tmp_path, texts.append).store("trial.model.npz", short.read_bytes(), new, ["trial"])
    assert "cannot be applied here: it has coordinates of 3 rows, but run 'trial' worked on 4" in texts[-1]
    assert not (tmp_path / "trial.csv").exists()


def test_files_land_only_where_they_are_asked_for_and_within_a_quota(tmp_path):
    (tmp_path / "received").mkdir()
    (tmp_path / "received" / "earlier.model.npz").write_bytes(bytes(200))
    for name, options, why in (
        ("trial.model.npz", {"accept_models": False}, "allowed: models, with --take-models"),
        ("trial.npz", {}, "allowed: models (NAME.model.npz)"),
        ("trial.model.npz", {"quota": 8191}, "received has 4,096; allowed: 8,191 in all (--models-quota)"),
        ("trial.model.npz", {"quota": 0}, "received has 4,096; allowed: 0 in all (--models-quota)"),
    ):
        texts = list[str]()
        ReceivedModels(tmp_path, texts.append, **options).store(name, bytes(100))
        assert texts[0].startswith(f"the server sent {name}, 100 bytes, which is not accepted")
        assert texts[0].endswith(why)
        assert len(texts) == len(list((tmp_path / "received").iterdir())) == 1
    for of in ("../elsewhere", "/etc/x", ""):  # nor is a run's id a path
        with pytest.raises(ValueError, match="of"):
            Projecting(of=of, order=0, model="0" * 64)


def test_a_model_that_is_handed_out_replaces_no_results(tmp_path):
    """Of a run that the site took part in earlier: neither that run's, nor those of rows with the same name."""
    rows, texts, new = np.arange(4), list[str](), SiteFile(tmp_path / "next.csv", id="patient")
    RunRows(1, rows, rows.astype(str), "0" * 64).save(tmp_path, "trial")
    pd.DataFrame(X[:4], columns=NAMES).assign(patient=list("abcd")).to_csv(tmp_path / "next.csv", index=False)
    FittedModel(KernelPCA(np.array([1.0]), np.full((4, 1), 0.5), Linear())).save(tmp_path / "coordinates.npz")
    fitted = FKKMeans(n_clusters=3, n_features=20, iterations=2).fit(FRAMES).fitted
    fitted.save(tmp_path / "labels.npz")

    def sent(name, kind, runs=()):
        content = (tmp_path / f"{kind}.npz").read_bytes()
        ReceivedModels(tmp_path, texts.append).store(f"{name}.model.npz", content, new, runs)
        return texts[-1].removeprefix(f"wrote {tmp_path}/")

    assert sent("trial", "coordinates", ["trial"]) == "trial.csv"
    (tmp_path / "trial.csv").write_text("own")
    assert sent("trial", "coordinates").startswith("new rows: fedkernel predict ")
    assert sent("trial", "labels") == "trial-2.csv"
    assert sent("trial__week-14", "labels") == "trial__week-14.csv"
    assert sent("trial__week-14", "labels") == "trial__week-14-2.csv"
    assert sent("trial", "labels", ["trial"]) == "trial__next.csv"
    assert (tmp_path / "trial.csv").read_text() == "own"
    sheet = pd.read_csv(tmp_path / "trial__week-14.csv", index_col="id")
    np.testing.assert_array_equal(sheet["label"], fitted.predict(pd.read_csv(tmp_path / "next.csv")).values)


def test_names_of_classes_are_no_formulas_of_a_spreadsheet():
    names = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", " =x", "-2+3", "\t=1", "+", "-", "-1.5", "benign"]
    sheet = pd.read_csv(io.StringIO(rows_as_csv({"ids": np.array(names), "classes": np.array(names)})), dtype=str)
    assert sheet["class"].tolist() == [f"'{name}" for name in names[:6]] + names[6:]
    assert sheet["id"].tolist() == names  # which are the site's own, and how its rows are known again

"""`fedkernel show`: a site's page has its rows, clusters and columns right, needs nothing else, and says what lacks."""

import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from model_files import contents
from named_sites import COLUMNS, COMMON_ROWS, LENIENT, NAMES, TABLE, run_on, vertical
from sklearn.datasets import load_iris
from sklearn.metrics import normalized_mutual_info_score

from fedkernel import RBF, DisKPCA, FKKMeans, VFedPCA
from fedkernel.data import Preparation, Prepare, RawTable, SiteFile, read_raw
from fedkernel.experiments.report.site_results import SiteRun, runs_of
from fedkernel.models import METRICS, FittedModel, save_model
from fedkernel.preparing import to_text
from fedkernel.site import read_outbox
from fedkernel.wire import flower_internals

IRIS = load_iris()
FEATURES = ["sepal length", "sepal width", "petal length", "petal width"]


def told(*arguments, code=0):
    return call("show", *arguments, code=code, COLUMNS="400").output


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a folder where the site north has found clusters with two others, and was sent the model."""
    flower_internals.ensure_task_identity()
    folder = tmp_path_factory.mktemp("sites")
    nodes = []
    for name, rows in zip(NAMES, np.array_split(np.random.default_rng(0).permutation(150), 3), strict=True):
        lines = [",".join([*FEATURES, "same", "patient", "diagnosis"])]
        for row in rows:
            cells = [*map(repr, IRIS.data[row].tolist()), "1", f"p{row}", str(IRIS.target_names[IRIS.target[row]])]
            lines.append(",".join(cells))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        own = {"id": "patient", "label": "diagnosis", "out": str(folder / name), "approve": "any"}
        nodes.append({"name": name, "data": str(folder / f"{name}.csv"), "share-rows": "true", **own, **LENIENT})
    strategy = FKKMeans(n_clusters=3, kernel=RBF(gamma=0.05), coreset_size=12)
    result, _ = run_on(nodes, strategy, id="clusters")
    save_model(result.model, folder / "north" / "received" / "clusters.model.npz")
    return folder


def own_table(site):
    return read_raw(SiteFile(site / "north.csv", id="patient", label="diagnosis"))


def cells(page, title):
    """Return the cells of the table under a heading."""
    body = re.search(rf">{title}</h\d>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    return [re.sub(r"<[^>]*>", " ", row).split() for row in rows]


@pytest.mark.usefixtures("rendered")
def test_the_page_counts_the_rows_of_the_site(site):
    path = Path(told(site / "north", "--data", site / "north.csv", "--id", "patient", "--label", "diagnosis").strip())
    page = path.read_text(encoding="utf-8")
    assert path == site / "north" / "page.html"
    assert path.stat().st_mode & 0o077 == 0
    labels = contents(site / "north" / "clusters.npz")
    kinds = dict(zip(own_table(site).ids or (), own_table(site).labels["diagnosis"], strict=True))
    diagnosis = np.array([kinds[id_] for id_ in labels["ids"].tolist()])
    counts = np.bincount(labels["labels"], minlength=3)
    assert [row[:2] for row in cells(page, "Sizes of the clusters")] == [[str(c), str(n)] for c, n in enumerate(counts)]
    of_kinds = [diagnosis == kind for kind in sorted(set(diagnosis))]
    crossed = [[str(c), *(str(np.sum((labels["labels"] == c) & own)) for own in of_kinds)] for c in range(3)]
    assert cells(page, "Clusters by diagnosis") == crossed
    lines = read_outbox(site / "north").departures
    totals = [len(lines), sum(line.floats for line in lines), sum(line.bytes for line in lines), 0, 0]
    assert cells(page, "What has left") == [["clusters", *(f"{number:,}" for number in totals)]]
    assert "and does not leave the site" in page
    assert page.count("data:image/png;base64,") == 1
    # the ids, by which rows are known, say nothing on the page; nor does the order of the file matter
    assert "p149" not in page
    shuffled = own_table(site).take(np.random.default_rng(1).permutation(50))
    (again,), (first,) = (list(runs_of(site / "north", table=table)) for table in (shuffled, own_table(site)))
    np.testing.assert_array_equal(again.numbers, first.numbers)
    assert first.importance() == again.importance()


@pytest.mark.usefixtures("rendered")
def test_rows_without_a_label_count_for_no_agreement(site, tmp_path):
    lines = (site / "north.csv").read_text(encoding="utf-8").splitlines()
    partly = [line.rsplit(",", 1)[0] + "," if 1 <= place <= 30 else line for place, line in enumerate(lines)]
    (tmp_path / "partly.csv").write_text("\n".join(partly) + "\n", encoding="utf-8")
    own = ("--id", "patient", "--label", "diagnosis", "--page", tmp_path / "page.html")
    page = Path(told(site / "north", "--data", tmp_path / "partly.csv", *own).strip()).read_text(encoding="utf-8")
    (run,) = runs_of(site / "north", table=own_table(site))
    known = np.isin(run.table.ids, [line.split(",")[-2] for line in lines[31:]])
    agreement = normalized_mutual_info_score(run.table.labels["diagnosis"][known].tolist(), run.labels[known])
    assert f"Agreement of the 20 rows that have one: {METRICS['nmi'].written(agreement)} nmi" in page
    assert sum(int(row[1]) for row in cells(page, "Clusters by diagnosis")) == 30  # in the first column, "(none)"
    assert "None" not in page


def test_importance_is_none_of_a_column_that_is_always_the_same_and_is_that_of_relabelled_rows(site):
    (run,) = runs_of(site / "north", table=own_table(site))
    importance = run.importance()
    assert list(importance) == [*FEATURES, "same"]
    assert importance["same"] == 0
    assert max(importance, key=lambda name: importance[name]) == "petal length"
    assert all(0 <= change <= 1 for change in importance.values())
    np.testing.assert_array_equal(run.model.predict(run.numbers), run.labels)


@pytest.mark.usefixtures("rendered")
def test_a_page_of_what_is_there_says_what_brings_the_rest(site, tmp_path):
    page = Path(told(site / "east", "--page", tmp_path / "east.html").strip()).read_text(encoding="utf-8")
    for sentence in ("--data FILE --id COLUMN --label COLUMN", "--model FILE, or share_model = true"):
        assert sentence in page
    assert "Clusters by" not in page
    assert len(cells(page, "Sizes of the clusters")) == 3
    # a run that the site has no coordinates of, but its model and its table
    out = tmp_path / "south"
    shutil.copytree(site / "north" / "received", out / "received")
    (run,) = runs_of(out, table=own_table(site))
    (known,) = runs_of(site / "north", table=own_table(site))
    np.testing.assert_array_equal(run.labels[np.argsort(run.table.ids)], known.labels[np.argsort(known.arrays["ids"])])


UNFIT = {
    "broken-labels": {"labels": [0.5, 1.5]},
    "negative-labels": {"labels": [0, -1]},
    "text-labels": {"labels": ["a", "b"]},
    "no-rows": {"labels": 3},
    "other-rows": {"labels": [0, 1], "embedding": np.ones((3, 2))},
    "flat": {"embedding": np.ones(3)},
}
"""What files hold that are read, but that no site keeps."""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none"], "there is no folder none; allowed: the --out of a join"),
        (["empty"], "empty has nothing of a run: neither what a site keeps"),
        (["north", "--label", "diagnosis"], "label is given, but no data; allowed: with --data FILE"),
        (["north", "--run", "other"], "run = 'other', but north has clusters"),
        (["north", "--data", "north.csv", "--label", "diagnosis", "--columns", "same"], "allowed: --id COLUMN of"),
        (
            ["north", "--data", "east.csv", "--id", "patient", "--label", "diagnosis"],
            "east.csv lacks 50 of the 50 rows of run 'clusters', by their ids",
        ),
        (["torn"], "torn/run.npz is damaged"),
        *(([name], f"{name}/run.npz is damaged: its arrays do not fit together") for name in UNFIT),
        (["no-preparation"], "no-preparation/run.npz is damaged: "),
        (["no-header"], "labels in no-header/run.npz has no header of an .npy file (TokenError)"),
    ],
)
def test_what_is_refused(site, monkeypatch, arguments, text):
    monkeypatch.chdir(site)
    for name in ("empty", "torn"):
        (site / name).mkdir(exist_ok=True)
    (site / "torn" / "run.npz").write_text("PK")
    for name, arrays in (UNFIT | {"no-preparation": {"labels": [0], "preparation": "{"}}).items():
        (site / name).mkdir(exist_ok=True)
        np.savez(site / name / "run.npz", **arrays)
    (site / "no-header").mkdir(exist_ok=True)
    with zipfile.ZipFile(site / "no-header" / "run.npz", "w") as file:
        file.writestr("labels.npy", b"\x93NUMPY\x01\x00\x04\x00{(, ")
    assert text in told(*arguments, code=2)
    assert not (site / "empty" / "page.html").exists()


def test_loadings_of_divided_columns_are_the_parts_of_the_pooled_tables_right_singular_vectors(tmp_path):
    nodes = vertical(tmp_path)
    run_on(nodes, VFedPCA(merge="exact", n_components=2), id="components")
    pooled = TABLE[COMMON_ROWS] - TABLE[COMMON_ROWS].mean(axis=0)
    _, _, right = np.linalg.svd(pooled, full_matrices=False)
    for name, columns in zip(NAMES, COLUMNS, strict=True):
        table = read_raw(SiteFile(tmp_path / f"{name}.csv", id="patient"))
        (run,) = runs_of(tmp_path / name, table=table)
        loadings = run.loadings()
        parts = right[:2, columns].T
        parts = parts / np.linalg.norm(parts, axis=0)
        np.testing.assert_allclose(np.abs(np.array([*loadings.values()])), np.abs(parts), atol=1e-6)
        assert isinstance(run.importance(), str)


def test_loadings_of_divided_rows_are_those_of_the_model(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 5)) * [3, 2, 1, 1, 1]
    shards, strategy = [X[:30], X[30:]], DisKPCA(n_components=2, kernel={"type": "linear"}, share_rows=True)
    result = strategy.fit(shards, seed=0)
    result.save(tmp_path / "run")
    for client, outputs in result.outputs.items():
        np.savez(tmp_path / "run" / f"client-{client}.npz", **outputs)
    (run,) = runs_of(tmp_path / "run", table=RawTable.of_array(X))
    loadings = run.loadings()
    W = run.model.landmarks_.T @ run.model.coefficients_
    np.testing.assert_allclose(np.array([*loadings.values()]), W / np.linalg.norm(W, axis=0), atol=1e-8)
    assert run.own["client"].tolist() == ["0"] * 30 + ["1"] * 30
    importance = run.importance()
    # of a linear map, a column moves coordinates by its own part of them: variance of x_j |W_j|^2 over all of it, in
    # the mean over permutations, here over 5
    variance = X.var(axis=0) * np.square(W).sum(axis=1)
    np.testing.assert_allclose([*importance.values()], variance / (X @ W).var(axis=0).sum(), atol=0.1)
    (prepared,) = runs_of(tmp_path / "run", table=RawTable.of_array(X / 3 + X**2))
    assert "prepared before" in str(prepared.loadings())
    assert "prepared before" in str(prepared.importance())


@pytest.mark.usefixtures("rendered")
def test_of_a_simulation_there_is_each_methods_first_seed_as_one_page(tmp_path):
    (tmp_path / "a.toml").write_text(
        'name = "a"\nseeds = [3, 4]\n[data]\nname = "iris"\n[partition]\nclients = 2\n[report]\nplots = false\n'
        '[[strategy]]\nname = "ours"\nmethod = "DKPCA"\nn_components = 2\n'
        '[[strategy]]\nname = "merged"\nmethod = "VFedPCA"\nn_components = 2\nmerge = "exact"\n'
    )
    call("run", tmp_path / "a.toml", "--out", tmp_path / "out")
    page = Path(told(tmp_path / "out").strip()).read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["ours__seed=3", "merged__seed=3", "What has left"]
    assert page.count("data:image/png;base64,") == 2
    assert "150 rows" in page
    assert "these are simulated runs" in page
    chosen = told(tmp_path / "out", "--run", "ours__seed=3", "--page", tmp_path / "one.html").strip()
    assert "merged" not in Path(chosen).read_text(encoding="utf-8")


def test_of_prepared_columns_the_importance_is_that_of_what_the_run_had(tmp_path):
    """By name, whatever their order in the file and whatever else is there; empty cells are filled as they were."""
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((40, 3)) * [100, 1, 0.01] + [5, 0, 1]
    raw[3, 0] = np.nan
    filled = np.where(np.isnan(raw), 4.0, raw)
    names, center, scale = ("glucose", "age", "dose"), np.array([5.0, 0, 1]), np.array([100.0, 1, 0.01])
    preparation = Preparation(Prepare(missing="mean"), names, np.full(3, 4.0), center, scale)
    X = (filled - center) / scale
    fitted = FittedModel(DisKPCA(2, share_rows=True).fit([X[:20], X[20:]], seed=0).model, names, preparation)
    fitted.save(tmp_path / "received" / "run.model.npz")
    table = RawTable.of_array(np.hstack([raw[:, ::-1], X]), ["dose", "age", "glucose", "a", "b", "c"])
    (run,) = runs_of(tmp_path, table=table)
    plain = SiteRun("run", {}, FittedModel(fitted.model), table=RawTable.of_array(X, names))
    assert run.importance() == plain.importance()
    np.testing.assert_allclose(run.numbers, X)
    np.testing.assert_allclose(run.coordinates, fitted.model.transform(X))
    # where columns are divided, a site's preparation is its own, and it keeps it
    np.savez(tmp_path / "own.npz", embedding=X, preparation=np.array(to_text(preparation)))
    own = next(its for its in runs_of(tmp_path, table=table) if its.name == "own")
    np.testing.assert_allclose(own.numbers, X)
    assert own.columns == names

"""Rows along the first two components: where they are, coloured by what is known of them, comparable by the eye."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from test_report import a_run

from experiments.config import Experiment
from experiments.report.coresets import coreset_pictures
from experiments.report.plots import draw
from experiments.report.row_pictures import matched, places_of, row_pictures, turned
from experiments.report.scatter import Panel, draw_panels
from experiments.results import MOST_ROWS, RowPicture, chosen_rows, read_coresets, read_row_pictures
from experiments.running import plan, run_experiment
from fedkernel import Linear
from fedkernel.engines import parcels
from fedkernel.errors import InputError
from fedkernel.models import CoresetPicture, KernelKMeans, load_model
from fedkernel.models.embeddings import Landmarks
from fedkernel.numerics import WeightedPoints

X = np.asarray(load_iris().data)


def an_experiment(kind: str, method: str, parameters: dict[str, object], **more: object) -> Experiment:
    table = {
        "name": "rows",
        "seeds": [1, 2],
        "data": {"name": "iris"},
        "partition": {"kind": kind, "clients": 2},
        "strategy": [{"name": "ours", "method": method, **parameters}],
        "baseline": [{"name": "all", "method": f"central {method}", **parameters}],
        "report": {"plots": False},
    }
    return Experiment.from_table(table | more, "rows.toml")


def test_the_points_of_an_exact_method_are_those_of_pca_turned_onto_the_central_ones(tmp_path: Path) -> None:
    exact = {"n_components": 2, "local_components": 2, "center": True}
    rows = run_experiment(an_experiment("vertical", "DKPCA", exact), tmp_path).rows
    pictures = read_row_pictures(tmp_path, rows)
    assert sorted(pictures) == ["all__seed=1", "ours__seed=1"]  # of the first seed only
    ours, central = pictures["ours__seed=1"], pictures["all__seed=1"]
    pooled = PCA(2).fit_transform(X)
    for picture in (ours, central):
        np.testing.assert_allclose(turned(picture.points, pooled), pooled, atol=1e-8)
        assert picture.classes is not None
        assert picture.classes.tolist() == [str(kind) for kind in load_iris().target]
        assert picture.clusters is None
    drawn = row_pictures(rows, pictures)
    assert drawn is not None
    first, second = (axes.lines for axes in drawn[2].axes)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), atol=1e-8)
    assert [axes.get_title(loc="left") for axes in drawn[2].axes] == ["all", "ours"]
    assert "coloured by class, seed 1" in drawn[1]


def test_clusters_have_the_sizes_and_rows_that_k_means_of_the_pooled_rows_gives(tmp_path: Path) -> None:
    """Of iris, k-means has one best answer; an RBF kernel that is much wider than the data is as good as linear."""
    kernel = {"type": "rbf", "gamma": 1e-3}
    parameters = {"n_clusters": 3, "kernel": kernel, "accuracy": 0, "iterations": 20, "coreset_size": 10**6}
    rows = run_experiment(an_experiment("horizontal", "FKKMeans", parameters), tmp_path).rows
    pictures = read_row_pictures(tmp_path, rows)
    best = KMeans(3, n_init=20, random_state=0).fit(X).labels_
    for picture in pictures.values():
        assert picture.clusters is not None
        assert picture.sizes is not None
        assert np.mean(matched(picture.clusters, best) == best) > 0.95
        assert picture.sizes.tolist() == np.bincount(picture.clusters).tolist()
    drawn = row_pictures(rows, pictures)
    assert drawn is not None
    titles = [axes.get_title(loc="left") for axes in drawn[2].axes]
    assert titles == ["all, by class", "all", "ours"]
    assert "coloured by cluster and class" in drawn[1]
    legend = [text.get_text() for text in drawn[2].legends[0].get_texts()]
    assert legend == [f"{of} {number}" for of in ("class", "cluster") for number in range(3)]


def test_a_coreset_of_all_rows_is_kept_as_pca_has_them_where_the_report_says_so_and_else_is_not(
    tmp_path: Path,
) -> None:
    """Of each row two numbers, in an order that is no site's, and not in the model, which sites may be sent."""
    parameters = {"n_clusters": 3, "n_features": 40, "coreset_size": 10**6, "kernel": {"type": "rbf", "gamma": 0.1}}
    tables: dict[str, object] = {"report": {"coreset": True, "rows": False}, "baseline": []}
    experiment = an_experiment("horizontal", "RFKKMeans", parameters, **tables)
    coresets = read_coresets(tmp_path, run_experiment(experiment, tmp_path).rows)
    assert sorted(coresets) == ["ours__seed=1", "ours__seed=2"]
    for run_id, picture in coresets.items():
        model = load_model(tmp_path / "results" / run_id / "model.npz")
        H = model.transform(X)
        pca = PCA(2, svd_solver="full").fit(H)
        signs = np.sign(pca.components_[[0, 1], np.abs(pca.components_).argmax(axis=1)])
        order = np.argsort((pca.transform(H) * signs)[:, 0])
        np.testing.assert_allclose(picture.points, (pca.transform(H) * signs)[order], atol=1e-10)
        np.testing.assert_array_equal(picture.clusters, model.predict(X)[order])
        np.testing.assert_array_equal(picture.weights, np.ones(len(X)))
        np.testing.assert_allclose(picture.centers, pca.transform(model.centers_) * signs, atol=1e-10)
        assert model.coreset_ is None
    run_experiment(experiment, tmp_path)  # of which nothing is left to do
    assert '<figure id="coreset">' in (tmp_path / "report.html").read_text(encoding="utf-8")
    file = tmp_path / "results" / "ours__seed=1" / "coreset.npz"
    parcels.into_folder(parcels.from_folder("ours__seed=1", file.parent), tmp_path / "brought")
    assert (tmp_path / "brought" / "coreset.npz").read_bytes() == file.read_bytes()
    with pytest.raises(InputError, match="holds a KernelKMeans model, not a CoresetPicture"):
        CoresetPicture.load(file.with_name("model.npz"))
    wrong = replace(coresets["ours__seed=1"], clusters=np.full(len(X), 3))
    with pytest.raises(InputError, match="its parts do not fit together"):
        CoresetPicture.load(wrong.save(tmp_path / "wrong.npz"))
    silent = an_experiment("horizontal", "RFKKMeans", parameters, report={"plots": False}, baseline=[], seeds=[1])
    run_experiment(silent, tmp_path / "silent")
    assert not list((tmp_path / "silent").rglob("coreset*"))
    assert plan(experiment)[0].spec.model_dump() == plan(silent)[0].spec.model_dump() | {"keep_coreset": True}
    with pytest.raises(InputError, match=r"report.coreset = true is for strategies that cluster by a coreset"):
        plan(an_experiment("vertical", "DKPCA", {"n_components": 2}, **tables))


def test_a_point_of_weight_3_of_a_coreset_is_drawn_as_three_rows_are() -> None:
    """Its area too; what stands for no row is not there; each method and setting has a picture, of its first seed."""
    rng = np.random.default_rng(0)
    points, weights = rng.standard_normal((90, 5)) * [1, 4, 1, 2, 1], rng.integers(0, 4, 90).astype(float)
    model = KernelKMeans(points[:3], Landmarks(Linear(), np.eye(5), np.eye(5)))
    picture = CoresetPicture.of(replace(model, coreset_=WeightedPoints(points, weights)))
    assert picture is not None
    rows = PCA(2).fit_transform(np.repeat(points, weights.astype(int), axis=0))
    drawn = np.repeat(picture.points, picture.weights.astype(int), axis=0)
    np.testing.assert_allclose(np.sort(pdist(drawn)), np.sort(pdist(rows)), atol=1e-10)
    assert len(picture.points) == np.count_nonzero(weights)
    assert CoresetPicture.of(model) is None
    assert CoresetPicture.of(replace(model, coreset_=WeightedPoints(points[:, :1], weights))) is None
    runs = [a_run(name, seed, group=name) for name in ("a", "b", "c") for seed in (0, 1)]
    figure = coreset_pictures(runs, {run.id: picture for run in runs})
    assert figure is not None
    panels = [axes for axes in figure[2].axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == ["a\na", "b\nb", "c\nc"]
    pairs = [pair for dots in panels[0].collections for pair in zip(dots.get_offsets(), dots.get_sizes(), strict=True)]
    area_of = {tuple(at): area for at, area in pairs}
    areas = np.array([area_of[tuple(at)] for at in picture.points])
    np.testing.assert_allclose(areas / areas.max(), picture.weights / 3)
    np.testing.assert_array_equal(panels[0].lines[0].get_xydata(), picture.centers)
    assert [text.get_text() for text in figure[2].legends[0].get_texts()][-1] == "centre"
    assert coreset_pictures(runs, {}) is None


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"report": {"plots": False, "rows": False}}, 0),
        ({"sweep": {"strategy.*.local_components": [2, 4]}}, 0),  # a picture for each setting is asked for
        ({"sweep": {"strategy.*.local_components": [2, 4]}, "report": {"plots": False, "rows": True}}, 4),
        ({"strategy": [{"name": "one", "method": "DKPCA", "n_components": 1}]}, 1),  # which has no second coordinate
    ],
)
def test_pictures_are_there_where_they_are_asked_for_or_nothing_is_swept(
    tmp_path: Path, more: dict[str, object], expected: int
) -> None:
    rows = run_experiment(an_experiment("vertical", "DKPCA", {"n_components": 2}, **more), tmp_path).rows
    assert len(read_row_pictures(tmp_path, rows)) == expected


def test_turning_undoes_rotations_and_clusters_get_the_numbers_of_those_they_share_rows_with() -> None:
    rng = np.random.default_rng(0)
    points, angle = rng.standard_normal((30, 2)), 0.7
    mirrored = points @ np.array([[np.cos(angle), np.sin(angle)], [np.sin(angle), -np.cos(angle)]]) + [3, -1]
    np.testing.assert_allclose(turned(mirrored, points), points - points.mean(axis=0), atol=1e-12)
    other = rng.standard_normal((30, 2))
    np.testing.assert_allclose(pdist(turned(other, points)), pdist(other))
    assert turned(points[:5], points).shape == (5, 2)
    rng = np.random.default_rng(0)
    onto = rng.integers(0, 4, 100)
    assert matched(np.array([2, 0, 3, 1])[onto], onto).tolist() == onto.tolist()
    merged = np.where(onto == 3, 2, onto)
    assert len(np.unique(matched(merged, onto))) == 3
    assert matched(onto[:7], onto).tolist() == onto[:7].tolist()
    names = np.array(["d", "c", "b", "a"])
    assert places_of(names[onto], onto) == {"d": 0, "c": 1, "b": 2, "a": 3}
    rows = chosen_rows(10 * MOST_ROWS)
    assert len(set(rows.tolist())) == MOST_ROWS
    assert rows.tolist() == chosen_rows(10 * MOST_ROWS).tolist() == sorted(rows.tolist())
    assert chosen_rows(3).tolist() == [0, 1, 2]


def test_a_group_has_a_line_the_files_are_the_same_bytes_again_and_more_kinds_than_colours_differ(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    nothing: dict[str, Any] = {"error": None, "seconds": 0.0}  # so that no other figure is drawn
    runs = [a_run(name, group=group, **nothing) for name, group in (("a", "rbf"), ("b", "linear"), ("c", "rbf"))]
    runs.append(a_run("all", kind="baseline", method="central KPCA", group="rbf", **nothing))
    pictures = {run.id: RowPicture(rng.standard_normal((40, 2)), np.arange(40).astype(str)) for run in runs}
    drawn = row_pictures(runs, pictures)
    assert drawn is not None
    titles = [axes.get_title(loc="left") for axes in drawn[2].axes if axes.get_visible()]
    assert titles == ["rbf\nall", "a", "c", "linear\nb"]
    looks = {(line.get_color(), line.get_marker()) for line in drawn[2].axes[0].lines}
    assert len(looks) == 40
    (once,), (again,) = (draw(runs, tmp_path / name, rows=pictures) for name in ("a", "b"))
    assert once.name == "rows"
    assert once.png.read_bytes() == again.png.read_bytes()
    assert once.svg.read_bytes() == again.svg.read_bytes()
    assert row_pictures(runs, {}) is None
    plain = draw_panels([[Panel("$x$", rng.standard_normal((3, 2)))]])
    assert not plain.legends

"""Rows along the first two components: where they are, coloured by what is known of them, comparable by the eye."""

import numpy as np
import pytest
from report_runs import a_run
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

from fedkernel.experiments.config import Experiment
from fedkernel.experiments.report import pictures as drawing
from fedkernel.experiments.report.pictures import matched_clusters, rotated_onto, row_pictures
from fedkernel.experiments.report.plots import draw
from fedkernel.experiments.results import RowPicture, read_row_pictures
from fedkernel.experiments.running import run_experiment
from fedkernel.run import MOST_ROWS, rows_to_draw

X = np.asarray(load_iris().data)


def an_experiment(kind, method, parameters, **more):
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


def test_the_points_of_an_exact_method_are_those_of_pca_turned_onto_the_central_ones(tmp_path):
    exact = {"n_components": 2, "local_components": 2, "center": True}
    rows = run_experiment(an_experiment("vertical", "DKPCA", exact), tmp_path).rows
    pictures = read_row_pictures(tmp_path, rows)
    assert sorted(pictures) == ["all__seed=1", "ours__seed=1"]  # of the first seed only
    ours, central = pictures["ours__seed=1"], pictures["all__seed=1"]
    pooled = PCA(2).fit_transform(X)
    for picture in (ours, central):
        np.testing.assert_allclose(rotated_onto(picture.points, pooled), pooled, atol=1e-8)
        assert picture.classes.tolist() == [str(kind) for kind in load_iris().target]
        assert picture.clusters is None
    drawn = row_pictures(rows, pictures)
    first, second = (axes.lines for axes in drawn[2].axes)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), atol=1e-8)
    assert [axes.get_title(loc="left") for axes in drawn[2].axes] == ["all", "ours"]
    assert "coloured by class, seed 1" in drawn[1]


def test_clusters_have_the_sizes_and_rows_that_k_means_of_the_pooled_rows_gives(tmp_path):
    """Of iris, k-means has one best answer; an RBF kernel that is much wider than the data is as good as linear."""
    kernel = {"type": "rbf", "gamma": 1e-3}
    parameters = {"n_clusters": 3, "kernel": kernel, "accuracy": 0, "iterations": 20, "coreset_size": 10**6}
    rows = run_experiment(an_experiment("horizontal", "FKKMeans", parameters), tmp_path).rows
    pictures = read_row_pictures(tmp_path, rows)
    best = KMeans(3, n_init=20, random_state=0).fit(X).labels_
    for picture in pictures.values():
        assert np.mean(matched_clusters(picture.clusters, best) == best) > 0.95
        assert picture.sizes.tolist() == np.bincount(picture.clusters).tolist()
    drawn = row_pictures(rows, pictures)
    titles = [axes.get_title(loc="left") for axes in drawn[2].axes]
    assert titles == ["all, by class", "all", "ours"]
    assert "coloured by cluster and class" in drawn[1]
    legend = [text.get_text() for text in drawn[2].legends[0].get_texts()]
    assert legend == [f"{of} {number}" for of in ("class", "cluster") for number in range(3)]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"report": {"plots": False, "rows": False}}, 0),
        ({"sweep": {"strategy.*.local_components": [2, 4]}}, 0),  # a picture for each setting is asked for
        ({"sweep": {"strategy.*.local_components": [2, 4]}, "report": {"plots": False, "rows": True}}, 4),
        ({"strategy": [{"name": "one", "method": "DKPCA", "n_components": 1}]}, 1),  # which has no second coordinate
    ],
)
def test_pictures_are_there_where_they_are_asked_for_or_nothing_is_swept(tmp_path, more, expected):
    rows = run_experiment(an_experiment("vertical", "DKPCA", {"n_components": 2}, **more), tmp_path).rows
    assert len(read_row_pictures(tmp_path, rows)) == expected


def test_turning_undoes_rotations_and_clusters_get_the_numbers_of_those_they_share_rows_with():
    rng = np.random.default_rng(0)
    points, angle = rng.standard_normal((30, 2)), 0.7
    mirrored = points @ np.array([[np.cos(angle), np.sin(angle)], [np.sin(angle), -np.cos(angle)]]) + [3, -1]
    np.testing.assert_allclose(rotated_onto(mirrored, points), points - points.mean(axis=0), atol=1e-12)
    other = rng.standard_normal((30, 2))
    np.testing.assert_allclose(pdist(rotated_onto(other, points)), pdist(other))
    assert rotated_onto(points[:5], points).shape == (5, 2)
    rng = np.random.default_rng(0)
    onto = rng.integers(0, 4, 100)
    assert matched_clusters(np.array([2, 0, 3, 1])[onto], onto).tolist() == onto.tolist()
    merged = np.where(onto == 3, 2, onto)
    assert len(np.unique(matched_clusters(merged, onto))) == 3
    assert matched_clusters(onto[:7], onto).tolist() == onto[:7].tolist()
    names = np.array(["d", "c", "b", "a"])
    assert drawing.class_colours(names[onto], onto) == {"d": 0, "c": 1, "b": 2, "a": 3}
    rows = rows_to_draw(10 * MOST_ROWS)
    assert len(set(rows.tolist())) == MOST_ROWS
    assert rows.tolist() == rows_to_draw(10 * MOST_ROWS).tolist() == sorted(rows.tolist())
    assert rows_to_draw(3).tolist() == [0, 1, 2]


@pytest.mark.usefixtures("rendered")
def test_a_group_has_a_line_the_files_are_the_same_bytes_again_and_more_kinds_than_colours_differ(tmp_path):
    rng = np.random.default_rng(0)
    nothing = {"error": None, "seconds": 0.0}  # so that no other figure is drawn
    runs = [a_run(name, group=group, **nothing) for name, group in (("a", "rbf"), ("b", "linear"), ("c", "rbf"))]
    runs.append(a_run("all", kind="baseline", method="central KPCA", group="rbf", **nothing))
    pictures = {run.id: RowPicture(rng.standard_normal((40, 2)), np.arange(40).astype(str)) for run in runs}
    drawn = row_pictures(runs, pictures)
    titles = [axes.get_title(loc="left") for axes in drawn[2].axes if axes.get_visible()]
    assert titles == ["rbf\nall", "a", "c", "linear\nb"]
    looks = {(line.get_color(), line.get_marker()) for line in drawn[2].axes[0].lines}
    assert len(looks) == 40
    (once,), (again,) = (draw(runs, tmp_path / name, rows=pictures) for name in ("a", "b"))
    assert once.name == "rows"
    assert once.png.read_bytes() == again.png.read_bytes()
    assert once.svg.read_bytes() == again.svg.read_bytes()
    assert row_pictures(runs, {}) is None
    plain = drawing.draw_panels([[drawing.Panel("$x$", rng.standard_normal((3, 2)))]])
    assert not plain.legends

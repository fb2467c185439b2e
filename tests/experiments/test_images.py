"""Where columns are pixels, a report shows components as pictures: right singular vectors, each pixel at its place."""

import re

import numpy as np
import pytest
from report_runs import a_run

from fedkernel.data import DataSpec, PartitionSpec, load, split
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.report.pictures import eigen_images
from fedkernel.experiments.results import read_directions
from fedkernel.experiments.running import run_experiment
from fedkernel.ground import InputError

ROWS, CLIENTS, SEED = 60, 4, 3


def an_experiment(**changed):
    table = {
        "name": "pictures",
        "seeds": [SEED],
        "data": {"name": "digits", "rows": ROWS},
        "partition": {"clients": CLIENTS, "shuffle": True},
        "strategy": [{"name": "exact", "method": "VFedPCA", "merge": "exact", "n_components": 2}],
        "baseline": [
            {"name": "central", "method": "central PCA", "n_components": 2},
            {"name": "isolated", "method": "isolated PCA", "n_components": 2},
        ],
        "report": {"images": True, "metric": "features_nmi"},
    }
    return Experiment.from_table(table | changed, "pictures.toml")


def alike(a, b):
    """Return the cosine of two pictures, whatever their signs."""
    return abs(float(np.vdot(a, b))) / float(np.linalg.norm(a) * np.linalg.norm(b))


def test_pictures_are_the_directions_over_the_pixels_of_the_data_set(tmp_path, render):
    render("eigen_images.*")
    rows = {row.name: row for row in run_experiment(an_experiment(), tmp_path).rows}
    pictures = {name: read_directions(tmp_path, [row])[row.id] for name, row in rows.items()}
    X = load(DataSpec("digits", rows=ROWS)).X
    _, lengths, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    for name in ("central", "exact"):
        assert pictures[name].shape == (2, 8, 8)
        for component in range(2):
            assert alike(pictures[name][component], right[component].reshape(8, 8)) == pytest.approx(1)
            assert np.linalg.norm(pictures[name][component]) == pytest.approx(lengths[component])
    # each client's pixels are of its own direction
    parts = split(PartitionSpec(clients=CLIENTS, shuffle=True), X, seed=SEED)
    for columns, shard in zip(parts.indices, parts.shards, strict=True):
        own = np.linalg.svd(shard - shard.mean(axis=0), full_matrices=False)[2]
        for component in range(2):
            assert alike(pictures["isolated"][component].ravel()[columns], own[component]) == pytest.approx(1)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<figure id="(\w+)">', page)[-1] == "eigen_images"
    # figures of baselines with a model of each client are means over these
    assert 0 < rows["isolated"].metrics["features_nmi"] < rows["central"].metrics["features_nmi"]


def test_only_columns_that_are_divided_and_fill_a_square_are_pixels(tmp_path):
    with pytest.raises(InputError, match=r"pixels of square images; here there are 13$"):
        run_experiment(an_experiment(data={"name": "wine"}), tmp_path)
    horizontal = {
        "partition": {"kind": "horizontal", "method": "iid", "clients": CLIENTS},
        "strategy": [],
        "baseline": [{"name": "central", "method": "central batch PCA", "n_components": 2}],
    }
    with pytest.raises(InputError, match=r"report\.images = true needs divided columns .*; here rows are$"):
        run_experiment(an_experiment(**horizontal), tmp_path)


def shown(canvas):
    return [np.asarray(axes.images[0].get_array()).ravel().tolist() for axes in canvas.axes if axes.images]


def test_a_method_has_a_row_a_setting_a_block_and_signs_are_those_on_top():
    points = [{"data.name": name} for name in ("faces", "digits")]
    runs = [a_run(name, seed, point=point) for name in ("a", "b") for point in points for seed in (0, 1)]
    picture = np.array([[[1.0, 2.0], [3.0, -9.0]]])
    pictures = {run.id: (picture if run.name == "a" else -2 * picture) * (run.seed + 1) for run in runs}
    caption, canvas = eigen_images(runs, pictures)[1:]
    top = [1.0, 2.0, 3.0, -9.0]
    assert shown(canvas) == [top, top, [2 * x for x in top], [2 * x for x in top]]
    assert [axes.get_ylabel() for axes in canvas.axes] == ["a", "", "b", ""]
    blocks = [axes.texts[0].get_text() for axes in canvas.axes[:2]]
    assert blocks == ["data.name = faces", "data.name = digits"]
    assert "signs as on top, seed 0." in caption


def test_runs_without_pictures_have_none_and_few_settings_are_shown():
    runs = [a_run("a", point={"data.name": f"set {number}"}) for number in range(6)]
    assert eigen_images(runs, {}) is None
    caption, canvas = eigen_images(runs, {run.id: np.ones((5, 2, 2)) for run in runs[1:]})[1:]
    assert len(shown(canvas)) == 12
    assert "Only the first 4 settings are shown." in caption

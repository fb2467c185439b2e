"""The papers' experiments are valid, say what they check, and run: here on a small set that needs no folder."""

from pathlib import Path

import pytest

from experiments.config import Experiment, read_config
from experiments.runner import run_experiment

FILES = sorted((Path(__file__).parent.parent / "experiments" / "papers").glob("*.toml"))
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_there_are_the_five_figures_of_federated_kernel_k_means():
    assert [path.stem for path in FILES] == [f"fk_kmeans_figure{number}" for number in range(1, 6)]


@each
def test_it_is_valid_and_claims_something(path):
    table, _ = read_config(path)
    experiment = Experiment.from_table(table, path.name)
    assert experiment.name == path.stem
    assert experiment.claim
    assert len(experiment.case) >= 2


@each
def test_it_runs_on_bundled_data(path, tmp_path):
    overrides = ["case=[]", "claim=[]", "seeds=[0]", "data.name=iris", "report.plots=false", "strategy.*.n_clusters=3"]
    table, text = read_config(path, overrides)
    for method in table["strategy"]:
        method["iterations" if method["method"] == "FKKMeans" else "coreset_size"] = 2
        method.pop("n_components", None)
    for method in table.get("baseline", []):
        method |= {"n_clusters": 3, "n_landmarks": 50}
    rows = run_experiment(table, text, tmp_path / "out", source=path.name)
    assert [row.name for row in rows] == [method["name"] for method in [*table["strategy"], *table.get("baseline", [])]]
    metric = table["report"]["metric"]
    assert all(metric in row.metrics for row in rows if not (metric == "lanczos_iterations" and "gram" in row.name))

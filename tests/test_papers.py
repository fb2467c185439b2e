"""The papers' experiments are valid, say what they check, and run: here on a small set that needs no folder."""

from pathlib import Path
from typing import Any

import pytest

from experiments.config import Experiment, read_config, read_table
from experiments.running import run_experiment

FILES = sorted((Path(__file__).parent.parent / "experiments" / "papers").glob("*.toml"))
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_there_are_the_figures_of_the_papers():
    diskpca = {f"diskpca_figure{number}" for number in ("2", "3", "4", "5", "6", "7", "8a", "8b")} | {"diskpca_nci60"}
    fk_kmeans = {f"fk_kmeans_figure{number}" for number in range(1, 6)} | {"fk_kmeans_components"}
    peers = {"admm_exchange", "admm_figure3", "admm_figure4", "admm_figure5", "vfedpca_figure14"}
    assert diskpca | fk_kmeans | peers <= {path.stem for path in FILES}


@each
def test_it_is_valid_and_claims_something(path):
    experiment = read_config(path)
    assert experiment.name == path.stem
    assert experiment.claim
    assert len(experiment.settings) >= 2


def reduced(method: dict[str, Any]) -> dict[str, Any]:
    """Return a strategy's table with little to do on 150 rows, and its kernel as it is."""
    kind = method["method"]
    if kind == "SpectralKMeans":
        inner = reduced({"method": "UniformKPCA" if "n_samples" in method["components"] else "DisKPCA"})
        del inner["method"]
        components = {name: value for name, value in method["components"].items() if name in ("kernel", "solver")}
        return method | {"n_clusters": 3, "coreset_size": 2, "components": {**inner, **components, "share_rows": True}}
    small = {
        "FKKMeans": {"iterations": 2, "n_clusters": 3},
        "RFKKMeans": {"coreset_size": 2, "n_clusters": 3},
        "DisKPCA": {"n_components": 2, "n_adaptive": 5, "n_random_features": 60},
        "UniformKPCA": {"n_components": 2, "n_samples": 7},
        "ADMMKPCA": {"kernel": {"type": "rbf", "gamma": 0.5}, "neighbors": 2, "iterations": 2}
        | ({"n_features": 40} if "n_features" in method else {}),
        "VFedPCA": {"rounds": 2},
        "PeerVFedPCA": {"rounds": 2},
    }[kind]
    if kind in ("FKKMeans", "RFKKMeans"):
        method = {name: value for name, value in method.items() if name not in ("n_components", "eigengap")}
    return method | small


@each
def test_it_runs_on_bundled_data(path, tmp_path):
    overrides = ["case=[]", "claim=[]", "sweep={}", "seeds=[0]", "data.name=iris", "report.plots=false"]
    table, text = read_table(path, overrides)
    table["data"].pop("classes", None)
    table["partition"]["clients"] = min(table["partition"]["clients"], 5 if "vfedpca" not in path.stem else 4)
    table["strategy"] = [reduced(method) for method in table["strategy"]]
    small = {"central batch KPCA": {"n_components": 2}, "central kernel k-means": {"n_clusters": 3}}
    alone = {"kernel": {"type": "rbf", "gamma": 0.5}, "neighbors": 2}
    small |= {"isolated network KPCA": alone, "pooled network KPCA": alone, "isolated PCA": {}}
    small["Nystroem kernel k-means"] = {"n_clusters": 3, "n_landmarks": 50}
    for method in table.get("baseline", []):
        method.update(small[method["method"]])
    rows = run_experiment(Experiment.from_table(table, path.name, text), tmp_path / "out").rows
    assert [row.name for row in rows] == [method["name"] for method in [*table["strategy"], *table.get("baseline", [])]]
    metric = table["report"]["metric"]
    assert all(metric in row.metrics for row in rows if not (metric == "lanczos_iterations" and "gram" in row.name))

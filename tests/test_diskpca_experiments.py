"""Experiments with disKPCA: what is measured without a reference, batch KPCA as baseline, seconds, nested methods.

The oracle of the errors is the dense kernel matrix: of its eigenvalues, and of projections in feature space.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import polynomial_kernel

from experiments.config import read_config
from experiments.results import Run
from experiments.running import run_experiment
from fedkernel.data import PartitionSpec, split
from fedkernel.models.components import LandmarkPCA
from fedkernel.models.files import load_model

K, SIZES = 3, (100, 48, 2)
TINY = f"""
name = "tiny"
seeds = [0, 1]
[report]
plots = false
[data]
name = "iris"
[partition]
kind = "horizontal"
method = "sizes"
sizes = {list(SIZES)}
shuffle = true
[[strategy]]
name = "disKPCA"
method = "DisKPCA"
n_components = {K}
n_adaptive = 5
share_rows = true
[[strategy]]
name = "uniform"
method = "UniformKPCA"
n_components = {K}
n_samples = 9
share_rows = true
[[baseline]]
name = "central"
method = "central batch KPCA"
n_components = {K}
[[baseline]]
name = "isolated"
method = "isolated batch KPCA"
n_components = {K}
"""
KERNEL = [f'{kind}.*.kernel={{type="polynomial", degree=2, gamma=0.5}}' for kind in ("strategy", "baseline")]


def carry_out(folder: Path, *overrides: str, text: str = TINY) -> list[Run]:
    path = folder.parent / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return run_experiment(read_config(path, [*KERNEL, *overrides]), folder).rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Run]]:
    """Carry the experiment out once for all tests that only look."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, carry_out(folder)


def parts(seed: int) -> list[Any]:
    spec = PartitionSpec(kind="horizontal", method="sizes", sizes=SIZES, shuffle=True)
    X = load_iris().data
    return [X[index] for index in split(spec, X, seed=seed).indices]


def gram(X: Any, Y: Any = None) -> Any:
    return polynomial_kernel(X, Y, degree=2, gamma=0.5, coef0=1)


def least_error(X: Any) -> float:
    values = np.linalg.eigvalsh(gram(X))
    return float(values[:-K].sum() / values.sum())


def error_of(X: Any, landmarks: Any, coefficients: Any) -> float:
    total = np.trace(gram(X))
    return float(1 - np.square(gram(X, landmarks) @ coefficients).sum() / total)


def test_errors_are_those_of_the_dense_kernel_matrix(whole: tuple[Path, list[Run]]) -> None:
    folder, rows = whole
    assert len(rows) == 8
    for row in rows:
        shards = parts(row.seed)
        X = np.vstack(shards)
        if row.name == "isolated":  # clients have components of their own, measured on all rows
            errors = []
            for shard in shards:
                values, vectors = np.linalg.eigh(gram(shard))
                leading = slice(-min(K, len(shard)), None)  # the last client has two rows, and so as many components
                errors.append(error_of(X, shard, vectors[:, leading] / np.sqrt(values[leading])))
            error = np.mean(errors)
            assert row.metrics["worst_error"] >= row.metrics["error"] > 0  # type: ignore[operator]
        else:
            model = load_model(folder / str(row.model))
            assert isinstance(model, LandmarkPCA)
            error = error_of(X, model.landmarks_, model.coefficients_)
        ratio = error / least_error(X)
        assert row.metrics["reconstruction_error"] == pytest.approx(error, rel=1e-6), row.id
        assert row.metrics["error_ratio"] == pytest.approx(ratio, rel=1e-6), row.id
        assert row.metrics["error_ratio"] == 1 if row.name == "central" else ratio > 1.0001


def test_a_central_baseline_has_its_own_seconds_whoever_asked_for_the_answer_first(
    whole: tuple[Path, list[Run]],
) -> None:
    for row in whole[1]:
        seconds = row.metrics["parallel_seconds"]
        assert seconds is not None
        if row.kind == "strategy":
            assert seconds == pytest.approx(sum(round_.slowest_seconds for round_ in row.history), rel=1e-12)
            assert seconds > 0
            assert row.history[0].slowest_seconds == 0  # joining
        else:
            assert row.seconds > 1e-5
            assert 0 < seconds <= 1.1 * row.seconds + 1e-3

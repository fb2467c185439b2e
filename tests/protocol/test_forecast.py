"""What a strategy says that a run will take, against what it takes."""

import dataclasses
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from cases import WINE
from typer.testing import CliRunner

from fedkernel import RBF, Linear, strategies
from fedkernel.experiments import cli
from fedkernel.experiments.baselines import cohort
from fedkernel.experiments.commands.forecast_table import forecast_table, lines_of
from fedkernel.experiments.config import read_config
from fedkernel.experiments.running import plan
from fedkernel.protocol import Forecast, KernelClient, Member, largest_forecast
from fedkernel.testing import Pair, a_run_takes_what_was_forecast

ROWS, COLUMNS = np.array_split(WINE, 5), np.array_split(WINE, 5, axis=1)
KERNEL = RBF(gamma=0.05)
SHOWN = {"share_rows": True}

VARIANTS = [
    strategies.ADMMKPCA(kernel=KERNEL, iterations=4, **SHOWN),
    strategies.ADMMKPCA(2, KERNEL, graph={"kind": "star"}, iterations=3, tol=0.0, exchange="features", n_features=50),
    strategies.ADMMKPCA(kernel=KERNEL, iterations=30, tol=0.1, **SHOWN),
    strategies.DKPCA(3, local_components=50, certificate=True),
    strategies.DKPCA(3, KERNEL, local_components="adaptive", upload="inner products"),
    strategies.DisKPCA(3, KERNEL, n_adaptive=0, n_leverage=20, **SHOWN),
    strategies.DisKPCA(3, KERNEL, 15, projection_size=5, point_sketch_size="exact", dtype="float32", **SHOWN),
    strategies.FKKMeans(3, 3, n_features=20, iterations=1, solver="lanczos"),
    strategies.FKKMeans(3, n_features=20, iterations=1, solver="gram", kernel=KERNEL),
    strategies.RFKKMeans(3, n_features=20, kernel=KERNEL, coreset_size=10_000),
    strategies.RFKKMeans("auto", n_features=20, kernel=KERNEL),
    strategies.SpectralKMeans(
        3, strategies.UniformKPCA(3, KERNEL, n_samples=20, solver="batch", embed=False, **SHOWN), clusters="lloyd"
    ),
    strategies.UniformKPCA(3, KERNEL, n_samples=20, projection_size=7, **SHOWN),
]


def tables(strategy):
    return COLUMNS if strategy.partition == "vertical" else ROWS


@pytest.mark.parametrize("strategy", VARIANTS, ids=lambda strategy: type(strategy).__name__)
def test_a_run_takes_what_was_forecast(strategy):
    a_run_takes_what_was_forecast(Pair(strategy, tables(strategy)))
    assert strategy.forecast(cohort(tables(strategy))).memory < 1e8


def compared(strategy, shards):
    forecast, ledger = strategy.forecast(cohort(shards)), strategy.fit(shards).ledger
    return [(costs.rounds, costs.floats_up, costs.floats_down) for costs in (forecast, ledger)]


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.ADMMKPCA(2, KERNEL, iterations=3, tol=0.0, **SHOWN),
        strategies.ADMMKPCA(kernel=KERNEL, neighbors=2, iterations=4, tol=0.0, exchange="features", n_features=30),
        strategies.RFKKMeans(3, n_features=20, kernel=KERNEL, coreset_size=10),
        strategies.RFKKMeans(3, n_features=20, kernel=KERNEL, clusters="lloyd"),
        strategies.UniformKPCA(3, KERNEL, n_samples=20, **SHOWN),
        strategies.CentroidKMeans(2, KERNEL, n_landmarks=4, rounds=2),
        strategies.CentroidKPCA(3, KERNEL, n_landmarks=4, rounds=2),
        strategies.CentroidKPCA(3, Linear(), centroids="axes"),
        strategies.VFedPCA(merge="exact", rounds=4),
        strategies.VFedAKPCA(3, kernel=KERNEL, merge="exact", rounds=3),
        strategies.DisKPCA(3, KERNEL, n_adaptive=100, **SHOWN),
        strategies.FKKMeans(3, n_features=20, iterations=1, kernel=KERNEL, solver="gram", coreset_size=10),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_most_is_taken_where_nothing_ends_a_run_early(strategy):
    forecast, took = compared(strategy, tables(strategy))
    assert forecast == took


def test_one_node_agrees_on_no_keys():
    forecast, took = compared(strategies.ADMMKPCA(kernel=KERNEL, iterations=2, tol=0.0), [WINE])
    assert all(np.array(forecast) >= took)
    assert forecast[0] == 8


RNG = np.random.default_rng(0)
LONG, WIDE = np.array_split(RNG.standard_normal((6000, 30)), 3), np.array_split(RNG.standard_normal((800, 40)), 4, 1)


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [
        (strategies.DKPCA(5, RBF(gamma=0.02)), WIDE),
        (strategies.DKPCA(5, RBF(gamma=0.02), local_components="adaptive"), WIDE),
        (strategies.VFedAKPCA(2, merge="eigenvalue", kernel=RBF(gamma=0.02), rounds=2), WIDE),
        (strategies.FKKMeans(5, iterations=3, solver="gram"), LONG),
        (strategies.DisKPCA(10, RBF(gamma=0.02), **SHOWN), LONG),
        (strategies.ADMMKPCA(2, RBF(gamma=0.02), iterations=2, **SHOWN), [shard[:300] for shard in LONG]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_memory_is_that_of_a_client_within_a_factor_of_three(strategy, shards, monkeypatch):
    peaks, fit, one_at_a_time = [], KernelClient.fit, threading.Lock()

    def traced(self, parameters, config):
        with one_at_a_time:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            held = sum(array.nbytes for array in [*self.memory.values(), *parameters])
            answered = fit(self, parameters, config)
            peaks.append(tracemalloc.get_traced_memory()[1] - before + held)
            return answered

    monkeypatch.setattr(KernelClient, "fit", traced)
    tracemalloc.start()
    try:
        strategy.fit(shards)
    finally:
        tracemalloc.stop()
    assert max(peaks) / 3 < strategy.forecast(cohort(shards)).memory < 3 * max(peaks)


def test_features_that_a_site_keeps_are_of_its_memory(monkeypatch):
    strategy, shards = strategies.FKKMeans(3, n_features=20), cohort(ROWS)
    with_them = strategy.forecast(shards).memory
    monkeypatch.setattr("fedkernel.strategies.fk_kmeans_base.MOST_CACHED_BYTES", 0)
    assert with_them - strategy.forecast(shards).memory == 8 * 20 * max(map(len, ROWS))


def test_spectral_k_means_needs_the_coordinates_whatever_its_components_say():
    members = [Member(client, client, 1000, 5, 0) for client in range(3)]
    without, with_them = (strategies.DisKPCA(4, share_rows=True, embed=embed) for embed in (False, True))
    assert without.forecast(members).memory < with_them.forecast(members).memory
    spectral = [strategies.SpectralKMeans(3, pair).forecast(members) for pair in (without, with_them)]
    assert spectral[0] == spectral[1]


def test_forecasts_add_up_and_the_largest_is_at_most():
    first, second = Forecast(1, 2, 3, 400), Forecast(10, 1, 1, 300, "about")
    assert first + second == Forecast(11, 3, 4, 400, "about")
    assert largest_forecast([first, first]) == first
    assert largest_forecast([first, dataclasses.replace(first, floats_up=5)]) == Forecast(1, 5, 3, 400, "at most")
    assert largest_forecast([first, second]) == Forecast(10, 2, 3, 400, "about")


FOLDER = Path(__file__).parents[2] / "experiments"
SWEPT = """
name = "swept"
seeds = [0, 1]
data.name = "iris"
partition = { kind = "horizontal", clients = 2 }
[[strategy]]
name = "ADMM [red]"
method = "ADMMKPCA"
share_rows = true
iterations = 5
kernel = { type = "rbf", gamma = 0.5 }
[sweep]
"partition.clients" = [3, 4]
"""


def dry_run(*arguments: str) -> list[str]:
    """Return what the command prints; it must succeed and leave nothing behind."""
    before = sorted(Path().rglob("*"))
    done = CliRunner().invoke(cli.app, ["run", *arguments, "--dry-run"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(Path().rglob("*")) == before
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_quickstart_is_forecast_as_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = dry_run(str(FOLDER / "quickstart.toml"))
    (line,) = [line for line in lines if line.startswith("VFedPCA (paper)")]
    assert line.split()[2:6] == ["5", "11", "28,500", "28,450"]  # as the table of docs/start.md has it
    (line,) = [line for line in lines if line.startswith("DKPCA linear, 15 local")]
    assert line.split()[4:7] == ["5", "1", "17,100"]
    assert line.endswith("exact")
    assert sum("DKPCA" in line or "VFedPCA" in line for line in lines) == 9
    assert any(line.startswith("all 27 runs") for line in lines)
    assert all(word in lines[-1] for word in ("exact", "at most", "about", "Memory"))


def test_a_sweep_has_a_line_for_each_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("swept.toml").write_text(SWEPT, encoding="utf-8")
    lines = dry_run("swept.toml")
    assert [line.split()[:4] for line in lines if line.startswith("ADMM [red]")] == [
        ["ADMM", "[red]", "clients=3", "3"],
        ["ADMM", "[red]", "clients=4", "4"],
    ]
    assert any(line.startswith("all 4 runs") for line in lines)


def test_tables_that_only_sites_have_are_told_by_their_shape_and_give_no_forecast_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = 'data.name = "iris"\npartition = { kind = "horizontal", clients = 2 }\n'
    sites = SWEPT.replace(data, 'data.sites = ["rome", "oslo"]\n').split("[sweep]")[0]
    Path("sites.toml").write_text(sites, encoding="utf-8")
    (line,) = [line for line in dry_run("sites.toml") if line.startswith("ADMM")]
    assert line.split() == ["ADMM", "[red]", "2", "unknown"]
    strategy = '[[strategy]]\nname = "sum"\nmethod = "DKPCA"\nn_components = 2\nlocal_components = 5\n'
    Path("sites.toml").write_text(f'name = "sites"\n[data]\nsites = ["rome", "oslo"]\n{strategy}', encoding="utf-8")
    (line,) = [line for line in dry_run("sites.toml", "--shape", "100x20") if line.startswith("sum")]
    # one round, in which each of two sites sends 5 eigenpairs of 100 rows
    assert line.split()[:4] == ["sum", "2", "1", f"{2 * 5 * 101:,}"]
    for wrong in ("100", "0x20", "100x"):
        done = CliRunner().invoke(cli.app, ["run", "sites.toml", "--dry-run", "--shape", wrong])
        assert f"shape = '{wrong}', but must be ROWSxCOLUMNS" in done.output


def test_a_strategy_without_a_forecast_is_unknown(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(strategies.ADMMKPCA, "forecast", lambda self, cohort: None)
    Path("swept.toml").write_text(SWEPT, encoding="utf-8")
    assert forecast_table(lines_of(plan(read_config(Path("swept.toml"))))).row_count == 2  # and no sum
    assert sum("unknown" in line for line in dry_run("swept.toml")) == 2

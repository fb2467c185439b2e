"""What a strategy says that a run will take, against what it takes."""

import dataclasses
import itertools
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from cases import WINE
from typer.testing import CliRunner

from experiments import cli
from experiments.commands.forecast import cohort, forecast_table, lines_of
from experiments.config import read_config
from experiments.running import calibration, plan
from fedkernel import RBF
from fedkernel.addresses import names
from fedkernel.errors import InputError
from fedkernel.protocol import Computing, Speeds, Work
from fedkernel.protocol.client import KernelClient
from fedkernel.protocol.forecast import ANOTHER_CORE, ENGINE_COSTS, Forecast, largest, seconds
from fedkernel.protocol.rounds import Member
from fedkernel.protocol.work import CALLS_OF_A_MESSAGE
from strategies import (
    ADMMKPCA,
    DKPCA,
    DisKPCA,
    FKKMeans,
    PeerVFedPCA,
    RFKKMeans,
    SpectralKMeans,
    UniformKPCA,
    VFedAKPCA,
    VFedPCA,
)

ROWS, COLUMNS = np.array_split(WINE, 5), np.array_split(WINE, 5, axis=1)
KERNEL = RBF(gamma=0.05)
SHOWN = {"share_rows": True}
TIMES = 1.6
"""How far off a forecast of about so much may be."""

VARIANTS = [
    ADMMKPCA(kernel=KERNEL, iterations=4, **SHOWN),
    ADMMKPCA(2, KERNEL, graph={"kind": "star"}, iterations=3, tol=0.0, exchange="features", n_features=50),
    ADMMKPCA(kernel=KERNEL, iterations=30, tol=0.1, **SHOWN),
    DKPCA(3, KERNEL, local_components="adaptive", epsilon=0.1),
    DKPCA(3, local_components=50, certificate=True),
    DKPCA(3, KERNEL, local_components=2, upload="inner products"),
    DKPCA(3, KERNEL, local_components="adaptive", upload="inner products"),
    DisKPCA(3, KERNEL, n_adaptive=0, n_leverage=20, **SHOWN),
    DisKPCA(3, KERNEL, n_adaptive=15, projection_size=5, point_sketch_size="exact", dtype="float32", **SHOWN),
    FKKMeans(3, 3, n_features=20, iterations=1, solver="lanczos"),
    FKKMeans(3, n_features=20, iterations=1, solver="gram", kernel=KERNEL),
    FKKMeans(4, 4, n_features=40, iterations=6, solver="lanczos", coreset_size=20),
    PeerVFedPCA(2, rounds=3, merge="eigenvalue"),
    PeerVFedPCA(graph={"kind": "ring"}, kernel=KERNEL, rounds=2, merge="eigenvalue"),
    PeerVFedPCA(2, graph={"kind": "star"}, rounds=3, relay=True, merge="eigenvalue"),
    PeerVFedPCA(2, graph={"kind": "star"}, rounds=3),
    PeerVFedPCA(2, graph={"kind": "ring"}, kernel=KERNEL),
    RFKKMeans(3, n_features=20, kernel=KERNEL, coreset_size=10_000),
    RFKKMeans("auto", n_features=20, kernel=KERNEL, width_factors=(0.5, 1, 3)),
    SpectralKMeans(3, UniformKPCA(3, KERNEL, n_samples=20, solver="batch", embed=False, **SHOWN)),
    UniformKPCA(3, KERNEL, n_samples=20, projection_size=7, **SHOWN),
    VFedAKPCA(2, kernel=KERNEL, merge="exact"),
    VFedPCA(2, merge="exact", rounds=4),
    VFedPCA(2, merge="exact", tol=1e-3),
]


def tables(strategy):
    return COLUMNS if strategy.partition == "vertical" else ROWS


def compared(strategy, shards):
    """Return what was forecast, and what a run has taken."""
    forecast, ledger = strategy.forecast(cohort(shards)), strategy.fit(shards).ledger
    figures = (forecast.rounds, forecast.floats_up, forecast.floats_down)
    return forecast, list(zip(figures, (ledger.rounds, ledger.floats_up, ledger.floats_down), strict=True))


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [(strategy, tables(strategy)) for strategy in VARIANTS],
    ids=[f"{type(strategy).__name__} {number}" for number, strategy in enumerate(VARIANTS)],
)
def test_a_run_takes_what_was_forecast(strategy, shards):
    forecast, figures = compared(strategy, shards)
    for predicted, took in figures:
        if forecast.meaning == "exact":
            assert predicted == took
        elif forecast.meaning == "at most":
            assert predicted >= took
        else:
            assert took / TIMES <= predicted <= took * TIMES
    assert 0 < forecast.memory < 1e8


@pytest.mark.parametrize(
    "strategy",
    [
        ADMMKPCA(2, KERNEL, iterations=3, tol=0.0, **SHOWN),
        ADMMKPCA(kernel=KERNEL, neighbors=2, iterations=4, tol=0.0, exchange="features", n_features=30),
        RFKKMeans(3, n_features=20, kernel=KERNEL, coreset_size=10),
        RFKKMeans(3, n_features=20, kernel=KERNEL, coreset_size=10, width_factors=(0.5, 1, 3)),
        UniformKPCA(3, KERNEL, n_samples=20, **SHOWN),
        VFedPCA(merge="exact", rounds=4),
        VFedAKPCA(3, kernel=KERNEL, merge="exact", rounds=3),
        DisKPCA(3, KERNEL, n_adaptive=100, **SHOWN),
        FKKMeans(3, n_features=20, iterations=1, kernel=KERNEL, solver="gram", coreset_size=10),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_most_is_taken_where_nothing_ends_a_run_early(strategy):
    _, figures = compared(strategy, tables(strategy))
    assert [forecast for forecast, _ in figures] == [took for _, took in figures]


def test_one_node_agrees_on_no_keys():
    _, figures = compared(ADMMKPCA(kernel=KERNEL, iterations=2, tol=0.0), [WINE])
    assert all(forecast >= took for forecast, took in figures)
    assert figures[0][0] == 8


RNG = np.random.default_rng(0)
LONG, WIDE = np.array_split(RNG.standard_normal((6000, 30)), 3), np.array_split(RNG.standard_normal((800, 40)), 4, 1)


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [
        (DKPCA(5, RBF(gamma=0.02)), WIDE),
        (DKPCA(5, RBF(gamma=0.02), local_components="adaptive"), WIDE),
        (VFedAKPCA(2, merge="eigenvalue", kernel=RBF(gamma=0.02), rounds=2), WIDE),
        (FKKMeans(5, iterations=3, solver="gram"), LONG),
        (DisKPCA(10, RBF(gamma=0.02), **SHOWN), LONG),
        (ADMMKPCA(2, RBF(gamma=0.02), iterations=2, **SHOWN), [shard[:300] for shard in LONG]),
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


# seconds by engine, and of what is computed


SPEEDS = Speeds(0.02, 0.1, 0.001, 0.01, 0.1, round=0.0, message=0.0, cores=2)
BIG = [Member(client, client, 40_000, 300, 0) for client in range(4)]


def grown(strategy, **changes):
    """Return by what the computing's forecast is multiplied as each client's table changes."""
    before, after = (
        strategy.forecast([dataclasses.replace(member, **change) for member in BIG]) for change in ({}, changes)
    )
    return SPEEDS.computing(after.computing, at_once=2) / SPEEDS.computing(before.computing, at_once=2)


@pytest.mark.parametrize("name", names("pairs"))
def test_every_pair_says_what_it_computes(name):
    strategy = next(strategy for strategy in VARIANTS if type(strategy).__name__ == name)
    computing = strategy.forecast([Member(client, client, 100, 20, 0) for client in range(5)]).computing
    site, sites = SPEEDS.seconds(computing.site), SPEEDS.seconds(computing.sites)
    assert 0 < site <= sites <= 5 * site * (1 + 1e-12)
    assert SPEEDS.computing(computing, at_once=2) > 0


def test_the_growth_of_every_pair_is_measured():
    script = (FOLDER.parent / "benchmarks" / "growth.py").read_text(encoding="utf-8")
    assert [
        name for name in names("pairs") if f'Grown("{name}' not in script.replace("Grown(\n        ", "Grown(")
    ] == []


def test_a_forecast_grows_as_the_method_does():
    twice = {"rows": 80_000}
    # products with the table, and with vectors of its rows, are linear in these; a kernel matrix is quadratic
    assert grown(VFedPCA(5), **twice) == pytest.approx(2, rel=0.05)
    assert grown(FKKMeans(5, iterations=3, solver="gram"), **twice) == pytest.approx(2, rel=0.2)
    assert 1.7 < grown(DisKPCA(10, KERNEL, **SHOWN), **twice) < 2  # it draws from as many blocks, computed again
    for quadratic in (DKPCA(10, KERNEL, local_components=50), VFedAKPCA(5, kernel=KERNEL)):
        assert grown(quadratic, **twice) == pytest.approx(4, rel=0.1)
    assert grown(ADMMKPCA(kernel=KERNEL, iterations=2, **SHOWN), **twice) == pytest.approx(8, rel=0.3)  # eigenproblems
    assert 1 < grown(VFedPCA(5), columns=600) < 2


def test_clients_in_threads_answer_one_after_the_other():
    """Each in Python, which local threads share; elsewhere a process each."""
    forecast = Forecast(10)
    for engine, clients in (("local", 4), ("grpc", 1)):
        added = dataclasses.replace(SPEEDS, round=ENGINE_COSTS[engine].round, message=ENGINE_COSTS[engine].client)
        spent = seconds(engine, forecast, 4, speeds=added) - seconds(engine, forecast, 4)
        assert spent == pytest.approx(10 * clients * CALLS_OF_A_MESSAGE * SPEEDS.passing / 1e9)


def test_clients_share_this_machines_cores_but_have_their_own_elsewhere():
    own = Work(passes=1e9)
    forecast = Forecast(0, computing=Computing.of([own] * 4, own * 3))
    here, apart, threads = (
        seconds(engine, forecast, 4, speeds=SPEEDS) - seconds(engine, forecast, 4)
        for engine in ("ray", "grpc", "local")
    )
    assert here == pytest.approx((4 / 2 + 3) * SPEEDS.passing)
    assert apart == pytest.approx((1 + 3) * SPEEDS.passing)
    assert threads == pytest.approx((4 / (1 + ANOTHER_CORE) + 3) * SPEEDS.passing)


@pytest.fixture
def settings(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration.typer, "get_app_dir", lambda name: str(tmp_path / name))
    return tmp_path


def test_a_calibration_is_of_this_machine_only(settings, monkeypatch):
    assert calibration.load() is None
    calibration.save(SPEEDS)
    assert calibration.load() == SPEEDS
    with monkeypatch.context() as other:
        other.setattr(calibration.np, "__version__", "0")
        assert calibration.load() is None
    calibration.file_of().write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="holds no calibration"):
        calibration.load()


@pytest.mark.slow
def test_a_machine_is_measured_by_the_clock(settings, monkeypatch):
    """Each look at this clock is 0.6 s after the last: a product of 2 GFLOP takes 0.3 s for each."""
    ticks = itertools.count()
    figures = dict(calibration.measured(lambda: 0.6 * next(ticks)))
    assert figures["product"] == pytest.approx(0.3)
    assert figures["round"] == figures["message"] == 0  # 5 rounds take as long as 45
    assert calibration.speeds_of(figures).cores >= 1
    monkeypatch.setattr(calibration, "measured", figures.items)
    done = CliRunner().invoke(cli.app, ["calibrate"])
    assert done.exit_code == 0
    assert "speeds.json" in done.stdout
    assert CliRunner().invoke(cli.app, ["calibrate", "--show"]).stdout.split() == done.stdout.split()[:-2]


def test_spectral_k_means_needs_the_coordinates_whatever_its_components_say():
    members = [Member(client, client, 1000, 5, 0) for client in range(3)]
    without, with_them = (DisKPCA(4, share_rows=True, embed=embed) for embed in (False, True))
    assert without.forecast(members).memory < with_them.forecast(members).memory
    without_them, with_coordinates = (
        SpectralKMeans(3, components).forecast(members) for components in (without, with_them)
    )
    assert without_them == with_coordinates


def test_seconds_are_those_that_were_measured():
    small, large = Forecast(1, 128 * 5, 128 * 5), Forecast(1, 5 * 1_250_000, 5 * 1_250_000)  # 10 MB each way
    for engine, one_round, megabytes in (("local", 0.0009, 0.035), ("grpc", 0.005, 0.34), ("ray", 0.10, 0.43)):
        start = ENGINE_COSTS[engine].start
        assert seconds(engine, small, 5) - start == pytest.approx(one_round, rel=0.1)
        assert seconds(engine, large, 5) - start == pytest.approx(megabytes, rel=0.05)
    assert seconds("local", Forecast(1), 50) == pytest.approx(0.0075, rel=0.05)
    assert seconds("ray", Forecast(1), 50) - 10 == pytest.approx(0.21, rel=0.05)
    assert seconds("superlink", Forecast(20), 3) == pytest.approx(130)
    by_double, by_single = (
        seconds("grpc", large, 5, wire) - seconds("grpc", Forecast(1), 5) for wire in ("float64", "float32")
    )
    assert by_single == pytest.approx(by_double / 2)


def test_forecasts_add_up_and_the_largest_is_at_most():
    first, second = Forecast(1, 2, 3, 400), Forecast(10, 1, 1, 300, "about")
    assert first + second == Forecast(11, 3, 4, 400, "about")
    assert largest([first, first]) == first
    assert largest([first, dataclasses.replace(first, floats_up=5)]) == Forecast(1, 5, 3, 400, "at most")
    assert largest([first, second]) == Forecast(10, 2, 3, 400, "about")


# fedkernel run --dry-run


FOLDER = Path(__file__).parent.parent / "experiments"
SWEPT = """
name = "swept"
seeds = [0, 1]
[data]
name = "iris"
[partition]
kind = "horizontal"
clients = 2
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
    assert line.split()[2:6] == ["5", "11", "28,500", "28,450"]  # as the README's table has it
    (line,) = [line for line in lines if line.startswith("DKPCA linear, 15 local")]
    assert line.split()[4:7] == ["5", "1", "17,100"]
    assert line.endswith("exact")
    assert sum("DKPCA" in line or "VFedPCA" in line for line in lines) == 9
    assert any(line.startswith("all 27 runs") for line in lines)
    assert "`fedkernel calibrate` measures it" in lines[-1]
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


@pytest.mark.slow
def test_a_narrow_terminal_shows_every_name_and_every_figure():
    """As a process, whose terminal the environment tells of."""
    columns = 60
    command = [Path(sys.executable).parent / "fedkernel", "run", FOLDER / "quickstart.toml", "--dry-run"]
    terminal = {"COLUMNS": str(columns), "TTY_COMPATIBLE": "1", "TERM": "xterm"}
    done = subprocess.run(command, env=os.environ | terminal, capture_output=True, text=True, check=True)
    text = re.sub("\x1b[^m]*m", "", done.stdout).split("Seconds of a typical")[0]
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    assert text.count("DKPCA linear,") == 3 * text.count("VFedPCA (paper)") == 3 * text.count("Method") >= 6
    for figure in ("28,500", "28,450", "47.0 kB", "5,642,430", "642"):
        assert figure in text


def test_tables_that_only_sites_have_give_no_forecast(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = '[data]\nname = "iris"\n[partition]\nkind = "horizontal"\nclients = 2\n'
    sites = SWEPT.replace(data, '[data]\nsites = ["rome", "oslo"]\n').split("[sweep]")[0]
    Path("sites.toml").write_text(sites, encoding="utf-8")
    (line,) = [line for line in dry_run("sites.toml") if line.startswith("ADMM")]
    assert line.split() == ["ADMM", "[red]", "2", "unknown"]


def test_tables_that_only_sites_have_are_told_by_their_shape(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    monkeypatch.setattr(ADMMKPCA, "forecast", lambda self, cohort: None)
    Path("swept.toml").write_text(SWEPT, encoding="utf-8")
    assert forecast_table(lines_of(plan(read_config(Path("swept.toml"))))).row_count == 2  # and no sum
    assert sum("unknown" in line for line in dry_run("swept.toml")) == 2

"""The project is a Flower app: it builds, and `flwr run .` runs the quickstart's first strategy."""

import ast
import dataclasses
import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from refusals import refusing

import fedkernel
from fedkernel import FKKMeans, Result, flower_apps
from fedkernel.data import DataSpec, PartitionSpec
from fedkernel.engines import ray
from fedkernel.engines.flwr_command import status_of, submit
from fedkernel.engines.local import LocalGrid
from fedkernel.experiments.config import read_config
from fedkernel.ground import FedkernelError, own_short_names
from fedkernel.site import simulated_partition
from fedkernel.wire import Job, RunSpec, flower_internals

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "experiments" / "quickstart.toml"
LINKED = ("clients", "strategies", "experiments")
FLWR = Path(sys.executable).parent / "flwr"


def project(folder=ROOT):
    return tomllib.loads((folder / "pyproject.toml").read_text())


def test_the_default_job_is_the_quickstart_s_first_strategy():
    """For as many clients as there are nodes, since nobody has said how many."""
    experiment = read_config(QUICKSTART)
    first = experiment.strategy[0]
    partition = dataclasses.replace(experiment.partition, clients=None)
    common = {"strategy": first.method, "parameters": first.parameters, "seed": experiment.seeds[0]}
    run = RunSpec(id="quickstart", data=experiment.data, partition=partition, **common)
    assert Job.from_json(project()["tool"]["flwr"]["app"]["config"]["job"]) == Job(runs=[run])


def test_one_package_is_installed_and_tells_type_checkers_what_the_classifiers_promise():
    assert "Typing :: Typed" in project()["project"]["classifiers"]
    assert project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["fedkernel"]
    assert (ROOT / "fedkernel" / "py.typed").is_file()
    for name in LINKED:
        link = ROOT / "fedkernel" / name
        assert link.samefile(ROOT / name), f"{link} is no link to {name}/: git clone -c core.symlinks=true"


def test_only_one_module_touches_what_flower_does_not_publish():
    public = {"flwr.app", "flwr.client", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
    touching = set()
    for path in [file for name in ("fedkernel", *LINKED) for file in (ROOT / name).rglob("*.py")]:
        for node in ast.walk(ast.parse(text)) if "flwr" in (text := path.read_text()) else ():
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "flwr" and name not in public for name in names):
                touching.add(str(path.relative_to(ROOT)))
    assert touching == {"fedkernel/wire/flower_internals.py"}


SLOWLY = """
import _frozen_importlib as importing
load, main = importing._find_and_load_unlocked, threading.get_ident()
def slow(name, *more):
    if name == "fedkernel.ground" and threading.get_ident() != main:
        time.sleep(1)
    return load(name, *more)
importing._find_and_load_unlocked = slow
"""
"""The thread that looks holds the lock of a package that is not yet there, while the other imports."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delay", "patch"), [pytest.param(0.0, "", marks=pytest.mark.drill), (0.3, SLOWLY)], ids=["at once", "one by one"]
)
def test_both_apps_can_be_imported_at_once(delay, patch):
    """As by Flower's simulation: one thread looks for the client's module while another loads the server's."""
    script = f"""
import importlib.util, threading, time
{patch}
looking = threading.Thread(target=importlib.util.find_spec, args=["fedkernel.flower_apps"])
looking.start()
time.sleep({delay})
import fedkernel.flower_apps
looking.join()
from fedkernel.ground.import_paths import load_class
wanted = dict(ADMMKPCAClient="clients", DKPCA="pairs", VFedPCAClient="clients", VFedPCA="pairs")
threads = [threading.Thread(target=load_class, args=[name, object, group, "name"]) for name, group in wanted.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.slow
def test_flwr_build_packs_the_package_and_no_data(tmp_path):
    app = tmp_path / "app"  # a copy of what a checkout has, without what a developer's folder may have beside it
    for name in ("fedkernel", *LINKED):
        shutil.copytree(ROOT / name, app / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, app / name)
    done = subprocess.run([FLWR, "build"], cwd=app, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (fab,) = app.glob("*.fab")
    names = set(zipfile.ZipFile(fab).namelist())
    modules = {"fedkernel/numerics/kernels.py", "clients/dkpca.py", "strategies/dkpca.py", "experiments/cli.py"}
    assert modules | {"experiments/quickstart.toml", "pyproject.toml"} <= names  # short names stand in the last
    assert not [name for name in names if name.endswith((".npz", ".npy", ".csv", ".pyc"))]
    with zipfile.ZipFile(fab) as archive:
        archive.extractall(app := tmp_path / "bundle")  # which has no links
    script = "import fedkernel.clients; print(fedkernel.DKPCA.client.__module__, fedkernel.__path__[0])"
    arguments = {"env": {**os.environ, "PYTHONPATH": str(app)}, "cwd": app, "text": True}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, **arguments)
    assert done.stdout.split() == ["fedkernel.clients.dkpca", str(app / "fedkernel")], done.stderr


HUB, BASELINE = ROOT / "flower" / "app", ROOT / "flower" / "baseline-fk-kmeans"
KEYS = {app: project(app)["tool"]["flwr"]["app"]["config"] for app in (HUB, BASELINE)}
WINE = {"method": "FKKMeans", "n-clusters": 3, "dataset": "wine", "scale": "none", "partition": "iid", "seed": 3}


def assert_is_fitted(folder, strategy):
    rows, found = PartitionSpec(kind="horizontal", method="iid"), Result.load(folder)
    fitted = strategy.fit(simulated_partition(DataSpec("wine"), rows, 3, 3).shards, seed=3)
    np.testing.assert_array_equal(found.model.centers_, fitted.model.centers_)
    assert found.ledger.floats_up == fitted.ledger.floats_up
    assert all(np.array_equal(found.outputs[site]["labels"], fitted.outputs[site]["labels"]) for site in range(3))


def test_flat_keys_are_a_job_of_one_run_at_the_server_and_at_the_sites(tmp_path, monkeypatch):
    def run(keys):
        with LocalGrid(flower_apps.client, clients=3, run_config=keys) as grid:
            flower_apps.server(grid, flower_internals.new_context(0, {}, keys))

    run(KEYS[BASELINE] | WINE | {"n-components": 3, "n-features": 10, "iterations": 2, "out": str(tmp_path)})
    paper = {"accuracy": 0, "solver": "lanczos", "frequencies": "independent"}
    assert_is_fitted(tmp_path / "FKKMeans", FKKMeans(3, n_components=3, n_features=10, iterations=2, **paper))
    monkeypatch.syspath_prepend(BASELINE)
    first, _, mean = importlib.import_module("fk_kmeans.results").table(tmp_path / "FKKMeans").splitlines()[2:]
    _, t, floats, steps, rank, _ = first.split("|")
    assert (int(t), int(floats), int(rank)) == (1, 3 * 10 * int(steps), 0)  # D floats of each of three clients
    assert mean.startswith("| mean | ")
    for wrong, says in (
        ({"method": "os.path:join"}, "method = 'os.path:join', but must be one of ADMMKPCA, C"),  # nor is it imported
        ({"scale": "x"}, "data.scale = 'x': input should be 'none', 'standard'"),
        ({"n-clusters": 3}, "DKPCA: n_clusters is not a known name here"),
    ):
        with refusing(says, error=FedkernelError):
            run(KEYS[HUB] | wrong)


@pytest.mark.slow
@pytest.mark.parametrize("app", [HUB, BASELINE], ids=lambda app: app.name)
def test_apps_for_flower_s_hub_have_a_licence_and_known_keys_and_build(app, tmp_path, monkeypatch):
    pairs = [getattr(fedkernel, name) for name in own_short_names("pairs")]
    parameters = {field.name.replace("_", "-") for pair in pairs for field in dataclasses.fields(pair)}
    assert KEYS[app].keys() <= parameters | {*flower_apps.FLAT_KEYS, "method", "out"}
    monkeypatch.syspath_prepend(app)
    components = project(app)["tool"]["flwr"]["app"]["components"].values()
    modules = [importlib.import_module(component.removesuffix(":app")) for component in components]
    assert [module.app for module in modules] == [flower_apps.server, flower_apps.client]
    (flower,) = (name for name in project()["project"]["dependencies"] if name.startswith("flwr"))
    assert flower.replace("flwr", "flwr[simulation]") in project(app)["project"]["dependencies"]
    assert (app / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    subprocess.run([FLWR, "build", "--app", app], cwd=tmp_path, capture_output=True, check=True)
    (fab,) = tmp_path.glob("*.fab")
    assert {"LICENSE", "README.md"} < set(zipfile.ZipFile(fab).namelist())


@pytest.mark.ray
@pytest.mark.drill
@pytest.mark.xdist_group("ray")
def test_flwr_run_of_the_hub_s_app_gives_the_numbers_of_fit(tmp_path):
    keys = WINE | {"n-components": "", "out": str(tmp_path)}
    sizes = ["--federation-config", "num-supernodes=3 client-resources-num-cpus=1", "--run-config"]
    with ray.superlink() as (flwr, _):
        run = submit(flwr, HUB, ray.CONNECTION, *sizes, " ".join(f"{key}={json.dumps(keys[key])}" for key in keys))
        job = Job.from_json(flower_apps.job_of_keys(keys))
        assert list(ray._results(job, tmp_path, lambda: status_of(flwr, ray.CONNECTION, run))) == ["FKKMeans"]
    assert_is_fitted(tmp_path / "FKKMeans", FKKMeans(3))

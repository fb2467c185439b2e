"""A package of somebody else's, with a pair, model, kernel, metric and loader of its own, runs as ours do."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from federation import NAMES, Ready, federation
from refusals import refusing

from fedkernel.data import DataSpec, PartitionSpec
from fedkernel.engines.flwr_command import write_app
from fedkernel.experiments.commands import list_names
from fedkernel.experiments.config import Experiment, read_config
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import plan, run_experiment
from fedkernel.flower_apps import APPS
from fedkernel.ground import InputError, ProtocolError, own_short_names
from fedkernel.models import load_model, metric_registry, save_model
from fedkernel.run import Result
from fedkernel.wire import Job, RunSpec

STRANGER = Path(__file__).parents[1] / "stranger"
ADDRESSES = {
    "PAIR": "my_lab.pairs:WeightedCentre",
    "KERNEL": "my_lab.kernels:Rational",
    "METRIC": "my_lab.metrics:eccentricity",
    "DATA": "my_lab.data:skewed",
}
SHORT = {"PAIR": "Centre", "KERNEL": "rational", "METRIC": "eccentricity", "DATA": "skewed"}
WIDTH = 2.0


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The folder of the stranger's package, which is not installed but importable."""
    folder = tmp_path / "lab"
    shutil.copytree(STRANGER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "my_lab" / "broken.py").write_text("nothing")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
        del sys.modules[name]


def expected(shards):
    """The centre, by loops over the formula."""
    weights = [[np.mean([1 / (1 + sum((x - y) ** 2) / WIDTH) for y in X]) for x in X] for X in shards]
    total = sum(map(sum, weights))
    return sum(w * x for X, own in zip(shards, weights, strict=True) for x, w in zip(X, own, strict=True)) / total


COMMANDS = """
import json, sys
from fedkernel.experiments.cli import app
for arguments in json.loads(sys.argv[1]):
    print(">", *arguments, flush=True)
    app(arguments, standalone_mode=False)
"""
"""Runs commands one after the other in one process."""


SHARDS = np.split(np.random.default_rng(0).exponential(size=(30, 4)), [8, 17])


@pytest.mark.parametrize("engine", ["local", pytest.param("grpc", marks=pytest.mark.drill)])
def test_from_python(lab, engine):
    pairs, kernels = importlib.import_module("my_lab.pairs"), importlib.import_module("my_lab.kernels")
    strategy = pairs.WeightedCentre(kernel=kernels.Rational(width=WIDTH))
    result = strategy.fit(SHARDS, engine=engine)
    np.testing.assert_allclose(result.model.point, expected(SHARDS), rtol=1e-12)
    assert result.model.kernel == strategy.kernel
    assert result.model.rows == (0, 1, 2)
    assert result.ledger.floats_up == 3 * (4 + 1)


def test_from_a_configuration_file(lab):
    """Nothing is installed: the command finds what lies in the folder where it is called."""
    log = lab / "fedkernel.log"
    assert Ready(lab, log, ("run", "strange.toml", "--out", "out")).wait(120) == 0, log.read_text()
    rows = read_runs(lab / "out" / "runs.jsonl")
    methods = {place: f"{place} {ADDRESSES['PAIR']}" for place in ("central", "isolated")}
    errors = {(row.method, row.seed): row.metrics["error"] for row in rows}
    assert errors.keys() == {(method, seed) for method in (ADDRESSES["PAIR"], *methods.values()) for seed in (0, 1)}
    for seed in (0, 1):
        central, alone = (errors[methods[place], seed] for place in ("central", "isolated"))
        assert 0 == central < errors[ADDRESSES["PAIR"], seed] < alone
    rows = [row for row in rows if row.method == ADDRESSES["PAIR"]]
    assert min(row.metrics[ADDRESSES["METRIC"]] for row in rows) > 1e-3
    report = (lab / "out" / "report.html").read_text()
    for text in (ADDRESSES["PAIR"], ADDRESSES["METRIC"], "The centre is not the mean."):
        assert text in report
    importlib.import_module("my_lab.pairs")
    importlib.import_module("my_lab.kernels")
    assert Result.load(lab / "out" / "results" / rows[0].id).model.point.shape == (3,)


def test_a_figure_with_the_name_of_a_registered_one_does_not_replace_it_and_is_told(lab, monkeypatch):
    pair, eccentric = importlib.import_module("my_lab.pairs").WeightedCentre, ADDRESSES["METRIC"]
    monkeypatch.setattr(pair, "judge", lambda *_: {"table_share": 7.0, "seconds": 1e9, "spread": 3.0})
    for module in (metric_registry, list_names):
        monkeypatch.setattr(module, "short_names", lambda group: {"similarity": eccentric})
    experiment = read_config(lab / "strange.toml", ["report.also=['similarity']", "seeds=[0]", "baseline=[]"])
    (row,) = run_experiment(experiment, lab / "out").rows
    registered, hidden = "is the one of fedkernel list metrics", "WeightedCentre's own is hidden until it is renamed"
    assert [text for text in row.findings if registered in text] == [
        f"table_share {registered}; {hidden}",
        f"seconds {registered}; {hidden}",
        f"similarity {registered}; {eccentric} is by its address only",
    ]
    assert row.metrics["table_share"] < 1
    assert row.metrics["spread"] == 3
    assert "similarity" not in row.metrics
    listed = {line.split()[0] for line in call("list", "metrics").stdout.splitlines()}
    assert listed >= {"similarity", eccentric}


@pytest.mark.drill
def test_entry_points_give_short_names(lab):
    project = tomllib.loads((lab / "pyproject.toml").read_text())["project"]
    folder = lab / "my_lab-1.0.dist-info"  # what installing the package would leave
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    with (folder / "entry_points.txt").open("w") as file:
        for group, own in project["entry-points"].items():
            file.write("\n".join([f"[{group}]", *(f"{name} = {address}" for name, address in own.items()), ""]))
    text = (lab / "strange.toml").read_text()
    for word, name in SHORT.items():
        text = text.replace(ADDRESSES[word], name)
    (lab / "strange.toml").write_text(text)
    sentences = {
        "strategies": "Centre The mean of all rows, weighted (horizontal data)",
        "kernels": "rational k(x, y) = 1 / (1 + ||x - y||^2 / width)",
        "metrics": "eccentricity higher metres distance of the centre from the rows' plain mean",
        "datasets": "skewed loader my_lab.data:skewed",
    }
    commands = [["run", "strange.toml", "--out", "out"], *(["list", kind] for kind in sentences)]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=lab,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": str(lab)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind, line in sentences.items():
        listed = done.stdout.split(f"> list {kind}\n")[1].split("\n>")[0]
        assert line in [" ".join(listed_line.split()) for listed_line in listed.splitlines()], listed


def test_an_error_in_a_stranger_s_client_is_shown_once(lab, caplog):
    pairs, kernels = importlib.import_module("my_lab.pairs"), importlib.import_module("my_lab.kernels")
    with pytest.raises(ProtocolError) as caught:
        pairs.WeightedCentre(kernel=kernels.Rational(), fail=True).fit(SHARDS)
    assert str(caught.value) == (
        'WeightedCentre, round 1 (SumWeighted), client 0: "ZeroDivisionError: '
        "the third column's scale is 0\" (and 2 more)"
    )
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert cause.__traceback__ is not None
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("line", "name", "says"),
    [
        ("method", "my_lab.pears:WeightedCentre", "there is no module my_lab.pears here"),
        ("method", "my_lab.pairs:Center", "the module my_lab.pairs has no Center"),
        ("method", "my_lab.pairs:CentreClient", "is no KernelStrategy: it must be a class that derives from it"),
        ("method", "my_lab.pairs.WeightedCentre", "must be one of ADMMKPCA, "),
        ("method", "my_lab.pairs:", "an address has the form package.module:Name"),
        ("method", "__main__:WeightedCentre", "is in a script or notebook, which cannot be imported; put it in a"),
        ("type", "my_lab.pairs:Sums", "is no Kernel: it must be a class that derives from it"),
        ("name", "my_lab.data:Skewed", "the module my_lab.data has no Skewed"),
        ("name", "my_lab.broken:skewed", "my_lab.broken cannot be imported (NameError: name 'nothing' is not defined)"),
    ],
)
def test_a_name_that_is_none_is_told_in_one_sentence(lab, line, name, says):
    table = {
        "name": "strange",
        "data": {"name": ADDRESSES["DATA"], "options": {"rows": 40}},
        "partition": {"kind": "horizontal", "clients": 3},
        "strategy": [{"name": "centre", "method": ADDRESSES["PAIR"], "kernel": {"type": ADDRESSES["KERNEL"]}}],
    }
    inside = {"method": table["strategy"][0], "type": table["strategy"][0]["kernel"], "name": table["data"]}[line]
    inside[line] = name
    with refusing(says, name):
        plan(Experiment.from_table(table, "strange.toml"))


def test_a_dataclass_comes_back_as_it_was_and_a_file_has_nothing_imported(lab, tmp_path):
    models, kernels = importlib.import_module("my_lab.models"), importlib.import_module("my_lab.kernels")
    model = models.Centre(kernels.Rational(3.0), np.arange(4, dtype=np.float32), 2.5, (1, 2))
    path = save_model(model, tmp_path / "model.npz")
    for loaded in (load_model(path), load_model(path, models.Centre)):
        assert (type(loaded), loaded.kernel, loaded.weight, loaded.rows) == (models.Centre, model.kernel, 2.5, (1, 2))
        assert (loaded.point.dtype, loaded.point.tolist()) == (np.float32, [0, 1, 2, 3])
    assert load_model(save_model(np.eye(2), tmp_path / "plain.npz")).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match="point of the model, of type object array, cannot be saved"):
        save_model(models.Centre(model.kernel, np.array([None]), 1.0, ()), path)
    path = save_model(models.Centre(kernels.Rational(), np.zeros(2), 1.0, ()), tmp_path / "model.npz")
    for name in ("my_lab.models", "my_lab.kernels"):
        del sys.modules[name]
    with pytest.raises(InputError, match=r"which needs my_lab.models:Centre: import my_lab.models first"):
        load_model(path)
    assert "my_lab.models" not in sys.modules
    importlib.import_module("my_lab.models")
    with pytest.raises(InputError, match=r"which needs my_lab.kernels:Rational: import my_lab.kernels first"):
        load_model(path)
    importlib.import_module("my_lab.kernels")
    assert load_model(path).weight == 1.0


def test_a_bundle_holds_the_code_that_its_job_names(lab, tmp_path):
    """And no data that lies beside it; our own short names mean the same there, where nothing is installed."""
    (lab / "my_lab" / "patients.csv").write_text("age\n41\n")
    run = RunSpec(
        id="run",
        strategy=ADDRESSES["PAIR"],
        parameters={"kernel": {"type": ADDRESSES["KERNEL"]}},
        data=DataSpec(ADDRESSES["DATA"], options={"rows": 9}),
        partition=PartitionSpec(kind="horizontal"),
    )
    app = write_app(tmp_path / "app", Job(runs=[run], apps=APPS), [])
    assert {path.name for path in app.iterdir()} == {"fedkernel", "my_lab", "pyproject.toml"}
    assert (app / "fedkernel" / "strategies").is_dir()
    assert not (app / "fedkernel" / "experiments").exists()
    own = [path.name for path in sorted((lab / "my_lab").glob("*.py"))]
    assert sorted(path.name for path in (app / "my_lab").iterdir()) == own
    project = tomllib.loads((app / "pyproject.toml").read_text())
    ours = {f"fedkernel.{group}": own_short_names(group) for group in ("pairs", "clients")}
    assert project["project"]["entry-points"] == ours
    assert project["tool"]["flwr"]["app"]["components"] == {"serverapp": APPS.server, "clientapp": APPS.client}


SITES = """\
name = "sites"
data = { sites = ["a", "b", "c"], share_model = true }

[[strategy]]
name = "centre"
method = "my_lab.pairs:WeightedCentre"
kernel = { type = "my_lab.kernels:Rational", width = 2.0 }
"""


@pytest.mark.xdist_group("sites")
def test_sites_answer_as_a_stranger_s_client_where_their_operators_allow_it(lab, tls):
    """Each of them, and its kernel too, else it is refused there; all get the model."""
    shards = np.split(np.random.default_rng(0).exponential(size=(75, 3)), 3)
    for name, shard in zip(NAMES, shards, strict=True):
        np.save(lab / f"{name}.npy", shard)
    (lab / "run.toml").write_text(SITES)
    client, kernel = ("--allow", "my_lab.pairs:CentreClient"), ("--allow", ADDRESSES["KERNEL"])
    for allowed, code in ((client, 1), ((*client, *kernel), 0)):
        with federation(lab, tls) as (serve, join):
            server = serve()
            sites = [join(name, "--data", f"{name}.npy", *client, *kernel) for name in NAMES[:2]]
            sites.append(join("c", "--data", "c.npy", *allowed))
            assert server.end(60) == code, server.text
            assert [site.end() for site in sites] == [code] * 3
            refused = "request SumWeighted: kernel.type = 'my_lab.kernels:Rational' is not known" in server.text
            assert refused is bool(code), server.text
    importlib.import_module("my_lab.pairs"), importlib.import_module("my_lab.kernels")
    for name in NAMES:
        (path,) = (lab / f"kept-{name}" / "received").iterdir()
        np.testing.assert_allclose(load_model(path).point, expected(shards), rtol=1e-12)

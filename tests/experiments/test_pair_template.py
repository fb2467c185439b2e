"""`fedkernel new`: what it writes is green from the start."""

import subprocess
import sys
import tomllib

import pytest
from command_line import call

from fedkernel.experiments.commands import console
from fedkernel.wire import Job


def test_the_pair_that_it_writes_passes_its_own_test(tmp_path):
    done = call("new", "MyRBFThing", "--out", tmp_path)
    assert done.stderr == ""
    names = ["__init__.py", "client.py", "strategy.py"]
    names = [f"my_rbf_thing/{name}" for name in names] + ["test_my_rbf_thing.py", "my_rbf_thing.toml"]
    assert done.stdout.split() == [str(tmp_path / name) for name in names]
    table = tomllib.loads((tmp_path / "my_rbf_thing.toml").read_text())
    address = "my_rbf_thing.strategy:MyRBFThing"
    assert table["strategy"][0]["method"] == address
    assert [entry["method"] for entry in table["baseline"]] == [f"central {address}", f"isolated {address}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    tried = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout
    assert "2 passed" in tried.stdout
    for tool in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *tool, "--isolated", "--line-length=120", "."]
        checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def test_with_app_it_is_a_flower_app_whose_job_is_the_pair(tmp_path):
    assert call("new", "MyPCA", "--app", "--out", tmp_path).stderr == ""
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    app, names = project["tool"]["flwr"]["app"], project["project"]["entry-points"]
    assert project["project"]["dependencies"] == []  # flwr run would install them, and no registry has fedkernel
    assert names["fedkernel.pairs"] == {"MyPCA": "my_pca.strategy:MyPCA"}
    assert names["fedkernel.clients"] == {"MyPCAClient": "my_pca.client:MyPCAClient"}
    (run,) = Job.from_json(app["config"]["job"]).runs
    assert (run.strategy, run.parameters) == ("my_pca.strategy:MyPCA", {"n_components": 2})
    assert app["components"] == {"serverapp": "my_pca.apps:server", "clientapp": "my_pca.apps:client"}
    assert (tmp_path / "my_pca" / "apps.py").is_file()


@pytest.mark.parametrize("name", ["my_pca", "3PCA", "My-PCA", "None", ""])
def test_a_name_that_no_class_can_have_is_refused(name, tmp_path):
    done = call("new", name, "--out", tmp_path, code=console.BAD_INPUT)
    assert done.stderr == f"error: PAIR = {name!r}, but must be the name of a class, such as MyPCA\n"
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    done = call("new", "Mine", "--out", tmp_path, code=console.BAD_INPUT)
    assert f"{tmp_path / 'mine.toml'} exists already" in done.stderr
    assert len(list(tmp_path.iterdir())) == 1

"""What an installation says of itself: whether others hide its packages, its version, and whom to cite."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import yaml

import fedkernel
from fedkernel import strategies
from fedkernel.ground import InputError, import_paths, installed_version
from fedkernel.strategy import KernelStrategy

ROOT = Path(__file__).parents[2]


def python(folder, script, *path):
    """Run a script in a folder, with other folders first on the import path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONWARNINGS": "default"}
    done = [sys.executable, "-c", script]
    return subprocess.run(done, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["pass", pytest.param("import fedkernel", marks=pytest.mark.drill)])
def test_former_names_are_the_packages_of_today_and_are_warned_of(first, tmp_path):
    script = f"""
{first}
from strategies import DKPCA
from clients.dkpca import DKPCAClient
import fedkernel.clients, experiments.config
from fedkernel.strategies.dkpca import DKPCA as today
from fedkernel.ground.import_paths import resolve_address
assert DKPCA is today is fedkernel.DKPCA and DKPCAClient is fedkernel.clients.DKPCAClient is DKPCA.client
assert DKPCAClient.__module__ == fedkernel.clients.dkpca.__spec__.name == "fedkernel.clients.dkpca"
assert resolve_address("strategies.dkpca:DKPCA", "pairs", "strategy") == "fedkernel.strategies.dkpca:DKPCA"
"""
    done = python(tmp_path, script, ROOT)
    assert done.returncode == 0, done.stderr
    assert "clients.dkpca is now fedkernel.clients.dkpca; the former name goes with the next version" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["package", pytest.param("module", marks=pytest.mark.drill)])
def test_packages_of_others_keep_the_former_names(kind, tmp_path):
    mine = tmp_path / ("clients.py" if kind == "module" else "clients/__init__.py")
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("OWN = 1\n")
    script = "import fedkernel.clients\nfrom clients import OWN\nfedkernel.DKPCA.client"
    done = python(tmp_path, script, tmp_path, ROOT)
    assert done.returncode == 0, done.stderr
    assert "is now" not in done.stderr


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ('[project]\nname = "fedkernel"\nversion = "1.2.3"\n', "1.2.3"),
        ('[project]\nname = "other"\nversion = "1.2.3"\n', "unknown"),
        (None, "unknown"),
    ],
)
def test_the_version_is_the_project_s_and_without_metadata_the_bundle_s(project, expected, tmp_path, monkeypatch):
    assert fedkernel.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    def none_is_installed(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(import_paths, "version", none_is_installed)
    monkeypatch.setattr(import_paths, "PACKAGES_FOLDER", tmp_path)
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
    assert installed_version() == expected


@pytest.mark.parametrize("name", ["fedkernel.clients:DKPCAClient", "fedkernel.ground:distinct_names"])
def test_an_address_is_of_a_class_that_derives_from_the_wanted_one(name):
    with pytest.raises(InputError, match="is no KernelStrategy: it must be a class that derives from it"):
        import_paths.load_class(name, KernelStrategy, "pairs", "method")


def test_the_citation_has_the_version_and_the_paper_that_every_pair_names_as_its_source():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", fedkernel.__version__)
    papers = citation["references"]
    assert len(papers) == 5
    assert all({"type", "title", "authors", "year", "notes"} <= set(paper) for paper in papers)
    for paper in papers:
        for name in paper["notes"].partition(";")[0].split(", "):
            source = " ".join(inspect.getmodule(getattr(strategies, name)).__doc__.split())
            assert paper["title"].casefold() in source.casefold()
            assert str(paper["year"]) in source or paper.get("url", "").rpartition("/")[2] in source


def test_the_page_of_the_architecture_names_the_files_of_six_rooms_and_no_others():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("\n## The files of six rooms\n")[1].split("\n## ")[0]
    for table in section.split("\n| subject | files of ")[1:]:
        room = ROOT / "fedkernel" / re.match(r"`(\w+)/`", table)[1]
        files = {str(path.relative_to(room)) for path in room.rglob("*.py") if path.name != "__init__.py"}
        assert set(re.findall(r"`([\w/]+\.py)`", table)) == files


def test_no_module_has_the_name_of_something_that_its_room_offers():
    """It would take the name's place once it is imported."""
    for name in (module.name for module in pkgutil.iter_modules(fedkernel.__path__)):
        room = importlib.import_module(f"fedkernel.{name}")
        if hasattr(room, "__all__"):
            files = {module.name for module in pkgutil.iter_modules(room.__path__)}
            assert not files.intersection(room.__all__), name

"""What an installation says of itself: whether others hide its packages, its version, and whom to cite."""

import importlib
import inspect
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
import strategies
from fedkernel import InputError
from fedkernel.ground import check_packages, import_paths, installed_version

ROOT = Path(__file__).parents[2]
OURS = ("clients", "strategies", "experiments")


def hide(folder, name):
    """A package of the user's own, as many have one."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    return folder / name


@pytest.mark.parametrize("name", [*OURS, "clients.py"])
def test_a_package_or_module_that_comes_first_on_the_import_path_is_refused(name, tmp_path, monkeypatch):
    place = tmp_path / name
    if place.suffix:
        place.write_text("")
    else:
        hide(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as caught:
        check_packages(*OURS)
    assert str(caught.value) == (
        f"{place} hides the package {place.stem!r} of fedkernel, since {tmp_path} comes first on Python's import path; "
        "rename it, or start Python elsewhere"
    )


def test_a_folder_that_is_no_package_hides_nothing_and_neither_does_what_comes_later(tmp_path, monkeypatch):
    (tmp_path / "clients").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    later = tmp_path / "later"
    later.mkdir()
    hide(later, "strategies")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    check_packages(*OURS)
    hide(tmp_path, "experiments")  # of a bundle without such a package nothing could be hidden
    monkeypatch.setattr(import_paths, "PACKAGES_FOLDER", tmp_path / "bundle")
    check_packages("experiments")


def start(way, folder):
    """Start Python in a folder the way that a user, an engine or pytest does."""
    script = folder / "script.py"
    script.write_text("from fedkernel import RBF\nfrom strategies import DKPCA\n")
    (folder / "test_mine.py").write_text(script.read_text())
    arguments = {
        "-c": ["-c", script.read_text()],
        "-m": ["-m", "experiments.cli", "list", "kernels"],
        "a process of engine grpc": ["-m", "fedkernel.engines.grpc.client_process", "127.0.0.1:1", str(folder), "1"],
        "pytest": ["-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider", "--rootdir", str(folder)],
    }[way]
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name"),
    [("-c", "clients"), ("-m", "clients"), ("a process of engine grpc", "clients"), ("pytest", "strategies")],
)
def test_wherever_python_starts_beside_it_the_last_words_say_what_to_rename(way, name, tmp_path):
    place = hide(tmp_path, name)
    done = start(way, tmp_path)
    assert done.returncode != 0
    said = f"InputError: {place} hides the package {name!r} of fedkernel"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if said in line]
    assert len(lines) == 1, done.stdout + done.stderr
    assert "ImportError" not in done.stdout + done.stderr
    assert way == "pytest" or done.stderr.splitlines()[-1] == lines[0]


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
        if hasattr(room, "__path__") and name != "engines":
            files = {module.name for module in pkgutil.iter_modules(room.__path__)}
            assert not files.intersection(room.__all__), name

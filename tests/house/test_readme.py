"""Snippets of the README, the start page and the tutorials: each runs, and prints what stands below it."""

import csv
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from federation import quick_fedkernel
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from fedkernel.experiments.cli import app

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = [ROOT / "README.md", ROOT / "docs" / "start.md", *sorted(TUTORIALS.glob("*.md"))]
EXAMPLE = re.compile(r"```python\n(.*?)```\s+```text\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(*example, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, example in enumerate(EXAMPLE.findall(page.read_text()))
]
WALKED = {"start", "from-raw-files", "three-hospitals", "columns-at-banks", "only-sums"}


@pytest.mark.slow
@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_example_prints_what_stands_below_it(code, printed, tmp_path, capsys):
    (tmp_path / "example.py").write_text(code)
    runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
    assert capsys.readouterr().out == printed


def test_every_snippet_is_run():
    assert [example.id.rpartition("-")[0] for example in EXAMPLES] == [
        *["README", *["first-federation"] * 4, "own-pair", *["peers"] * 2]
    ]
    for page in PAGES[1:]:
        blocks = set(re.findall(r"```(\w+)\n", page.read_text()))
        assert "python" not in blocks if page.stem in WALKED else "sh" not in blocks, page


def walk(page, folder):
    """Run a page's blocks in their order, as a reader would type them, but for a port that is free."""
    blocks = re.findall(r"```(sh|toml|text)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment, printed = {**os.environ, "PATH": path}, ""
    (folder / "bin").mkdir()
    with quick_fedkernel(folder / "bin"):
        for kind, block in blocks:
            if kind == "toml":
                name = re.match(r'name = "(\w+)"', block)[1]
                (folder / f"{name}.toml").write_text(block)
            elif kind == "sh":
                command = ["bash", "-c", block.replace("8443", port)]
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=250
                )
                assert done.returncode == 0, done.stderr
                printed = done.stdout
            else:
                lines = [[line.split() for line in text.splitlines()] for text in (printed, block)]
                if "seconds" in block:
                    lines = [[words[:-1] for words in each] for each in lines]
                assert lines[0][-len(lines[1]) :] == lines[1]
    return [kind for kind, _ in blocks]


@pytest.mark.xdist_group("sites")  # whose forkserver it shares
def test_the_walk_from_raw_files_to_an_answer(tmp_path):
    """In twelve commands from the files to labels, coordinates, a chosen k, a picture, next week's patients."""
    page = TUTORIALS / "from-raw-files.md"
    assert page.read_text().count("\nfedkernel ") + page.read_text().count("\n    fedkernel ") == 12
    assert walk(page, tmp_path) == ["sh", "sh", "text", "sh", "text", "toml", "sh", "sh", "text"]
    assert re.search(r"n_clusters = \d", (tmp_path / "server.log").read_text())
    assert "<img" in (tmp_path / "north" / "page.html").read_text()
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 21
    patients, rows = (
        list(csv.DictReader((tmp_path / path).read_text().splitlines()))
        for path in ("north.csv", "north/groups__seed=0.csv")
    )
    diagnoses = {patient["patient"]: patient["diagnosis"] for patient in patients}
    groups = [row["label"] for row in rows]
    assert len(rows) == 180
    # by chance 0 within 0.02; which of 0.2 to 0.7 it is hangs on the seed that the sites draw, since features are few
    assert adjusted_rand_score([diagnoses[row["id"]] for row in rows], groups) > 0.1


@pytest.mark.drill
@pytest.mark.parametrize(("page", "outputs"), [("../start", 1), ("columns-at-banks", 4), ("only-sums", 4)])
def test_the_walk_of_a_page(page, outputs, tmp_path):
    assert walk(TUTORIALS / f"{page}.md", tmp_path).count("text") == outputs


@pytest.mark.drill
def test_the_walk_of_three_hospitals(tmp_path, monkeypatch):
    page = TUTORIALS / "three-hospitals.md"
    assert walk(page, tmp_path) == ["sh", "toml", "toml", "sh", "text", "sh", "sh", "text"]
    assert (tmp_path / "results" / "report.html").exists()
    verify, against = re.search(
        r"`fedkernel (outbox verify north)`.*?`(--against \S+ --client 0)`", page.read_text(), re.S
    ).groups()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, f"{verify} {against}")
    assert done.exit_code == 0, done.output
    assert "replies that the server counts are there" in " ".join(done.output.split())

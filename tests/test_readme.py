"""The README's Python examples print what stands below them."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_five_examples():
    assert len(EXAMPLES) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=["library", "k-means", "landmarks", "peers", "own pair"])
def test_example_prints_what_the_readme_says(code, printed, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr


@pytest.mark.slow
def test_the_walk_through_of_separate_machines(tmp_path, monkeypatch):
    """Its blocks in their order, as a reader would type them, but for a port that is free."""
    section = README.split("## Separate machines\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(sh|toml|text)\n(.*?)```", section, flags=re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "toml", "toml", "sh", "text", "sh", "sh", "text"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    printed = ""
    for kind, block in blocks:
        if kind == "toml":
            name = re.match(r'name = "(\w+)"', block)[1]
            (tmp_path / f"{name}.toml").write_text(block)
        elif kind == "sh":
            command = ["bash", "-c", block.replace("8443", port)]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stderr
            printed = done.stdout
        else:
            assert [line.rstrip() for line in printed.splitlines()][-block.count("\n") :] == block.splitlines()
    assert (tmp_path / "results" / "report.html").exists()
    verify, against = re.search(
        r"`fedkernel (outbox verify north)`.*?`(--against \S+ --client 0)`", section, re.S
    ).groups()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, f"{verify} {against}")
    assert done.exit_code == 0, done.output
    assert "replies that the server counts are there" in " ".join(done.output.split())

"""What stands in deploy/ can be read by what it is for, and its commands have the options that it gives them."""

import configparser
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.xdist_group("deploy")  # what commands say of themselves is asked once, in one process

DEPLOY = Path(__file__).parents[2] / "deploy"
README = (DEPLOY / "README.md").read_text()
UNITS = sorted((DEPLOY / "systemd").iterdir())
COMPOSE = sorted((DEPLOY / "docker").glob("*.yml"))
TOOLS = ("fedkernel", "flwr", "flower-superlink", "flower-supernode")
SUBCOMMANDS = {"supernode": ("register", "list")} | dict.fromkeys(
    ("run", "list", "log", "stop", "certs", "serve", "join"), ()
)


HELP = """
import contextlib, importlib.metadata, io, json, sys
scripts = {script.name: script for script in importlib.metadata.entry_points(group="console_scripts")}
said = {}
for command in json.loads(sys.argv[1]):
    sys.argv = [*command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        with contextlib.suppress(SystemExit):
            scripts[command[0]].load()()
    said[" ".join(command)] = out.getvalue()
print(json.dumps(said))
"""
"""Asks installed commands for their help in one process: their imports take seconds each."""


@functools.cache
def helps():
    """Return what every command says of itself."""
    commands = [[tool] for tool in TOOLS if tool.startswith("flower")]
    for tool in ("fedkernel", "flwr"):
        own = ("certs", "serve", "join", "run") if tool == "fedkernel" else ("run", "list", "log", "stop")
        commands += [[tool, name] for name in own]
    commands += [["flwr", "supernode", name] for name in SUBCOMMANDS["supernode"]]
    said = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps(commands)],
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "FLWR_DISABLE_UPDATE_CHECK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(said.stdout)


def options(*command):
    """Return the options that a command says it has."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helps()[" ".join(command)]))


def check(words):
    """Fail where a command line has an option that its command does not."""
    tool = Path(words[0]).name
    assert tool in TOOLS
    sub = []
    if words[1] in SUBCOMMANDS and tool in ("fedkernel", "flwr"):
        sub = words[1:3] if words[2] in SUBCOMMANDS[words[1]] else words[1:2]
    names = {word.partition("=")[0] for word in words[1 + len(sub) :] if word.startswith("-")}
    assert names <= options(tool, *sub), words
    return names


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def command_lines():
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line]
    return [words for words in commands if Path(words[0]).name in TOOLS]


def unit(path):
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str
    parsed.read_string(path.read_text())
    return parsed


def test_every_command_of_the_readme_has_its_options_its_tables_are_toml_and_its_links_lead_somewhere():
    lines = command_lines()
    assert {Path(words[0]).name for words in lines} == set(TOOLS)
    assert sum(len(check(words)) for words in lines) > 20
    tables = [sorted(tomllib.loads(block)) for block in blocks("toml")]
    assert tables == [["superlink"], ["data", "id", "name", "out"], ["data"]]
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 5
    assert all((DEPLOY / link).exists() for link in links)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_file_starts_a_command_that_has_its_options(path):
    parsed = unit(path)
    assert parsed.sections() == ["Unit", "Service", "Install"]
    check(shlex.split(parsed["Service"]["ExecStart"]))
    assert parsed["Service"]["ReadWritePaths"] == parsed["Service"]["WorkingDirectory"]
    listens = path.stem in ("fedkernel-serve", "flower-superlink")
    assert parsed["Service"].get("LimitNOFILE") == ("65536" if listens else None)


@pytest.mark.parametrize("name", ["flower-superlink", "flower-supernode"])
def test_the_readme_s_commands_are_the_units(name):
    (line,) = [words for words in command_lines() if words[0] == name]
    started = shlex.split(unit(DEPLOY / "systemd" / f"{name}.service")["Service"]["ExecStart"])
    assert started[1:] == line[1:]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_starts_a_command_that_has_its_options(path):
    table = yaml.safe_load(path.read_text())
    ((name, service),) = table["services"].items()
    check([f"flower-{name}", *service["command"]])
    assert service["build"]["args"]["PART"] == name
    assert service.get("ulimits") == ({"nofile": 65536} if name == "superlink" else None)
    assert (path.parent / service["build"]["context"] / service["build"]["dockerfile"]).samefile(
        path.parent / "Dockerfile"
    )
    mounted = {word.partition("/run/secrets/")[2] for word in service["command"] if "/run/secrets/" in word}
    assert mounted == set(service["secrets"]) == set(table["secrets"])


def test_the_image_copies_what_there_is():
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    names = " ".join(re.findall(r"^COPY --chown=app:app (.*) \S+$", dockerfile, flags=re.MULTILINE)).split()
    assert {"fedkernel", "clients", "strategies", "experiments", "pyproject.toml"} <= set(names)
    assert all((DEPLOY.parent / name).exists() for name in names)

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
OWN = {"fedkernel": ("certs", "serve", "join", "run"), "flwr": ("run", "list", "log", "stop")}
TOOLS = (*OWN, "flower-superlink", "flower-supernode")
SUBCOMMANDS = {"supernode": ("register", "list")} | dict.fromkeys((*OWN["fedkernel"], *OWN["flwr"]), ())
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
    commands = [[tool] for tool in TOOLS if tool not in OWN]
    commands += [[tool, name] for tool, names in OWN.items() for name in names]
    commands += [["flwr", "supernode", name] for name in SUBCOMMANDS["supernode"]]
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    command = [sys.executable, "-c", HELP, json.dumps(commands)]
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def options(*command):
    """Return the options that a command says it has."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helps()[" ".join(command)]))


def check(words):
    """Fail where a command line has an option that its command does not."""
    tool = Path(words[0]).name
    assert tool in TOOLS
    sub = []
    if words[1] in SUBCOMMANDS and tool in OWN:
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
    file = Path(service["build"]["context"], service["build"]["dockerfile"])
    assert (path.parent / file).samefile(path.parent / "Dockerfile")
    assert service["tmpfs"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "no-new-privileges:true" in service["security_opt"]
    mounted = {word.partition("/run/secrets/")[2] for word in service["command"] if "/run/secrets/" in word}
    assert mounted == set(service["secrets"]) == set(table["secrets"])


def test_the_image_is_the_wheel_of_what_there_is_and_does_not_run_as_root():
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    wheel, image = dockerfile.split("\nFROM ")[1:]
    names = " ".join(re.findall(r"^COPY (.*) \S+$", wheel, flags=re.MULTILINE)).split()
    links = {path.name for path in (DEPLOY.parent / "fedkernel").iterdir() if path.is_symlink()}
    assert set(names) == {"fedkernel", *links, "pyproject.toml", "README.md", "LICENSE"}
    sent = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == {*names, "constraints.txt"}
    assert all((DEPLOY.parent / name).exists() for name in names)
    assert re.findall(r"^COPY (.*) ", image, flags=re.MULTILINE) == ["--from=wheel /wheel", "constraints.txt"]
    assert image.splitlines()[-1] == "USER app"


def test_hooks_have_the_versions_of_constraints_and_commands_of_workflows_are_targets_of_make():
    root = DEPLOY.parent
    hooks = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    (ruff,) = [hook["rev"] for hook in hooks if hook["repo"].endswith("/ruff-pre-commit")]
    assert f"ruff=={ruff[1:]}" in (root / "constraints.txt").read_text().splitlines()
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), flags=re.MULTILINE)[1].split()
    workflows = [yaml.safe_load(path.read_text()) for path in (root / ".github" / "workflows").glob("*.yml")]
    steps = [step for table in workflows for job in table["jobs"].values() for step in job["steps"]]
    run = [step["run"].split() for step in steps if "run" in step]
    targets = {words[1] for words in run if words[0] == "make"}
    assert targets >= {"lint", "test", "test-lowest", "test-newest", "release-check"}
    assert all(words[1] in phony if words[0] == "make" else (root / words[0]).exists() for words in run)
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    assert all(table["permissions"] == {"contents": "read"} for table in workflows)

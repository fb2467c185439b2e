"""The command: tables on standard output, one line on standard error for what went wrong, exit codes by whose fault."""

import html
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from cases import PAIRS
from command_line import call
from sklearn.datasets import load_breast_cancer, load_iris

from fedkernel.clients.dkpca import DKPCAClient
from fedkernel.data import available
from fedkernel.engines import ENGINES
from fedkernel.engines.ray import free_port
from fedkernel.experiments import cli, config, report, results
from fedkernel.experiments.baselines import baselines
from fedkernel.experiments.commands import console, demo
from fedkernel.experiments.commands.init_experiment import SITES, TEMPLATES
from fedkernel.experiments.config import locate, shipped
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import execution
from fedkernel.ground import ProtocolError
from fedkernel.models import METRICS
from fedkernel.numerics import KERNELS
from fedkernel.numerics.widths import WIDTHS

TINY = """
name = "tiny"
data.name = "iris"
partition.clients = 2
strategy = [{ name = "DKPCA of [red] iris", method = "DKPCA", n_components = 2 }]
baseline = [{ name = "central", method = "central PCA", n_components = 2 }]
report = { plots = false }
"""
OF_SITES = TINY.replace('data.name = "iris"\npartition.clients = 2', 'data.shards = ["a.npy", "b.npy"]')


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder with two configurations and some bad data, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKERNEL_DATA", raising=False)
    X = load_iris().data
    Path("tiny.toml").write_text(TINY, encoding="utf-8")
    Path("sites.toml").write_text(OF_SITES, encoding="utf-8")
    Path("lonely.toml").write_text(OF_SITES.replace("b.npy", "nobody.npy"), encoding="utf-8")
    np.save("a.npy", X[:, :2])
    np.save("b.npy", X[:149, 2:])
    X[7, 1] = np.nan
    np.savez("holes.npz", X=X)
    return tmp_path


def failure(*arguments, code):
    """Return the one line on standard error with which the command must end."""
    before = sorted(Path().rglob("*"))
    done = call(*arguments, code=code)
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    if code == console.BAD_INPUT:
        assert sorted(Path().rglob("*")) == before
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["?"], "error: there is no configuration file ?, nor an experiment of that name; fedkernel list experiments"),
        (["dkpca_figure2"], "; did you mean papers/dkpca_figure2b or papers/dkpca_figure2a"),
        (["papers"], "papers is a folder; allowed: a folder with --all, a file without it"),
        (["tiny.toml", "--set", "strategy.*.method=PCA"], f"method = 'PCA', but must be one of {', '.join(PAIRS)}"),
        (["tiny.toml", "--set", "data.name=npz:holes.npz"], "the value in row 7, column 1 (counted from 0) is nan"),
        (["tiny.toml", "--out", "a.npy/runs"], "a.npy/runs cannot be a folder, since a.npy is a file"),
        (["tiny.toml", "--engine", "ray", "--connection", "x"], "connection = 'x', but engine ray has none, only "),
        (["tiny.toml", "--out", "."], ". is not empty and holds no experiment; choose another folder (--out)"),
        (["sites.toml"], "b.npy has 149 rows, but a.npy has 150: with a vertical partition all must have the same"),
        (["lonely.toml"], "lonely.toml: data.shards: there is no file /"),  # the absolute path
    ],
)
def test_bad_input_is_one_line_and_leaves_no_trace(arguments, says):
    message = failure("run", *arguments, code=2)
    assert message.startswith("error: ")
    assert says in message


def test_a_file_comes_before_an_installed_experiment_of_its_name():
    assert locate(Path("papers/dkpca_figure2a")).samefile(shipped()["papers/dkpca_figure2a"])
    assert locate(Path("experiments/quickstart.toml")).samefile(shipped()["quickstart"])
    Path("quickstart").write_text(TINY, encoding="utf-8")
    assert call("run", "quickstart").stdout.endswith("Report: runs/tiny/report.html\n")


def test_there_must_be_something_to_report():
    for folder in ("none", "."):
        assert "holds no finished runs of an experiment (runs.jsonl)" in failure("report", folder, code=2)
    call("run", "tiny.toml", "--out", "out")
    Path("out", "config.json").unlink()
    assert "out lacks the experiment's configuration" in failure("report", "out", code=2)


def break_down(self, ask):
    raise RuntimeError(f"a patient's value is {self.X[0, 0]}")


def test_a_failing_client_is_one_cause_that_names_run_and_client(monkeypatch):
    monkeypatch.setattr(DKPCAClient, "find_local_eigenpairs", break_down)
    done = call("run", "tiny.toml", code=1)
    cause = r"DKPCA, round 1 \(FindLocalEigenpairs\), client 0: .RuntimeError: a patient's value is \S+ \(and 1 more\)"
    assert re.fullmatch(
        rf"run DKPCA-of-red-iris__seed=0 has failed: {cause}\n"
        rf"error: 1 of 2 runs has failed: run DKPCA-of-red-iris__seed=0: {cause}; the same command tries it again; "
        r"--debug shows tracebacks\n",
        done.stderr,
    )
    assert re.search(rf"^failed, and in no figure: DKPCA-of-red-iris__seed=0, tried once: {cause}$", done.stdout, re.M)
    page = html.unescape(Path("runs", "tiny", "report.html").read_text(encoding="utf-8"))
    assert re.search(rf'<th scope="row">DKPCA-of-red-iris__seed=0</th><td class="words fails">{cause}</td>', page)
    debugged = call("run", "tiny.toml", "--debug", code=1).stderr
    assert debugged.count(", in break_down\n") == 1
    assert len(re.findall("^RuntimeError: a patient's value is ", debugged, re.MULTILINE)) == 1
    assert debugged.splitlines()[-1].startswith("error: 1 of 2 runs has failed: run DKPCA-of-red-iris__seed=0: ")


def test_a_defect_says_so_and_where_to_look(monkeypatch):
    def defect(*_):
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(report, "lay_out", defect)
    beginning = "error: ZeroDivisionError: by zero (this is a defect"
    assert failure("run", "tiny.toml", code=1) == f"{beginning}; --debug shows where)"
    shown = call("run", "tiny.toml", "--debug", code=1)
    assert shown.stderr.count("Traceback") == 1
    assert shown.stderr.splitlines()[-1] == f"{beginning})"


def test_what_the_system_refuses_is_no_defect(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "runs.jsonl")

    monkeypatch.setattr(results, "append_run", full)
    assert failure("run", "tiny.toml", code=1) == "error: runs.jsonl: No space left on device"


def test_a_run_prints_its_table_and_where_the_report_is():
    done = call("run", "tiny.toml", "--out", "[red]")
    assert done.stderr == ""
    rows = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines() if line.strip()]
    assert rows[0] == ["Method", "error against central", "floats up", "floats down", "rounds", "seconds"]
    assert [row[0] for row in rows[2:4]] == ["DKPCA of [red] iris", "central"]
    assert [row[2:5] for row in rows[2:4]] == [["604", "0", "1"], ["600", "0", "0"]]
    assert rows[-1] == ["Report: [red]/report.html"]
    assert Path("[red]", "report.html").exists()


def test_the_default_folder_is_named_by_the_experiment_and_the_engine(monkeypatch):
    assert call("run", "tiny.toml").stdout.endswith("Report: runs/tiny/report.html\n")
    monkeypatch.setattr(execution, "ENGINES", {"ray": ENGINES["local"]})
    assert call("run", "tiny.toml", "--engine", "ray").stdout.endswith("Report: runs/tiny-ray/report.html\n")
    assert {row.engine for row in read_runs("runs/tiny-ray/runs.jsonl")} == {"ray", "none"}


def test_report_prints_the_same_table_and_writes_the_same_page():
    swept = ["--set", "sweep.partition.clients=[2, 4]", "--set", "title=Swept", "--set", "report.plots=true"]
    ran = call("run", "tiny.toml", *swept)
    page, figures = Path("runs/tiny/report.html"), sorted(Path("runs/tiny/plots").iterdir())
    written = page.read_bytes()
    assert b"Swept" in written
    assert b"sweep.partition.clients=[2, 4]" in written
    for path in (page, *figures):
        path.unlink()
    again = call("report", "runs/tiny")
    assert (again.stdout, again.stderr) == (ran.stdout, "")
    assert page.read_bytes() == written
    assert sorted(Path("runs/tiny/plots").iterdir()) == figures != []


GONE = "error: run DKPCA-of-red-iris__seed=1: client 1 is gone; 1 of 4 runs are finished: fedkernel report runs/tiny"
INTERRUPTED = "interrupted; the same command (without --restart) resumes the work"


@pytest.mark.parametrize(
    ("error", "code", "text"), [(ProtocolError("client 1 is gone"), 1, GONE), (KeyboardInterrupt(), 130, INTERRUPTED)]
)
def test_what_is_finished_before_an_end_is_reported_and_the_same_command_goes_on(monkeypatch, error, code, text):
    def ending(job):
        yield from ENGINES["local"](job.model_copy(update={"runs": job.runs[:1]}))
        raise error

    monkeypatch.setattr(execution, "ENGINES", {"local": ending})
    seeds = ["--set", "seeds=[0, 1]"]
    assert failure("run", "tiny.toml", *seeds, code=code).startswith(text)
    assert not Path("runs/tiny/report.html").exists()
    reported = call("report", "runs/tiny")
    missing = "central__seed=0, DKPCA-of-red-iris__seed=1, central__seed=1"
    assert f"not finished, and in no figure: {missing}\n" in reported.stdout
    assert f"Not finished, and in no figure: {missing}." in Path("runs/tiny/report.html").read_text(encoding="utf-8")
    monkeypatch.setattr(execution, "ENGINES", ENGINES)
    assert "not finished" not in call("run", "tiny.toml", *seeds).stdout
    assert "Not finished" not in Path("runs/tiny/report.html").read_text(encoding="utf-8")
    assert len({row.id for row in read_runs("runs/tiny/runs.jsonl")}) == 4


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("strategies", list(PAIRS)),
        ("baselines", list(baselines())),
        ("kernels", [*KERNELS, *WIDTHS]),
        ("datasets", []),  # those of the moment: a test has its own environment
        ("metrics", list(METRICS)),
        ("engines", list(ENGINES)),
        ("experiments", list(shipped())),
    ],
)
def test_list_prints_every_entry_of_the_registry_on_a_line(kind, names, tmp_path, monkeypatch):
    """In a pipe; in 80 columns lines are broken between words, and nothing is cut."""
    np.savez(tmp_path / "a_set_of_our_own.npz", X=np.zeros((4, 7)))
    monkeypatch.setenv("FEDKERNEL_DATA", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    done = call("list", kind)
    assert done.stderr == ""
    heading, *lines = done.stdout.splitlines()
    names = names or [source.name for source in available()]
    assert heading.startswith("name ")
    assert all(len(line.split()) > 1 for line in lines)
    listed = "\n".join(lines) if kind == "kernels" else "\n".join(re.split(r" {2,}", line)[0] for line in lines)
    assert [name for name in names if name not in listed] == []
    assert len(lines) == (len(KERNELS) if kind == "kernels" else len(names))
    narrow = call("list", kind, COLUMNS="80").stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == done.stdout.split()
    starts = [line for line in narrow.splitlines() if line[0] != " "]
    assert [line.split()[0] for line in starts] == [line.split()[0] for line in done.stdout.splitlines()]


def test_every_metric_of_a_row_is_explained_by_list():
    call("run", "tiny.toml", "--set", "baseline.*.method=isolated PCA")
    measured = {name for row in read_runs("runs/tiny/runs.jsonl") for name in row.metrics}
    assert {"error", "worst_error", "bound"} <= measured <= set(METRICS)


def test_the_demo_says_what_is_done_and_ends_with_the_path_of_its_report(monkeypatch):
    monkeypatch.setattr(config, "shipped", lambda: {"quickstart": Path("tiny.toml")})
    monkeypatch.setattr(demo, "REPEAT_SECONDS", 0.01)
    done = call("demo")
    assert done.stdout.endswith("\nReport: fedkernel-demo/report.html\n")
    assert "quickstart: five clients hold" in done.stderr.splitlines()[0]
    assert "\n2 of 2 runs done; drawing the report (" in done.stderr


@pytest.mark.parametrize("kind", ["vertical", "horizontal", "peers"])
def test_an_experiment_runs_as_written_and_with_the_lines_changed_that_it_names(kind):
    command = call("init", kind).stdout.splitlines()[-1].split()[1:]
    assert failure("init", kind, code=2).startswith(f"error: {kind}.toml exists already, and nothing is written over")
    table = load_breast_cancer(as_frame=True).frame[:120].rename(columns={"target": "diagnosis"})
    for number, site in enumerate(SITES):
        columns = [*range(3 * number, 3 * number + 3), *([] if number else [-1])]  # the first site has the classes
        part = table.iloc[number::3] if kind == "horizontal" else table.iloc[:, columns]
        part.to_csv(f"{site}.csv", index_label="patient")
    changes = ["--set", "seeds=[0]", "--set", "report.plots=false"]
    assert call(*command, *changes).stdout.endswith(f"Report: runs/{kind}/report.html\n")
    text = re.sub(r"\n\[partition\]\n(.+\n)+", "", Path(f"{kind}.toml").read_text())
    text = re.sub(r"^name = .*bundled.*\n|^# (?=(shards|id|label) =)", "", text, flags=re.MULTILINE)
    Path(f"{kind}.toml").write_text(text)
    assert call(*command, *changes, "--out", "own").stdout.endswith("Report: own/report.html\n")


@pytest.mark.drill
def test_three_sites_come_to_an_answer_by_the_printed_commands():
    folder, *commands = call("init", "sites").stdout.replace("8443", str(free_port())).splitlines()[2:]
    script = "\n".join([folder, *(f"{command} &" for command in commands), "wait"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, check=False)
    assert Path("sites/results/report.html").exists(), done.stderr
    assert all(Path("sites", site, "clusters__seed=0.csv").exists() for site in SITES)


def test_the_schema_accepts_every_experiment_and_no_misspelt_key():
    schema = json.loads(call("schema").stdout)
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    for path in (*shipped().values(), *TEMPLATES.glob("*.toml")):
        validator.validate(tomllib.loads(path.read_text(encoding="utf-8")))
    assert "must remain for a run" in schema["properties"]["quorum"]["description"]
    tables = (schema, *schema["$defs"].values())
    assert all(key.get("description") for table in tables for key in table["properties"].values())
    assert not validator.is_valid({"name": "a", "data": {"name": "iris"}, "partitions": {"clients": 2}})


def test_no_command_waits_for_what_it_does_not_need():
    """None waits for a library of the work itself before it is to work, and small commands for small ones only."""
    code = """
import sys
from typer.testing import CliRunner
from fedkernel.experiments import cli

def answer(*arguments):
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    return result.output

answer("--version")
answer("--help")
slow = {"cryptography", "flwr", "grpc", "matplotlib", "networkx", "numpy", "pandas", "pydantic", "scipy", "sklearn"}
for name, sentence in (entry for commands in cli.COMMANDS.values() for entry in commands.items()):
    assert "".join(sentence.split()) in "".join(answer(name, "--help").split()), name
    if waits := slow & set(sys.modules):
        print(name, waits)
        break
answer("policy", "init", "policy.toml")
listed = ("list engines", "list datasets", "list metrics", "list experiments")
for command in ("check table.csv --id id", *listed, "init peers", "policy check policy.toml"):
    answer(*command.split())
    if waits := (slow - {"numpy", "pydantic", "scipy"} | {"scipy.stats"}) & set(sys.modules):
        print(command, waits)
        break
"""
    rows = "".join(f"{row},{row}.5,{row % 7}\n" for row in range(30))
    Path("table.csv").write_text(f"id,a,b\n{rows}", encoding="utf-8")
    env = {**os.environ, "COLUMNS": "300"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_help_mentions_every_command_and_a_wrong_one_is_the_users_fault():
    done = call("--help")
    commands = [name for names in cli.COMMANDS.values() for name in names]
    expected = "advise certs check compare demo identity init join list new outbox policy predict receipt report run"
    assert sorted(commands) == [*expected.split(), "schema", "serve", "show", "study", "transform"]
    assert [name for name in commands if not re.search(rf"^\W*{name} ", done.stdout, re.MULTILINE)] == []
    tables = {("check",): "[prepare]", ("study", "sign"): "[data]", ("study", "show"): "[data]", ("serve",): "[data]"}
    for command, table in tables.items():  # not read as markup
        assert table in call(*command, "--help").stdout
    for wrong in (["fly"], ["list", "planets"], ["run"]):
        call(*wrong, code=2)
    assert call("reports", code=2).output.count("Did you mean") < 2, "both Click and typer suggest"


def test_the_pages_of_commands_and_keys_are_those_of_now():
    docs = Path(__file__).parents[2] / "docs"
    commands, keys = (runpy.run_path(str(docs / name)) for name in ("command_page.py", "site_pages.py"))
    assert commands["PAGE"].read_text("utf-8") == commands["page"](), "python docs/command_page.py"
    assert (docs / "reference" / "configuration.md").read_text("utf-8") == keys["configuration"](), "make docs"
    parameters = [(name, each) for name, command in commands["commands"]() for each in command.params]
    unexplained = [(name, each.name) for name, each in parameters if not getattr(each, "help", None)]
    assert unexplained == []


def test_the_installed_command_runs_as_in_process():
    assert call("--version").stdout == f"{version('fedkernel')}\n"
    command = [Path(sys.executable).parent / "fedkernel", "list", "metrics"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == call("list", "metrics").stdout


@pytest.mark.parametrize("arguments", [["list", "metrics"], ["report", "runs/tiny"]])
def test_output_that_nobody_reads_any_more_ends_the_command_quietly(arguments):
    """As `fedkernel list metrics | head -1` does once head has ended: text as it is, and text that rich prints."""
    assert call("run", "tiny.toml").exit_code == 0
    reading, writing = os.pipe()
    os.close(reading)
    command = [Path(sys.executable).parent / "fedkernel", *arguments]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")

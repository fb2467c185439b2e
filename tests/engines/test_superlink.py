"""SuperNodes give the local engine's numbers in as many rounds as forecast, or the run fails with the cause."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from flwr.app import Message, MessageType, RecordDict
from lives import places_in
from named_sites import drawn_seed

from fedkernel import RBF, EngineError, InputError, Member, VFedAKPCA
from fedkernel.data import DataSpec, PartitionSpec
from fedkernel.engines import ray, superlink
from fedkernel.engines.flwr_command import QUIET, SCRIPTS, flwr_in
from fedkernel.engines.local import LocalGrid
from fedkernel.engines.local import run_job as run_local
from fedkernel.experiments.commands.study_text import read_study
from fedkernel.flower_apps import APPS
from fedkernel.run import FailedRun, Result, message_delivery, result_transport
from fedkernel.run.journal import NAME as NAME_OF_JOURNAL
from fedkernel.wire import Job, RunSpec, flower_internals, hash_ids

ROOT = Path(__file__).parents[2]
NAME = "dep"
SITES = ("north", "south")
PATIENTS = 60
WINE = {"data": DataSpec("wine", scale="standard"), "partition": PartitionSpec(clients=2), "clients": 2}

EXPERIMENT = """
name = "across"
engine = "superlink"
data.sites = ["north", "south"]
report.plots = false
[[strategy]]
name = "components"
method = "VFedAKPCA"
merge = "eigenvalue"
n_components = 2
rounds = 1
kernel = { type = "rbf", gamma = 0.1 }
"""


@pytest.fixture
def tables():
    """Of each site, its patients in its own order and four measurements of each."""
    rng = np.random.default_rng(0)
    return {name: (rng.permutation(PATIENTS), rng.standard_normal((PATIENTS, 4))) for name in SITES}


def write_table(path, patients, values):
    lines = ["patient,a,b,c,d", *(f"p{p}," + ",".join(map(repr, map(float, row))) for p, row in zip(patients, values))]  # noqa: B905
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")


def members(*shapes):
    return [Member(number, number, rows, columns, 0) for number, (rows, columns) in enumerate(shapes)]


def _stop_in_the_middle(command, options, journals, flower):
    with subprocess.Popen(command, **options) as stopped:
        give_up = time.monotonic() + 400
        try:
            while not any(len(places_in(path.read_bytes())) > 2 for path in journals.glob(f"*/{NAME_OF_JOURNAL}")):
                assert stopped.poll() is None, flower.logs()
                assert time.monotonic() < give_up, flower.logs()
                time.sleep(0.1)
        finally:
            stopped.terminate()
    assert stopped.returncode == 128 + signal.SIGTERM, flower.logs()
    assert [one["status"] for one in flower.flwr("list", NAME, "--format", "json")["runs"]] == ["finished:stopped"]


@pytest.mark.ray
@pytest.mark.xdist_group("superlink")
@pytest.mark.timeout(900)
@pytest.mark.drill
@pytest.mark.parametrize("stop", [False, True])
def test_a_run_of_sites_with_certificates_keys_and_files_of_their_own_also_stopped_and_resumed(tmp_path, tables, stop):
    """Over TLS, and each SuperNode known by its key; a relative path counts from where the SuperNode was started."""
    (tmp_path / "across.toml").write_text(EXPERIMENT)
    study = read_study(tmp_path / "across.toml").sha256
    own = f'id="patient" ids-without-key=true out="kept" min-sites=2 table-share=1 approve="{study}"'
    nodes = {name: f'name="{name}" data="{name}.csv" {own}' for name in SITES}
    for name, (patients, values) in tables.items():
        write_table(tmp_path / "net" / name / f"{name}.csv", patients, values)
    (tmp_path / "net" / "south" / "node.toml").write_text(nodes["south"].replace(" ", "\n"))
    nodes["south"] = "node.toml"
    out, log = tmp_path / "out" / "results" / "components__seed=0", tmp_path / "log"
    with network(tmp_path / "net", nodes, secure=True) as flower, log.open("w") as sink:
        command = [Path(sys.executable).parent / "fedkernel", "run", tmp_path / "across.toml", "--connection", NAME]
        command += ["--out", tmp_path / "out"]
        options = {"env": {**os.environ, **flower.user}, "stdout": sink, "stderr": subprocess.STDOUT}
        journals = flower.folder / "superlink" / "home" / "fedkernel-journals"
        if stop:
            _stop_in_the_middle(command, options, journals, flower)
        done = subprocess.run(command, **options, check=False)
        assert done.returncode == 0, log.read_text() + flower.logs()
    assert not list(journals.iterdir())
    result = Result.load(out)
    assert stop == any("the run was stopped, and resumed at " in finding for finding in result.findings)

    # columns of the same patients, in the order of the hashes of their ids
    seed = drawn_seed(result)
    hashes = {p: hash_ids([f"p{p}"], b"", "components__seed=0", seed).tobytes() for p in range(PATIENTS)}
    order = sorted(hashes, key=hashes.__getitem__)
    shards = [values[np.argsort(patients)][order] for patients, values in tables.values()]
    strategy = VFedAKPCA(2, merge="eigenvalue", kernel=RBF(gamma=0.1), rounds=1)
    expected = strategy.fit(shards, seed=seed)
    np.testing.assert_allclose(result.model.eigenvectors_, expected.model.eigenvectors_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.model.eigenvalues_, expected.model.eigenvalues_, rtol=0, atol=1e-12)
    assert result.ledger.rounds == strategy.forecast(members(*[(PATIENTS, 4)] * 2)).rounds
    assert result.ledger.floats_up == expected.ledger.floats_up
    for number, name in enumerate(tables):
        with np.load(tmp_path / "net" / name / "kept" / "components__seed=0.npz") as stored:
            for output, values in expected.outputs[number].items():
                np.testing.assert_allclose(stored[output], values, rtol=0, atol=1e-12)
            assert list(stored["ids"]) == [f"p{p}" for p in order]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    (tmp_path / "flwr").mkdir()

    def write(text):
        (tmp_path / "flwr" / "config.toml").write_text(text)

    write('[superlink]\ndefault = "down"\n[superlink.down]\naddress = "127.0.0.1:1"\ninsecure = true\n[superlink.sim]')
    return write


@pytest.fixture
def job(tmp_path):
    return Job(runs=[RunSpec(id="run", strategy="DKPCA", sites=["a", "b"])], apps=APPS, out=str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("up", r"^connection = 'up', but \S+/config.toml has only down, sim$"),
        ("default", "^connection = 'default', but "),
        ("sim", r"^connection = 'sim', but in \S+/config.toml it has no address of a SuperLink$"),
    ],
)
def test_a_connection_that_the_configuration_does_not_have(home, job, name, says):
    with pytest.raises(InputError, match=says):
        next(superlink.run_job(job, name))


def test_no_connection_is_the_default_one_which_may_be_down(home, job, tmp_path):
    assert superlink.find_connection(None) == ("down", "127.0.0.1:1")
    refusal = "flwr run was refused: Connection to the SuperLink is unav"
    with pytest.raises(EngineError, match=f"^connection 'down', 127.0.0.1:1: {refusal}"):
        next(superlink.run_job(job))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_configuration_that_is_none(home, tmp_path):
    for text, says in (("", "has only none"), ("[", "is not valid TOML"), (None, "there is no Flower conf")):
        home(text or "")
        if text is None:
            (tmp_path / "flwr" / "config.toml").unlink()
        with pytest.raises(InputError, match=says):
            superlink.find_connection("dep")


def test_a_result_survives_the_way_through_a_log(tmp_path, capsys, monkeypatch):
    """Written where the job's folder is not there, its files and nothing else; the journal is in Flower's home."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    journals = tmp_path / "flwr" / "fedkernel-journals"
    run = RunSpec(id="run", strategy="DKPCA", parameters={"n_components": 2}, **WINE)
    job = Job(runs=[run], apps=APPS, out=str(tmp_path / "elsewhere"), mark="mark", journals=True)
    with mock.patch.object(Result, "save", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        list(run_local(job))
    assert [path.name for path in journals.iterdir()] == [run.key]
    assert list(run_local(job)) == ["run"]
    assert not list(journals.iterdir())
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(InputError, match="n_components = 0"):
        list(run_local(job.model_copy(update={"runs": [run.model_copy(update={"parameters": {"n_components": 0}})]})))
    sent = [parcel for line in capsys.readouterr().out.splitlines(True) if (parcel := result_transport.read(line))]
    assert [(parcel.run, (parcel.error or {}).get("kind")) for parcel in sent] == [("run", None), ("", "InputError")]
    parcel = result_transport.Parcel("run", sent[0].files | {"../other": "YQ=="})
    result_transport.unpack_result(parcel, tmp_path / "here")
    list(run_local(Job(runs=[run], apps=APPS, out=str(tmp_path / "local"))))
    one, two = Result.load(tmp_path / "here"), Result.load(tmp_path / "local" / "run")
    np.testing.assert_array_equal(one.model.eigenvectors_, two.model.eigenvectors_)
    assert one.ledger == two.ledger
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flwr", "here", "local"]


@pytest.fixture
def scripted(home, monkeypatch, capsys):
    """A SuperLink of which a test says what its log and its status are, time by time."""
    script = {"logs": [], "statuses": [], "commands": []}

    @contextlib.contextmanager
    def log(run, connection):
        yield iter(script["logs"].pop(0))

    def status(flwr, connection, run):
        current = script["statuses"].pop(0)
        if current is None:
            raise EngineError("flwr list failed: Connection to the SuperLink is unavailable.")
        return current

    def line(parcel):
        result_transport.print_parcel(parcel)
        return capsys.readouterr().out

    monkeypatch.setattr(superlink, "_log", log)
    monkeypatch.setattr(superlink, "status_of", status)
    monkeypatch.setattr(superlink, "submit", lambda *arguments: "7")
    monkeypatch.setattr(superlink, "flwr_in", lambda: lambda *words: script["commands"].append(words))
    monkeypatch.setattr(superlink, "STATUS_SECONDS", 0.0)
    return script, line


def two_runs(tmp_path):
    runs = [RunSpec(id=name, strategy="DKPCA", sites=["a", "b"]) for name in ("one", "two")]
    return Job(runs=runs, apps=APPS, out=str(tmp_path / "out"))


def test_a_log_that_breaks_off_is_read_again_or_the_end_without_a_result_is_told(scripted, tmp_path):
    script, line = scripted
    one, two = (line(result_transport.Parcel(name, {"result.json": "e30="})) for name in ("one", "two"))
    failure = {"kind": "ProtocolError", "text": "a site is gone"}
    script["logs"] += [["INFO :  Starting\n", one], ["INFO :  Starting\n", one, two]]
    script["logs"] += [[line(result_transport.Parcel("two", error=failure)), one]]
    script["statuses"] += [None, ("running", ""), ("finished:completed", ""), ("finished:completed", "")]
    assert list(superlink.run_job(two_runs(tmp_path))) == ["one", "two"]
    assert list(superlink.run_job(two_runs(tmp_path))) == [FailedRun("two", **failure), "one"]
    assert (tmp_path / "out" / "two" / "result.json").read_text() == "{}"
    assert script == {"logs": [], "statuses": [], "commands": []}
    script, line = scripted
    script["logs"] += [[line(result_transport.Parcel("one"))]]
    script["statuses"] += [("finished:failed", "ServerApp failed with exception:\n no memory")]
    says = "^run 7 of connection 'down' ended as finished:failed without a result for 'two': ServerApp .*: no memory$"
    with pytest.raises(EngineError, match=says):
        list(superlink.run_job(two_runs(tmp_path)))
    assert script["commands"] == []
    script, _ = scripted
    script["logs"] += [[]]
    script["statuses"] += [None] * superlink.STATUS_TRIES
    says = "^run 7 of connection 'down': the SuperLink does not answer any more: flwr list"
    with pytest.raises(EngineError, match=says):
        list(superlink.run_job(two_runs(tmp_path)))
    assert script["commands"] == [("stop", "7", "down", "--format", "json")]


@pytest.mark.parametrize("line", ["fedkernel-parcel \n", "fedkernel-parcel eJw!\n", "fedkernel-parcel YWJj\n"])
def test_a_line_that_was_damaged(line):
    assert result_transport.read("INFO: " + line) is None
    with pytest.raises(EngineError, match=r"the log of the run has a result that is (damaged|cut off)"):
        result_transport.read(line)


def test_an_app_knows_the_job_s_folder_by_its_mark(tmp_path):
    job = Job(runs=[RunSpec(id="run", strategy="DKPCA", sites=["a"])], out=str(tmp_path), mark="mark")
    assert job.folder is None
    (tmp_path / "mark").touch()
    assert job.folder == tmp_path
    assert job.model_copy(update={"out": None}).folder is None


class SlowGrid(LocalGrid):
    """Answers as a SuperLink's grid does, which a caller must ask again and again."""

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("it would sleep for three seconds")


def test_replies_are_asked_for_until_all_are_there_or_the_time_is_up(monkeypatch):
    """By a clock that moves while the caller sleeps, which lasts until as many have replied as will."""
    monkeypatch.setattr(flower_internals, "polls_slowly", lambda grid: isinstance(grid, SlowGrid))
    for silent, timeout, replied, seconds in ((2, 0.1, [1], 0.1), (None, 10.0, [1, 2], message_delivery.POLL_SECONDS)):
        released, now = threading.Event(), [0.0]

        def app(message, context, silent=silent, released=released):
            if message.metadata.dst_node_id == silent:
                released.wait(60)
            return Message(RecordDict(), reply_to=message)

        with SlowGrid(app, clients=2) as grid:

            def sleep(seconds, grid=grid, replied=replied, now=now):
                now[0] += seconds
                while now[0] == seconds and len(grid._replies) < len(replied):
                    time.sleep(0.001)

            grid.pull_messages = lambda ids, grid=grid, now=now: LocalGrid.pull_messages(grid, ids) if now[0] else []
            clock = SimpleNamespace(monotonic=lambda now=now: now[0], sleep=sleep)
            monkeypatch.setattr(message_delivery, "time", clock)
            messages = [Message(RecordDict(), node, MessageType.QUERY) for node in (1, 2)]
            replies = message_delivery.send_and_receive(grid, messages, timeout)
            assert sorted(reply.metadata.src_node_id for reply in replies) == replied
            assert now[0] == seconds
            released.set()


class Network:
    """Where the processes are: each has a folder with a home of its own, and runs in that folder."""

    def __init__(self, folder, secure):
        self.folder, self.secure, self.port = folder, secure, ray.free_port()
        self.user = {"FLWR_HOME": str(folder / "user")}
        self.homes = []
        self.trust = ["--root-certificates", str(folder / "certs" / "ca.crt")] if secure else ["--insecure"]

    @property
    def flwr(self):
        return flwr_in(self.folder, self.user)

    @contextmanager
    def process(self, name, *command):
        """Run a command in a folder of its own until it is left, and everything it started."""
        place = self.folder / name
        home = place / "home"
        home.mkdir(parents=True)
        self.homes.append(home)
        own = {"FLWR_HOME": str(home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
        with (place / "log").open("wb") as sink:
            options = {"cwd": place, "env": {**os.environ, **QUIET, **own}, "start_new_session": True}
            options |= {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": subprocess.STDOUT}
            process = subprocess.Popen([SCRIPTS / command[0], *command[1:]], **options)
        try:
            yield process
        finally:
            ray._stop(process, home)

    def superlink(self):
        served = self.folder / "certs" / "server"
        secured = ["--ssl-ca-certfile", served / "ca.crt", "--ssl-certfile", served / "tls.crt"]
        secured += ["--ssl-keyfile", served / "tls.key", "--enable-supernode-auth", "--database", "state.db"]
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        return self.process("superlink", "flower-superlink", *where, *(secured if self.secure else ["--insecure"]))

    def supernode(self, name, config):
        command = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(ray.free_port()), "--node-config", config]
        if self.secure:
            key = self.folder / f"{name}.key"
            subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
            answer = self.flwr("supernode", "register", f"{key}.pub", NAME, "--format", "json")
            assert answer["success"], answer
            command += ["--auth-supernode-private-key", key]
        return self.process(name, "flower-supernode", *self.trust, *command)

    def wait_for(self, nodes, seconds=150):
        give_up = time.monotonic() + seconds
        statuses = []
        while time.monotonic() < give_up and statuses.count("online") < nodes:
            answer = self.flwr("supernode", "list", NAME, "--format", "json")
            statuses = [node["status"] for node in answer.get("nodes", [])]
        assert statuses.count("online") == nodes, self.logs()

    def logs(self):
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*/log"))


@contextmanager
def network(folder: Path, nodes: dict[str, str], *, secure: bool):
    """Run a SuperLink and a SuperNode for each name, given its configuration."""
    network = Network(folder, secure)
    home = folder / "user"
    home.mkdir(parents=True)
    trust = f'root-certificates = "{folder}/certs/ca.crt"' if secure else "insecure = true"
    address = f"127.0.0.1:{network.port}"
    connection = f'[superlink.{NAME}]\naddress = "{address}"\n{trust}\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "{NAME}"\n\n{connection}')
    if secure:
        hosts = ["--server", "localhost", "--server", "127.0.0.1"]
        subprocess.run([SCRIPTS / "fedkernel", "certs", folder / "certs", *hosts], check=True, capture_output=True)
    try:
        with ExitStack() as running:
            running.enter_context(network.superlink())
            give_up = time.monotonic() + 150
            while not network.flwr("supernode", "list", NAME, "--format", "json").get("success"):
                assert time.monotonic() < give_up, network.logs()
            for name, config in nodes.items():
                running.enter_context(network.supernode(name, config))
            network.wait_for(len(nodes))
            yield network
    finally:
        left = {str(home): family for home in network.homes if (family := ray._descendants(home, {}))}
        assert not left

"""A run that was stopped goes on where it stood, with the bits of one that was not: every engine's journal."""

import itertools
import json
import logging
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cases import WINE
from counting import Died, Process, job_node
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from lives import HEAD, places_in
from networks import admm, digits

from fedkernel import RBF, DisKPCA, FKKMeans, Summed
from fedkernel.engines import app_execution
from fedkernel.engines.grpc.coordinator import serve
from fedkernel.engines.local import LocalGrid, run_job, sites_here
from fedkernel.flower_apps import APPS
from fedkernel.kernel_width import WidthClient
from fedkernel.run import Journal, Result, run_resumption
from fedkernel.run.journal import ASIDE, NAME
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec, flower_internals

ROWS = np.array_split(WINE, 3)
METHODS = {
    "FKKMeans": (FKKMeans(3, 3, 10, iterations=2, solver="lanczos", coreset_size=20), ROWS),
    "ADMMKPCA": (admm(n_components=2, kernel=RBF(0.001), iterations=2), digits(12, 3)),
    "DisKPCA": (DisKPCA(3, RBF(0.05), n_adaptive=30, embedding_size=12, point_sketch_size=11, share_rows=True), ROWS),
}


def leave(site):
    """End a site as a signal ends a process."""
    site.node._tasks.put(None)
    site.node._broken = Died()


@pytest.fixture
def stop(monkeypatch):
    """Has a process stopped once so many exchanges are recorded, or answered and the last one not recorded."""
    own = Journal.add

    def once(count, act, *, recorded=True):
        def add(journal, *exchange):
            last = len(journal) + 1 >= count
            if recorded or not last:
                own(journal, *exchange)
            if last:
                raise Died

        monkeypatch.setattr(Journal, "add", add)
        with pytest.raises(Died):
            act()
        monkeypatch.setattr(Journal, "add", own)

    def at_each(result, act):
        """Stop a run at its first exchange, some rounds later, and at the last; not always with a record of it."""
        last = 1 + result.ledger.rounds
        for count, recorded in ((1, False), (2, True), (last // 2, False), (last - 1, True), (last, False)):
            once(count, act, recorded=recorded)

    return SimpleNamespace(once=once, at_each=at_each)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Has each exchange be a record of its own also where several would be one, those of a second."""
    monkeypatch.setattr(LocalGrid, "write_every", 0.0)


def job_of(name, folder, out="out", *, journals=True, **changes):
    strategy, shards = METHODS[name]
    (folder / "data").mkdir(exist_ok=True)
    files = [as_file(shard, folder / "data" / f"{number}") for number, shard in enumerate(shards)]
    parameters = {**strategy.hyperparameters, **changes}
    # of which a journal has replies as they travelled, but sums as they are
    wire = "float32" if name == "FKKMeans" else "float64"
    own = {"id": "run", "strategy": name, "parameters": parameters, "shards": files, "seed": 3, "wire": wire}
    run = RunSpec(**own, clients=len(shards), sums="plain" if name == "ADMMKPCA" else "masked")
    return Job(runs=[run], apps=APPS, out=str(folder / out), journals=journals)


def carry_out(job):
    assert list(run_job(job)) == ["run"]
    return Result.load(f"{job.out}/run")


def assert_same(result, reference):
    for (name, array), (other, expected) in zip(vars(result.model).items(), vars(reference.model).items(), strict=True):
        assert name == other
        assert np.array_equal(array, expected) if isinstance(array, np.ndarray) else repr(array) == repr(expected), name
    assert result.ledger == reference.ledger
    untimed = lambda row: {name: value for name, value in row.items() if "seconds" not in name}  # noqa: E731
    assert list(map(untimed, result.history)) == list(map(untimed, reference.history))
    assert result.outputs.keys() == reference.outputs.keys()
    for client, outputs in result.outputs.items():
        for name, array in outputs.items():
            np.testing.assert_array_equal(array, reference.outputs[client][name])


def test_exchanges_of_a_second_are_one_record_and_those_since_are_computed_again(tmp_path, stop, monkeypatch, caplog):
    """A clock that ticks when it is read has records of three exchanges; what a record has not, nobody relies on."""
    reference = carry_out(job_of("FKKMeans", tmp_path, "whole", journals=False))
    monkeypatch.setattr(LocalGrid, "write_every", 3.0)
    monkeypatch.setattr("fedkernel.run.journal.time", SimpleNamespace(monotonic=itertools.count().__next__))
    job, whole = job_of("FKKMeans", tmp_path), []
    for count in (2, 5, 8):
        stop.once(count, lambda: carry_out(job))
        data = (tmp_path / "out" / "run" / NAME).read_bytes()
        whole.append([len(exchanges_of(data, place)) for place in places_in(data)])
    assert whole == [[], [3], [3, 3]]
    with caplog.at_level(logging.INFO, "fedkernel.run.journal"):
        assert_same(carry_out(job), reference)
    assert caplog.messages == ["run: resumed at round 6, after 6 recorded exchanges"]


class Foreign(Grid):
    """A grid as Flower has it: its nodes remember nothing of the last one's, and have other ids, in another order."""

    def __init__(self, own, shift):
        self.own, self.rounds = own, 0
        nodes = list(own.get_node_ids())
        self.ids = {node: 1000 + (node + shift) % len(nodes) for node in nodes}

    def get_node_ids(self):
        return list(self.ids.values())

    def send_and_receive(self, messages, *, timeout=None):
        self.rounds += 1
        node_of = {other: node for node, other in self.ids.items()}
        about = [(message.content, message.metadata) for message in messages]
        sent = [Message(what, node_of[to.dst_node_id], to.message_type, group_id=to.group_id) for what, to in about]
        replies = list(self.own.send_and_receive(sent, timeout=timeout))
        for reply in replies:
            flower_internals.set_source(reply, self.ids[reply.metadata.src_node_id])
        return replies

    push_messages = pull_messages = create_message = set_run = run = None


def foreign_grids(made):
    """Return what gives a run such a grid, each another one, whose ids are turned by one more."""

    @contextmanager
    def grid(run, text):
        with sites_here({}, site_of_job, clients=3, run_config={"job": text}) as own:
            made.append(Foreign(own, len(made)))
            yield made[-1]

    return grid


@pytest.mark.parametrize(("name", "most"), [("FKKMeans", 1 << 26), ("DisKPCA", 0)])
def test_nodes_of_flower_s_are_asked_again_all_at_once(name, most, tmp_path, stop, monkeypatch, caplog):
    """Two rounds more, however many were recorded; as many as were where one request fills a message."""
    monkeypatch.setattr(run_resumption, "MOST_BYTES", most)
    reference = carry_out(job_of(name, tmp_path, "whole", journals=False))
    job, grids = job_of(name, tmp_path), []
    grid = foreign_grids(grids)
    with caplog.at_level(logging.INFO, "fedkernel.run.journal"):
        stop.at_each(reference, lambda: list(app_execution.carry_out(job, grid)))
        list(app_execution.carry_out(job, grid))
    assert_same(Result.load(tmp_path / "out" / "run"), reference)
    exchanges = 1 + reference.ledger.rounds
    assert grids[-1].rounds == (2 if most else exchanges - 1) + 1
    assert not (tmp_path / "out" / "run" / ASIDE).exists()
    how = f"after {exchanges - 1} recorded exchanges, {exchanges - 1} of them repeated by restarted sites"
    assert f"run: resumed at round {reference.ledger.rounds}, {how}" in caplog.text


@pytest.mark.parametrize(
    ("kinds", "places", "says"),
    [
        (None, [], "the bundle of repeated requests has no list of request types"),
        (["train"], [], "the bundle announces 1 requests, but holds 0 or other ones"),
        (["train"], ["1 config"], "the bundle announces 1 requests, but holds 1 or other ones"),
        (["train"], ["9" * 5000 + " config"], "the bundle announces 1 requests, but holds 1 or other ones"),
        (["query.again"], ["0 config"], "a bundle of repeated requests cannot hold another bundle"),
        (["no.such.type"], ["0 config"], "unknown message type 'no.such.type'"),
    ],
)
def test_what_is_asked_again_must_be_whole(kinds, places, says):
    content = RecordDict({place: ConfigRecord({"run": "run"}) for place in places})
    if kinds is not None:
        content["kinds"] = ConfigRecord({"kinds": kinds})
    with LocalGrid(client_app({}, site_of_job), clients=1) as grid:
        (reply,) = grid.send_and_receive([Message(content, 1, "query.again")], timeout=10.0)
    assert reply.error.reason == says


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("DisKPCA", lambda file: np.save(file, 1.5 * np.load(file)), "differs from the recorded one"),
        ("DisKPCA", lambda file: np.save(file, np.load(file)[:-1]), "does not repeat its recorded introduction"),
        ("ADMMKPCA", lambda file: None, "does not repeat its recorded answers"),
    ],
)
def test_nodes_that_answer_otherwise_have_the_run_begin_anew(name, change, says, tmp_path, stop, monkeypatch, caplog):
    """As where a site's table is another, which this process cannot see, or keys for letters were not kept."""
    monkeypatch.setattr("fedkernel.run.journal_header.file_hash", lambda path: "")
    job, grid = job_of(name, tmp_path), foreign_grids([])
    stop.once(5, lambda: list(app_execution.carry_out(job, grid)))
    change(job.runs[0].shards[1])
    list(app_execution.carry_out(job, grid))
    assert says in caplog.text
    whole = job.model_copy(update={"out": str(tmp_path / "whole"), "journals": False})
    assert_same(Result.load(tmp_path / "out" / "run"), carry_out(whole))


def recorded_up_to(name, folder, stop, count):
    """Return a job that was stopped then, and its journal."""
    job = job_of(name, folder)
    stop.once(count, lambda: carry_out(job))
    return job, folder / "out" / "run" / NAME


def exchanges_of(data, place):
    """Return what the record there says of its exchanges."""
    described = HEAD.unpack_from(data, place)[1]
    return json.loads(data[place + HEAD.size :][:described])["exchanges"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "doubled"])
def test_a_damaged_journal_ends_at_its_last_whole_record(damage, tmp_path, stop, caplog):
    reference = carry_out(job_of("FKKMeans", tmp_path, "whole", journals=False))
    job, path = recorded_up_to("FKKMeans", tmp_path, stop, 12)
    data = bytearray(path.read_bytes())
    places = places_in(data)
    if damage == "cut":
        data = data[:-3]
    elif damage == "flipped":
        data[places[8] + 200] ^= 1
    else:  # a record that is whole, and not where it was
        data += data[places[3] : places[4]]
    path.write_bytes(data)
    whole = {"cut": 11, "flipped": 8, "doubled": 12}[damage]
    with caplog.at_level(logging.INFO, "fedkernel.run.journal"):
        assert_same(carry_out(job), reference)
    assert caplog.messages == [
        f"{path} is damaged or cut off after {whole} recorded exchanges; the rest is ignored",
        f"run: resumed at round {whole}, after {whole} recorded exchanges",
    ]
    caplog.clear()
    assert_same(carry_out(job), reference)
    assert "damaged" not in caplog.text, "what was left out is gone"


def other_run(job, **update):
    return job.model_copy(update={"runs": [job.runs[0].model_copy(update=update)]})


def other_rows(job):
    """Of the same shape."""
    file = job.runs[0].shards[1]
    np.save(file, 1.5 * np.load(file))
    return job


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda job: other_run(job, parameters={**job.runs[0].parameters, "n_adaptive": 20}), "settings, strategy"),
        (lambda job: other_run(job, seed=4), "settings"),
        (lambda job: job.model_copy(update={"threads": 2}), "threads"),
        (other_rows, "data"),
    ],
)
def test_a_journal_of_another_run_is_set_aside(change, what, tmp_path, stop, caplog):
    job, path = recorded_up_to("DisKPCA", tmp_path, stop, 4)
    before = path.read_bytes()
    changed = change(job)
    with caplog.at_level(logging.INFO, "fedkernel.run.journal"):
        result = carry_out(changed)
    assert_same(result, carry_out(changed.model_copy(update={"out": str(tmp_path / "again"), "journals": False})))
    assert path.with_name(ASIDE).read_bytes() == before
    (line,) = caplog.messages
    assert line == f"{path} is set aside as {ASIDE}, and the run begins anew: it is of a different run ({what})"


REPEATED = "resumed at round 5, after 5 recorded exchanges, 5 of them repeated by restarted sites"


@pytest.mark.parametrize(
    ("name", "restarted", "line"),
    [
        ("DisKPCA", "c", REPEATED),
        ("ADMMKPCA", "c", "site 'c' was restarted, and its answer differs from the recorded one"),
        ("DisKPCA", "abc", f"run: {REPEATED}"),
    ],
)
def test_sites_that_were_restarted_meanwhile_are_asked_again(name, restarted, line, tmp_path, stop, caplog):
    """Unless one answers otherwise: keys that it does not keep are others, and the run begins anew."""
    job = job_of(name, tmp_path)
    reference = carry_out(job_of(name, tmp_path, "whole", journals=False))
    names, sites, ports = ["a", "b", "c"], {}, []

    def begin(port):
        ports.append(port)
        for site in names:
            if site not in sites:
                sites[site] = Process(site, port, node=job_node)

    def run():
        return list(serve(job, names, f"127.0.0.1:{(ports or [0])[0]}", None, ready=begin))

    stop.once(5, run)
    for site in restarted:
        leave(sites.pop(site))
    with caplog.at_level(logging.INFO, "fedkernel.run.journal"):
        assert run() == ["run"]
    assert_same(Result.load(f"{job.out}/run"), replace(reference, outputs={}))
    assert line in caplog.text
    assert (tmp_path / "out" / "run" / ASIDE).exists() == ("anew" in caplog.text) == ("repeated by" not in line)


def test_of_replies_that_are_only_summed_a_journal_has_the_sum(tmp_path):
    """And of others each client's: nothing that the coordinator was not to keep, or for any but its owner."""
    job, journal = job_of("FKKMeans", tmp_path), tmp_path / "out" / "run" / NAME
    result = carry_out(job)
    assert journal.stat().st_mode & 0o777 == 0o600
    data = journal.read_bytes()
    assert_same(carry_out(job), result)  # everything is recorded
    assert not journal.with_name(ASIDE).exists()
    answers = (*FKKMeans.client.answers, *WidthClient.answers)
    summed = {kind.__name__ for kind in answers if issubclass(kind.reply_type, Summed)}
    counts = {True: set(), False: set()}
    for place in places_in(data):
        (exchange,) = exchanges_of(data, place)
        phases = {entry["phase"] for entry in exchange["account"].get("ledger", [])}
        counts[phases <= summed and phases != set()].add(len(exchange["sizes"]))
    assert counts == {True: {1}, False: {len(ROWS)}}

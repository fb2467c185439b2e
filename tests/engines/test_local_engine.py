"""The engine in one process: its messages, its contexts, its threads, and its end."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from fedkernel import CentroidKPCA
from fedkernel.engines.local import LocalGrid
from fedkernel.site.site_setup import Site

IDENTITY = ("_task_id", "_run_id", "_node_id")


def app_of(act):
    """A ClientApp whose train handler answers with the record that ``act(record, context)`` returns."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        return Message(act(message.content, context), reply_to=message)

    return app


def ask(node, array=(), **config):
    content = RecordDict({"arrays": ArrayRecord([np.asarray(array, dtype=float)]), "config": ConfigRecord(config)})
    return Message(content, node, MessageType.TRAIN, group_id="1")


def echo(content, context):
    return content


def number(reply, name):
    return reply.content["config"][name]


def wait_for_reply(grid, message_id):
    give_up = time.monotonic() + 30
    while not (replies := list(grid.pull_messages([message_id]))):
        assert time.monotonic() < give_up, "no reply came"
        time.sleep(0.005)
    return replies[0]


@pytest.mark.parametrize(("before", "after"), [((7, 8, 9), (7, 8, 9)), ((None, 8, None), (1, 8, 1))])
def test_a_task_identity_that_is_set_stays(monkeypatch, before, after):
    for name, value in zip(IDENTITY, before, strict=True):
        monkeypatch.setattr(TaskIdentity, name, value)
    with LocalGrid(app_of(echo), clients=1) as grid:
        assert list(grid.send_and_receive([ask(1)], timeout=30))
    assert (TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id) == after


def test_what_is_changed_after_sending_does_not_reach_the_client():
    released, seen = threading.Event(), []

    def act(content, context):
        assert released.wait(30)
        seen.append(content["arrays"].to_numpy_ndarrays()[0])
        return content

    sent = np.arange(3.0)
    with LocalGrid(app_of(act), clients=1) as grid:
        message = ask(1, sent, word="before")
        (message_id,) = grid.push_messages([message])
        sent[:] = -1
        message.content["arrays"]["0"] = Array(sent)
        message.content["config"]["word"] = "after"
        released.set()
        reply = wait_for_reply(grid, message_id)
    np.testing.assert_array_equal(seen[0], [0, 1, 2])
    assert number(reply, "word") == "before"


def test_what_a_client_changes_after_replying_does_not_reach_the_server():
    contents = []

    def act(content, context):
        if contents:
            contents[0]["config"]["word"] = "changed"
        contents.append(content)
        return content

    with LocalGrid(app_of(act), clients=1) as grid:
        (first,) = grid.send_and_receive([ask(1, word="as sent")], timeout=30)
        list(grid.send_and_receive([ask(1)], timeout=30))
    assert number(first, "word") == "as sent"
    assert contents[0]["config"]["word"] == "changed"


def test_clients_of_one_node_never_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    running, most, lock = {1: 0, 2: 0}, {1: 0, 2: 0}, threading.Lock()
    together = threading.Barrier(2)

    def act(content, context):
        node = context.node_id
        with lock:
            running[node] += 1
            most[node] = max(most[node], running[node])
        if content["config"]["meet"]:
            together.wait(30)  # passes only while the other node's client runs too
        time.sleep(0.01)
        with lock:
            running[node] -= 1
        return RecordDict({"config": ConfigRecord({"done": 1})})

    with LocalGrid(app_of(act), clients=2) as grid:
        messages = [ask(1, meet=True), ask(2, meet=True), *(ask(node, meet=False) for node in (1, 1, 2, 2))]
        replies = list(grid.send_and_receive(messages, timeout=30))
    assert not any(reply.has_error() for reply in replies)
    assert len(replies) == 6
    assert most == {1: 1, 2: 1}


def test_each_node_has_a_context_of_its_own_that_lasts():
    def act(content, context):
        count = int(context.state["seen"]["count"]) + 1 if "seen" in context.state else 1
        context.state["seen"] = ConfigRecord({"count": count})
        numbers = {name: context.node_config[name] for name in ("partition-id", "num-partitions")}
        job = context.run_config["job"]
        return RecordDict({"config": ConfigRecord({"count": count, "node": context.node_id, "job": job, **numbers})})

    with LocalGrid(app_of(act), clients=3, run_config={"job": "text"}) as grid:
        assert list(grid.get_node_ids()) == [1, 2, 3]
        for round_number in (1, 2):
            # Node 3 is asked in the first round only.
            nodes = [1, 2, 3][: 4 - round_number]
            replies = {r.metadata.src_node_id: r for r in grid.send_and_receive([ask(n) for n in nodes], timeout=30)}
            assert sorted(replies) == nodes
            for node, reply in replies.items():
                expected = {"count": round_number, "node": node, "job": "text"}
                assert dict(reply.content["config"]) == expected | {"partition-id": node - 1, "num-partitions": 3}
    with LocalGrid(app_of(act), clients=1, run_config={"job": "text"}) as grid:
        (reply,) = grid.send_and_receive([ask(1)], timeout=30)
    assert number(reply, "count") == 1, "another grid knows nothing of the first one's"


def test_each_reply_is_handed_out_once_and_to_its_own_message_also_where_an_app_raises():
    def act(content, context):
        if content["config"]["word"] == "bad":
            raise OSError("no such thing")
        return content

    before = set(threading.enumerate())
    with LocalGrid(app_of(act), clients=2) as grid:
        workers = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("client-worker")]
        (bad,) = grid.send_and_receive([ask(1, word="bad")], timeout=30)
        assert "no such thing" in bad.error.reason
        assert bad.metadata.src_node_id == 1
        ids = list(grid.push_messages([ask(1, word="one"), ask(2, word="two")]))
        assert len(set(ids)) == 2
        first, second = wait_for_reply(grid, ids[0]), wait_for_reply(grid, ids[1])
        assert (number(first, "word"), number(second, "word")) == ("one", "two")
        assert [first.metadata.reply_to_message_id, second.metadata.reply_to_message_id] == ids
        assert list(grid.pull_messages(ids)) == []
        assert list(grid.send_and_receive([], timeout=30)) == []
    assert workers
    assert all(thread.daemon for thread in workers)
    for thread in workers:  # which end with the grid
        thread.join(30)
        assert not thread.is_alive()


def test_a_silent_client_costs_its_round_the_deadline_and_the_others_nothing(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    released = threading.Event()

    def act(content, context):
        if context.node_id == 1:
            released.wait(30)
        return content

    with LocalGrid(app_of(act), clients=2) as grid:
        grid._clock = lambda: 60.0 * bool(grid._replies)  # the deadline is over once the other's reply is there
        replies = list(grid.send_and_receive([ask(1), ask(2)], timeout=60.0))
        assert [reply.metadata.src_node_id for reply in replies] == [2]
        released.set()


HUNG = """
import threading
import numpy as np
from fedkernel.clients import DKPCAClient
from fedkernel.ground.errors import ProtocolError
from fedkernel.strategies import DKPCA

DKPCAClient._solve = lambda *_: threading.Event().wait()
try:
    DKPCA(1).fit([np.eye(3), np.eye(3)], deadline=0.3)
except ProtocolError as error:
    print("refused:", error)
"""


@pytest.mark.slow
def test_a_hung_client_does_not_keep_the_process_from_ending():
    options = {"capture_output": True, "text": True, "timeout": 60, "cwd": Path(__file__).parents[2]}
    done = subprocess.run([sys.executable, "-c", HUNG], check=False, **options)
    assert done.returncode == 0, done.stderr
    line = "refused: DKPCA, round 1 (FindLocalEigenpairs), client 0: no answer within 0.3 s; client 1 is missing, too; "
    assert done.stdout.strip() == f"{line}0 of 2 clients are left, but all are needed"


def test_a_run_leaves_no_table_to_the_garbage_collector():
    def sites():
        return {id(thing) for thing in gc.get_objects() if isinstance(thing, Site)}

    gc.collect()
    gc.disable()
    try:
        others = sites()
        CentroidKPCA(2).fit([np.random.default_rng(0).normal(size=(60, 4)) for _ in range(2)], seed=0)
        give_up = time.monotonic() + 30
        while sites() - others:  # until the grid's threads have ended
            assert time.monotonic() < give_up
            time.sleep(0.005)
    finally:
        gc.enable()

"""A site's process, of which two threads know where it stands."""

import threading

import pytest
from counting import app
from flwr.app import ConfigRecord, Message, RecordDict

from fedkernel.engines.grpc import node as grpc_node
from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES
from fedkernel.engines.grpc.frames import Envelope, ResumeState, Welcome
from fedkernel.engines.grpc.node import Node
from fedkernel.site import audit_log
from fedkernel.wire import flower_internals


def test_what_was_computed_for_work_that_has_ended_meanwhile_does_not_count_for_the_next(monkeypatch):
    node = Node(app(), "a", {}, lambda text: None)
    node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=MAX_MESSAGE_BYTES))
    node._journal_position = ResumeState("first", 3)

    def answer(app, message, context):
        return Message(RecordDict(), reply_to=message)  # no error

    def answer_late(*arguments):
        node._job = "other"
        # as the thread does that attends to the stream
        node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=MAX_MESSAGE_BYTES))
        return answer(*arguments)

    request = Message(RecordDict({"config": ConfigRecord()}), 1, "train", group_id="1")
    envelope = Envelope(flower_internals.stamp(request), (b"".join(flower_internals.to_parts(request)),))
    node._reply(envelope, node._context)
    monkeypatch.setattr(grpc_node, "answer", answer)
    node._reply(envelope, node._context)
    assert node._journal_position == ResumeState("first", 4)
    monkeypatch.setattr(grpc_node, "answer", answer_late)
    node._last_request = None
    node._reply(envelope, node._context)
    assert node._journal_position == ResumeState()


def test_a_site_goes_on_where_nobody_can_be_told_what_it_does():
    def gone(text):
        raise BrokenPipeError(text)

    node = Node(app(), "a", {}, gone)
    node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=MAX_MESSAGE_BYTES))
    node.report("joined")


def test_requests_of_a_server_that_does_not_wait_for_replies_take_no_more_memory_than_one():
    node, queued = Node(app(), "a", {}, lambda text: None), []
    node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=1 << 16))
    node._reply = lambda request, context: Envelope(request.id, ())

    def send():
        for number in range(5):
            node._queue_request(Envelope(f"{number:036d}", (bytes(30_000),)), "")
            queued.append(number)

    threads = [threading.Thread(target=act, daemon=True) for act in (send, node._compute)]
    threads[0].start()
    threads[0].join(0.5)
    assert queued == [0, 1]
    threads[1].start()
    threads[0].join(5)
    assert queued == [*range(5)]
    node._tasks.put(None)
    threads[1].join(5)


@pytest.mark.parametrize("small", [0, grpc_node.SMALL_REQUEST])
def test_a_request_that_comes_again_is_computed_once_and_another_of_its_round_is_not_it(monkeypatch, small):
    node, computed = Node(app(), "a", {}, lambda text: None), []
    node._adopt_welcome(Welcome(client=0, clients=1, job="", limit=MAX_MESSAGE_BYTES))

    def answer(app, message, context):
        computed.append(dict(message.content["config"]))
        reply = Message(RecordDict({"config": ConfigRecord({"n": len(computed)})}), reply_to=message)
        flower_internals.stamp(reply)
        return reply

    def reply_to(n, number=1):
        request = Message(RecordDict({"config": ConfigRecord({"n": n})}), 1, "train", group_id=str(number))
        message_id = flower_internals.stamp(request)  # another one each time
        envelope = Envelope(message_id, (b"".join(flower_internals.to_parts(request)),))
        node._last_reply = node._reply(envelope, node._context)
        return flower_internals.from_bytes(b"".join(node._last_reply.parts)).content["config"]["n"]

    monkeypatch.setattr(grpc_node, "answer", answer)
    monkeypatch.setattr(grpc_node, "SMALL_REQUEST", small)
    assert [reply_to(1), reply_to(1), reply_to(2), reply_to(2), reply_to(2, number=2)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("is_recording", [True, False], ids=["in its record", "computing"])
def test_a_process_ends_after_what_is_written_to_its_record_and_waits_for_no_more(tmp_path, monkeypatch, is_recording):
    busy, go_on, end, written = (threading.Event() for _ in range(4))
    node = Node(app(), "a", {}, lambda text: None)

    def reply(*_):
        if not is_recording:
            busy.set()
            go_on.wait(10)
        with audit_log._locked_outbox(tmp_path):
            busy.set()
            go_on.wait(10)
            written.set()
        return Envelope("", ())

    monkeypatch.setattr(node, "_reply", reply)
    monkeypatch.setattr(node, "_connect_repeatedly", lambda *_: end.wait(10) and "")
    node._tasks.put((Envelope("", ()), None))
    attending = threading.Thread(target=node.serve, args=("", None), daemon=True)
    attending.start()
    assert busy.wait(10)
    end.set()
    attending.join(0.1 if is_recording else 10)
    assert attending.is_alive() == is_recording
    go_on.set()
    attending.join(10)
    assert not attending.is_alive()
    assert written.wait(0.1) == is_recording, "nothing is begun after the end"

"""A site's process, of which two threads know where it stands."""

from counting import app
from flwr.app import ConfigRecord, Message, RecordDict

from fedkernel.engines.grpc import node as grpc_node
from fedkernel.engines.grpc.frames import LIMIT, Envelope, Welcome
from fedkernel.engines.grpc.node import Node, Standing
from fedkernel.run import flower


def test_what_was_computed_for_work_that_has_ended_meanwhile_does_not_count_for_the_next(monkeypatch):
    node = Node(app(), "a", {}, lambda text: None)
    node._settle(Welcome(client=0, clients=1, job="", limit=LIMIT))
    node._stands = Standing("first", 3)
    own = grpc_node.answer

    def answer(*arguments):
        parts = own(*arguments)
        node._job = "other"
        node._settle(Welcome(client=0, clients=1, job="", limit=LIMIT))  # as the thread does that attends to the stream
        return parts

    request = Message(RecordDict({"config": ConfigRecord()}), 1, "train", group_id="1")
    envelope = Envelope(flower.stamp(request), (b"".join(flower.to_parts(request)),))
    node._reply(envelope, node._context)
    monkeypatch.setattr(grpc_node, "answer", lambda *arguments: (*own(*arguments), b""))  # no error
    node._reply(envelope, node._context)
    assert node._stands == Standing("first", 4)
    monkeypatch.setattr(grpc_node, "answer", lambda *arguments: (*answer(*arguments), b""))
    node._last_request = ""
    node._reply(envelope, node._context)
    assert node._stands == Standing()

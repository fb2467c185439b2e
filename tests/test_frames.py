"""Messages of any size in chunks, over a gRPC stream."""

import pytest

from fedkernel.engines.grpc import frames
from fedkernel.engines.grpc.frames import Envelope, FrameError, Inbox


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 1), (9, 1), (10, 0), (10, 10), (11, 5), (3, 40), (64, 64)])
def test_messages_travel_in_chunks(monkeypatch, sizes):
    monkeypatch.setattr(frames, "CHUNK", 10)
    envelope = Envelope("m" * 36, tuple(bytes(range(size)) for size in sizes))
    sent, inbox = list(frames.frames(envelope)), Inbox()
    assert len(sent) == max(1, -(-sum(sizes) // 10))
    *nothing, whole = [inbox.take(frame) for frame in sent]
    assert nothing == [None] * (len(sent) - 1)
    assert (whole.id, whole.parts) == (envelope.id, (b"".join(envelope.parts),))


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([b"\7"], "out of order"),
        ([b"\2abc"], "out of order"),
        ([b"\0{"], "out of order"),
        ([b"\1" + b"m" * 36 + (5).to_bytes(8, "big") + b"1", b"\1"], "out of order"),
        ([b"\1" + b"m" * 36 + (5).to_bytes(8, "big") + b"123456"], "another number of bytes"),
        ([b"\1" + b"m" * 36 + (101).to_bytes(8, "big")], "announced a message of 101 bytes; allowed are 100"),
    ],
)
def test_frames_that_are_none(sent, text):
    inbox = Inbox(limit=100)
    with pytest.raises(FrameError, match=text):
        [inbox.take(frame) for frame in sent]

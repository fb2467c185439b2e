"""Messages of any size in chunks, over a gRPC stream."""

import json

import pytest

from fedkernel.engines.grpc import frames
from fedkernel.engines.grpc.frames import Envelope, FrameDecoder, FrameError


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 1), (9, 1), (10, 0), (10, 10), (11, 5), (3, 40), (64, 64)])
def test_messages_travel_in_chunks(monkeypatch, sizes):
    monkeypatch.setattr(frames, "CHUNK", 10)
    envelope = Envelope("m" * 36, tuple(bytes(range(size)) for size in sizes))
    sent, inbox = list(frames.frames(envelope)), FrameDecoder()
    assert len(sent) == max(1, -(-sum(sizes) // 10))
    *nothing, whole = [inbox.decode(frame) for frame in sent]
    assert nothing == [None] * (len(sent) - 1)
    assert (whole.id, whole.parts) == (envelope.id, (b"".join(envelope.parts),))


HEAD = b"\1" + b"m" * 36


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([b"\7"], "out of order"),
        ([b""], "out of order"),
        ([b"\2abc"], "out of order"),
        ([b"\0{"], "out of order"),
        ([b'\0{"end": ""}'], "out of order"),
        ([HEAD + (5).to_bytes(8, "big") + b"1", b"\1"], "out of order"),
        ([HEAD + (5).to_bytes(8, "big") + b"123456"], "differs from the announced one"),
        ([HEAD + (9).to_bytes(8, "big"), b"\2"], "differs from the announced one"),
        ([HEAD + (101).to_bytes(8, "big")], "announced a message of 101 bytes; allowed are 100"),
    ],
)
def test_frames_that_are_none(sent, text):
    inbox = FrameDecoder(limit=100)
    with pytest.raises(FrameError, match=text):
        [inbox.decode(frame) for frame in sent]


PATHS = ["../a.npz", "a.csv", ".a.npz", "/a.npz", "a/b.npz", "", "a" * 300 + ".npz"]
NOTES = [b"", b"5", b"{}", b'{"end": "", "file": "a.npz"}', b"[" * 100_000]


@pytest.mark.parametrize("note", [*NOTES, *(json.dumps({"file": name}).encode() for name in PATHS)])
def test_notes_that_cannot_be_read_or_name_a_path_are_refused(note):
    with pytest.raises(FrameError, match=r"it sent an invalid note"):
        FrameDecoder(notes=True).decode(b"\0" + note)

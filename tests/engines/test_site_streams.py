"""Streams of a site: one has the seat, others wait or are refused; and what is kept of what comes over it."""

import queue
import tracemalloc
from contextlib import ExitStack

import grpc
import pytest
from counting import Process, answer, ask, caller, health, opened, sent, server, until
from flwr.app import RecordDict

from fedkernel.engines.grpc import stream_grid as grpc_hub
from fedkernel.engines.grpc.frames import HEARTBEAT, Envelope, FrameDecoder, FrameError, frames
from fedkernel.engines.grpc.streams import RefusedError

HEAD = b"\1" + b"i" * 36


def ask_first(hub):
    """Send the first site a request; returns its id."""
    return ask(hub, nodes=(1,))[0]


def test_streams_that_read_nothing_keep_nobody_out(monkeypatch):
    """Of one certificate; the other site joins, and health checks are answered."""
    monkeypatch.setattr(grpc_hub, "ANSWER_SECONDS", 0.3)
    own = [("grpc.use_local_subchannel_pool", 1)]
    silent = queue.SimpleQueue()
    with server("a", "b") as (hub, port), ExitStack() as stack:
        calls = []
        for number in range(20):
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", own))
            calls.append(opened(channel, iter(silent.get, None), instance=str(number)))
        b = Process("b", port)
        with health(port) as check:
            assert check() == 1
        hub.wait_for_all()
        until(lambda: any("a is back, restarted" in line for line in hub.messages))
        with health(port) as check:
            assert check() == 1
        assert hub._slots["a"].open <= 2
        assert sum(call.is_active() for call in calls) <= 2
        for _ in calls:
            silent.put(None)
    assert b.end() is None


def test_a_newer_process_has_the_seat_once_the_older_one_does_not_answer(hub, now):
    old = hub.admit(caller(instance="old"))
    sent(hub, old)
    new = hub.admit(caller(instance="new"))
    assert sent(hub, old) == [HEARTBEAT]
    assert not sent(hub, new)
    with pytest.raises(RefusedError, match="a second process is waiting for the slot of site 'a'"):
        hub.admit(caller(instance="third"))
    now[0] += grpc_hub.ANSWER_SECONDS - 0.1
    hub.replace_silent()
    assert not old.over
    now[0] += 0.2
    hub.replace_silent()
    assert old.over
    assert sent(hub, new)[0].startswith(b'\0{"welcome"')
    lost, back = hub.told[2:]
    assert lost == "a from peer of old does not answer, and loses its slot"
    assert back == "a is back, restarted, from peer of new (1 of 2)"
    hub.leave(old)
    assert hub.present == 1
    # one that answers keeps its seat
    third = hub.admit(caller(instance="third"))
    now[0] += grpc_hub.ANSWER_SECONDS - 0.1
    hub.receive_frame(new, HEARTBEAT)
    assert third.over
    assert str(third.refusal) == "site 'a' is already connected, from peer of new"
    hub.leave(third)
    now[0] += 100
    hub.replace_silent()
    assert not new.over
    # and the same process replaces its stream at once
    message_id, again = ask_first(hub), hub.admit(caller(instance="new"))
    assert new.over
    assert [frame[1:37].decode() for frame in sent(hub, again)[1:]] == [message_id]


def test_an_older_process_that_sends_much_has_longer_to_answer(hub, now):
    """Its answer may be behind what it sends."""
    old, message_id = hub.admit(caller(instance="old")), ask_first(hub)
    new = hub.admit(caller(instance="new"))
    head, *chunks = frames(Envelope(message_id, (bytes(5 << 20),)))
    for frame in (head, *chunks[:2]):
        now[0] += grpc_hub.ANSWER_SECONDS - 0.1
        hub.receive_frame(old, frame)
        hub.replace_silent()
    assert not old.over
    now[0] += grpc_hub.ANSWER_SECONDS
    hub.replace_silent()
    assert old.over
    assert not new.over


def test_a_site_that_was_here_is_not_asked_again_for_what_it_took(hub):
    """It was restarted, asked for all again, and its stream broke on the way."""
    first = hub.admit(caller(instance="old"))
    ids = [ask_first(hub) for _ in range(4)]
    for message_id in ids[:3]:
        answer(hub, first, message_id)
    hub.leave(first)
    second = hub.admit(caller(instance="new"))
    assert [frame[1:37].decode() for frame in sent(hub, second)[1:]] == ids
    hub.leave(second)
    third = hub.admit(caller(instance="new", **{"fedkernel-taken": ids[1]}))
    assert [frame[1:37].decode() for frame in sent(hub, third)[1:]] == ids[2:]


def test_streams_that_do_not_end_are_counted(hub):
    streams = [hub.admit(caller()) for _ in range(grpc_hub.MOST_STREAMS)]
    with pytest.raises(RefusedError, match="site 'a' has 8 streams"):
        hub.admit(caller())
    hub.admit(caller("b"))
    hub.leave(streams[0])
    hub.admit(caller())


def held(decoder):
    """Bytes so far of a message that is not whole."""
    return len(decoder._data or b"")


def test_a_letter_that_nobody_waits_for_is_not_kept(hub):
    stream, awaited = hub.admit(caller()), ask_first(hub)
    size = 5 << 20
    for message_id, most in (("i" * 36, 0), (awaited, size)):
        *begun, last = frames(Envelope(message_id, (bytes(size),)))
        for frame in begun:
            hub.receive_frame(stream, frame)
        assert held(stream.decoder) == (size - len(last) + 1 if most else 0)
        hub.receive_frame(stream, last)
        assert len(hub._replies) == (1 if most else 0)
    again = next(frames(Envelope(awaited, (bytes(size),))))
    hub.receive_frame(stream, again)
    assert held(stream.decoder) == 0  # it has been answered


def test_an_inbox_takes_no_more_than_twice_what_came():
    """However short the frames are, and however long the message is to be; questions may come within it."""
    size = 1 << 16
    inbox, parts = FrameDecoder(), [b"\2" + bytes([number % 256]) for number in range(256)]
    tracemalloc.start()
    inbox.decode(HEAD + (1 << 30).to_bytes(8, "big") + b"1")
    for number in range(size):
        inbox.decode(parts[number % 256])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held(inbox) == size + 1
    assert peak < 2 * size + 4096
    inbox = FrameDecoder()
    assert inbox.decode(HEAD + (2).to_bytes(8, "big") + b"a") is None
    assert inbox.decode(HEARTBEAT) == HEARTBEAT
    assert inbox.decode(b"\2b").parts == (b"ab",)
    with pytest.raises(FrameError):
        inbox.decode(HEARTBEAT * 2)
    assert FrameDecoder(notes=True).decode(HEARTBEAT) == HEARTBEAT


def test_requests_of_a_run_come_again_as_they_were_and_those_of_the_run_before_do_not(hub):
    first, other = hub.admit(caller(instance="old")), hub.admit(caller("b"))
    for kind in ("query", "train", "train", "query", "train"):
        ids = ask(hub, kind, data=kind.encode() * 1000)
        if kind == "query":
            begun = [sent(hub, other)[-1]]
        else:
            begun += sent(hub, other)
        for stream, message_id in zip((first, other), ids, strict=True):
            answer(hub, stream, message_id)
    hub.leave(other)
    assert [frame[1:] for frame in sent(hub, hub.admit(caller("b", "new")))[1:]] == [frame[1:] for frame in begun]
    assert len(begun) == 2


def test_a_new_run_drops_what_a_site_has_not_read_of_the_one_before(hub):
    stream = hub.admit(caller())
    (first, _), (second, _) = ask(hub, "query", data=b"1"), ask(hub, data=b"2")
    (third, _) = ask(hub, "query", data=b"3")
    assert [frame[1:37].decode() for frame in sent(hub, stream)[1:]] == [third]
    for message_id in (first, second):
        answer(hub, stream, message_id)
    assert not hub._replies


def test_what_comes_after_the_deadline_is_not_kept(hub):
    stream = hub.admit(caller())
    assert not list(hub.send_and_receive([hub.create_message(RecordDict(), "train", 1, "1")], timeout=0))
    frame = sent(hub, stream)[-1]
    hub.receive_frame(stream, frame)
    assert not hub._replies

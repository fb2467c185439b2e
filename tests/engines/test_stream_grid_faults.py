"""Sites that go and come back, a restarted server; a terminal that is gone, a failing disk, sites that read nothing."""

import errno
import math
import re
import threading
import time

import counting
import pytest
from counting import Died, Process, Told, answer, ask, caller, count, gathered, raw_stream, sent, server, until

from fedkernel.engines.grpc import frames as grpc_frames
from fedkernel.engines.grpc import node as grpc_node
from fedkernel.engines.grpc import reports as grpc_signs
from fedkernel.engines.grpc import request_spool, serving
from fedkernel.engines.grpc import stream_grid as grpc_hub
from fedkernel.engines.grpc.frames import HEARTBEAT, OPTIONS, Envelope
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.grpc.streams import RefusedError
from fedkernel.engines.ray import free_port
from fedkernel.ground import ProtocolError


@pytest.fixture
def before(monkeypatch):
    """Sets what happens before a site counts: the function is given the client and how often it was asked."""
    return lambda act: monkeypatch.setattr(counting.CountingClient, "before", staticmethod(act))


def test_a_site_that_goes_before_a_run_begins_fails_it_with_its_name():
    with server("a", "b", patience=0.3) as (hub, port):
        Process("b", port)
        with raw_stream(port, []) as call:
            hub.wait_for_all()
            threading.Timer(0.2, call.cancel).start()
            gone = r" 'a' is no longer connected \(waited 0.3 s\); a run begins with all 2 "
            with pytest.raises(ProtocolError, match=gone):
                count(hub)


@pytest.fixture
def hasty(monkeypatch):
    """Pings after a second, the least that gRPC's core takes."""
    shorter = {"grpc.keepalive_time_ms": 1_000, "grpc.http2.min_ping_interval_without_data_ms": 500}
    options = [(name, shorter.get(name, value)) for name, value in OPTIONS]
    assert options != OPTIONS
    for module in (serving, grpc_frames):
        monkeypatch.setattr(module, "OPTIONS", options)


@pytest.mark.usefixtures("hasty")
def test_a_site_that_computes_long_and_one_that_waits_stay_connected(before):
    """gRPC's core throws out whoever asks too often whether the other end is there: after three pings too many."""
    with gathered("a", "b") as (hub, _):
        before(lambda client, asked: time.sleep(6) if (client, asked) == (0, 2.0) else None)
        assert count(hub).model == [3.0, 3.0]
        assert not [line for line in hub.messages if "gone" in line]


def test_the_same_process_comes_back_while_it_computes_and_is_not_asked_twice(before):
    """Its stream breaks while it computes, for longer than a site may be gone; the reply goes over the next one."""
    with gathered("a", "b", patience=0.5) as (hub, _):

        def break_stream(client, asked):
            if (client, asked) == (0, 2.0):
                hub._cut(hub._nodes[0].stream)  # as a network may
                hub.on_ready()
                until(lambda: any(line.startswith("a is back, from") for line in hub.messages))
                time.sleep(1.0)

        before(break_stream)
        assert count(hub).model == [3.0, 3.0]


def test_requests_that_share_a_part_of_their_content_are_kept_each_whole():
    spool, shared = request_spool.Spool(), b"centers"
    sent = [Envelope(36 * site, (b"head", site.encode(), shared, own)) for site, own in (("a", b"1"), ("b", b"22"))]
    places = [spool.keep(None, envelope) for envelope in sent]
    assert [b"".join(spool.at(place).parts) for place in places] == [b"headacenters1", b"headbcenters22"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_restarted_process_is_asked_again_for_all_of_the_run(before, monkeypatch, kept):
    """Its memory is what it was; the other sites notice nothing. Without its requests it lacks it, and says so."""
    if not kept:
        monkeypatch.setattr(request_spool, "SPOOL_BYTES", 100)
    with server("a", "b") as (hub, port):
        first, b = Process("a", port), Process("b", port)
        hub.wait_for_all()
        troubles, ended = [], []

        def trouble(client, asked):
            if (client, asked, troubles) == (0, 3.0, []):
                troubles.append("died")
                hub._nodes[0].instance = "before"  # whoever comes next is another process
                raise Died

        def run():
            try:
                ended.append(count(hub, rounds=4).model)
            except ProtocolError as error:
                ended.append(str(error))

        before(trouble)
        runner = threading.Thread(target=run)
        runner.start()
        first.thread.join(10)
        second = Process("a", port)
        runner.join(10)
        assert any(line.startswith("a is back, restarted") for line in hub.messages)
    assert ended == [[4.0, 4.0]] if kept else "it has no memory of run 'run': it was restarted" in ended[0]
    assert troubles == ["died"]
    assert [second.end(), b.end()] == [None, None]


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, SystemExit])
def test_a_server_that_was_stopped_and_started_again_finds_the_same_processes(stopped):
    """They look for it as long as their patience lasts, which begins when it is gone."""
    sites = []

    def serve():
        with server("a") as (hub, port):
            sites.extend([port, Process("a", port, patience=1.0)])
            hub.wait_for_all()
            assert count(hub).model == [3.0]
            time.sleep(1.2)  # longer than it would look for a server
            raise stopped

    with pytest.raises(stopped):
        serve()
    port, site = sites
    again = StreamGrid(["a"])
    with listening(again, f"127.0.0.1:{port}", None):
        again.wait_for_all()
        assert count(again).model == [3.0]
    assert site.end() is None
    assert any("is lost; reconnecting" in line for line in site.told)


def test_a_site_shows_that_it_is_alive(before, monkeypatch):
    """While it looks for a server, while it waits to be asked, and while it computes."""
    monkeypatch.setattr(grpc_signs, "FIRST", 0.2)
    monkeypatch.setattr(grpc_node, "FIRST", 0.2)
    port = free_port()
    site = Process("a", port, patience=30.0)
    until(lambda: len(site.told) == 2)
    before(lambda client, asked: time.sleep(0.5 * (client == 0)))
    coordinator = StreamGrid(["a", "b"])
    with listening(coordinator, f"127.0.0.1:{port}", None):
        until(lambda: any(line.startswith("no request has come for 0 s") for line in site.told))
        other = Process("b", port)
        coordinator.wait_for_all()
        assert count(coordinator).model == [3.0, 3.0]
    assert site.end() is other.end() is None
    refused = rf"127\.0\.0\.1:{port} is not reached {{}} \(.*refused.*\); giving up in (30|29) s"
    assert re.fullmatch(refused.format("yet"), site.told[0])
    assert re.fullmatch(refused.format("for [01] s"), site.told[1])
    assert sum(bool(re.fullmatch(r"computing CountMe for \d s", line)) for line in site.told) >= 3, site.told


@pytest.mark.parametrize("gone", [BrokenPipeError(errno.EPIPE, "Broken pipe"), SystemExit(1)], ids=repr)
def test_who_cannot_be_told_any_more_ends_nothing(hub, now, gone):
    """A library that prints may even want to end the process."""
    hub.told.gone = gone
    for _ in range(grpc_hub.MOST_STREAMS + 1):
        hub.leave(hub.admit(caller()))
    with pytest.raises(RefusedError, match="no site of this run is called 'c'"):
        hub.admit(caller("c"))
    old, new = hub.admit(caller()), hub.admit(caller(instance="new"))
    assert sent(hub, old)[0] == HEARTBEAT
    now[0] += grpc_hub.ANSWER_SECONDS
    hub.replace_silent()
    assert old.over
    hub.receive_frame(new, b"no frame")
    assert str(new.refusal)
    hub.report_certificate("renewed")
    for stream in (old, new):
        hub.leave(stream)
    assert hub._slots["a"].open == 0
    assert hub.told == []


@pytest.fixture
def unread(monkeypatch):
    """Has the requests that were kept no longer read."""

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    return lambda: monkeypatch.setattr(grpc_hub.Spool, "_read", fail)


@pytest.mark.parametrize("when", ["as it sits down", "as they are sent"])
def test_a_site_whose_requests_cannot_be_read_again_is_asked_what_waits(hub, unread, when):
    first, other = hub.admit(caller(instance="old")), hub.admit(caller("b"))
    ids = ask(hub, "query")
    for stream, message_id in zip((first, other), ids, strict=True):
        answer(hub, stream, message_id)
    waiting, _ = ask(hub)
    hub.leave(first)
    if when == "as it sits down":
        unread()
        second = hub.admit(caller(instance="new"))
    else:
        second = hub.admit(caller(instance="new"))
        unread()
        assert [frame[:1] for frame in sent(hub, second)] == [b"\0"]
        assert second.over
        assert second.refusal.code == "UNAVAILABLE"
        hub.leave(second)
        second = hub.admit(caller(instance="new"))
    assert [frame[1:37].decode() for frame in sent(hub, second)[1:]] == [waiting]
    sentence = "requests cannot be read ([Errno 5] Input/output error); this run can no longer survive a site restart"
    assert [text for text in hub.told if "Input/output error" in text] == [sentence]
    assert hub._slots["a"].open == 1


def test_that_requests_cannot_be_kept_is_told_once_and_without_the_lock(hub, monkeypatch):
    hub.admit(caller())

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(grpc_hub.Spool, "keep", fail)
    ask(hub)
    ask(hub)
    (sentence,) = [text for text in hub.told if "No space left" in text]
    cause = "requests cannot be written ([Errno 28] No space left on device)"
    assert sentence == f"{cause}; this run can no longer survive a site restart"


class Slow(StreamGrid):
    """A hub whose waiting lets time pass, in which its site reads a chunk every so many seconds, and then ends.

    All that is sent is on its way at once, as in the buffers of a network.
    """

    def __init__(self, now, every):
        self.told = Told()
        self.told.hub = self
        super().__init__(["a"], report=self.told, files=["m.npz"], clock=lambda: now[0])
        self.now, self.every, self.buffer, self.due = now, every, [], every
        self.stream = self.admit(caller())
        sent(self, self.stream)
        self.read = []

    def _wait(self, seconds):
        self.now[0] += seconds
        self.buffer += sent(self, self.stream)
        while self.buffer and (self.now[0] >= self.due or (len(self.buffer[0]) < 100 and self.every < math.inf)):
            self.due += self.every * (len(self.buffer[0]) >= 100)
            self.read.append(frame := self.buffer.pop(0))
            if frame == HEARTBEAT:
                self.receive_frame(self.stream, HEARTBEAT)
        if self.stream.over and not self.buffer:
            self.leave(self.stream)


def test_a_site_that_is_dismissed_and_does_not_end_loses_its_seat_all_the_same(now):
    hub = Slow(now, math.inf)
    hung = hub.stream
    hub.dismiss("a", "its table has 2 columns")
    assert now[0] == pytest.approx(grpc_hub.END_SECONDS)
    assert hung.over
    assert (hung.refusal.code, str(hung.refusal)) == ("FAILED_PRECONDITION", "its table has 2 columns")
    assert hub.missing == ["a"]
    assert hub.told[-1] == "a is gone (0 of 1)"
    again = hub.admit(caller(instance="again"))
    assert hub.told[-1] == "a is here, from peer of again (1 of 1)"
    hub.leave(hung)
    assert hub._slots["a"].stream is again


FRAME = 1 << 20
MODEL = b"m" * (5 * FRAME)


def test_the_last_model_goes_out_whole_over_a_slow_line(now):
    every = 3 * grpc_hub.END_SECONDS
    hub = Slow(now, every)
    hub.send_file("m.npz", MODEL)
    hub.close()
    assert hub.present == 0
    assert [frame[:1] for frame in hub.read] == [b"\0", *[b"\1", HEARTBEAT], *[b"\2", HEARTBEAT] * 4, b"\0"]
    assert hub.read[-1] == b'\0{"end":""}'
    assert now[0] == pytest.approx(5 * every, abs=1.0), "nothing is waited for beside the line"


@pytest.mark.parametrize(
    ("every", "failure", "longest", "seconds", "left"),
    [
        (math.inf, "", math.inf, grpc_hub.STALLED_SECONDS, 1),
        (math.inf, None, math.inf, 0.0, 0),
        (0.4 * grpc_hub.STALLED_SECONDS, "", 100.0, 100.0, 1),
    ],
    ids=["nothing moves", "it was stopped", "it takes too long"],
)
def test_a_line_is_not_waited_for_longer_than_makes_sense(now, monkeypatch, every, failure, longest, seconds, left):
    monkeypatch.setattr(grpc_hub, "LONGEST_END_SECONDS", longest)
    hub = Slow(now, every)
    hub.send_file("m.npz", MODEL)
    hub.close(failure)
    assert now[0] == pytest.approx(seconds, abs=1.0)
    assert hub.present == left
    hub.close("once is enough")
    assert now[0] == pytest.approx(seconds, abs=1.0)


def test_what_a_failed_run_asks_is_not_sent_any_more(now):
    hub = Slow(now, 0.1)
    ask(hub, nodes=(1,))
    hub.close("it failed")
    assert hub.read == [b'\0{"end":"it failed"}']


def test_sites_that_were_behind_in_a_run_are_not_in_the_next(hub):
    for name, taken in (("a", 1), ("b", 0)):
        hub.admit(caller(name, **{"fedkernel-stands": f"one {taken}" if taken else ""}))
    hub.prepare_resume("one", {1: 1, 2: 1}, [])
    assert hub.behind == {2}
    hub.prepare_resume("two", {1: 3, 2: 3}, [])
    assert hub.behind == {1, 2}

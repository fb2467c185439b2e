"""Flower's messages over gRPC streams: who may take a seat, what becomes of a site that goes, and what is too much."""

import threading
import time
from contextlib import contextmanager
from typing import Annotated

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedkernel import FloatArray, KernelClient, KernelStrategy, Reply, Request, Shape, to_all
from fedkernel.certificates import make_certificates, read_tls
from fedkernel.cohort import RunSettings
from fedkernel.engines.grpc import frames
from fedkernel.engines.grpc.frames import INSTANCE, METHOD, NAME, SPOKEN, FrameError, Inbox, Letter
from fedkernel.engines.grpc.hub import Hub, listening
from fedkernel.engines.grpc.node import Node
from fedkernel.errors import EngineError, ProtocolError
from fedkernel.site import Site, client_app


class Count(Reply):
    """How often the site was asked."""

    asked: Annotated[FloatArray, Shape("one")]


class CountMe(Request[Count]):
    """Asks that, and sends an array that need not be read."""

    ballast: Annotated[FloatArray, Shape("n")]


class CountingClient(KernelClient):
    """Counts the questions in its memory."""

    before = staticmethod(lambda client, asked: None)

    def count(self, ask: CountMe) -> Count:
        asked = float(self.memory["asked"][0]) + 1 if "asked" in self.memory else 1.0
        self.before(self.client, asked)
        self.memory["asked"] = np.array([asked])
        return Count(asked=np.full(max(1, int(self.X[0, 0])), asked))


class Counting(KernelStrategy[list[float]]):
    """As many questions as rounds."""

    client, partition = CountingClient, "vertical"
    rounds, ballast = 3, 1

    def protocol(self):
        for _ in range(self.rounds):
            replies = yield from to_all(CountMe(ballast=np.zeros(self.ballast)))
        return [float(reply.asked[0]) for reply in replies]


def app(width=0.0):
    def find_site(context, config):
        return Site(int(context.node_config["partition-id"]), np.full((2, 1), width), None, lambda outputs: None)

    return client_app({"CountingClient": CountingClient}, find_site)


class Died(BaseException):
    """Ends a site's thread as a signal ends a process."""


class Process:
    """A site's process, in a thread."""

    def __init__(self, name, port, tls=None, patience=5.0, width=0.0, instance=None):
        self.told, self.error = [], None
        self.node = Node(app(width), name, {}, self.told.append, *([instance] if instance else []))
        self.thread = threading.Thread(target=self._run, args=(f"127.0.0.1:{port}", tls, patience), daemon=True)
        self.thread.start()

    def _run(self, address, tls, patience):
        try:
            self.node.attend(address, tls, patience)
        except (EngineError, Died) as error:
            self.error = str(error)

    def end(self, seconds=10):
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.error


@contextmanager
def server(*names, tls=None, **options):
    told = []
    hub = Hub(names, tell=told.append, **options)
    hub.told = told
    with listening(hub, "127.0.0.1:0", tls) as port:
        yield hub, port


def count(hub, rounds=3, ballast=1, deadline=20.0, clients=None):
    strategy = Counting()
    strategy.rounds, strategy.ballast = rounds, ballast
    return strategy.run(hub, RunSettings(deadline=deadline, clients=clients))


def until(true, seconds=10.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


# --- frames


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 1), (9, 1), (10, 0), (10, 10), (11, 5), (3, 40), (64, 64)])
def test_messages_travel_in_chunks(monkeypatch, sizes):
    monkeypatch.setattr(frames, "CHUNK", 10)
    letter = Letter("m" * 36, tuple(bytes(range(size)) for size in sizes))
    sent, inbox = list(frames.frames(letter)), Inbox()
    assert len(sent) == max(1, -(-sum(sizes) // 10))
    *nothing, whole = [inbox.take(frame) for frame in sent]
    assert nothing == [None] * (len(sent) - 1)
    assert (whole.id, whole.parts) == (letter.id, (b"".join(letter.parts),))


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([b"\7"], "out of order"),
        ([b"\2abc"], "out of order"),
        ([b"\0{"], "a note that cannot be read"),
        ([b"\1" + b"m" * 36 + (5).to_bytes(8, "big") + b"1", b"\1"], "out of order"),
        ([b"\1" + b"m" * 36 + (5).to_bytes(8, "big") + b"123456"], "another number of bytes"),
        ([b"\1" + b"m" * 36 + (101).to_bytes(8, "big")], "announced a message of 101 bytes; allowed are 100"),
    ],
)
def test_frames_that_are_none(sent, text):
    inbox = Inbox(limit=100)
    with pytest.raises(FrameError, match=text):
        [inbox.take(frame) for frame in sent]


# --- a run


def test_memory_lasts_and_the_end_is_told():
    with server("a", "b") as (hub, port):
        sites = [Process(name, port) for name in "ba"]
        hub.wait_for_all()
        assert count(hub).model == [3.0, 3.0]
        assert count(hub).model == [3.0, 3.0]  # a new run begins with an empty memory
        with health(port) as check:
            assert check() == health_pb2.HealthCheckResponse.SERVING
    assert [site.end() for site in sites] == [None, None]
    assert any(line.startswith("a is here, from ipv4:127.0.0.1") for line in hub.told)


@contextmanager
def health(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        yield lambda: stub.Check(health_pb2.HealthCheckRequest(service="")).status


def test_a_failure_is_told_to_the_sites():
    told = []

    def fail():
        with server("a") as (hub, port):
            told.append(Process("a", port))
            hub.wait_for_all()
            raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="the disk is full"):
        fail()
    assert told[0].end() == "the server ended the work: the disk is full"


@pytest.mark.parametrize("floats", [1 << 17, 1 << 19])
def test_large_messages_in_both_directions(floats):
    with server("a") as (hub, port):
        site = Process("a", port, width=floats)
        hub.wait_for_all()
        result = count(hub, rounds=2, ballast=floats)
        assert result.ledger.floats_up == result.ledger.floats_down == 2 * floats
    assert site.end() is None


# --- who may take a seat


def test_strangers_and_doubles_are_refused():
    with server("a") as (hub, port):
        site = Process("a", port)
        hub.wait_for_all()
        address = f"127.0.0.1:{port}"
        assert Process("c", port).end() == f"{address} cannot be joined: no site of this run is called 'c'"
        double = Process("a", port).end()
        assert double.startswith(f"{address} cannot be joined: site 'a' is connected already, from ipv4:127.0.0.1:")
        assert [line.split(" from ")[0] for line in hub.told if "refused" in line] == ["refused 'c'", "refused 'a'"]
        assert count(hub).model == [3.0]
    assert site.end() is None


def test_another_version_is_refused():
    with server("a") as (_, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD)(iter([]), metadata=((NAME, "a"), (INSTANCE, "1"), (SPOKEN, "0")))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.details() == "it speaks transport version 0, the server 1"


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder / "ours", ["127.0.0.1"], ["a", "b"])
    make_certificates(folder / "theirs", ["127.0.0.1"], ["a"])
    return folder


def test_certificates_say_who_is_who(certified):
    ours, theirs = certified / "ours", certified / "theirs"
    with server("a", "b", tls=read_tls(ours / "server", "server")) as (hub, port):
        a = Process("a", port, read_tls(ours / "a", "site"))
        borrowed = Process("a", port, read_tls(ours / "b", "site")).end()
        assert "its certificate names 'b'" in borrowed
        stranger = Process("b", port, read_tls(theirs / "a", "site")).end()
        assert "its certificate is not of the authority in ca.crt" in stranger
        plain = Process("b", port).end()
        assert "closes every connection: it is doubtful that it speaks plaintext" in plain
        b = Process("b", port, read_tls(ours / "b", "site"))
        hub.wait_for_all()
        assert count(hub).model == [3.0, 3.0]
    assert [a.end(), b.end()] == [None, None]


def test_tls_does_not_talk_to_plaintext(certified):
    with server("a") as (_, port):
        told = Process("a", port, read_tls(certified / "ours" / "a", "site")).end()
        assert "it does not speak TLS" in told


def test_nobody_there():
    assert "127.0.0.1:1 could not be reached for 0.5 s" in Process("a", 1, patience=0.5).end()


def test_a_port_that_is_taken():
    with (
        server("a") as (_, port),
        pytest.raises(EngineError, match=r"cannot listen at 127\.0\.0\.1"),
        listening(Hub(["a"]), f"127.0.0.1:{port}", None),
    ):
        pass


# --- who goes, and comes back


@pytest.fixture
def before(monkeypatch):
    """Sets what happens before a site counts: the function is given the client and how often it was asked."""
    return lambda act: monkeypatch.setattr(CountingClient, "before", staticmethod(act))


def raw_site(port, name="a", instance="raw"):
    """A site that is seated and says nothing."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    call = channel.stream_stream(METHOD)(
        iter(threading.Event().wait, True), metadata=((NAME, name), (INSTANCE, instance), (SPOKEN, "1"))
    )
    next(call)
    return channel, call


def test_a_site_that_goes_fails_the_run_with_its_name():
    with server("a", "b", patience=0.3) as (hub, port):
        site = Process("b", port)
        channel, call = raw_site(port)
        hub.wait_for_all()
        timer = threading.Timer(0.2, lambda: (call.cancel(), channel.close()))
        timer.start()
        began = time.monotonic()
        with pytest.raises(ProtocolError, match=r"^site 'a' is no longer connected \(0.3 s\)$"):
            count(hub)
        assert time.monotonic() - began < 5
    assert site.end() is None


class GoingOn(Counting):
    """Goes on without those that are gone."""

    on_missing = "continue"


def test_a_strategy_that_allows_it_goes_on_without(before):
    with server("a", "b", patience=0.3) as (hub, port):
        sites = [Process("a", port), Process("b", port)]
        hub.wait_for_all()

        def go(client, asked):
            if (client, asked) == (0, 2.0):
                raise Died

        before(go)
        assert GoingOn().run(hub, RunSettings(deadline=20.0)).model == [3.0]
    assert sites[1].end() is None


def test_one_that_is_silent_fails_it_at_the_deadline():
    with server("a", "b") as (hub, port):
        Process("b", port)
        channel, call = raw_site(port)
        hub.wait_for_all()
        with pytest.raises(ProtocolError, match="joining: 1 of 2 clients did not answer in 1 s"):
            count(hub, deadline=1.0)
        call.cancel()
        channel.close()


def test_the_same_process_comes_back_and_is_not_asked_twice(before):
    """Its stream breaks while it computes; the reply goes over the next one."""
    with server("a", "b") as (hub, port):
        sites = [Process("a", port), Process("b", port)]
        hub.wait_for_all()

        def break_stream(client, asked):
            if (client, asked) == (0, 2.0):
                hub._nodes[0].outbox.put(None)
                until(lambda: hub.missing == ["a"])

        before(break_stream)
        assert count(hub).model == [3.0, 3.0]
        assert any(line.startswith("a is back, from") for line in hub.told)
    assert [site.end() for site in sites] == [None, None]


def test_a_restarted_process_is_asked_again_for_all_of_the_run(before):
    """Its memory is what it was; the other sites notice nothing."""
    with server("a", "b") as (hub, port):
        first, b = Process("a", port), Process("b", port)
        hub.wait_for_all()
        died = threading.Event()

        def die(client, asked):
            if (client, asked) == (0, 3.0) and not died.is_set():
                died.set()
                hub._nodes[0].instance = "before"  # whoever comes next is another process
                raise Died

        before(die)
        result = []
        runner = threading.Thread(target=lambda: result.append(count(hub, rounds=4)))
        runner.start()
        assert died.wait(10)
        first.thread.join(10)
        second = Process("a", port)
        runner.join(10)
        assert result[0].model == [4.0, 4.0]
        assert any(line.startswith("a is back, restarted") for line in hub.told)
    assert [second.end(), b.end()] == [None, None]


def test_a_restarted_server_finds_the_same_processes():
    with server("a") as (hub, port):
        site = Process("a", port, patience=20.0)
        hub.wait_for_all()
        assert count(hub).model == [3.0]
        hub.close = lambda failure: None  # it is killed: nobody is told
    again = Hub(["a"])
    with listening(again, f"127.0.0.1:{port}", None):
        again.wait_for_all()
        assert count(again).model == [3.0]
    assert site.end() is None
    assert any("is lost; trying to come back" in line for line in site.told)


# --- what is too much


def test_a_request_over_the_limit_is_not_sent():
    with server("a", limit=10_000) as (hub, port):
        site = Process("a", port)
        hub.wait_for_all()
        with pytest.raises(EngineError, match=r"a message of 80,\d+ bytes is to go to a, but 10,000 are allowed"):
            count(hub, ballast=10_000)
        assert count(hub).model == [3.0]
    assert site.end() is None


def test_a_reply_over_the_limit_fails_the_run_with_its_cause():
    with server("a", limit=10_000) as (hub, port):
        site = Process("a", port, width=10_000)
        hub.wait_for_all()
        with pytest.raises(ProtocolError, match=r"the reply of site 'a' has 80,\d+ bytes; allowed are 10,000"):
            count(hub)
    assert site.end() is None


def test_who_sends_more_than_announced_is_disconnected():
    with server("a") as (hub, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        metadata = ((NAME, "a"), (INSTANCE, "1"), (SPOKEN, "1"))
        call = channel.stream_stream(METHOD)(iter([b"\2nothing before"]), metadata=metadata)
        with pytest.raises(grpc.RpcError):
            list(call)
        until(lambda: "a is disconnected: it sent a frame out of order" in hub.told)

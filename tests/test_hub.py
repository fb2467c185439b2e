"""Flower's messages over gRPC streams: who may take a seat, how a run goes, what is too much."""

from contextlib import contextmanager

import grpc
import pytest
from counting import Process, count, server, until
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedkernel.certificates import make_certificates, read_tls
from fedkernel.engines.grpc.frames import INSTANCE, METHOD, NAME, SPOKEN
from fedkernel.engines.grpc.hub import Hub, listening
from fedkernel.errors import EngineError, ProtocolError


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

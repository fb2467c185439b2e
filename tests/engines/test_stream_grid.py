"""Flower's messages over gRPC streams: who may take a seat, how a run goes, what is too much."""

import contextlib
import datetime
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from counting import Process, caller, count, gathered, health, opened, raw_stream, server, until
from cryptography import x509
from flwr.proto.message_pb2 import Message as MessageProto
from grpc_health.v1 import health_pb2

from fedkernel.engines.grpc import serving
from fedkernel.engines.grpc.certificates import make_certificates, read_tls
from fedkernel.engines.grpc.frames import Envelope, FrameDecoder
from fedkernel.engines.grpc.node import Node
from fedkernel.engines.grpc.renewal import renew_expiring
from fedkernel.engines.grpc.revocation import revoke
from fedkernel.engines.grpc.serving import HANDSHAKE, listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.grpc.streams import RefusedError, check_caller
from fedkernel.ground import EngineError, InputError, ProtocolError
from fedkernel.protocol import WIRE_VERSION
from fedkernel.run import Account, RunSettings, join


def test_memory_lasts_and_the_end_or_a_failure_is_told():
    with server("a", "b") as (hub, port):
        sites = [Process(name, port) for name in "ab"]
        hub.wait_for_all()
        assert hub.names_of(hub.get_node_ids()) == ["a", "b"]
        run = count(hub)
        assert run.model == [3.0, 3.0]
        assert {site.node._journal_position.answered for site in sites} == {run.ledger.rounds + 1}, "and how it began"
        assert count(hub).model == [3.0, 3.0]  # a new run begins with an empty memory
        with health(port) as check:
            assert check() == health_pb2.HealthCheckResponse.SERVING
    assert [site.end() for site in sites] == [None, None]
    assert any(line.startswith("a is here, from ipv4:127.0.0.1") for line in hub.messages)
    sites = []

    def fail():
        with server("a") as (hub, port):
            sites.append(Process("a", port))
            hub.wait_for_all()
            raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="the disk is full"):
        fail()
    assert sites[0].end() == 'the server ended the work: "the disk is full"'


@pytest.mark.parametrize("floats", [1 << 17, 1 << 19])
def test_large_messages_in_both_directions(floats):
    with gathered("a", width=floats) as (hub, _):
        result = count(hub, rounds=2, ballast=floats)
        assert result.ledger.floats_up == result.ledger.floats_down == 2 * floats


@pytest.mark.parametrize(
    ("names", "certificates", "sentence"),
    [
        (["a"], [b"good"], None),
        (["b"], [b"good"], "its certificate names 'b'"),
        (["a", "b"], [b"good"], "its certificate names 'a, b'"),
        (["a"], [b"good", b"revoked"], "its certificate is revoked"),
    ],
)
def test_all_that_a_caller_has_shown_is_looked_at(names, certificates, sentence):
    shown = replace(caller(), names=names, certificates=certificates)
    with pytest.raises(RefusedError, match=f"^{sentence}$") if sentence else nullcontext():
        check_caller("a", shown, {"a", "b"}, lambda certificate: certificate == b"revoked")


def test_strangers_doubles_another_version_and_a_compressed_frame_are_refused():
    with gathered("a") as (hub, port):
        refused = f"127.0.0.1:{port} cannot be joined: "
        assert Process("c", port).end() == refused + "no site of this run is called 'c'"
        assert Process("a", port).end().startswith(refused + "site 'a' is already connected, from ipv4:127.0.0.1:")
        assert [line.split(" from ")[0] for line in hub.messages if "refused" in line] == ["refused 'c'", "refused 'a'"]
        assert count(hub).model == [3.0]
    with server("a") as (_, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            next(opened(channel, iter([]), version=0))
        assert caught.value.details() == "it has transport version 0, the server 2"
    # it could be a thousand times as large as what gRPC counts before it is unpacked
    packed = grpc.Compression.Gzip
    with server("a") as (_, port), grpc.insecure_channel(f"127.0.0.1:{port}", compression=packed) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            next(opened(channel, iter([bytes(2000)])))
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "'gzip' is disabled" in caught.value.details()


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
        assert "its certificate is not signed by ca.crt" in stranger
        plain = Process("b", port).end()
        assert "closes every connection: the server probably requires TLS" in plain
        b = Process("b", port, read_tls(ours / "b", "site"))
        hub.wait_for_all()
        assert count(hub).model == [3.0, 3.0]
    assert [a.end(), b.end()] == [None, None]
    with server("a") as (_, port):
        assert "it does not use TLS" in Process("a", port, read_tls(ours / "a", "site")).end()


def test_a_certificate_that_is_revoked_is_refused_by_a_server_that_runs_and_another_is_taken(certified, tmp_path):
    ours = tmp_path / "ours"
    shutil.copytree(certified / "ours", ours)
    with server("a", "b", tls=read_tls(ours / "server", "server")) as (hub, port):
        a = Process("a", port, read_tls(ours / "a", "site"))
        lost = read_tls(ours / "b", "site")
        assert revoke(ours, ["b"]) == [ours / "ca.crl", ours / "server" / "ca.crl"]
        assert Process("b", port, lost).end().endswith("cannot be joined: its certificate is revoked")
        (ours / "server" / "ca.crl").write_text("none")
        unread = Process("b", port, lost, patience=0.5).end()
        assert "the list of revoked certificates cannot be read" in hub.messages[-1], unread
        revoke(ours, ["b"])
        make_certificates(ours, [], ["b"], renew=True)
        b = Process("b", port, read_tls(ours / "b", "site"))
        hub.wait_for_all()
        assert count(hub).model == [3.0, 3.0]
    assert [a.end(), b.end()] == [None, None]


def test_certificates_are_renewed_while_a_server_runs(certified, tmp_path):
    """A stream outlives the certificate that it began with; after it, a renewed one is waited for, and read."""
    ours, ends = tmp_path / "ours", []  # when the certificates end that a has shown
    shutil.copytree(certified / "ours", ours)
    make_certificates(ours, [], ["a"], days=4 / 86_400, renew=True)
    own = read_tls(ours / "server", "server")
    with server("a", "b", tls=own) as (hub, port):

        def note(pem):
            shown = x509.load_pem_x509_certificate(pem)
            if shown.subject.rfc4514_string() == "CN=a":
                ends.append(shown.not_valid_after_utc)

        hub.is_revoked = note
        a, b = (Process(name, port, read_tls(ours / name, "site"), patience=20.0) for name in "ab")
        hub.wait_for_all()
        before = _certificate_of(port, ours)
        assert renew_expiring(ours, 1000, days=30)[0] == [ours / name / "tls.crt" for name in ("a", "b", "server")]
        assert before == own.certificate
        assert before != _certificate_of(port, ours) == read_tls(ours / "server", "server").certificate
        assert any("server was renewed: it is valid to " in text for text in hub.messages)
        (ours / "server" / "tls.crt").write_text("half of one")
        assert _certificate_of(port, ours) != before
        assert any("the previous certificate is still used" in text for text in hub.messages)
        # a's stream is closed, as by a network; what it has now is expired, then renewed
        make_certificates(ours, [], ["a"], days=1e-9, renew=True)
        until(lambda: datetime.datetime.now(datetime.UTC) > ends[0])
        assert count(hub).model == [3.0, 3.0], "streams stand"
        a.node._call.cancel()
        until(lambda: any("has expired" in text for text in a.told))
        make_certificates(ours, [], ["a"], days=30, renew=True)
        hub.wait_for_all()
        assert count(hub).model == [3.0, 3.0]
    assert [a.end(), b.end()] == [None, None]
    assert len(ends) == 2
    assert ends[1] > ends[0] + datetime.timedelta(days=29)


def _certificate_of(port, folder):
    context = ssl.create_default_context(cafile=folder / "b" / "ca.crt")
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder / "b" / "tls.crt", folder / "b" / "tls.key")
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
        return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True)).encode()


def test_where_no_server_can_be():
    assert "127.0.0.1:1 could not be reached for 0.5 s" in Process("a", 1, patience=0.5).end()
    with (
        server("a") as (_, port),
        pytest.raises(EngineError, match=r"cannot listen at 127\.0\.0\.1"),
        listening(StreamGrid(["a"]), f"127.0.0.1:{port}", None),
    ):
        pass


def test_a_job_that_is_too_large_to_be_told_is_refused_and_messages_over_the_limit_are_not_sent():
    StreamGrid(["a"], job="x" * 2_000_000)
    with pytest.raises(InputError, match=r"takes 2,200,\d{3} bytes when sent to sites; allowed: 2,096,128"):
        StreamGrid(["a"], job="x" * 2_200_000)
    with gathered("a", limit=10_000) as (hub, _):
        with pytest.raises(EngineError, match=r"a message to a has 80,\d+ bytes, but 10,000 are allowed"):
            count(hub, ballast=10_000)
        assert count(hub).model == [3.0]
    reply = r"the reply of site 'a' has 80,\d+ bytes; allowed are 10,000"
    with gathered("a", limit=10_000, width=10_000) as (hub, _), pytest.raises(ProtocolError, match=reply):
        count(hub)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([b"\2nothing before"], "it sent a frame out of order"),
        (
            [b"\1" + b"i" * 36 + b"\xff" * 8],
            "it announced a message of 18,446,744,073,709,551,615 bytes; allowed are 2,147,483,647 (--max-message)",
        ),
        ([b"\3"], "RuntimeError: the disk is full"),
    ],
)
def test_whose_stream_fails_is_told_of_and_its_seat_is_free(monkeypatch, frames, why):
    take = FrameDecoder.decode

    def take_or_fail(inbox, frame):
        if frame == b"\3":
            raise RuntimeError("the disk is\nfull")
        return take(inbox, frame)

    monkeypatch.setattr(FrameDecoder, "decode", take_or_fail)
    with server("a") as (hub, port):
        with raw_stream(port, frames) as call, pytest.raises(grpc.RpcError):
            list(call)
        until(lambda: f"a is disconnected: {why}" in hub.messages)
        until(lambda: hub.missing == ["a"])
        site = Process("a", port)
        hub.wait_for_all()
        assert count(hub).model == [3.0]
    assert site.end() is None


def test_files_are_kept_that_were_announced_and_no_others():
    with server("a", files=["model.npz"]) as (hub, port):
        site = Process("a", port)
        hub.wait_for_all()
        hub.send_file("model.npz", b"content")
        until(lambda: site.kept == [("model.npz", b"content")])
        hub.send_file("other.npz", b"content")
        fault = "it sent the file 'other.npz' without announcing it"
        assert site.end() == f"127.0.0.1:{port} is not a valid fedkernel server: {fault}"
    assert len(site.kept) == 1


def forged(alter):
    """A node whose replies are altered on the way."""

    class Forger(Node):
        def _reply(self, request, context):
            reply = super()._reply(request, context)
            return Envelope(reply.id, (alter(b"".join(reply.parts)),))

    return Forger


def relabelled(**fields):
    def alter(data):
        message = MessageProto.FromString(data)
        for name, value in fields.items():
            setattr(message.metadata, name, value)
        return message.SerializeToString()

    return alter


def speaking_as_the_server(data):
    message = MessageProto.FromString(data)
    message.ClearField("content")
    message.error.code, message.error.reason = 103, "site 'b' is no longer connected"
    return message.SerializeToString()


def claiming(shape):
    """Let the reply's array announce another shape, in place of (1,) and of spaces after it."""
    return lambda data: data.replace(b"(1,), }" + b" " * (len(shape) - 4), shape + b", }")


OTHER = "site 'a' sent an invalid reply: "


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (speaking_as_the_server, OTHER + "error 103 is reserved for the server"),
        (relabelled(src_node_id=2), OTHER + "its src_node_id is 2, but must be 1"),
        (relabelled(run_id=7), OTHER + "its run_id is 7, but must be 1"),
        (relabelled(group_id="9"), OTHER + "its group_id is '9', but must be '"),
        (relabelled(message_type="train"), OTHER + "its message_type is 'train', but must be 'query'"),
        (relabelled(reply_to_message_id="x"), OTHER + "its reply_to_message_id is 'x', but must be '"),
        (lambda data: b"", OTHER + "it is not a Flower message ("),
        (lambda data: data[: len(data) // 2], OTHER + "it is not a Flower message ("),
        (lambda data: bytes(range(256)), OTHER + "it is not a Flower message ("),
        (lambda data: data.replace(b"version", b"variant"), f"version None, but this version reads {WIRE_VERSION}"),
        (claiming(b"(1000000000000,)"), "client 0: an array announces float64 (1000000000000,), but has 8 bytes"),
        (claiming(b"(1, -)"), "client 0: an array has no header of an .npy file (ValueError)"),
    ],
)
def test_a_reply_that_is_none_ends_its_run_and_names_the_site(alter, sentence):
    """The hub, the sites and the next run go on."""
    with server("a", "b") as (hub, port):
        sites = [Process("a", port, node=forged(alter)), Process("b", port)]
        hub.wait_for_all()
        with pytest.raises(ProtocolError) as caught:
            count(hub)
        assert sentence in str(caught.value)
        sites[0].node._reply = Node._reply.__get__(sites[0].node)
        assert count(hub).model == [3.0, 3.0]
    assert [site.end() for site in sites] == [None, None]


def test_as_many_connections_are_open_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with server("a"):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FLOODED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
sys.path.insert(0, sys.argv[1])
from counting import count, server
from fedkernel.engines.grpc.certificates import read_tls
from pathlib import Path
with server("a", tls=read_tls(Path(sys.argv[2]), "server")) as (hub, port):
    print(port, flush=True)
    sys.stdin.readline()
    hub.wait_for_all(seconds=60)
    print(count(hub).model, flush=True)
print([line for line in hub.messages if "closed" in line][0])
print(sum("refused" in line for line in hub.messages))
"""


def test_whoever_holds_connections_open_keeps_no_site_out_and_fills_no_log(certified):
    """A server may open 256 files; a certificate that no site of the run has is shown over 300 connections."""
    command = [sys.executable, "-c", FLOODED, str(Path(__file__).parents[1]), str(certified / "ours" / "server")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        own = certified / "ours" / "b"
        context = ssl.create_default_context(cafile=own / "ca.crt")
        context.load_cert_chain(own / "tls.crt", own / "tls.key")
        context.set_alpn_protocols(["h2"])
        with ExitStack() as held:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    plain = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                    held.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            for _ in range(40):
                assert "no site of this run is called 'b'" in Process("b", port, tls=read_tls(own, "site")).end()
            site = Process("a", port, tls=read_tls(certified / "ours" / "a", "site"), patience=60.0)
            out, _ = process.communicate("go on\n", timeout=120)
            assert site.end() is None
    model, closed, refusals = out.splitlines()
    assert model == "[3.0]"
    assert re.match(r"closed \d+ idle connections; allowed: 64 at a time", closed)
    assert 1 <= int(refusals) <= 25


def test_a_connection_that_shows_no_certificate_is_closed(certified, monkeypatch):
    monkeypatch.setattr(serving, "HANDSHAKE", (HANDSHAKE[0], 300))
    tls = read_tls(certified / "ours" / "server", "server")
    with server("a", tls=tls) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=5) as idle:
        assert idle.recv(1) == b""
    assert HANDSHAKE == ("grpc.server_handshake_timeout_ms", 10_000)


def test_who_is_not_connected_as_a_run_begins_is_named():
    with pytest.raises(ProtocolError) as caught:
        join(StreamGrid(["a", "b"]), RunSettings(clients=2, deadline=0.01), "Counting", Account(), "vertical")
    assert str(caught.value) == "0 of 2 clients were connected after 0.01 s; missing: site 'a', site 'b'"
    assert caught.value.nodes == (1, 2)

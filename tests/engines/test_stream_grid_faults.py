"""Sites that go while a run is under way, and come back; a server that is restarted."""

import re
import socket
import threading
import time

import pytest
from counting import CountingClient, Died, Process, count, gathered, raw_stream, server, until

from fedkernel.engines.grpc import frames, request_spool, serving
from fedkernel.engines.grpc import node as grpc_node
from fedkernel.engines.grpc import reports as grpc_signs
from fedkernel.engines.grpc.frames import OPTIONS
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.ground import ProtocolError


def end_stream(hub):
    """End the stream of the first site, as a network may."""
    hub._cut(hub._nodes[0].stream)
    hub.on_ready()


@pytest.fixture
def before(monkeypatch):
    """Sets what happens before a site counts: the function is given the client and how often it was asked."""
    return lambda act: monkeypatch.setattr(CountingClient, "before", staticmethod(act))


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
    for module in (serving, frames):
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
                end_stream(hub)
                until(lambda: any(line.startswith("a is back, from") for line in hub.messages))
                time.sleep(1.0)

        before(break_stream)
        assert count(hub).model == [3.0, 3.0]


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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

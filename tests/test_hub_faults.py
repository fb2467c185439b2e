"""Sites that go while a run is under way, and come back; a server that is restarted."""

import threading
import time

import grpc
import pytest
from counting import Counting, CountingClient, Died, Process, count, server, until

from fedkernel.cohort import RunSettings
from fedkernel.engines.grpc.frames import INSTANCE, METHOD, NAME, SPOKEN
from fedkernel.engines.grpc.hub import Hub, listening
from fedkernel.errors import ProtocolError


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

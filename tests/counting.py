"""A pair whose sites count how often they are asked, and sites and a server for it, in threads of this process."""

import threading
import time
from contextlib import contextmanager
from typing import Annotated

import grpc
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedkernel import EngineError, FloatArray, KernelClient, KernelStrategy, Reply, Request, Shape, to_all
from fedkernel.engines.grpc.frames import INSTANCE, METHOD, NAME, TRANSPORT, VERSION, Envelope, frames
from fedkernel.engines.grpc.node import Node
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.grpc.streams import Caller
from fedkernel.run import RunSettings
from fedkernel.site import Site, site_of_job
from fedkernel.site.client_app import client_app


class Count(Reply):
    """How often the site was asked."""

    times: Annotated[FloatArray, Shape("one")]


class CountMe(Request[Count]):
    """Asks that, and sends an array that need not be read."""

    ballast: Annotated[FloatArray, Shape("n")]


class CountingClient(KernelClient):
    """Counts the questions in its memory."""

    answers = (CountMe,)

    before = staticmethod(lambda client, times: None)

    def count(self, ask: CountMe) -> Count:
        times = float(self.memory["times"][0]) + 1 if "times" in self.memory else 1.0
        self.before(self.client, times)
        self.memory["times"] = np.array([times])
        return Count(times=np.full(max(1, int(self.X[0, 0])), times))


class Counting(KernelStrategy[list[float]]):
    """As many questions as rounds."""

    client, partition = CountingClient, "vertical"
    rounds, ballast = 3, 1

    def protocol(self, run):
        for _ in range(self.rounds):
            replies = yield from to_all(CountMe(ballast=np.zeros(self.ballast)))
        return [float(reply.times[0]) for reply in replies]


def app(width=0.0):
    def find_site(context, config):
        return Site(int(context.node_config["partition-id"]), np.full((2, 1), width), None, lambda outputs: None)

    return client_app({"CountingClient": CountingClient}, find_site)


def job_node(app, *others):
    """Return a node whose data are the job's."""
    return Node(client_app({}, site_of_job), *others)


class Died(BaseException):
    """Ends a site's thread, or a server's, as a signal ends a process."""


class Process:
    """A site's process, in a thread."""

    def __init__(self, name, port, tls=None, patience=5.0, width=0.0, node=Node):
        self.told, self.kept, self.error = [], [], None
        self.node = node(app(width), name, {}, self.told.append, lambda *file: self.kept.append(file))
        self.thread = threading.Thread(target=self._run, args=(f"127.0.0.1:{port}", tls, patience), daemon=True)
        self.thread.start()

    def _run(self, address, tls, patience):
        try:
            self.node.serve(address, tls, patience)
        except (EngineError, Died) as error:
            self.error = str(error)

    def end(self, seconds=10):
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.error


@contextmanager
def server(*names, tls=None, **options):
    messages = []
    hub = StreamGrid(names, report=messages.append, **options)
    hub.messages = messages
    with listening(hub, "127.0.0.1:0", tls) as port:
        yield hub, port


@contextmanager
def gathered(*names, width=0.0, **options):
    """A server whose sites are all there, and end as it does."""
    with server(*names, **options) as (hub, port):
        sites = [Process(name, port, width=width) for name in names]
        hub.wait_for_all()
        yield hub, port
    assert [site.end() for site in sites] == [None] * len(sites)


def count(hub, rounds=3, ballast=1, deadline=20.0, clients=None):
    strategy = Counting()
    strategy.rounds, strategy.ballast = rounds, ballast
    return strategy.run(hub, RunSettings(deadline=deadline, clients=clients))


def opened(channel, sending, name="a", instance="raw", version=VERSION):
    metadata = ((NAME, name), (INSTANCE, instance), (TRANSPORT, str(version)))
    return channel.stream_stream(METHOD)(sending, metadata=metadata)


@contextmanager
def raw_stream(port, frames):
    """The stream of a site put together by hand: it sends these frames and says nothing more."""
    welcomed, ended = threading.Event(), threading.Event()

    def sending():
        welcomed.wait()
        yield from frames
        ended.wait()

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = opened(channel, sending())
        next(call)
        welcomed.set()
        yield call
        ended.set()
        call.cancel()


def caller(name="a", instance="1", **metadata):
    """Who opens a stream of a site at a hub without a network."""
    return Caller({NAME: name, INSTANCE: instance, TRANSPORT: str(VERSION), **metadata}, f"peer of {instance}")


def sent(hub, stream):
    """All that a stream has to send now."""
    return list(iter(lambda: hub.next_frame(stream), None))


def ask(hub, kind="train", nodes=(1, 2), data=b"1000"):
    """Ask sites the same; returns the ids."""
    content = RecordDict({"config": ConfigRecord({"data": data})})
    return list(hub.push_messages([hub.create_message(content, kind, node, "1") for node in nodes]))


def answer(hub, stream, message_id):
    hub.receive_frame(stream, next(frames(Envelope(message_id, (b"",)))))


class Told(list):
    """What was told, of whom the hub's lock is free meanwhile; from a moment on there is nobody to tell."""

    gone, hub = None, None

    def __call__(self, text):
        assert not self.hub._arrived._is_owned(), f"told under the lock: {text}"
        if self.gone is not None:
            raise self.gone
        self.append(text)


@contextmanager
def health(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        yield lambda: stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=5).status


def until(true, seconds=10.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)

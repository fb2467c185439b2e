"""Runs over the real hub and real nodes in one thread, on a virtual clock, through a network that goes wrong by a seed.

Every history ends as the run without faults does, to the bit; or, with a quorum, as that of the sites that remain; or
with one sentence that names a site, and the round, by the round's deadline.
"""

import functools
import heapq
import itertools
import logging
import random
import re

import numpy as np
from networks import admm, digits
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from fedkernel import RBF
from fedkernel.engines.grpc.frames import INSTANCE, LIMIT, NAME, SPOKEN, STANDS, TAKEN, VERSION, Envelope, Inbox
from fedkernel.engines.grpc.hub import Hub
from fedkernel.engines.grpc.node import Node, _Outbox
from fedkernel.engines.grpc.streams import Caller, RefusedError
from fedkernel.errors import ProtocolError
from fedkernel.run.answering import client_app
from fedkernel.run.cohort import RunSettings
from fedkernel.run.grid import LOOK
from fedkernel.run.site import Site as Data
from fedkernel.testing import Pair, _arrays, _bits
from strategies import DKPCA, DisKPCA, FKKMeans

NAMES = ("a", "b", "c")
PATIENCE, DEADLINE = 20.0, 60.0
WINE = scale(load_wine().data)[::6]
ROWS, COLUMNS = np.array_split(WINE, 3), np.array_split(WINE, 3, axis=1)
PAIRS = {
    "DKPCA": Pair(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "DKPCA, quorum": Pair(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "FKKMeans": Pair(FKKMeans(2, n_features=4, iterations=1, coreset_size=6, solver="lanczos"), ROWS),
    "ADMMKPCA": Pair(admm(iterations=1), digits(8, 3)),
    "DisKPCA": Pair(DisKPCA(2, RBF(0.05), n_adaptive=6, embedding_size=5, n_random_features=20, share_rows=True), ROWS),
}
QUORUM = {"DKPCA, quorum": 2}
RATES = {"FKKMeans": 0.015, "ADMMKPCA": 0.015, "DisKPCA": 0.015}  # of frames, of which these have many
WEIGHTS = (20, 20, 1, 1, 2)
FAULTS = ("break", "restart", "leave", "late", "silent", "again", "overtake")
NAMED = re.compile(r"(site '[abc]'|client [012])")


class SimulatedHub(Hub):
    """A hub that waits by letting a world go on."""

    world = None

    def _wait(self, seconds):
        self.world.go_on(self.world.now + seconds, until=lambda: not self._awaited)


class Link:
    """A stream's way there and back, on which frames that are single messages may overtake others."""

    def __init__(self, stream, outbox):
        self.stream, self.outbox = stream, outbox
        self.inbox = Inbox(LIMIT, notes=True)
        self.broken, self.welcome = False, 0.0
        self.last = {"up": 0.0, "down": 0.0}


class Site:
    """A site's process, and the ones that come after it."""

    def __init__(self, world, name, app):
        self.world, self.name, self.app = world, name, app
        self.link = None
        self.start()

    def start(self):
        self.node = Node(self.app, self.name, {}, lambda text: None)
        self.node.instance = f"{self.name}{next(self.world.numbers)}"

    def connect(self):
        node = self.node
        metadata = {NAME: self.name, INSTANCE: node.instance, SPOKEN: str(VERSION), STANDS: node._stands.text}
        if node._taken:
            metadata[TAKEN] = node._taken[-1]
        try:
            stream = self.world.hub.admit(Caller(metadata, f"{self.name}'s"))
        except RefusedError as refusal:
            self.world.note(f"{self.name} is refused: {refusal}")
            if refusal.code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}:
                self.world.later(1.0, self.connect)
            return
        node._outbox = _Outbox()
        self.link = self.world.links[stream] = Link(stream, node._outbox)
        self.link.site = self
        self.world.note(f"{self.name} connects as {node.instance}")

    def take(self, link, frame):
        """Take a frame of the hub's, as `Node._converse` does."""
        if link.broken:
            return
        item = link.inbox.take(frame)
        if isinstance(item, bytes):
            link.outbox.answer()
        elif isinstance(item, Envelope):
            self.world.note(f"{self.name} is asked {item.id[:6]}")
            self.node._take(item, "")
            self.world.later(self.world.rng.uniform(0.01, 0.5), functools.partial(self.compute, self.node))
        elif item is not None and item.welcome is not None:
            self.node._settle(item.welcome)
            link.inbox = Inbox(LIMIT, notes=True)
        self.send()

    def compute(self, node):
        if node is self.node:
            node._tasks.put(None)
            node._compute()
            if node._broken is not None:
                raise node._broken
            self.send()

    def send(self):
        link = self.link
        if link is not None and not link.broken and self.node._outbox is link.outbox:
            link.outbox._queue.put(None)
            for frame in link.outbox.frames():
                self.world.carry(link, "up", frame)

    def lose(self, link, *, restart, returns):
        """Notice that a stream is broken; come back, as the same process or another, or not."""
        if self.link is not link:
            return
        self.link = self.node._outbox = None
        if restart:
            self.start()
        if returns:
            self.world.later(self.world.rng.choice((0.1, 1.0, 5.0)), self.connect)


class World:
    """A hub, its sites, and what happens between them, one event after the other."""

    def __init__(self, seed, app, *, rate, trace=None):
        self.rng, self.now, self.numbers, self.trace = random.Random(seed), 0.0, itertools.count(), trace  # noqa: S311
        self.events, self.links, self.rate, self.faults = [], {}, 0.0, []
        self.hub = SimulatedHub(NAMES, patience=PATIENCE, tell=self.note, clock=lambda: self.now)
        self.hub.world = self
        self.sites = [Site(self, name, app) for name in NAMES]
        for site in self.sites:
            site.connect()
        self.rate = rate

    def note(self, text):
        if self.trace is not None:
            self.trace(f"{self.now:8.2f} s  {text}")

    def later(self, seconds, act):
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), act))

    def go_on(self, end, until):
        """Let happen what happens until then, or until something is so."""
        self.pump()
        while not until():
            if not self.events or self.events[0][0] > end:
                self.now = end
                self.hub.tend()
                self.pump()
                return
            self.now, _, act = heapq.heappop(self.events)
            act()
            self.hub.tend()
            self.pump()

    def pump(self):
        """Carry what the hub has to send."""
        while streams := self.hub.ready():
            for stream in sorted(streams, key=lambda stream: stream.peer):
                link = self.links[stream]
                while (frame := self.hub.next_frame(stream)) is not None:
                    self.carry(link, "down", frame)
                if stream.over and not link.broken:
                    self.cut(link)

    def cut(self, link, *, restart=False, returns=True):
        """End a stream, which both ends notice by and by."""
        link.broken = True
        self.later(self.rng.choice((0.01, 0.5, 3.0)), functools.partial(self.hub.leave, link.stream))
        delay = self.rng.choice((0.01, 0.3, 2.0))
        self.later(delay, functools.partial(link.site.lose, link, restart=restart, returns=returns))

    def carry(self, link, way, frame):
        """Carry a frame, unless something happens to it."""
        if link.broken:
            return
        rng = self.rng
        fault = rng.choice(FAULTS) if rng.random() < self.rate else ""
        note = way == "down" and frame[1:2] == b"{"
        if note and fault not in {"break", "restart", "leave"}:
            fault = ""
        if fault:
            self.faults.append(fault)
            self.note(f"{fault}: {way} {link.site.name}")
        if fault in {"break", "restart", "leave"}:
            self.cut(link, restart=fault == "restart", returns=fault != "leave")
            return
        if fault == "silent":
            return
        delay = rng.uniform(0.001, 0.2)
        if fault == "late":
            delay += rng.choice((1.0, 30.0, 90.0))
        at = self.now + delay
        if note:
            link.welcome = at  # it is the first on its stream
        if fault in {"overtake", "late"}:
            at = max(at, link.welcome)
        else:
            at = link.last[way] = max(at, link.last[way])
        self.arrive(at - self.now, link, way, frame)
        if fault == "again":
            self.arrive(at - self.now + rng.choice((0.0, 0.3, 5.0)), link, way, frame)

    def arrive(self, delay, link, way, frame):
        def arrive():
            if not link.broken:
                (self.hub.take(link.stream, frame) if way == "up" else link.site.take(link, frame))

        self.later(delay, arrive)


@functools.cache
def expected(name, sites=(0, 1, 2)):
    pair = PAIRS[name]
    result = pair.fit([pair.tables[site] for site in sites], seed=0)
    return _bits(_arrays(result.model))


def history(seed, *, trace=None):
    """Return what pair ran, how the run of a seed ended, which faults there were; AssertionError where it may not."""
    rng = random.Random(-1 - seed)  # noqa: S311 - which pair
    name = rng.choices(list(PAIRS), WEIGHTS)[0]
    pair, outputs = PAIRS[name], {}

    def find_site(context, config):
        number = int(context.node_config["partition-id"])
        keep = outputs.setdefault(number, {}).update
        return Data(number, pair.tables[number], None, keep, share_rows=True)

    logging.disable(logging.WARNING)
    try:
        client = pair.strategy.client
        world = World(seed, client_app({client.__name__: client}, find_site), rate=RATES.get(name, 0.06), trace=trace)
        settings = RunSettings(clients=3, deadline=DEADLINE, quorum=QUORUM.get(name))
        began, sent = [], world.hub.push_messages

        def push(messages):
            began.append(world.now)
            return sent(messages)

        world.hub.push_messages = push
        try:
            result = pair.strategy.run(world.hub, settings)
        except ProtocolError as error:
            text = str(error)
            assert NAMED.search(text), f"unnamed: {text}"
            assert "round " in text or len(began) == 1, f"no round, though the sites had joined: {text}"
            assert world.now <= began[-1] + DEADLINE + LOOK, f"late: {text}"
            return name, cause_of(text), world.faults
    finally:
        logging.disable(logging.NOTSET)
    assert world.now <= began[-1] + DEADLINE + LOOK
    lost_sites = [int(text.split()[1]) for text in result.findings if " was lost in " in text]
    left = tuple(site for site in range(3) if site not in lost_sites)
    assert not lost_sites or name in QUORUM, result.findings
    assert _bits(_arrays(result.model)) == expected(name, left), f"other numbers, without {lost_sites}"
    return name, "those of who remain" if lost_sites else "identical", world.faults


KINDS = (
    *("no longer connected", "no answer within", "did not answer in", "restarted", "quorum ="),
    *("a request that must come before this one did not", "sealed with other keys or in another run"),
)
"""What failures say that a network may bring about."""


def cause_of(text):
    """Return the kind of a failure; AssertionError for one that no network may bring about."""
    kind = next((kind for kind in KINDS if kind in text), "")
    assert kind, f"an unknown failure: {text}"
    return f"named: {kind}"

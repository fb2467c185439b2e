"""The real hub and real nodes in one thread, on a virtual clock, over a network that goes wrong by a seed."""

import functools
import heapq
import itertools
import random

from flwr.app import MessageType

from fedkernel.engines.grpc import MAX_MESSAGE_BYTES, Node, frames
from fedkernel.engines.grpc.frames import NAME, Envelope, FrameDecoder, ReplyQueue
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.grpc.streams import Caller, RefusedError

NAMES = ("a", "b", "c")
PATIENCE = 20.0
LOOKING = f"{MessageType.QUERY}, who is there"
FAULTS = ("break", "restart", "leave", "late", "silent", "again", "overtake")


class SimulatedHub(StreamGrid):
    """A hub that waits by letting a world go on."""

    world = None

    def get_node_ids(self):
        if not self.world.questions or self.world.questions[-1][1] != LOOKING:
            self.world.questions.append((self.world.now, LOOKING))
        return super().get_node_ids()

    def push_messages(self, messages):
        if messages := list(messages):
            self.world.questions.append((self.world.now, messages[0].metadata.message_type))
        return super().push_messages(messages)

    def _wait(self, seconds):
        self.world.go_on(self.world.now + seconds, until=lambda: not self._awaited)


class Link:
    """A stream's way there and back, on which frames that are single messages may overtake others."""

    def __init__(self, stream, outbox):
        self.stream, self.outbox = stream, outbox
        self.inbox = FrameDecoder(MAX_MESSAGE_BYTES, notes=True)
        self.broken, self.welcome = False, 0.0
        self.last = {"up": 0.0, "down": 0.0}


class Site:
    """A site's process, and the ones that come after it."""

    def __init__(self, world, name, app):
        self.world, self.name, self.app = world, name, app
        self.link, self.gone = None, False
        self.start()

    def start(self):
        self.node = Node(self.app, self.name, {}, lambda text: None)
        self.node.instance = f"{self.name}{next(self.world.numbers)}"

    def connect(self):
        node = self.node
        metadata = {NAME: self.name, frames.INSTANCE: node.instance, frames.TRANSPORT: str(frames.VERSION)}
        metadata[frames.POSITION] = node._journal_position.text
        if node._received_ids:
            metadata[frames.LAST_REQUEST] = node._received_ids[-1]
        if self.world.hub is None:
            self.world.later(self.world.rng.choice((0.1, 1.0, 5.0)), self.connect)
            return
        try:
            stream = self.world.hub.admit(Caller(metadata, f"{self.name}'s"))
        except RefusedError as refusal:
            self.world.note(f"{self.name} is refused: {refusal}")
            if refusal.code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}:
                self.world.later(1.0, self.connect)
            return
        node._outbox = ReplyQueue()
        self.link = self.world.links[stream] = Link(stream, node._outbox)
        self.link.site = self
        self.world.note(f"{self.name} connects as {node.instance}")

    def take(self, link, frame):
        """Take a frame of the hub's, as `Node._answer_stream` does."""
        if link.broken:
            return
        item = link.inbox.decode(frame)
        if isinstance(item, bytes):
            link.outbox.answer()
        elif isinstance(item, Envelope):
            self.world.note(f"{self.name} is asked {item.id[:6]}")
            self.node._queue_request(item, "")
            self.world.later(self.world.rng.uniform(0.01, 0.5), functools.partial(self.compute, self.node))
        elif item is not None and item.welcome is not None:
            self.node._adopt_welcome(item.welcome)
            link.inbox = FrameDecoder(MAX_MESSAGE_BYTES, notes=True)
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
        self.gone = not returns
        if returns:
            self.world.later(self.world.rng.choice((0.1, 1.0, 5.0)), self.connect)


class World:
    """A hub, its sites, and what happens between them, one event after the other."""

    def __init__(self, seed, app, *, rate, kind=SimulatedHub, job="", trace=None):
        self.rng, self.now, self.numbers, self.trace = random.Random(seed), 0.0, itertools.count(), trace  # noqa: S311
        self.events, self.links, self.rate, self.faults, self.questions = [], {}, 0.0, [], []
        self.kind, self.job = kind, job
        self.begin()
        self.sites = [Site(self, name, app) for name in NAMES]
        for site in self.sites:
            site.connect()
        self.rate = rate

    def begin(self):
        """Have a hub."""
        self.hub = self.kind(NAMES, job=self.job, patience=PATIENCE, report=self.note, clock=lambda: self.now)
        self.hub.world = self

    def end(self, restart=lambda: False):
        """Have no hub any more, as when its process dies, which the sites notice by and by; some may be restarted."""
        links, self.links, self.hub = self.links, {}, None
        for site in self.sites:
            again = restart()
            if site.link is None and again:
                site.start()
        for link in links.values():
            if not link.broken:
                link.broken = True
                delay = self.rng.choice((0.01, 0.3, 2.0))
                self.later(delay, functools.partial(link.site.lose, link, restart=restart(), returns=True))

    def note(self, text):
        if self.trace is not None:
            self.trace(f"{self.now:8.2f} s  {text}")

    def later(self, seconds, act):
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), act))

    def go_on(self, end, until):
        """Let happen what happens until then, or until something is so."""
        self.attend()
        while not until():
            if not self.events or self.events[0][0] > end:
                self.now = end
                self.attend()
                return
            self.now, _, act = heapq.heappop(self.events)
            act()
            self.attend()

    def sleep(self, seconds):
        self.go_on(self.now + seconds, until=lambda: False)

    def attend(self):
        """Carry what the hub has to send."""
        if self.hub is None:
            return
        self.hub.replace_silent()
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
                (self.hub.receive_frame(link.stream, frame) if way == "up" else link.site.take(link, frame))

        self.later(delay, arrive)

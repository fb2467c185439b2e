"""Protocols over a grid: who is asked, in which order replies come, what failures say, and what the ledger holds."""

import itertools
import json
import os
import threading
import time
from typing import Annotated

import numpy as np
import pytest
from flwr.app import ArrayRecord, MessageType
from named_sites import codeless
from pydantic import Field

from fedkernel import KernelClient, KernelStrategy, Reply, Request, Shape, Summed, to_all, to_each, to_sum
from fedkernel.engines.local import LocalGrid
from fedkernel.ground import FloatArray, InputError, ProtocolError
from fedkernel.protocol import MAX_NUMBER, WIRE_VERSION
from fedkernel.run import RunSettings
from fedkernel.site import Site
from fedkernel.site.client_app import client_app

TABLES = [np.random.default_rng(client).standard_normal((5, 2 + client)) for client in range(4)]
PATIENT = 60.0
SCRUBBED = '"ValueError on the site (its log has the details under E-0)"'
ORDERS = list(itertools.permutations(range(3)))


class Numbers(Reply):
    values: Annotated[np.ndarray, Shape("size")]


class Ask(Request[Numbers]):
    """Asks for the client's number, ``word`` times; ``trouble`` says which clients misbehave, and how."""

    word: int = 1
    trouble: dict[int, str] = Field(default_factory=dict)


class AskMore(Ask):
    """The same, by another name."""


class Talker(KernelClient):
    answers = (Ask, AskMore)

    released = threading.Event()

    def tell(self, ask: Ask) -> Numbers:
        match ask.trouble.get(self.client):
            case "hang":
                self.released.wait(PATIENT)
            case "fail":
                raise ValueError("secret")
            case "refuse":
                raise InputError("this site has no such thing")
            case "shout":
                raise InputError('\x1b[31m\u202eno" such\r\nthing\u2028' + "!" * 5000)
            case "longer":
                return Numbers(values=np.ones(7))
        return Numbers(values=np.full(5, float(self.client * ask.word)))

    def more(self, ask: AskMore) -> Numbers:
        return self.tell(ask)


class Toy(KernelStrategy):
    client = Talker
    partition = "vertical"

    def __init__(self, protocol, client=Talker, on_missing="fail"):
        self.make, self.client, self.on_missing = protocol, client, on_missing

    def protocol(self, run):
        return self.make()


class Wire(LocalGrid):
    """A grid that keeps what goes by, hands replies out in another order, and may change them."""

    def __init__(self, app, *, clients, order, change):
        super().__init__(app, clients=clients)
        self.order, self.change = order, change
        self.sent, self.came = [], []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        # Which replies come first is the threads' business: by node, so that the order given is the order there is.
        replies = sorted(super().send_and_receive(messages, timeout=timeout), key=lambda r: r.metadata.src_node_id)
        replies = self.order(replies)
        for reply in replies:
            self.change(reply)
        self.sent += messages
        self.came += replies
        return replies


def run(strategy, *, numbers=(0, 1, 2), clients=None, deadline=PATIENT, order=list, change=bool):
    """Run over a grid whose nodes have these client numbers; returns the result and the wire."""

    def find_site(context, config):
        number = numbers[int(context.node_config["partition-id"])]
        takes_part = number < (clients or len(TABLES))
        return Site(number, TABLES[number] if takes_part else None, None, lambda outputs: None)

    app = client_app({strategy.client.__name__: strategy.client}, find_site)
    with Wire(app, clients=len(numbers), order=order, change=change) as wire:
        return strategy.run(wire, RunSettings(clients=clients, deadline=deadline)), wire


def first_numbers(asking):
    """A protocol of one round that returns the first number of each reply."""
    return [reply.values[0] for reply in (yield from asking)]


def ask_once(**trouble):
    """Such a protocol, which asks all."""
    return lambda: first_numbers(to_all(Ask(trouble={int(client[1:]): how for client, how in trouble.items()})))


def error_of(strategy, **kwargs):
    with pytest.raises(ProtocolError) as caught:
        run(strategy, **kwargs)
    return codeless(str(caught.value))


@pytest.fixture
def hanging(monkeypatch):
    """Lets clients hang until the end of the test, on as many threads as there are clients."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(Talker, "released", threading.Event())
    yield
    Talker.released.set()


@pytest.mark.parametrize("order", ORDERS)
def test_replies_are_in_the_order_of_the_clients_whenever_they_come(order):
    result, wire = run(Toy(ask_once()), order=lambda replies: [replies[place] for place in order])
    assert [reply.metadata.src_node_id - 1 for reply in wire.came[-3:]] == list(order)
    assert result.model == [0, 1, 2]


@pytest.mark.parametrize("numbers", ORDERS)
def test_clients_are_known_by_their_own_numbers_not_their_nodes(numbers):
    asks = {2: Ask(word=10), 0: Ask(word=5), 1: Ask(word=7)}
    assert run(Toy(lambda: first_numbers(to_each(asks))), numbers=numbers)[0].model == [0, 7, 20]


def test_to_each_asks_those_named_and_nobody_else():
    result, wire = run(Toy(lambda: first_numbers(to_each({2: Ask(word=10), 0: Ask(word=5)}))))
    assert result.model == [0, 20]
    assert [message.metadata.dst_node_id for message in wire.sent] == [1, 2, 3, 1, 3]
    assert [entry.client for entry in result.ledger.entries if entry.round == 1] == [0, 2]


def test_protocols_are_composed():
    def total(word):
        replies = yield from to_all(Ask(word=word), word=word)
        return sum(reply.values[0] for reply in replies)

    def protocol():
        first = yield from total(1)
        second = yield from total(int(first))
        yield from to_each({1: AskMore()})
        return first, second

    result, _ = run(Toy(protocol))
    assert result.model == (3, 9)
    assert result.ledger.rounds == 3
    rows = [(row["round"], row["phase"], row["clients"], row.get("values")) for row in result.history]
    expected = [(0, "join", 3, None), (1, "Ask", 3, {"word": 1}), (2, "Ask", 3, {"word": 3}), (3, "AskMore", 1, None)]
    assert rows == expected


def test_a_protocol_may_need_no_round_at_all():
    def protocol():
        return [4.0]
        yield

    result, wire = run(Toy(protocol))
    assert (result.model, result.ledger.rounds, len(wire.sent)) == ([4.0], 0, 3), "only joining was sent"


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("fail", SCRUBBED),
        ("refuse", '"this site has no such thing"'),
        ("shout", "\"\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}no' such thing " + "!" * 479 + '"'),
    ],
)
def test_a_failing_client_is_named(how, cause):
    def protocol():
        yield from to_all(Ask())
        yield from to_all(AskMore(trouble={2: how}))

    assert error_of(Toy(protocol)) == f"Toy, round 2 (AskMore), client 2: {cause}"


def test_of_several_failures_one_is_told_and_the_others_are_counted(hanging):
    text = error_of(Toy(ask_once(c0="refuse", c1="fail", c2="fail")))
    assert text == 'Toy, round 1 (Ask), client 0: "this site has no such thing" (and 2 more)'
    assert error_of(Toy(ask_once(c1="longer"))) == "Toy, round 1 (Ask), client 1: size = 7, but client 0 has size = 5"
    text = error_of(Toy(ask_once(c1="hang", c2="fail")), deadline=0.3)
    assert text == "Toy, round 1 (Ask), client 1: no answer within 0.3 s (and 1 more)"


@pytest.mark.parametrize("how", ["hang", "fail", "refuse"])
def test_on_missing_continue_goes_on_with_the_rest_for_good(hanging, caplog, how):
    def protocol():
        first = yield from to_all(Ask(trouble={1: how}))
        second = yield from to_all(AskMore())
        return [len(first), *(reply.values[0] for reply in second)]

    deadline = 0.3 if how == "hang" else PATIENT
    result, wire = run(Toy(protocol, on_missing="continue"), deadline=deadline)
    assert result.model == [2, 0, 2]
    assert [row["clients"] for row in result.history] == [3, 2, 2]
    assert [message.metadata.dst_node_id for message in wire.sent] == [1, 2, 3, 1, 2, 3, 1, 3]
    assert "going on without client 1: Toy, round 1 (Ask), client 1: " in caplog.text


def test_on_missing_continue_ends_where_nobody_is_left():
    text = error_of(Toy(ask_once(c0="fail", c1="refuse", c2="fail"), on_missing="continue"))
    assert text == f"Toy, round 1 (Ask), client 0: {SCRUBBED} (and 2 more)"

    def protocol():
        yield from to_all(Ask(trouble={1: "fail"}))
        yield from to_each({1: Ask()})

    assert error_of(Toy(protocol, on_missing="continue")) == "Toy, round 2: no request goes to a client of the run"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content["config"].update(version=1), f"wire version 1, but this version reads {WIRE_VERSION}"),
        (lambda content: content.update(arrays=ArrayRecord([np.full(5, np.nan)])), "5 of its entries are not finite"),
        (lambda content: content["config"].update(seconds=-1.0), "seconds = -1.0, but must be a number from 0"),
        (lambda content: content["config"].update(seconds="1"), "seconds = '1', but must be a number from 0"),
        (lambda content: content.pop("arrays"), "Numbers: there is no record 'arrays'"),
        (lambda content: content.pop("config"), "Numbers: there is no record 'config'"),
    ],
)
def test_a_reply_that_was_changed_on_the_way_is_refused(change, sentence):
    def change_client_1(reply):
        if reply.metadata.src_node_id == 2 and reply.metadata.message_type == MessageType.TRAIN:
            change(reply.content)

    text = error_of(Toy(ask_once()), change=change_client_1)
    assert text.startswith("Toy, round 1 (Ask), client 1: ")
    assert sentence in text


def test_the_slowest_clients_seconds_are_in_the_history_and_nowhere_else():
    seconds, seen = {1: 0.25, 2: 2.0, 3: 0.5}, []

    def protocol():
        seen.extend((yield from to_all(Ask())) + (yield from to_all(AskMore())))
        return [0.0]

    def change(reply):
        if reply.metadata.message_type == MessageType.TRAIN:
            assert reply.content["config"]["seconds"] >= 0
            reply.content["config"]["seconds"] = seconds[reply.metadata.src_node_id]

    result, _ = run(Toy(protocol), change=change)
    assert [row["slowest_seconds"] for row in result.history] == [0.0, 2.0, 2.0]  # joining computes nothing
    assert [set(dict(reply)) for reply in seen] == [{"values"}] * 6
    result, _ = run(Toy(ask_once()), change=lambda reply: reply.content["config"].pop("seconds", None))
    assert result.history[1]["slowest_seconds"] == 0.0, "of clients that tell none"


def test_waiting_is_not_computing():
    class Sleeper(Talker):
        answers = (Ask,)

        def tell(self, ask: Ask) -> Numbers:
            time.sleep(0.2)
            return super().tell(ask)

    result, _ = run(Toy(ask_once(), client=Sleeper))
    assert result.history[1]["slowest_seconds"] < 0.15 < result.history[1]["seconds"]


class Part(Summed):
    values: Annotated[np.ndarray, Shape("size")]


class AskPart(Request[Part]):
    """Asks for a tenth and the client's number, times ``word``, or for what is too large in a sum."""

    word: int = 1
    huge: bool = False


class Summer(KernelClient):
    answers = (AskPart,)

    def part(self, ask: AskPart) -> Part:
        return Part(values=np.full(3, MAX_NUMBER) if ask.huge else ask.word * (0.1 + np.arange(3.0) + self.client))


@pytest.mark.parametrize("order", ORDERS)
def test_a_protocol_is_sent_the_sum_in_the_order_of_the_clients_and_nothing_else(order, caplog):
    seen = []

    def protocol():
        seen.append((yield from to_sum(AskPart())))
        seen.append((yield from to_sum({2: AskPart(word=3), 0: AskPart()}, t=1.0)))
        return [0.0]

    in_order = lambda replies: [replies[place] for place in order if place < len(replies)]  # noqa: E731
    with caplog.at_level("DEBUG"):
        result, _ = run(Toy(protocol, client=Summer), order=in_order)
    parts = [0.1 + np.arange(3.0) + client for client in range(3)]
    assert [type(total) for total in seen] == [Part, Part]
    assert seen[0].values.tobytes() == (parts[0] + parts[1] + parts[2]).tobytes()
    assert seen[1].values.tobytes() == (parts[0] + 3 * parts[2]).tobytes()
    # each client's own message is accounted for, and told to nobody
    rows = [(row["phase"], row["clients"], row["floats_up"]) for row in result.history[1:]]
    assert rows == [("AskPart", 3, 9), ("AskPart", 2, 6)]
    assert result.history[2]["values"] == {"t": 1.0}
    assert not [record for record in caplog.records if "1.1" in record.getMessage()]


def test_a_sum_that_is_too_large_or_lacks_a_part_is_no_sum():
    text = error_of(Toy(lambda: to_sum(AskPart(huge=True)), client=Summer))
    outline = "the sum over the clients is too large, and this client's part is the largest"
    assert text == f"Toy, round 1 (AskPart), client 0: {outline}"

    class Silent(Summer):
        answers = (AskPart,)

        def part(self, ask: AskPart) -> Part:
            if self.client == 1:
                raise ValueError("secret")
            return super().part(ask)

    text = error_of(Toy(lambda: to_sum(AskPart()), client=Silent, on_missing="continue"))
    assert text == f"Toy, round 1 (AskPart), client 1: {SCRUBBED}"


def test_whoever_writes_a_pair_is_told_what_is_wrong_with_it():
    with pytest.raises(TypeError, match="Ask is answered by Numbers; allowed with to_sum: a Summed"):
        next(to_sum(Ask()))
    for name, annotation, sentence in (
        ("values", Annotated[np.ndarray, Shape("n_m")], "n_m may differ between clients"),
        ("count", int, "cannot be summed"),
        ("values", Annotated[np.ndarray, Shape("n", dtype="int32")], "cannot be summed"),
    ):
        with pytest.raises(TypeError, match=sentence):
            type("Own", (Summed,), {"__annotations__": {name: annotation}, "__module__": __name__})

    def generator():
        yield to_all(Ask())

    def request():
        yield Ask()

    for protocol, name in ((generator, "generator"), (request, "Ask")):
        with pytest.raises(TypeError, match=f"Toy: the protocol yields a {name}; write: yield from to_all"):
            run(Toy(protocol))
    with pytest.raises(TypeError, match=r"a round has requests = <class '.*Ask'>; allowed: a request, as in to_all"):
        run(Toy(lambda: to_all(Ask)))

    class Bare(Talker):
        answers = (Ask,)

        def tell(self, ask: Ask) -> Numbers:
            return np.ones(5)

    assert "the reply to Ask must be Numbers, not ndarray" in error_of(Toy(lambda: to_all(Ask()), client=Bare))
    with pytest.raises(TypeError, match="Own: partition = 'rows', but must be vertical or horizontal"):
        type("Own", (Toy,), {"partition": "rows"})
    for annotation in (FloatArray, FloatArray | None, np.ndarray):
        with pytest.raises(TypeError, match=r"Own.values has no shape; write Annotated\[FloatArray, Shape"):
            type("Own", (Reply,), {"__annotations__": {"values": annotation}, "__module__": __name__})
    with pytest.raises(TypeError, match=r"Bare takes no hyper-parameters; write @value_object\(\) above its class"):
        type("Bare", (KernelStrategy,), {"__annotations__": {"tol": float}, "protocol": Toy.protocol})(tol=1.0)
    for annotation in (float, float | None, tuple[float, ...]):
        with pytest.raises(TypeError, match=r"Own.weight would not be counted; write Annotated\[float, Shape\(\)\]"):
            type("Own", (Reply,), {"__annotations__": {"weight": annotation}, "__module__": __name__})


@pytest.mark.parametrize("numbers", [(0, 0), (1, 0, 1), (0, 2), (1, 2), (3,)])
def test_client_numbers_must_be_without_gaps_and_doubles(numbers):
    nodes = sorted(range(len(numbers)), key=lambda place: numbers[place])
    listed = ", ".join(f"{numbers[place]} (node {place + 1})" for place in nodes)
    text = error_of(Toy(ask_once()), numbers=numbers)
    assert f"numbered 0 to {len(numbers) - 1} without gaps, but their numbers are {listed}" in text


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"rows": -1}, "Introduction: rows = -1: input should be greater than or equal to 0"),
        ({"rows": "many"}, "Introduction: rows = 'many': input should be a valid integer"),
        ({"client": 1.5}, "Introduction: client = 1.5: input should be a valid integer"),
        ({"columns": None}, "Introduction: columns is required"),
        ({"names": ["a", "a", "b"]}, "Introduction: names has 2 different ones, but there are 3 columns"),
        ({"names": "abc"}, "Introduction: names = 'abc': input should be a list"),
        ({"site": "x" * 300}, "Introduction: site = 'xxx"),
        ({"version": None}, f"the message has wire version None, but this version reads {WIRE_VERSION}"),
        (None, "Introduction: there is no record 'config'"),
    ],
)
def test_a_broken_introduction_is_refused_by_name(changed, sentence):
    def change(reply):
        if reply.metadata.message_type == MessageType.QUERY and reply.metadata.src_node_id == 2:
            if changed is None:
                del reply.content["config"]
                return
            config = reply.content["config"]
            fields = json.loads(config["fields"])
            for name, value in changed.items():
                table = fields if name in fields else config
                del table[name]
                if value is not None:
                    table[name] = value
            config["fields"] = json.dumps(fields)

    text = error_of(Toy(ask_once()), change=change)
    assert f"Talker, joining: node 2: {sentence}" in text
    assert len(text) < 500


class Sized(Reply):
    own: Annotated[np.ndarray, Shape("n_m", "d_m")]
    shared: Annotated[np.ndarray, Shape("N")]


class AskSized(Request[Sized]):
    """Asks for arrays of the table's sizes, which clients make ``rows`` and ``columns`` larger."""

    rows: int = 0
    columns: int = 0
    shared: int = 0


class Sizer(KernelClient):
    answers = (AskSized,)

    def sizes(self, ask: AskSized) -> Sized:
        rows, columns = self.X.shape
        return Sized(own=np.ones((rows + ask.rows, columns + ask.columns)), shared=np.ones(rows + ask.shared))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rows": 1}, "own has 6 entries along axis 0, but n_m = 5"),
        ({"columns": -1}, "own has 1 entries along axis 1, but d_m = 2"),
        ({"shared": -2}, "shared has 3 entries along axis 0, but N = 5"),
    ],
)
def test_sizes_of_a_client_s_table_are_held_against_its_replies(wrong, sentence):
    """All clients agree, so that only the coordinator can know better."""

    def protocol(**fields):
        yield from to_all(AskSized(**fields))
        return []

    run(Toy(protocol, client=Sizer))
    text = error_of(Toy(lambda: protocol(**wrong), client=Sizer))
    assert text.endswith(f"round 1 (AskSized), client 0: {sentence}")


def test_nodes_beyond_those_wanted_take_no_part_and_too_few_are_waited_for():
    result, wire = run(Toy(ask_once()), numbers=(3, 1, 0, 2), clients=2)
    assert result.model == [0, 1]
    assert [message.metadata.dst_node_id for message in wire.sent[4:]] == [3, 2]
    text = error_of(Toy(ask_once()), numbers=(0, 1), clients=3, deadline=0.1)
    assert text == "2 of 3 clients were connected after 0.1 s"

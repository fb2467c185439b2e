"""The ledger: exactly what crossed the wire, per round and client, and its sums."""

import gc
import json
import pickle
import resource
import tracemalloc
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from counting import Counting, CountMe, Process, app, server
from flwr.common.serde import recorddict_to_proto
from sites import app_over

from fedkernel import DKPCA, RBF, Laplacian, Member, UniformKPCA, VFedAKPCA, VFedPCA, to_all
from fedkernel.engines.local import LocalGrid
from fedkernel.ground import DiskList
from fedkernel.ground import disk_list as rows_module
from fedkernel.run import Entry, Journal, Ledger
from fedkernel.run.ledger import LetterEntry, Load
from fedkernel.strategy.kernel_strategy import _pooling_findings

SHARDS = [np.random.default_rng(client).standard_normal((9, 2 + client)) for client in range(3)]
KINDS = ("floats_down", "bytes_down", "floats_up", "bytes_up", "rows_up")


class Recording(LocalGrid):
    def __init__(self, app, *, clients):
        super().__init__(app, clients=clients)
        self.exchanges = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = list(super().send_and_receive(messages, timeout=timeout))
        reply_from = {reply.metadata.src_node_id: reply for reply in replies}
        self.exchanges += [(message, reply_from[message.metadata.dst_node_id]) for message in messages]
        return replies


def recorded_run(strategy):
    with Recording(app_over(strategy.client, SHARDS), clients=len(SHARDS)) as grid:
        return strategy.run(grid), grid.exchanges


def size_of(message):
    """Entries of all arrays, and bytes as protobuf."""
    arrays = [array for record in message.content.array_records.values() for array in record.to_numpy_ndarrays()]
    return sum(array.size for array in arrays), len(recorddict_to_proto(message.content).SerializeToString())


each = pytest.mark.parametrize(
    "strategy",
    [
        DKPCA(2),
        DKPCA(2, RBF(gamma=0.1), local_components="adaptive"),
        VFedPCA(merge="eigenvalue", n_components=2, rounds=3),
        VFedPCA(merge="exact", rounds=2),
        VFedAKPCA(merge="eigenvalue", rounds=2, kernel=Laplacian(gamma=0.5)),
    ],
    ids=repr,
)


@each
def test_entries_are_exactly_what_crossed_the_wire_and_sums_are_those_of_the_entries(strategy):
    result, exchanges = recorded_run(strategy)
    counted = {}
    for request, reply in exchanges:
        number = request.content["config"].get("round", 0)  # joining belongs to no round
        counted[(number, request.metadata.dst_node_id - 1)] = (*size_of(request), *size_of(reply))
    entered = {(e.round, e.client): tuple(getattr(e, kind) for kind in KINDS[:4]) for e in result.ledger.entries}
    assert entered == counted
    assert len(result.ledger.entries) == len(exchanges) == len(SHARDS) * (result.ledger.rounds + 1)
    ledger, total = result.ledger, Counter()
    for entry in ledger.entries:
        total.update({kind: getattr(entry, kind) for kind in KINDS})
    assert ledger.totals() == {"rounds": max(entry.round for entry in ledger.entries), **total}
    assert all(ledger.totals()[kind] == getattr(ledger, kind) for kind in KINDS)
    for kind in KINDS:
        assert sum(getattr(ledger.of_client(client), kind) for client in range(3)) == total[kind]
        assert sum(getattr(ledger.of_round(number), kind) for number in range(ledger.rounds + 1)) == total[kind]
        assert all(row[kind] == getattr(ledger.of_round(row["round"]), kind) for row in result.history)
    text = str(result)
    assert all(f"{kind} {total[kind]}" in text for kind in KINDS)


# Letters between clients; tests/peers/test_letters_on_engine.py has a run with them.

LETTERS = [LetterEntry(*row) for row in [(1, 0, 1, 5, 120), (1, 1, 0, 7, 136), (2, 0, 1, 1, 88), (2, 2, 0, 1, 88)]]
WITH_LETTERS = Ledger([Entry(1, "Ask", client, 10, 400, 20, 300) for client in range(3)], LETTERS)


def test_letters_are_summed_up_by_direction_of_an_edge_and_survive_the_table():
    assert WITH_LETTERS.edges == {(0, 1): Load(2, 6, 208), (1, 0): Load(1, 7, 136), (2, 0): Load(1, 1, 88)}
    assert WITH_LETTERS.peer_to_peer == Load(4, 14, 432)
    assert WITH_LETTERS.star == Load(6, 90, 2100)
    assert WITH_LETTERS.of_client(0).edges == {(0, 1): Load(2, 6, 208)}
    assert WITH_LETTERS.of_round(1).peer_to_peer == Load(2, 12, 256)
    table = json.loads(json.dumps(WITH_LETTERS.to_table()))
    assert Ledger.from_table(table) == WITH_LETTERS
    assert Ledger.from_table(table[:3]) == Ledger(WITH_LETTERS.entries)


@pytest.fixture
def few_in_memory(monkeypatch):
    monkeypatch.setattr(rows_module, "CHUNK", 16)


def test_rows_are_a_list_wherever_they_are(few_in_memory):
    rows, plain = DiskList(), []
    for number in range(100):
        row = {"round": number, "seconds": number / 7, "values": {"a": [1, None]}}
        rows.append(row)
        plain.append(row)
        assert len(rows) == len(plain)
        assert rows[number // 2] == plain[number // 2]
    assert len(rows._last) < 32
    assert (list(rows), list(reversed(rows))) == (plain, plain[::-1])
    assert (rows[-1], rows[-100], rows[3:90:7], rows[::-1]) == (plain[-1], plain[0], plain[3:90:7], plain[::-1])
    assert rows == plain == DiskList(plain)
    assert rows != plain[:-1]
    assert rows != [*plain[:50], {}, *plain[51:]]
    assert pickle.loads(pickle.dumps(rows)) == rows  # noqa: S301
    for place in (100, -101):
        with pytest.raises(IndexError):
            rows[place]


def test_where_rows_are_does_not_show_in_a_result(few_in_memory, tmp_path):
    strategy = VFedPCA(merge="eigenvalue", rounds=30)
    spilled, _ = recorded_run(strategy)
    assert len(spilled.ledger.entries._last) < 32 < len(spilled.ledger.entries)
    whole = Ledger(list(spilled.ledger.entries))
    assert spilled.ledger == whole
    assert spilled.ledger.totals() == whole.totals()
    assert spilled.ledger.to_table() == whole.to_table()
    spilled.save(tmp_path)
    loaded = type(spilled).load(tmp_path)
    assert (loaded.ledger, loaded.history) == (spilled.ledger, list(spilled.history))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "result.json").read_bytes() == (tmp_path / "result.json").read_bytes()


def test_rounds_are_counted_in_whatever_order_they_come_and_an_empty_ledger_is_zero():
    ledger = Ledger(Entry(number, "Ask", 0, 1, 8, 1, 8) for number in (0, 3, 1, 3, 7, 2, 1))
    assert ledger.rounds == 4
    assert Ledger().totals() == dict.fromkeys(("rounds", *KINDS), 0)


def test_entries_are_read_no_more_often_with_many_sites_than_with_few(monkeypatch):
    read, read_one = [], DiskList.__getitem__
    monkeypatch.setattr(DiskList, "__getitem__", lambda rows, place: [read.append(place), read_one(rows, place)][1])

    def reads(sites):
        read.clear()
        ledger = UniformKPCA(2, n_samples=sites, share_rows=True).fit(np.eye(5)[[range(5)] * sites]).ledger
        return len(read) / len(ledger.entries)

    assert reads(40) < 1.5 * reads(10)


def test_as_many_floats_as_the_whole_table_has_are_no_finding():
    ledger, members = Ledger([Entry(1, "Ask", 0, 1, 8, 6, 48)]), [Member(0, 0, 2, 3, 0)]
    assert _pooling_findings(ledger, members, "horizontal") == []
    assert "pooling the data" in _pooling_findings(ledger, [Member(0, 0, 1, 5, 0)], "horizontal")[0]


def test_where_nothing_can_be_written_rows_stay_in_memory(few_in_memory, monkeypatch):
    rows, (soft, hard) = DiskList(range(40)), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # as of a full disk: some of a write fits
    try:
        rows.extend(range(40, 100))
        assert list(rows) == list(range(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    tried = []

    def full(**options):
        tried.append(options)
        raise OSError("no space left on device")

    monkeypatch.setattr(rows_module, "TemporaryFile", full)
    assert DiskList(range(100)) == list(range(100))
    assert len(tried) == 1


@pytest.mark.parametrize("engine", ["local", pytest.param("grpc", marks=pytest.mark.drill)])
def test_a_round_leaves_nothing_in_memory(engine, few_in_memory, tmp_path):
    """Of 2 times 16 rounds the least that a round has left; what is written down of one has 2 KB."""
    in_use = []

    class Watched(Counting):
        def protocol(self, run):
            for number in range(1, 65):
                yield from to_all(CountMe(ballast=np.zeros(128)))
                if number >= 32 and number % 16 == 0:
                    gc.collect()
                    in_use.append(tracemalloc.get_traced_memory()[0])

    def run(grid):
        tracemalloc.start()
        with closing(Journal(tmp_path, {"run": "run"})) as journal:
            Watched().run(grid, journal=journal)
        tracemalloc.stop()

    if engine == "local":
        with LocalGrid(app(), clients=2) as grid:
            run(grid)
    else:
        with server("a", "b") as (hub, port):
            sites = [Process(name, port) for name in "ab"]
            hub.wait_for_all()
            run(hub)
        assert [site.end() for site in sites] == [None, None]
    # What a busy machine lets threads hold at one moment they have let go of at another; what leaks leaks always
    assert len(in_use) == 3
    assert min(np.diff(in_use)) / 16 < 700  # of which 300 are a process that has answered a request, and knows it again

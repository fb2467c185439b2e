"""Sites with data of their own: which rows they have in common, what of it travels, and what they must agree on."""

import hashlib
import hmac
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import named_sites
import numpy as np
import pytest
from flwr.app import Message
from named_sites import COLUMNS, COMMON, COMMON_ROWS, HELD, IDS, KEY, NAMES, TABLE, refused, run_on, vertical, write_csv
from scipy import sparse

from fedkernel import DKPCA, FKKMeans, InputError, Linear, ProtocolError, VFedPCA, wire
from fedkernel.clients.dkpca import FindLocalEigenpairs
from fedkernel.data import Prepare, RawTable, as_table
from fedkernel.preparing import TableToPrepare
from fedkernel.run import common_rows, row_matching
from fedkernel.run.row_matching import check_same_columns
from fedkernel.site import find_rows, row_order
from fedkernel.site.keys import read_key
from fedkernel.site.row_order import check_rows_apart, row_contents, row_hashes
from fedkernel.site.site_builder import _check_apart
from fedkernel.wire import HASH_BYTES, flower_internals, hash_ids, to_content


def hashed(id_, key=b"", seed=0):
    """The slow way."""
    salt = hashlib.sha256(f"fedkernel, ids of run trial, seed {seed}".encode()).digest()
    return hmac.new(key, salt + id_.encode(), hashlib.sha256).digest()[:16]


def pooled(key=b"", seed=0):
    """The rows that all sites have, in the order of their hashes."""
    ids = sorted(COMMON, key=lambda id_: hashed(id_, key, seed))
    return ids, TABLE[[IDS.index(id_) for id_ in ids]]


@pytest.mark.parametrize("seed", [0, 5])
def test_shuffled_rows_of_which_some_are_missing_give_the_model_of_the_common_ones(tmp_path, seed):
    strategy = DKPCA(n_components=3, local_components=5)
    result, _ = run_on(vertical(tmp_path), strategy, seed=seed)
    _, X = pooled(seed=seed)
    assert 20 < len(X) < 33
    shards = [X[:, columns] for columns in COLUMNS]
    expected = strategy.fit(shards, seed=seed).model
    for name in ("eigenvectors_", "eigenvalues_"):
        np.testing.assert_allclose(getattr(result.model, name), getattr(expected, name), rtol=0, atol=1e-12)
    central = strategy.central(shards).eigenvalues_
    np.testing.assert_allclose(result.model.eigenvalues_, central, rtol=1e-12)


def test_every_site_keeps_its_results_with_the_ids_in_the_agreed_order(tmp_path):
    strategy = VFedPCA(n_components=2, merge="exact")
    run_on(vertical(tmp_path), strategy)
    ids, X = pooled()
    expected = strategy.fit([X[:, columns] for columns in COLUMNS])
    for number, name in enumerate(NAMES):
        with np.load(tmp_path / name / "trial.npz") as outputs:
            assert outputs["ids"].tolist() == ids
            np.testing.assert_allclose(outputs["eigenvectors"], expected.outputs[number]["eigenvectors"], atol=1e-12)


def test_what_the_agreement_cost_is_accounted_for_and_the_overlap_is_told(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger=row_matching.__name__):
        result, grid = run_on(vertical(tmp_path), DKPCA(2))
    row = result.history[1]
    assert [entry["phase"] for entry in result.history] == ["join", "align", "FindLocalEigenpairs"]
    assert row["values"].pop("order") in range(2**48)
    assert row["values"] == {"rows_0": 36, "rows_1": 33, "rows_2": 38, "rows": len(COMMON)}
    assert (row["round"], row["clients"], row["floats_up"], row["floats_down"]) == (0, 3, 0, 0)
    queries = [message for message in grid.seen if message.metadata.message_type.startswith("query.")]
    assert [message.metadata.message_type for message in queries[::6]] == ["query.ids", "query.align"]
    size = sum(flower_internals.content_bytes(message.content) for message in queries)
    assert row["bytes_up"] + row["bytes_down"] == size
    assert row["bytes_up"] > 16 * (36 + 33 + 38)
    assert row["bytes_down"] > 3 * 16 * len(COMMON)
    assert result.history[0]["clients"] == 3
    assert sum(row["bytes_up"] for row in result.history) == result.ledger.bytes_up
    assert result.ledger.rounds == 1
    sizes = "client 0 (site 'north') has 36, client 1 (site 'east') has 33, client 2 (site 'south') has 38"
    assert caplog.messages == [f"trial: rows are aligned by their ids: {sizes}; {len(COMMON)} are common to all"]


def hashes_sent(grid):
    aligning = [message.content["arrays"] for message in grid.seen if "query." in message.metadata.message_type]
    sent = [array.numpy() for arrays in aligning for array in arrays.values()]
    return b"".join(array.tobytes() for array in sent if array.ndim == 2)  # without what tells the key's check


def test_nothing_that_crosses_the_wire_holds_an_id(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    sent = {}
    for name, more, options in [("plain", {}, {}), ("keyed", {"id-key": str(path)}, {}), ("seed", {}, {"seed": 1})]:
        (folder := tmp_path / name).mkdir()
        result, grid = run_on(vertical(folder, **more), DKPCA(2), **options)
        again, repeated = run_on(vertical(folder, **more), DKPCA(2), **options)
        assert hashes_sent(grid) == hashes_sent(repeated)
        assert result.ledger == again.ledger
        assert not any(text.encode() in grid.wire for text in (*IDS, "patient-", KEY.decode()))
        sent[name] = set(np.frombuffer(hashes_sent(grid), "V16").tolist())
        assert len(sent[name]) == 40
    assert not sent["plain"] & sent["keyed"]
    assert not sent["plain"] & sent["seed"]
    assert sent["plain"] == {hashed(id_) for id_ in IDS}
    assert sent["keyed"] == {hashed(id_, KEY) for id_ in IDS}


def none_in_common(folder, nodes):
    return vertical(folder, [np.arange(3), np.arange(2, 6), np.arange(5, 7)], **{"min-rows": 1})


def ids_at_one(folder, nodes):
    for node in nodes[:2]:
        node["columns"] = "c0,c1"
        del node["id"]
    return nodes


def keys_at_two(folder, nodes):
    (folder / "key").write_bytes(KEY)
    return [node | {"id-key": str(folder / "key")} for node in nodes[:2]] + nodes[2:]


N = len(set(np.concatenate(HELD)))
ALL = f"missing = 'refuse', but of the {N} ids of all sites some are missing: {N - 36} at client 0 (site 'north')"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda folder, nodes: nodes, {"missing": "refuse"}, ALL),
        (none_in_common, {}, "no row is common to all sites: client 0 (site 'north') has 3, client 1 (site 'east')"),
        (ids_at_one, {}, "client 0 (site 'north') (and 1 more) has no row ids, but client 2 (site 'south') has;"),
        (keys_at_two, {}, "client 2 (site 'south') and client 0 (site 'north') have different id-keys"),
    ],
)
def test_sites_whose_rows_cannot_be_aligned_are_refused(tmp_path, change, options, message):
    assert refused(change(tmp_path, vertical(tmp_path)), DKPCA(2), **options).startswith(message)


def test_where_all_rows_are_asked_for_and_there_they_are_worked_on(tmp_path):
    rows = named_sites.rng.permutation(40)
    everywhere = vertical(tmp_path, [rows[np.isin(rows, HELD[0][:20])]] * 3)
    result, _ = run_on(everywhere, DKPCA(2), missing="refuse")
    assert len(result.model.eigenvectors_) == 20


def test_a_site_that_tells_of_other_rows_than_it_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "hash_ids", lambda *args: hash_ids(*args)[:3])
    with pytest.raises(ProtocolError, match=r"client 0 \(site 'north'\) sent 3 hashes of ids, but has 36 rows"):
        run_on(vertical(tmp_path), DKPCA(2))


def test_without_ids_rows_are_taken_as_they_are(tmp_path):
    nodes = []
    for name, columns in zip(NAMES, COLUMNS, strict=True):
        np.save(tmp_path / f"{name}.npy", TABLE[:, columns])
        out = {"out": str(tmp_path / name), "approve": "any", "table-share": 2}
        nodes.append({"name": name, "data": str(tmp_path / f"{name}.npy"), **out})
    result, _ = run_on(nodes, DKPCA(2))
    plain = DKPCA(2).fit([TABLE[:, columns] for columns in COLUMNS])
    np.testing.assert_array_equal(result.model.eigenvectors_, plain.model.eigenvectors_)
    assert [row["phase"] for row in result.history] == ["join", "FindLocalEigenpairs"]
    np.save(tmp_path / "north.npy", TABLE[:29, COLUMNS[0]])
    refusal = "client 1 (site 'east') has 40 rows, but client 0 (site 'north') has 29: with a vertical partition"
    assert refused(nodes, DKPCA(2)).startswith(refusal)


def test_no_hash_leaves_that_anybody_can_compute_unless_the_site_says_so(tmp_path):
    nodes = vertical(tmp_path)
    del nodes[0]["ids-without-key"]
    with named_sites.Sites(named_sites.spec(), nodes) as grid, pytest.raises(ProtocolError) as caught:
        DKPCA(2).run(grid, named_sites.settings_of(named_sites.spec()))
    assert str(caught.value) == (
        "DKPCAClient, aligning: client 0 (site 'north'): \""
        "client 0 (site 'north') has no key for the hashes of its ids, so anyone holding the hashes could guess "
        'ids by trial; allowed: a key that all sites share (join --id-key), or --ids-without-key"'
    )
    assert not any(hashed(IDS[row]) in grid.wire for row in set(HELD[0]) - set(HELD[1]) - set(HELD[2]))
    (tmp_path / "key").write_bytes(KEY)
    for node in nodes:
        node.pop("ids-without-key", None)
        node["id-key"] = str(tmp_path / "key")
    run_on(nodes, DKPCA(2))


class Aligning(named_sites.Sites):
    """Asks for something else before it aligns, or aligns twice."""

    first = None

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages[0].metadata.message_type == "query.align":
            first, kind = (messages[0].content, "query.align") if self.first is None else (self.first, "train")
            earlier = [Message(first, message.metadata.dst_node_id, kind, group_id="0") for message in messages]
            assert not any(reply.has_error() for reply in super().send_and_receive(earlier))
        return super().send_and_receive(messages, timeout=timeout)


@pytest.mark.parametrize("first", [None, FindLocalEigenpairs(kernel=Linear(), n_components=2)], ids=["twice", "late"])
def test_rows_are_aligned_once_and_before_anything_else(tmp_path, first):
    """Also where no plan says so."""
    (tmp_path / "site.toml").write_text("[study]\nplan = false\njoint_seed = 'never'\n[guards]\ntable_share = 9")
    with Aligning(named_sites.spec(plan=None), vertical(tmp_path, policy=str(tmp_path / "site.toml"))) as grid:
        if first is not None:
            grid.first = to_content(first, named_sites.settings_of(named_sites.spec()).header("DKPCAClient"))
        with pytest.raises(ProtocolError, match=r"north'\) are settled; allowed: one alignment per run"):
            DKPCA(2).run(grid, named_sites.settings_of(named_sites.spec()))


def test_a_site_does_not_work_on_a_small_share_of_its_rows(tmp_path):
    shared = np.arange(19)
    apart = [np.arange(40), shared, shared]
    message = refused(vertical(tmp_path, apart, **{"min-rows": 1}), DKPCA(2), ProtocolError)
    few = "only 19 of 40 rows of client 0 (site 'north') are common to all sites; its policy requires 20"
    assert message == f"DKPCAClient, aligning: client 0 (site 'north'): \"{few} (table.row_share)\""
    run_on(vertical(tmp_path, [np.arange(38), shared, shared], **{"min-rows": 1}), DKPCA(2))


def test_runs_whose_rows_differ_by_few_are_told_apart(tmp_path):
    named = lambda rows: row_hashes(IDS, KEY, np.array(rows), 40)  # noqa: E731
    first = named(range(30))
    assert row_hashes(None, b"", np.arange(5), 40).tobytes() == row_hashes(None, b"", None, 5).tobytes()
    assert not set(map(bytes, first)) & {hashed(id_, KEY) for id_ in IDS}, "not what leaves in a run"
    for number, rows in enumerate((range(30), range(29, -1, -1), range(20), range(40), range(10, 40))):
        apart = [check_rows_apart(tmp_path / str(number), own, 10) for own in (first, named(rows), first)]
        assert apart == [0, *[len(set(rows) ^ set(range(30)))] * 2]
        assert len([*(tmp_path / str(number)).iterdir()]) == (1 if set(rows) == set(range(30)) else 2)
    for rows, sentence in (
        (range(29), "1 rows fewer than an earlier run"),
        (range(31), "1 rows more than an earlier run"),
        (range(1, 31), "1 rows more than an earlier run"),
        (range(9, 40), "9 rows fewer than an earlier run"),
    ):
        for folder in (tmp_path / "0", tmp_path / "4"):  # the last has another one, too
            with pytest.raises(InputError, match=r"allowed: the same rows or 10 others at least \(table.rows_apart\)"):
                check_rows_apart(folder, named(rows), 10)
        with pytest.raises(InputError, match=sentence):
            check_rows_apart(tmp_path / "0", named(rows), 10)


def test_a_run_on_other_values_than_the_last_is_refused(tmp_path):
    """Of the same patients, in any order: the difference of two sums would be that row."""
    nodes = vertical(tmp_path)
    run_on(nodes, DKPCA(2))
    path = Path(nodes[1]["data"])
    path.write_text("\n".join([*(lines := path.read_text().splitlines())[:1], *lines[:0:-1]]) + "\n")
    run_on(nodes, DKPCA(2), id="in-another-order")
    before = next(line for line in lines if IDS[min(COMMON_ROWS)] in line)
    numbers = [cell for cell in before.split(",") if cell != IDS[min(COMMON_ROWS)]]
    path.write_text(path.read_text().replace(before, before.replace(numbers[0], "0.125")))
    message = refused(nodes, DKPCA(2), ProtocolError, id="one-changed")
    assert "the run has other values in 1 rows than an earlier run" in message
    assert "allowed: the same values or 20 others at least (table.rows_apart)" in message


def contents(X, positions, key):
    return row_contents(X if isinstance(X, TableToPrepare) else as_table(X, "X"), positions, key)


def test_the_content_of_a_row_is_known_again_wherever_it_stands(tmp_path):
    X = np.array([[1.0, 0.0], [2.0, 5.0], [1.0, -0.0], [3.0, 0.0]])
    names = [name.tobytes() for name in contents(X, None, KEY)]
    assert len(set(names)) == 4, "equal rows are counted"
    assert {name.tobytes() for name in contents(X[::-1].copy(), None, KEY)} == set(names)
    assert {name.tobytes() for name in contents(X, np.array([0, 1]), KEY)} == set(names[:2])
    assert {name.tobytes() for name in contents(X, np.array([2, 1]), KEY)} == set(names[:2])
    assert not set(names) & {name.tobytes() for name in contents(X, None, KEY[::-1])}, "under the site's secret"
    raw = TableToPrepare(RawTable.of_array(X), Prepare())
    np.testing.assert_array_equal(contents(raw, None, KEY), contents(X, None, KEY))
    sheet = RawTable({"sex": np.array(["f", None, "m"], object), "age": np.array([1.0, np.nan, 3.0])})
    prepare = Prepare(missing="mean", categories={"sex": ("f", "m")})
    assert len(set(map(bytes, contents(TableToPrepare(sheet, prepare), None, KEY)))) == 3
    full, changed = (sparse.csr_array(entries) for entries in (X, np.where(X == 5, 6, X)))
    same = [a.tobytes() == b.tobytes() for a, b in zip(*(contents(x, None, KEY) for x in (full, changed)))]  # noqa: B905
    assert same == [True, False, True, True]


def test_a_clip_that_changes_a_row_s_value_makes_it_another_row():
    """The difference of sums with two clips is about the rows between these alone."""
    sheet = RawTable({"age": np.arange(40.0), "crp": np.arange(40.0)})
    contents = [
        set(map(bytes, row_contents(TableToPrepare(sheet, Prepare(clip={"age": (0.0, most)})), None, KEY)))
        for most in (100.0, 90.0, 38.5)
    ]
    assert contents[0] == contents[1]
    assert len(contents[0] - contents[2]) == 1


def test_first_replies_of_two_runs_at_once_are_compared_with_each_other(tmp_path, monkeypatch):
    """As at a SuperNode, which answers each message in a process of its own."""
    passed, write = [], row_order.write_atomic

    def write_late(*arguments):
        time.sleep(0.2)
        write(*arguments)

    def begin(rows):
        with suppress(InputError):
            _check_apart(
                SimpleNamespace(X=as_table(TABLE[:rows], "X"), ids=None), b"", KEY, tmp_path / "rows", 20, None, True
            )
            passed.append(rows)

    monkeypatch.setattr(row_order, "write_atomic", write_late)
    threads = [threading.Thread(target=begin, args=(rows,)) for rows in (40, 39)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 1


def test_a_run_on_other_rows_than_the_last_is_refused_and_one_on_the_same_is_not(tmp_path):
    """With ids; and without, where the site's file has got a row more."""
    run_on(vertical(tmp_path), DKPCA(2))
    run_on(vertical(tmp_path), DKPCA(2), id="again")
    fewer = [held[held != min(COMMON_ROWS)] for held in HELD]
    message = refused(vertical(tmp_path, fewer), DKPCA(2), ProtocolError, id="with-fewer")
    assert "the run has 1 rows fewer than an earlier run" in message
    nodes = horizontal(tmp_path, **{"ids-without-key": "true"})
    strategy = FKKMeans(n_clusters=1, iterations=1, coreset_size=3)
    for node in nodes:
        node |= {"label": node.pop("id"), "out": f"{node['out']}-rows"}
    run_on(nodes, strategy)
    write_csv(tmp_path / "north.csv", IDS[:13], TABLE[:13, :2], ("age", "weight"))
    message = refused(nodes, strategy, ProtocolError, id="with-more")
    assert "the run has 1 rows more than an earlier run" in message
    write_csv(tmp_path / "north.csv", IDS[1:13], TABLE[1:13, :2], ("age", "weight"))
    message = refused(nodes, strategy, ProtocolError, id="with-another")
    assert "the run has other values in 1 rows than an earlier run" in message
    policy = "[table]\nmin_rows = 1\nrows_apart = {}\n[guards]\ntable_share = 300"
    for node in nodes:
        node |= {"policy": str(tmp_path / "site.toml")}
        del node["min-rows"], node["table-share"]
    (tmp_path / "site.toml").write_text(policy.format(1))
    message = refused(nodes, strategy, ProtocolError, id="with-another")
    assert "for each of the 4 entries of rows that another run had not; allowed: 300" in message, "one came, one went"
    (tmp_path / "site.toml").write_text(policy.format(0))
    run_on(nodes, strategy, id="with-more")


def test_keys_that_cannot_be_used(tmp_path):
    path = tmp_path / "key"
    with pytest.raises(InputError, match="there is no file"):
        read_key(str(path))
    path.write_bytes(b"  secret  ")
    with pytest.raises(InputError, match=r"key has 6 bytes; allowed: at least 16$"):
        read_key(str(path))


# What a site makes of the rows that were agreed on

OWN = hash_ids(IDS, b"", "run", 0)
ORDER = np.argsort(OWN.view("S16").ravel())


@pytest.mark.parametrize(
    ("common", "sentence"),
    [
        (OWN[ORDER[[1, 0]]], "must be among this site's own, in order and each once"),
        (OWN[ORDER[[1, 1]]], "must be among this site's own, in order and each once"),
        (np.full((1, 16), 255, np.uint8), "must be among this site's own, in order and each once"),
        (OWN[:0], r"have shape \(0, 16\) and type uint8, but must have \(n, 16\) and uint8"),
        (OWN[:, :8], r"have shape \(40, 8\) and type uint8, but must"),
        (OWN.astype(float), r"have shape \(40, 16\) and type float64, but must"),
    ],
)
def test_a_site_works_on_no_other_rows_than_its_own(common, sentence):
    some = ORDER[[0, 3, 4, 39]]
    np.testing.assert_array_equal(find_rows(OWN, OWN[some]), some)
    np.testing.assert_array_equal(find_rows(OWN[ORDER], OWN[ORDER]), np.arange(40))
    with pytest.raises(ProtocolError, match=sentence):
        find_rows(OWN, common)


def test_a_coordinator_takes_only_hashes_and_tells_those_that_end_in_zeros_apart():
    ends = np.zeros((3, HASH_BYTES), np.uint8)
    ends[1, 15], ends[2, 14] = 1, 1
    np.testing.assert_array_equal(common_rows({"a": ends[[2, 0, 1]], "b": ends[1:]}, "drop", "run"), ends[1:])
    for sent, sentence in (
        (OWN[[0, 0]], "b sent the same id twice"),
        (OWN[:, 1:], r"b sent uint8 ids of shape \(40, 15\), not uint8 \(n, 16"),
    ):
        with pytest.raises(ProtocolError, match=sentence):
            common_rows({"a": OWN, "b": sent}, "drop", "run")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("age", "height", "bmi"), "c: column 1 (counted from 0) is 'height', but 'weight' was expected, as at a"),
        (("age", "bmi", "weight"), "as at a; the names are equal, but in a different order"),
        (("age", "bmi"), "c has no column 'weight', which a has; allowed: the same columns everywhere"),
        (("age", "x", "weight", "bmi"), "c has a column 'x', which a lacks; allowed: the same everywhere"),
    ],
)
def test_columns_that_differ_are_named(names, sentence):
    expected = ("age", "weight", "bmi")
    check_same_columns({"a": expected, "b": expected})
    with pytest.raises(InputError) as caught:
        check_same_columns({"a": expected, "b": expected, "c": names})
    assert str(caught.value).endswith(sentence)


def horizontal(folder, names=("age", "weight"), last=("age", "weight"), **more):
    nodes = []
    for number, name in enumerate(NAMES):
        rows = slice(number * 12, number * 12 + 12)
        path = write_csv(folder / f"{name}.csv", IDS[rows], TABLE[rows, :2], last if name == "south" else names)
        own = {"name": name, "data": str(path), "id": "patient", "out": str(folder / name)}
        nodes.append({**own, "min-rows": 12, "approve": "any", "table-share": 1000, **more})
    return nodes


def test_horizontal_sites_agree_on_their_columns_and_keep_their_own_order(tmp_path):
    nodes = horizontal(tmp_path)
    result, _ = run_on(nodes, FKKMeans(n_clusters=1, n_components=1, iterations=2, coreset_size=3))
    assert "align" not in {row["phase"] for row in result.history}
    for number, name in enumerate(NAMES):
        with np.load(tmp_path / name / "trial.npz") as outputs:
            assert outputs["ids"].tolist() == IDS[number * 12 : number * 12 + 12]
            assert outputs["embedding"].shape == (12, 1)
    strategy = FKKMeans(n_clusters=2, iterations=2)
    expected = "client 2 (site 'south'): column 0 (counted from 0) is 'weight', but 'age' was expected, as at client 0"
    assert refused(horizontal(tmp_path, last=("weight", "age")), strategy).startswith(expected)
    nodes = horizontal(tmp_path)
    nodes[1]["columns"] = " age"
    assert refused(nodes, strategy).startswith("client 1 (site 'east') has no column 'weight', which client 0")

"""Sums under masks are the plain ones; what is missing, doubled or altered is seen; no mask is used twice."""

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from cases import CASES
from command_line import call
from flwr.app import RecordDict
from named_sites import NAMES, TABLE, settings_of
from scipy.stats import chisquare
from test_gate import Approved, masked, masked_target

from fedkernel.clients.cell_sums import CellSums, SumCells
from fedkernel.clients.centroid_kpca import CentroidKPCAClient
from fedkernel.ground import ProtocolError, ShareableError
from fedkernel.numerics import add_words, from_fixed_point, to_fixed_point
from fedkernel.peers import KeyPair
from fedkernel.run import RunningProtocol
from fedkernel.site import audit_log, read_outbox, read_receipts
from fedkernel.site.approval import signature_of
from fedkernel.site.privacy_receipt import SpentPrivacy
from fedkernel.strategies import CentroidKPCA
from fedkernel.wire import MaskedSum, MaskKeys, from_content, simulated_keys, sum_masked

LABEL = '["run", 3, "SumCells"]'
KEYS = [simulated_keys(number, 5, "run") for number in range(5)]
ROWS = np.random.default_rng(0).standard_normal((5, 6, 999)) * np.geomspace(1e-6, 1e16, 999)
PLAIN = [CellSums(sums=rows, counts=np.full(6, 7.0), costs=np.full(6, 1e-6)) for rows in ROWS]


def by(keys, number=3, requests=b"requests"):
    return keys.mask(PLAIN[KEYS.index(keys) if keys in KEYS else 4], LABEL.replace("3", str(number)), requests)


def test_the_bytes_of_all_sites_add_up_to_the_sum_and_those_of_one_are_as_if_drawn():
    replies = list(map(by, KEYS))
    total, again = (sum_masked(CellSums, order, LABEL).arrays() for order in (replies, replies[::-1]))
    for name, array in CellSums.sum_of(PLAIN).arrays().items():
        np.testing.assert_array_equal(again[name], total[name])
        np.testing.assert_allclose(total[name], array, 1e-9, 1e-15 * np.abs(array).max())
    assert chisquare(np.bincount(replies[0].words.view(np.uint8), minlength=256)).pvalue > 1e-4
    for name, number in {"costs": 6e32, "sums": -6e32, "counts": 2.0**61}.items():
        with pytest.raises(ShareableError, match=f"CellSums: {name}: a number in it is not below .* over 5 sites"):
            KEYS[0].mask(PLAIN[0].model_copy(update={name: np.array([0.0, number])}), LABEL, b"")


OTHER, LAST = KeyPair.new(), KEYS[4]
FAULTS = {
    "missing": [],
    "twice": [by(KEYS[3])],
    "of another round": [by(LAST, 4)],
    "after another request": [by(LAST, requests=b"other")],
    "of another study": [by(replace(LAST, context=b"other"))],
    "of fewer sites": [by(replace(LAST, number=2, public=LAST.public[2:]))],
    "of an invented site": [by(replace(LAST, own=OTHER, public=(*LAST.public[:4], OTHER.public)))],
}


@pytest.mark.parametrize("last", FAULTS.values(), ids=FAULTS)
def test_what_is_not_of_all_sites_once_is_seen(last):
    with pytest.raises(ProtocolError, match="masked reply is missing, came twice, or is of another"):
        sum_masked(CellSums, [*map(by, KEYS[:4]), *last], LABEL)


def test_a_reply_with_a_flipped_bit_is_refused():
    (reply := by(LAST)).words[123] ^= 1 << 45
    with pytest.raises(ValueError, match="words of a masked CellSums were altered on their way"):
        reply.outline(CellSums)


def test_masks_of_keys_with_one_shared_secret_differ():
    public = list(KEYS[1].public[:3])
    public[2] = public[0][:-1] + bytes([public[0][-1] ^ 128])  # the same point, as X25519 ignores this bit
    hidden = replace(KEYS[1], public=tuple(public)).mask(PLAIN[1], LABEL, b"")
    bare = replace(KEYS[1], number=0, public=KEYS[1].public[1:2]).mask(PLAIN[1], LABEL, b"")
    assert not np.any(bare.words == hidden.words)


@pytest.mark.parametrize("sites", [2, 3, 1000])
def test_words_of_a_sum_are_those_of_the_exact_sum_alone(sites):
    rng = np.random.default_rng(sites)
    scales = 10.0 ** rng.choice([-320, -30, -24, -6, 0, 9, 29], (sites, 60))
    values = rng.uniform(-1, 1, (sites, 60)) * scales
    values[:, :3] = np.nextafter(2**111 / sites, 0) * np.array([1, -1, rng.choice([-1, 1])])
    values[0, 3:6], values[1, 3:6] = [-0.0, 1.5, 2.0**-80], [-0.0, -1.5, -(2.0**-80)]
    total = np.zeros(3 * 60, np.uint64)
    for row in values:
        add_words(total, to_fixed_point(row, sites, whole=False).ravel(), 60)
    exact = [sum(round(Fraction(float(value)) * 2**80) for value in column) for column in values.T]
    words = total.reshape(3, 60).astype(object)
    assert ((words[0] << 128) + (words[1] << 64) + words[2]).tolist() == [value % 2**192 for value in exact]
    expected = np.array([float(Fraction(value, 2**80)) for value in exact])
    np.testing.assert_allclose(from_fixed_point(total.reshape(3, 60)), expected, rtol=4e-16, atol=0)


def summed_in(case, kinds="reply"):
    plan = case.strategy.plan_of_run(case.clients, 0, evaluate=True)
    return frozenset(getattr(planned, kinds) for step in plan for planned in step.requests if planned.summed)


@pytest.mark.parametrize("case", {summed_in(case): case for case in CASES if summed_in(case)}.values(), ids=str)
def test_every_pair_s_sums_under_masks_are_those_of_its_plain_replies(case, monkeypatch):
    replies, mask, sum_of = [], MaskKeys.mask, RunningProtocol._sum_of
    monkeypatch.setattr(MaskKeys, "mask", lambda keys, reply, *more: replies.append(reply) or mask(keys, reply, *more))

    def compared(running, hidden):
        total, plain = sum_of(running, hidden), type(replies[0]).sum_of(replies)
        for name, array in plain.arrays().items():
            np.testing.assert_allclose(total.arrays()[name], array, 1e-9, 1e-9 * np.abs(array).max())
        replies.clear()
        return total

    monkeypatch.setattr(RunningProtocol, "_sum_of", compared)
    result = case.strategy.fit(case.shards(), evaluate=True, sums="masked")
    entries = [entry for entry in result.ledger.entries if entry.round and entry.floats_up]
    plain = sum(entry.floats_up for entry in entries if entry.phase not in summed_in(case, "request"))
    said = next((text for text in result.findings if "without masks" in text), "0 of none")
    assert said.partition(" of ")[0] == f"{plain:,}"
    assert ("ClusterSizes" in said) == ("evaluate = false" in said)


def test_a_coordinator_that_asks_sites_for_different_things_and_denies_it_gets_no_sum(monkeypatch):
    monkeypatch.setattr(RunningProtocol, "_alike", lambda running: {"alike": True})
    case = next(case for case in CASES if str(case) == "uniform KPCA")
    with pytest.raises(ProtocolError, match=r"round 2 \(MultiplyKernel\), the sum over the clients: the masks do not"):
        case.strategy.fit(case.shards(), sums="masked")


STRATEGY = CentroidKPCA(2, n_landmarks=6)
POLICY = '[study]\nsums = "masked"\n'


def receipt(*arguments):
    done = call("receipt", *arguments, code=None, COLUMNS="400")
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Folder of three sites after a run of masked sums, the model, and the sites' receipts."""
    nodes, study = masked(folder := tmp_path_factory.mktemp("left"), STRATEGY, POLICY)
    (folder / "study.json").write_text(study.text)
    with Approved(study, nodes) as grid:
        model = STRATEGY.run(grid, settings_of(study.runs[0])).model
    calls = [["make", node["out"], "--name", node["name"], "--identity", node["identity"]] for node in nodes]
    return folder, model, read_receipts(Path(receipt(*arguments)[1].strip()) for arguments in calls)


def test_sites_that_let_nothing_else_leave_give_the_local_engine_s_numbers(left):
    folder, model, _ = left
    np.testing.assert_array_equal(model.coefficients_, STRATEGY.fit([TABLE] * 3, sums="masked").model.coefficients_)
    replies = {line.reply: line.masked for line in read_outbox(folder / NAMES[0]).departures}
    assert replies.pop("Introduction") == replies.pop("Done") == 0
    assert set(replies.values()) == {3}


def verified(folder, receipts, *arguments):
    paths = [folder / f"{number}.json" for number in range(len(receipts))]
    for path, it in zip(paths, receipts, strict=True):
        path.write_text(it.model_dump_json())
    return receipt("verify", *paths, *arguments)


def test_receipts_say_what_left_and_add_up(left, tmp_path):
    folder, _, its = left
    standing = read_outbox(folder / NAMES[0]).departures[-1].standing
    assert its[0].left["CellSums"].keys() == its[0].sites == {3}
    floats = [counts["floats"] for by_sites in its[0].left.values() for counts in by_sites.values()]
    assert sum(floats) / TABLE.size == its[0].table_share == standing.run.share
    code, table, faults = verified(tmp_path, its, "--study", folder / "study.json")
    assert (code, faults, table.count("only masked sums, 0.74 numbers for"), "nothing" in table) == (0, "", 6, False)
    privacy = SpentPrivacy(epsilon=1.5, delta=1e-6, epsilon_in_all=4.5)
    spent = {"privacy": privacy, "left": {"CellSums": {1: {}}}, "signature": ""}
    again = [its[0], *(its[0].model_copy(update={"run": run, **spent}) for run in "ab")]
    code, table, faults = verified(tmp_path, again[1:], "--out", folder / NAMES[0])
    assert (code, faults, table.count("nobody")) == (0, "", 2)
    assert "other replies than masked sums, 1.5 numbers for each entry of the table (0.74 in all its" in table
    assert "runs), epsilon 3 (4.5 in all its runs), delta 2e-06" in table
    assert verified(tmp_path, again)[1].count("checked against nothing") == 1


@pytest.mark.parametrize(
    ("changes", "signs", "sentences"),
    [
        ({"table_share": 0.0}, False, ["north, run trial: it was changed after it was signed"]),
        ({"site": "nord"}, True, ["nord, run trial: it is of no site of the study"]),
        ({"signature": ""}, False, ["north, run trial: it is signed by nobody, but the site's key is "]),
        ({"site": "south"}, True, ["south and south, run trial: two receipts", "south, run trial: it is signed by "]),
        ({"study": "1" * 64}, True, ["north and east, run trial: they disagree", "north, run trial: it is of study 1"]),
        ({"left": {"CellSums": {2: {}}}}, True, ["north and south, run trial: they disagree on the study or "]),
        ({"sha256": "1" * 64}, True, ["north, run trial: its last line is not in the outbox of "]),
    ],
)
def test_receipts_that_were_changed_or_contradict_others_are_told(left, tmp_path, changes, signs, sentences):
    folder, _, (first, *others) = left
    wrong, key = first.model_copy(update=changes), KeyPair.read(folder / f"{NAMES[0]}.pem").signing
    if signs:
        wrong = wrong.model_copy(update={"signature": signature_of(key, wrong.signed)})
    against = ["--study", folder / "study.json", "--out", folder / NAMES[0]]
    code, _, faults = verified(tmp_path, [wrong, *others], *against)
    assert (code, [sentence for sentence in sentences if sentence not in faults]) == (1, [])


@pytest.mark.parametrize(
    ("change", "policy", "sentence"),
    [
        (lambda keys: [OTHER.listed, *keys[1:]], "", "lists other keys for site 0 than its own"),
        (lambda keys: [keys[0][:64] + keys[1][64:], *keys[1:]], "", "lists other keys for site 0 than its own"),
        (lambda keys: [*keys[:2], OTHER.listed], "", r"the key of client 2 \(.*\) has fingerprint .* is pinned"),
        (lambda keys: keys, 'approve = "any"\n', "other sites' keys for masked sums need pins: join --pins"),
    ],
)
def test_keys_of_sites_that_a_coordinator_made_up_are_refused(tmp_path, change, policy, sentence):
    nodes, study = masked(tmp_path, STRATEGY, POLICY + policy, change)
    nodes = [{name: value for name, value in node.items() if not policy or name != "pins"} for node in nodes]
    with Approved(study, nodes) as grid, pytest.raises(ProtocolError, match=sentence):
        STRATEGY.run(grid, settings_of(study.runs[0]))


@pytest.fixture
def ask(tmp_path):
    (node, *_), study = masked(tmp_path, STRATEGY, f"{POLICY}attempts = 9\n")
    target = masked_target(tmp_path, node, study)

    def words(shift, number, **config):
        reply = target.ask(SumCells(centers=TABLE[:6] + shift), round=number, **config)
        return reply if isinstance(reply, str) else from_content(MaskedSum, reply).words.tolist()

    def again():
        target.context.state = RecordDict()
        target.begin()
        return words(0.0, 1)

    return words, again


HUGE = 1e17  # shift of centres to which costs are too large


def test_a_computed_reply_that_is_refused_ends_the_run_until_it_starts_again(ask, monkeypatch):
    words, again = ask
    first = again()
    for asked, sentence in {
        (1.0, 1, True): "masks of round 1 would be reused",
        (1.0, 2, False): "sites got different requests before it (study.sums)",
        (HUGE, 2, True): "CellSums: costs: a number in it is not below",
    }.items():
        assert "sums = 'plain' in the request, but run 'trial' has 'masked'" in words(1.0, 2, sums="plain")
        assert sentence in words(*asked[:2], alike=asked[2])
        assert "which ends the run at this site until it starts again" in words(1.0, 2)
        assert again() == first
    beside = []

    def fails(client, request, own=CentroidKPCAClient.sum_cells):
        if np.all(request.centers < HUGE / 2):
            beside.append(words(HUGE, 2))
            raise ProtocolError("it tells of this site")
        return own(client, request)

    monkeypatch.setattr(CentroidKPCAClient, "sum_cells", fails)
    assert "which ends the run at this site" in words(1.0, 2)
    assert "not below" in beside[0]


def test_a_label_is_used_once_and_by_a_site_that_was_killed_for_the_same_bytes(ask, monkeypatch):
    words, again = ask
    first = again()
    with monkeypatch.context() as killed:
        killed.setattr(audit_log, "_append", Mock(side_effect=SystemExit))
        killed.setattr(os, "fsync", synced := Mock())
        with pytest.raises(SystemExit):
            words(1.0, 2)
    assert synced.call_count == 2, "the note and its folder outlast a power cut"
    for number in (2, 3):
        assert again() == first
        last = words(1.0, number)
        assert isinstance(last, list) if number == 2 else "or gets other masked numbers, than in the run's" in last

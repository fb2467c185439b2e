"""Sums under masks are the plain ones; what is missing, doubled or altered is seen; no mask is used twice."""

import math
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from cases import CASES
from flwr.app import RecordDict
from named_sites import NAMES, TABLE, settings_of
from scipy.stats import chisquare
from test_gate import Approved, Target, approve_at, nodes_of, study_of

from clients.centroid_kpca import CellSums, SumCells, SumMoments
from fedkernel.ground import InputError, ProtocolError, ShareableError
from fedkernel.numerics import from_fixed_point, to_fixed_point
from fedkernel.peers import KeyPair
from fedkernel.run import RunningProtocol, RunSettings
from fedkernel.site import approve, audit_log, read_outbox
from fedkernel.wire import (
    Job,
    MaskedSum,
    MaskKeys,
    flower_internals,
    from_content,
    mask_label,
    simulated_keys,
    sum_masked,
)
from strategies import CentroidKPCA

RNG = np.random.default_rng(0)
KEYS = [simulated_keys(number, 5, "run") for number in range(5)]
LABEL, NEXT = (mask_label("run", number, "SumCells") for number in (3, 4))
PLAIN = [
    CellSums(sums=1e4 * RNG.standard_normal((6, 999)), counts=np.full(6, 7.0), costs=np.full(6, 1e-6)) for _ in KEYS
]
MASKED = [keys.mask(reply, LABEL, b"asked") for keys, reply in zip(KEYS, PLAIN, strict=True)]


@pytest.mark.parametrize("sites", [1, 3, 10, 10_000])
def test_sums_in_fixed_point_are_exact_in_any_order_and_too_large_numbers_are_refused(sites):
    values = [scale * RNG.standard_normal(50) for scale in (1e-6, 1.0, 1e8, 1e16)][: max(1, sites)]
    words = [to_fixed_point(own, sites, whole=False) for own in values]
    total = from_fixed_point(np.sum(words, axis=0), sites)
    np.testing.assert_array_equal(from_fixed_point(np.sum(words[::-1], axis=0), sites), total)
    np.testing.assert_allclose(total, list(map(math.fsum, zip(*values, strict=True))), 1e-15)
    for whole, number in ((True, 2.0**61), (False, 1e32), (False, -1e32)):
        with pytest.raises(InputError, match=rf"is not below .*, the bound of sums over {sites} sites in fixed point"):
            to_fixed_point(np.array([0.0, number]), sites, whole=whole)


def test_the_bytes_of_all_sites_add_up_to_the_sum_and_those_of_one_are_as_if_drawn():
    total = sum_masked(CellSums, MASKED, LABEL).arrays()
    for name, array in CellSums.sum_of(PLAIN).arrays().items():
        np.testing.assert_allclose(total[name], array, 1e-9, 1e-12 * np.abs(array).max())
    assert chisquare(np.bincount(MASKED[0].words.view(np.uint8), minlength=256)).pvalue > 1e-4
    with pytest.raises(ShareableError, match="CellSums: costs: a number in it is not below 2e"):
        KEYS[0].mask(PLAIN[0].model_copy(update={"costs": np.full(6, 1e40)}), LABEL, b"")
    with pytest.raises(InputError, match='quorum = 2, but sums = "masked" needs all clients'):
        RunSettings(quorum=2, sums="masked")


def flipped(masked, bit):
    words = masked.words.copy()
    words.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    return [masked.model_copy(update={"words": words})]


INVENTED = KeyPair.new()
FAULTS = {
    "missing": [],
    "twice": [MASKED[3]],
    "of another round": [KEYS[4].mask(PLAIN[4], NEXT, b"asked")],
    "after another request": [KEYS[4].mask(PLAIN[4], LABEL, b"other")],
    "of another study": [replace(KEYS[4], context=b"other").mask(PLAIN[4], LABEL, b"asked")],
    "of fewer sites": [replace(KEYS[4], number=2, public=KEYS[4].public[2:]).mask(PLAIN[4], LABEL, b"asked")],
    "of an invented site": [
        MaskKeys(4, INVENTED, (*KEYS[4].public[:4], INVENTED.public), b"run").mask(PLAIN[4], LABEL, b"asked")
    ],
    "a flipped bit": flipped(MASKED[4], 12_345),
    "a flipped check word": flipped(MASKED[4], 64 * MASKED[4].words.size - 1),
}


@pytest.mark.parametrize("last", FAULTS.values(), ids=FAULTS)
def test_what_is_not_of_all_sites_once_and_unaltered_is_seen(last):
    with pytest.raises(ProtocolError, match="masked reply is missing, came twice, was altered, or is of another"):
        sum_masked(CellSums, [*MASKED[:4], *last], LABEL)


def summed_in(case):
    plan = case.strategy.plan_of_run(case.clients, 0, evaluate=True)
    return frozenset(planned.reply for step in plan for planned in step.requests if planned.summed)


@pytest.mark.parametrize("case", {summed_in(case): case for case in CASES if summed_in(case)}.values(), ids=str)
def test_every_pair_s_sums_under_masks_are_those_of_its_plain_replies(case, monkeypatch):
    replies, mask, sum_of = [], MaskKeys.mask, RunningProtocol._sum_of
    monkeypatch.setattr(MaskKeys, "mask", lambda keys, reply, *more: replies.append(reply) or mask(keys, reply, *more))

    def compared(running, masked):
        total, plain = sum_of(running, masked), type(replies[0]).sum_of(replies)
        for name, array in plain.arrays().items():
            np.testing.assert_allclose(total.arrays()[name], array, 1e-9, 1e-9 * np.abs(array).max())
        replies.clear()
        return total

    monkeypatch.setattr(RunningProtocol, "_sum_of", compared)
    assert case.strategy.fit(case.shards(), evaluate=True, sums="masked").ledger.rounds


# At a site with a policy

STRATEGY, POLICY = CentroidKPCA(2, n_landmarks=6), '[study]\nsums = "masked"\n'


def site_nodes(folder, policy="", change=lambda keys: keys):
    nodes = list(nodes_of(folder, NAMES, [TABLE] * 3, POLICY + policy))
    keys = change([KeyPair.read(node["identity"]).public.hex() for node in nodes])
    return nodes, study_of(STRATEGY, NAMES, sums="masked", identities=keys, align=False)


def test_sites_that_let_nothing_else_leave_give_the_local_engine_s_numbers(tmp_path):
    nodes, study = site_nodes(tmp_path)
    approve_at(tmp_path, NAMES, study)
    with Approved(study, nodes) as grid:
        model = STRATEGY.run(grid, settings_of(study.runs[0])).model
    np.testing.assert_array_equal(model.coefficients_, STRATEGY.fit([TABLE] * 3, sums="masked").model.coefficients_)
    left = {line.reply: line.masked for line in read_outbox(tmp_path / NAMES[0]).departures}
    assert left.pop("Introduction") == left.pop("Receipt") == 0
    assert set(left.values()) == {3}


@pytest.mark.parametrize(
    ("change", "policy", "sentence"),
    [
        (lambda keys: [INVENTED.public.hex(), *keys[1:]], "", "lists another key for site 0 than its own"),
        (
            lambda keys: [*keys[:2], INVENTED.public.hex()],
            "",
            r"the key of client 2 \(.*\) has fingerprint .* is pinned",
        ),
        (lambda keys: keys, 'approve = "any"\n', "other sites' keys for masked sums need pins: join --pins"),
    ],
)
def test_keys_of_sites_that_a_coordinator_made_up_are_refused(tmp_path, change, policy, sentence):
    nodes, study = site_nodes(tmp_path, policy, change)
    approve_at(tmp_path, NAMES, study)
    for node in nodes if policy else ():
        del node["pins"]
    with Approved(study, nodes) as grid, pytest.raises(ProtocolError, match=sentence):
        STRATEGY.run(grid, settings_of(study.runs[0]))


def test_a_label_is_used_once_and_by_a_site_that_was_killed_for_the_same_bytes(tmp_path, monkeypatch):
    flower_internals.ensure_task_identity()
    (node, *_), study = site_nodes(tmp_path)
    approve(tmp_path / "out", study.sha256, 1000.0)
    own = {name: node[name] for name in ("identity", "pins", "policy")}
    target = Target(tmp_path, Job(runs=study.runs, study=study), **own)
    header = {"pair": "CentroidKPCAClient", "sums": "masked", "alike": True}
    monkeypatch.setattr(target, "ask", lambda *asked, ask=target.ask, **more: ask(*asked[:2], **{**header, **more}))

    def words(request, **config):
        reply = target.ask(request, **config)
        return reply if isinstance(reply, str) else from_content(MaskedSum, reply).words.tolist()

    here, there = (SumCells(centers=TABLE[:6] + shift) for shift in (0.0, 1.0))
    target.begin()
    moments, cells = words(SumMoments(), round=1), words(here, round=2)
    for number in (1, 2):
        assert f"masks of round {number} would be reused" in words(there, round=number)
    assert "sites got different requests before it (study.sums)" in words(there, round=3, alike=False)
    assert "sums = 'plain' in the request, but run 'trial' has 'masked'" in words(there, round=3, sums="plain")
    append = audit_log._append
    monkeypatch.setattr(audit_log, "_append", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        words(there, round=3)
    monkeypatch.setattr(audit_log, "_append", append)
    for number in (3, 4):
        target.context.state = RecordDict()
        target.begin()
        assert [words(SumMoments(), round=1), words(here, round=2)] == [moments, cells]
        last = words(there, round=number)
        assert isinstance(last, list) or "or gets other masked numbers, than in the run's previous start" in last
        assert isinstance(last, list) == (number == 3)

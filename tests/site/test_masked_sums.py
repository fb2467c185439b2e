"""Sums under masks are the plain ones, whatever is missing, doubled or altered is seen, and no mask is used twice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from cases import CASES
from named_sites import NAMES, TABLE, settings_of
from scipy.stats import chisquare
from test_gate import Approved, Target, approve_at, nodes_of, study_of

from clients.centroid_kpca import CellSums, SumCells, SumMoments
from fedkernel.ground import InputError, ProtocolError, ShareableError
from fedkernel.numerics import from_fixed_point, to_fixed_point
from fedkernel.peers import KeyPair
from fedkernel.run import RunningProtocol
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

rng = np.random.default_rng(0)
KEYS = [simulated_keys(number, 5, "run") for number in range(5)]
LABEL = mask_label("run", 3, "SumCells")
PLAIN = [
    CellSums(sums=rng.standard_normal((6, 40)) * 1e4, counts=np.full(6, 7.0), costs=rng.random(6) * 1e-6) for _ in KEYS
]
MASKED = [keys.mask(reply, LABEL, b"asked") for keys, reply in zip(KEYS, PLAIN, strict=True)]


@pytest.mark.parametrize("sites", [1, 3, 10, 10_000])
def test_sums_in_fixed_point_are_exact_in_any_order_and_too_large_numbers_are_refused(sites):
    values = [rng.standard_normal(50) * scale for scale in (1e-6, 1.0, 1e8, 1e16)][: max(1, sites)]
    words = [to_fixed_point(own, sites, whole=False) for own in values]
    total = from_fixed_point(np.sum(words, axis=0), sites)
    np.testing.assert_array_equal(from_fixed_point(np.sum(words[::-1], axis=0), sites), total)
    np.testing.assert_allclose(total, list(map(math.fsum, zip(*values, strict=True))), 1e-15)
    for whole, largest in ((True, 2.0**61), (False, 1e32)):
        for number in (largest, -largest):
            with pytest.raises(InputError, match=rf"is not below .*, the bound of sums over {sites} sites in fixed"):
                to_fixed_point(np.array([0.0, number]), sites, whole=whole)


def test_all_sites_bytes_add_up_to_the_sum_and_one_site_s_are_as_if_drawn():
    total = sum_masked(CellSums, MASKED, LABEL)
    for name, array in CellSums.sum_of(PLAIN).arrays().items():
        np.testing.assert_allclose(total.arrays()[name], array, rtol=1e-12)
    large = KEYS[0].mask(replace_sums(PLAIN[0], np.zeros((40, 1000))), LABEL, b"")
    assert chisquare(np.bincount(large.words.view(np.uint8), minlength=256)).pvalue > 1e-4
    assert MASKED[0].floats == PLAIN[0].floats
    with pytest.raises(ShareableError, match="CellSums: costs: a number in it is not below 2e"):
        KEYS[0].mask(PLAIN[0].model_copy(update={"costs": np.full(6, 1e40)}), LABEL, b"")


def replace_sums(reply, sums):
    return reply.model_copy(update={"sums": sums, "counts": np.zeros(len(sums)), "costs": np.zeros(len(sums))})


def flipped(masked, bit):
    words = masked.words.copy()
    words.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    return masked.model_copy(update={"words": words})


def by(keys, label=LABEL, asked=b"asked"):
    return keys.mask(PLAIN[4], label, asked)


FAULTS = {
    "missing": [],
    "twice": [MASKED[3]],
    "of another round": [by(KEYS[4], mask_label("run", 4, "SumCells"))],
    "of another request": [by(KEYS[4], asked=b"other")],
    "of another study": [by(replace(KEYS[4], context=b"other"))],
    "of fewer sites": [by(MaskKeys(2, KEYS[4].own, KEYS[4].public[2:], b"run"))],
    "of an invented site": [by(MaskKeys(4, own := KeyPair.new(), (*KEYS[4].public[:4], own.public), b"run"))],
    "flipped": [flipped(MASKED[4], 12_345)],
    "flipped check word": [flipped(MASKED[4], 64 * MASKED[4].words.size - 1)],
}


@pytest.mark.parametrize("last", FAULTS.values(), ids=FAULTS)
def test_what_is_not_of_all_sites_once_and_unaltered_is_seen(last):
    with pytest.raises(
        ProtocolError, match="a site's masked reply is missing, came twice, was altered, or is of another"
    ):
        sum_masked(CellSums, [*MASKED[:4], *last], LABEL)


def summed_in(case):
    plan = case.strategy.plan_of_run(case.clients, 0, evaluate=True)
    return frozenset(planned.reply for step in plan for planned in step.requests if planned.summed)


@pytest.mark.parametrize("case", {summed_in(case): case for case in CASES if summed_in(case)}.values(), ids=str)
def test_every_pair_s_sums_under_masks_are_those_of_its_plain_replies(case, monkeypatch):
    """Also the floats and rounds, which forecasts are of."""
    replies, mask, sum_of = [], MaskKeys.mask, RunningProtocol._sum_of
    monkeypatch.setattr(MaskKeys, "mask", lambda keys, reply, *more: replies.append(reply) or mask(keys, reply, *more))

    def compared(running, masked):
        total, plain = sum_of(running, masked), type(replies[0]).sum_of(replies)
        for name, array in plain.arrays().items():
            np.testing.assert_allclose(total.arrays()[name], array, 1e-9, 1e-9 * np.abs(array).max())
        replies.clear()
        return total

    expected = case.strategy.fit(case.shards(), evaluate=True)
    monkeypatch.setattr(RunningProtocol, "_sum_of", compared)
    result = case.strategy.fit(case.shards(), evaluate=True, sums="masked")
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-6)
    if "Lanczos" not in str(case.strategy):
        assert result.ledger.totals()["floats_up"] == expected.ledger.totals()["floats_up"]


# --- sites with a policy

STRATEGY = CentroidKPCA(2, n_landmarks=6)
OTHER = KeyPair.new().public.hex()
POLICY = '[study]\nsums = "masked"\n'
PARTS = [np.random.default_rng(number).standard_normal((60, 4)) for number in range(3)]


def masked_study(nodes, change=lambda keys: keys):
    keys = change([KeyPair.read(node["identity"]).public.hex() for node in nodes])
    return study_of(STRATEGY, NAMES, sums="masked", identities=keys, align=False)


def test_sites_that_allow_nothing_else_give_the_local_engine_s_numbers_again_and_again(tmp_path):
    nodes, words = list(nodes_of(tmp_path, NAMES, PARTS, POLICY)), []
    study = masked_study(nodes)
    approve_at(tmp_path, NAMES, study)
    for _ in range(2):
        with Approved(study, nodes) as grid:
            result = STRATEGY.run(grid, settings_of(study.runs[0]))
        replies = (
            it.content for it in grid.seen if it.has_content() and it.content["config"]["message"] == "MaskedSum"
        )
        words.append([from_content(MaskedSum, content).words for content in replies])
    np.testing.assert_equal(*words)
    np.testing.assert_array_equal(result.model.coefficients_, STRATEGY.fit(PARTS, sums="masked").model.coefficients_)
    lines = read_outbox(tmp_path / NAMES[0]).departures
    assert {line.masked for line in lines if line.reply in ("ColumnMoments", "CellSums", "Products")} == {3}
    assert "MaskedSum" not in {line.reply for line in lines}


@pytest.mark.parametrize(
    ("change", "policy", "sentence"),
    [
        (lambda keys: [OTHER, *keys[1:]], "", "lists another key for site 0 than its own"),
        (
            lambda keys: [*keys[:2], OTHER],
            "",
            r"the key of client 2 \(.*\) has fingerprint .* is pinned",
        ),
        (
            lambda keys: keys,
            '\napprove = "any"\n',
            "approves any study, so other sites' keys for masked sums need pins",
        ),
    ],
)
def test_a_study_with_keys_of_sites_that_the_coordinator_made_up_is_refused(tmp_path, change, policy, sentence):
    nodes = list(nodes_of(tmp_path, NAMES, PARTS, POLICY + policy))
    study = masked_study(nodes, change)
    approve_at(tmp_path, NAMES, study)
    nodes = [{name: value for name, value in node.items() if not (policy and name == "pins")} for node in nodes]
    with Approved(study, nodes) as grid, pytest.raises(ProtocolError, match=sentence):
        STRATEGY.run(grid, settings_of(study.runs[0]))


class MaskedTarget(Target):
    """A site of a run with masked sums, and a coordinator that asks it for what it likes."""

    def ask(self, request, kind="train", pair="CentroidKPCAClient", **config):
        return super().ask(request, kind, pair, **{"sums": "masked", "alike": True} | config)

    def words(self, request, **config):
        reply = self.ask(request, **config)
        return reply if isinstance(reply, str) else from_content(MaskedSum, reply).words.tolist()


@pytest.fixture
def target(tmp_path):
    flower_internals.ensure_task_identity()
    nodes = list(nodes_of(tmp_path, NAMES, [TABLE] * 3, POLICY))
    study = masked_study(nodes)
    approve(tmp_path / "out", study.sha256, 1000.0)
    keys = {name: nodes[0][name] for name in ("identity", "pins", "policy")}
    return MaskedTarget(tmp_path, Job(runs=study.runs, study=study), **keys)


def test_a_label_is_used_once_and_by_a_site_that_is_killed_again_for_the_same_bytes(target, monkeypatch):
    here, there = (SumCells(centers=TABLE[:6] + shift) for shift in (0.0, 1.0))
    target.begin("CentroidKPCAClient")
    moments, cells = target.words(SumMoments(), round=1), target.words(here, round=2)
    for round_number in (1, 2):
        assert f"masks of round {round_number} would be reused" in target.words(there, round=round_number)
    assert "sites got different requests before it (study.sums)" in target.words(there, round=3, alike=False)
    assert "sums = 'plain' in the request, but run 'trial' has 'masked'" in target.words(there, round=3, sums="plain")

    def killed(file, line):
        raise SystemExit

    append = audit_log._append
    monkeypatch.setattr(audit_log, "_append", killed)
    with pytest.raises(SystemExit):
        target.words(there, round=3)
    monkeypatch.setattr(audit_log, "_append", append)
    for changed in ({}, {"round": 4}):
        target.context.state = flower_internals.RecordDict()
        target.begin("CentroidKPCAClient")
        assert target.words(SumMoments(), round=1) == moments
        assert target.words(here, round=2) == cells
        last = target.words(there, **{"round": 3} | changed)
        if changed:
            assert "gets an answer, or delivers letters, other than in the run's previous start" in last
        else:
            assert isinstance(last, list)

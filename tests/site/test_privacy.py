"""Noise on sums: as large as epsilon asks, drawn once for a reply, in every reply of the run, and never left out."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from named_sites import NAMES, TABLE, settings_of
from scipy import sparse, stats
from sites import ask
from test_gate import Approved, Target, approve_at, masked, masked_target

from fedkernel import DKPCA, CentroidKMeans, CentroidKPCA, FKKMeans, Member, Prepare, Privacy
from fedkernel.clients.cell_sums import SumCells, SumEmbeddedCells
from fedkernel.clients.centroid_kmeans import CentroidKMeansClient
from fedkernel.clients.centroid_kpca import CentroidKPCAClient, SumMoments
from fedkernel.clients.fk_kmeans import EmbedRows, FKKMeansClient, MultiplyColumns
from fedkernel.clients.landmark_base import MultiplyKernel, TakeComponents
from fedkernel.experiments.config import read_config
from fedkernel.ground import InputError, ProtocolError, ShareableError
from fedkernel.kernel_width import WidthClient
from fedkernel.numerics import RBF, Linear, Polynomial, RandomFeatures, unpack_symmetric
from fedkernel.protocol import CarriesRows, Done, basis_of_privacy, bounded_rows, draw_noise, privacy, step_of
from fedkernel.run import RunningProtocol
from fedkernel.site import Policy, read_outbox, read_receipts, write_receipts
from fedkernel.site.gate import Gate, RunProgress
from fedkernel.strategies.shared_centroids import AGREEMENT_LOST
from fedkernel.strategy import settled_privacy, strategy_of
from fedkernel.wire import Introduce, Job, MaskedSum, MaskKeys, RunSpec, Study, flower_internals, from_content

REPOSITORY = Path(__file__).parents[2]
COLUMNS = RBF(width="columns")
KPCA, KMEANS = CentroidKPCA(2, COLUMNS, n_landmarks=6), CentroidKMeans(2, COLUMNS)
SHARDS = np.array_split(np.random.default_rng(0).standard_normal((3000, 4)) + 3 * np.eye(4)[np.arange(3000) % 2], 3)
BOUND = Privacy(epsilon=2.0, radius=3.0)
RUN = replace(BOUND, releases=5)


def least_delta(deviation, epsilon):
    """Of Gaussian noise on a sum of sensitivity 1 (Balle, Wang: Improving the Gaussian Mechanism, ICML 2018)."""
    half = 0.5 / deviation
    return stats.norm.cdf(half - epsilon * deviation) - np.exp(epsilon) * stats.norm.cdf(-half - epsilon * deviation)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_all_sums_together_have_the_epsilon(epsilon):
    settings = Privacy(epsilon=epsilon, radius=1.0, releases=9)
    assert least_delta(settings.multiplier / 3, epsilon) == pytest.approx(1e-5, rel=1e-3)
    sizes, bounds = {"a": 400, "b": 9, "c": 3}, {"a": 2.0, "b": 5.0, "c": 0.0}
    scales = settings.scales(bounds, sizes)
    assert sum((bounds[name] / scales[name]) ** 2 for name in "ab") == pytest.approx(settings.multiplier**-2)
    assert scales["c"] == 0.0
    assert 3 * settings.own_scales(bounds, sizes, 10)["a"] == pytest.approx(scales["a"])


@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=["opendp", "simulated"])
def test_noise_is_discrete_and_gaussian(rng):
    noise = draw_noise(20_000, 3.0, step := step_of(1.7), rng)
    np.testing.assert_array_equal(noise / step, np.rint(noise / step))
    assert noise.std() == pytest.approx(3.0, rel=0.04)  # 8 standard errors
    assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-9


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_in_sums_are_bounded_and_their_sums_exact(form):
    rows = bounded_rows(form(SHARDS[0]), 3.0)
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    lengths, own = np.linalg.norm(dense, axis=1), np.linalg.norm(SHARDS[0], axis=1)
    assert np.all(lengths <= 3.0)
    np.testing.assert_allclose(lengths, np.minimum(own, 3.0), atol=3e-4)
    for terms in (dense, np.einsum("ni,nj->nij", dense, dense)):
        np.testing.assert_array_equal(terms.sum(axis=0), terms[::-1].cumsum(axis=0)[-1])


PAIRED = RandomFeatures(RBF(0.1), 8)
REQUESTS = {
    "features": MultiplyColumns(features=PAIRED, t=1, columns=8, precision="float32"),
    "embedded cells": SumEmbeddedCells(centers=PAIRED.map(4)(SHARDS[0][:5])),
    "moments": SumMoments(),
    "cells": SumCells(centers=SHARDS[0][:5]),
    "products": MultiplyKernel(
        **{"width": 4, "dense": SHARDS[0][:3], "before": 0, "kernel": COLUMNS, "precision": "float64", "tol": 0.0},
        basis=2 * np.eye(3),
        sums=True,
    ),
    "linear products": MultiplyKernel(
        **{"width": 4, "dense": np.eye(4), "before": 0, "kernel": Linear(), "precision": "float64", "tol": 0.0},
        basis=np.eye(4),
    ),
}


def client_of(X, request_):
    kinds = (CentroidKPCAClient, FKKMeansClient)
    return next(kind for kind in kinds if type(request_).__name__ in kind.handlers)(X, privacy=RUN)


def sums_of(X, request_, client=None):
    client = client_of(X, request_) if client is None else client
    if isinstance(request_, SumEmbeddedCells):
        ask(client, EmbedRows(features=PAIRED, t=1))
    return client._respond(getattr(client, client.handlers[type(request_).__name__][1]), request_, {}).arrays()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_one_row_changes_no_sum_by_more_than_its_sensitivity(request_):
    bounds, changes = request_.sensitivity(RUN.radius), dict.fromkeys(request_.sensitivity(RUN.radius), 0.0)
    for extreme in (100 * np.eye(4)[0], -3 * np.eye(4)[1], SHARDS[0][0], np.zeros(4)):
        before, after = sums_of(SHARDS[0], request_), sums_of(np.vstack([extreme, SHARDS[0]]), request_)
        assert before.keys() == bounds.keys()
        for name, bound in bounds.items():
            change = float(np.linalg.norm(after[name] - before[name]))
            assert change <= bound, name
            changes[name] = max(changes[name], change)
    assert all(changes[name] >= 0.3 * bound for name, bound in bounds.items()), "a bound that is far too large"


WIDE, POINTS = (np.random.default_rng(1).standard_normal((n, 30)) for n in (300, 60))
WIDE_PRODUCTS = {"width": 30, "before": 0, "precision": "float64", "tol": 0.0, "sums": True}
STEEP = Polynomial(degree=3, gamma=1.0)
HARMFUL = {
    "a basis that enlarges rounding": MultiplyKernel(
        **WIDE_PRODUCTS, dense=POINTS, kernel=Linear(), basis=1e20 * np.linalg.svd(POINTS.T)[2][30:33].T
    ),
    "ties": SumCells(centers=np.repeat(POINTS[:7], 8, axis=0) + 1e-16 * WIDE[:56]),
    "embedded ties": SumEmbeddedCells(centers=np.repeat(PAIRED.map(30)(WIDE[:7]) / 8**0.5, 8, axis=0)),
    "overflow": MultiplyKernel(**WIDE_PRODUCTS, dense=1e120 * POINTS[:1], kernel=STEEP, basis=np.eye(1)),
}


def test_a_number_beyond_float32_or_numbers_of_entries_that_are_not_zero_are_seen_in_no_refusal():
    assert CentroidKPCAClient(sparse.csr_array(np.eye(9)), privacy=RUN).own_entries() == 81
    large, narrow = np.vstack([WIDE, np.full(30, 1e39)]), {"kernel": COLUMNS, "precision": "float32"}
    client = CentroidKPCAClient(large, privacy=RUN)
    products = MultiplyKernel(**WIDE_PRODUCTS | narrow, dense=POINTS[:3], basis=np.eye(3))
    assert np.all(np.isfinite(client.multiply_kernel(products).upper))
    client.take_components(TakeComponents(coefficients=np.ones((3, 1)), embed=True, **narrow))
    assert np.all(np.isfinite(client.outputs["embedding"]))


@pytest.mark.parametrize("request_", HARMFUL.values(), ids=HARMFUL)
def test_no_chosen_request_shows_more_of_a_row_by_rounding_or_refusal(request_):
    client, bounds = client_of(WIDE, request_), request_.sensitivity(RUN.radius)
    whole = sums_of(WIDE, request_, client)
    for row in (0, 1, 150, 299):
        less = sums_of(np.delete(WIDE, row, axis=0), request_)
        assert all(np.linalg.norm(whole[name] - less[name]) <= bound for name, bound in bounds.items())
    if isinstance(request_, MultiplyKernel):
        C = np.full((request_.dense.shape[0], 1), 1e150)
        client.take_components(TakeComponents(coefficients=C, kernel=STEEP, precision="float64", embed=True))
        assert np.all(np.isfinite(client.outputs["embedding"]))


@pytest.mark.parametrize("bound", [{"delta": 0.5}, {"epsilon": 1e-9}, {"radius": 1e-9}], ids=str)
def test_a_privacy_that_protects_nothing_or_whose_noise_would_be_rounded_is_refused(bound):
    with pytest.raises(InputError, match=next(iter(bound))):
        replace(BOUND, **bound)
    with pytest.raises(ShareableError, match="steps would be rounded; allowed: at most"):
        draw_noise(1, 2.0**20, step_of(1.0))


def epsilon_seen(noise_share, runs=2000):
    """Return the least epsilon that a canary, a row as long as any, shows in so many runs with and without it."""
    request, canary = SumMoments(), 3.0 * np.eye(4)[0]
    one = replace(BOUND, releases=1)
    sizes, bounds = {"sums": 4, "squares": 4}, request.sensitivity(one.radius)
    values = []
    for rng, row in ((np.random.default_rng(2), canary), (np.random.default_rng(3), np.zeros(4))):
        total = np.zeros(runs)
        for shard in (SHARDS[0], SHARDS[1], np.vstack([SHARDS[2], row])):
            scales = one.own_scales(bounds, sizes, 3)
            reply = CentroidKPCAClient(shard, privacy=one).sum_moments(request)
            for name, array in reply.arrays().items():  # the likelihood's exponent, of the first column
                scale = noise_share * scales[name]
                noise = draw_noise(runs, scale, step_of(bounds[name]), rng)
                total += (array[0] + noise) * bounds[name] / scale**2
        values.append(total)
    seen = 0.0
    for threshold in np.quantile(np.concatenate(values), np.linspace(0.04, 0.96, 24)):
        hits, alarms = (int(np.count_nonzero(own > threshold)) for own in values)
        least = stats.binomtest(hits, runs).proportion_ci(0.999).low
        most = stats.binomtest(alarms, runs).proportion_ci(0.999).high
        seen = max(seen, np.log(max(least - one.delta, 1e-9) / most))
    return seen


def test_a_canary_shows_less_than_the_stated_epsilon_and_more_than_a_tenth_of_it():
    assert 0.1 * BOUND.epsilon < epsilon_seen(1.0) < BOUND.epsilon
    assert epsilon_seen(0.2) > BOUND.epsilon, "noise that is too small is seen"


FK_SUMS = MultiplyColumns.__name__, SumEmbeddedCells.__name__
FK = FKKMeans(2, n_features=20, iterations=1, kernel=COLUMNS, clusters="lloyd")
CHOSEN = CentroidKPCA("auto", COLUMNS, n_landmarks=6, max_components=3)


@pytest.mark.parametrize("strategy", [KMEANS, KPCA, CHOSEN, FK], ids=["clusters", "components", "chosen", "features"])
def test_every_sum_of_a_run_has_noise_of_the_stated_size(strategy, monkeypatch):
    replies, errors, mask, sum_of = [], [], MaskKeys.mask, RunningProtocol._sum_of
    monkeypatch.setattr(MaskKeys, "mask", lambda keys, reply, *more: replies.append(reply) or mask(keys, reply, *more))

    def compared(running, hidden):
        total, request = sum_of(running, hidden), running._pending.of_client(0)
        settled = running._execution.settings.privacy
        bounds, arrays = request.sensitivity(3.0), total.arrays()
        scales = settled.scales(bounds, {name: array.size for name, array in arrays.items()})
        for name, array in arrays.items():
            off = array - sum(reply.arrays()[name] for reply in replies)
            if not scales[name]:
                assert not array.any()
            else:  # of three sites two have enough noise for all
                errors.extend((off / (scales[name] * np.sqrt(3 / 2))).ravel())
        replies.clear()
        return total

    monkeypatch.setattr(RunningProtocol, "_sum_of", compared)
    result = strategy.fit(SHARDS, evaluate=True, sums="masked", privacy=BOUND)
    assert stats.kstest(errors, "norm").pvalue > 1e-4
    assert any("epsilon = 2, delta = 1e-05 for one row added or removed at one" in text for text in result.findings)
    assert any("follows from the run's seed" in text for text in result.findings)
    assert sum(text.startswith("noise moves ") for text in result.findings) == 1


def test_fk_says_by_what_share_noise_moves_its_products():
    D, settings = 200, replace(BOUND, releases=5)
    products = MultiplyColumns(features=RandomFeatures(RBF(0.1), D), t=1, columns=D)
    scale = settings.scales(products.sensitivity(1.0), {"upper": D * (D + 1) // 2})["upper"]
    noise = scale * unpack_symmetric(np.random.default_rng(0).standard_normal(D * (D + 1) // 2))
    alike = products.features.map(1)(np.ones((150, 1)))
    share = np.linalg.norm(noise, 2) / np.linalg.norm(alike.T @ alike, 2)
    cohort = [Member(number, number, 150, 1, 0) for number in range(3)]
    finding = FKKMeans(3, n_features=D, iterations=1).noise_finding(cohort, settings)
    assert f"moves the features' products by some {share:.1g} of a cluster's own" in finding
    axes = CentroidKPCA(1, Linear(), centroids="axes")
    assert not axes.noise_finding(cohort, settings), "nothing was measured of it"


def test_what_noise_is_said_to_cost_at_most_is_what_it_has_cost():
    """By the page's table: no band's bound is exceeded, beyond the table's rounding, nor would the one before do."""
    page = (REPOSITORY / "docs" / "explanation" / "sums.md").read_text("utf-8")
    methods = read_config(REPOSITORY / "benchmarks" / "privacy.toml").strategy
    bounds = {"up to a tenth": 0.1, "up to a quarter": 0.25, "up to a half": 0.5, "up to three quarters": 0.75}
    largest = dict.fromkeys(bounds, 0.0)
    for name, rows, columns, cells in re.findall(r"^\| (\w+), ([\d,]+) x (\d+) \| (.+) \|$", page, re.MULTILINE):
        cohort = [Member(0, 0, int(rows.replace(",", "")), int(columns))]
        for method, nmi in zip(methods, cells.split(" | "), strict=True):
            clusters = {"n_clusters": 6 if name == "satellite" else 10}
            strategy = strategy_of(method.method, method.parameters | clusters)
            without, *with_noise = map(float, nmi.split(" / "))
            for epsilon, own in zip((4.0, 2.0, 1.0), with_noise, strict=True):
                settings = settled_privacy(strategy, Privacy(epsilon=epsilon, radius=1.0))
                (band,) = [band for band in bounds if f"{band} is lost" in strategy.noise_finding(cohort, settings)]
                largest[band] = max(largest[band], 1 - own / without)
    assert list(largest) == list(AGREEMENT_LOST.values())
    for bound, before, lost in zip(bounds.values(), (0, *bounds.values()), largest.values(), strict=False):
        assert before < lost < bound + 0.02


def test_with_much_epsilon_a_run_has_the_numbers_of_rows_without_groups():
    much = KPCA.fit(SHARDS, sums="masked", privacy=Privacy(epsilon=1e7, radius=99.0)).model
    alone = replace(KPCA, least=1).fit(SHARDS).model
    np.testing.assert_allclose(much.eigenvalues_, alone.eigenvalues_, rtol=0.02)


@pytest.mark.parametrize(
    ("strategy", "more", "sentence"),
    [
        (DKPCA(2), {}, r"privacy: \w+ has no noise, as one row may change it by any amount; allowed: methods such as"),
        (replace(KMEANS, centroids="local"), {}, "privacy: LocalCenters has no noise"),
        (replace(FK, clusters="coreset"), {}, "privacy: LocalCost has no noise"),
        (replace(FK, iterations=2), {}, "iterations = 2, but each sum has noise; allowed with privacy: 1, and more"),
        (CentroidKMeans(2), {}, r"the width of RBF\(.*\) would be computed from the rows.* allowed: a number, such as"),
        (KMEANS, {"sums": "plain"}, 'privacy needs sums = "masked"'),
        (KMEANS, {"privacy": replace(BOUND, colluders=3)}, "colluders = 3, but .* less than the number of sites, 3"),
        (KMEANS, {"prepare": Prepare()}, 'prepare with scale = "standard", drift = "warn" tells of cells; allowed: '),
        (KMEANS, {"privacy": replace(BOUND, epsilon=1e-3)}, "epsilon = 0.001 makes noise larger than any centre's"),
    ],
)
def test_a_run_whose_noise_would_not_cover_all_of_it_is_refused(strategy, more, sentence):
    with pytest.raises(InputError, match=sentence):
        strategy.fit(SHARDS, **{"sums": "masked", "privacy": BOUND, **more})


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    privacy._deviation.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'fedkernel\[privacy\]'"):
        _ = RUN.multiplier


def test_a_site_that_leaves_its_noise_out_is_seen_unless_it_lies(monkeypatch):
    mask = MaskKeys.mask
    without = lambda keys, *args: mask(keys, *args[:3], None if keys.number == 1 else args[3])  # noqa: E731
    monkeypatch.setattr(MaskKeys, "mask", without)
    with pytest.raises(ProtocolError, match=r"round 1 \(SumMoments\), client 1: ColumnMoments is sent without noise"):
        KMEANS.fit(SHARDS, sums="masked", privacy=BOUND)


def test_sites_add_their_noise_and_count_their_epsilon(tmp_path):
    nodes, study = masked(tmp_path, KPCA, "[limits.total]\nrows = 0\nepsilon = 3.0\n", privacy=RUN)
    with Approved(study, nodes) as grid:
        settings = settings_of(study.runs[0])
        result = KPCA.run(grid, settings)
    model = result.model
    assert np.all(np.isfinite(model.coefficients_))
    assert not any("follows from the run's seed" in text for text in result.findings)
    for own, spent in ((study.sha256, 2.0), ("", 4.0)):  # of no study, another run might have the id
        gate = Gate(Policy(), study.runs[0], own)
        assert gate._started(gate._started(RunProgress())).total.epsilon == spent
    with Approved(study, nodes) as grid:  # again, with the same noise
        np.testing.assert_array_equal(KPCA.run(grid, settings).model.coefficients_, model.coefficients_)
    study = Study(name="again", runs=[run.model_copy(update={"id": "again"}) for run in study.runs])
    approve_at(tmp_path, NAMES, study)
    refusal = "epsilon = 4 would be spent in all runs, but"
    with Approved(study, nodes) as grid, pytest.raises(ProtocolError, match=refusal):
        KPCA.run(grid, replace(settings, run="again"))
    (tmp_path / "study.json").write_text(study.text)
    shown = call("study", "show", tmp_path / "study.json", COLUMNS="400")
    assert f"against the coordinator and 1 of the sites together: {RUN.meaning}" in shown.output
    shown = call("study", "show", tmp_path / "study.json", "--shape", "400x7", COLUMNS="400")
    assert "noise moves a centre by some 0.06 of the radius: of clusters" in shown.output
    shown = call("outbox", "show", tmp_path / NAMES[0], COLUMNS="400")
    assert "the runs with noise have spent epsilon = 2 (allowed: limits.total.epsilon)" in shown.output
    (receipt,) = read_receipts(write_receipts(tmp_path / NAMES[0], NAMES[0], None))
    assert receipt.privacy.model_dump() == {**vars(RUN), "epsilon_in_all": 2.0, **basis_of_privacy()}
    assert read_outbox(tmp_path / NAMES[0]).departures[-1].standing.total.epsilon == 2.0


OTHERS = {"align": True, "plan": None, "prepare": Prepare(), "evaluate": True, "compare": "trial", "sums": "plain"}


@pytest.mark.parametrize("other", OTHERS)
def test_a_run_of_named_sites_that_asks_for_anything_without_noise_is_none(tmp_path, other):
    """Such as rows by their hashed ids: with the sites' key each refusal would tell whose are in the table."""
    (run,) = masked(tmp_path, KPCA, privacy=RUN)[1].runs
    fields = {**vars(run), other: OTHERS[other]} | ({"identities": None} if other == "sums" else {})
    sentence = "privacy: prepare with" if other == "prepare" else 'privacy needs sums = "masked"'
    with pytest.raises(ValueError, match=f"run trial: {sentence}"):
        RunSpec(**fields)


@pytest.mark.parametrize("kind", [CentroidKMeansClient, FKKMeansClient, WidthClient])
def test_an_answer_that_can_have_no_noise_is_not_even_computed(kind):
    """Since it, or the reason why there is none, would follow from the rows."""
    client = kind(TABLE, privacy=RUN)
    for request in kind.answers:
        noisy = request.reply_type is Done or request.__name__ in ("SumMoments", "SumCells", *FK_SUMS)
        with pytest.raises(ProtocolError if noisy else ShareableError, match="version" if noisy else "has no noise"):
            client.fit([], {"message": request.__name__})


def test_a_run_with_so_much_epsilon_that_its_noise_hides_no_row_is_refused_unless_the_operator_allows_it(tmp_path):
    """Each cell would have single rows, and no group."""
    for policy, sentence in (("", "but must have at most 10 (limits"), ("[limits.total]\nepsilon = 2e7\n", "Intro")):
        much = replace(RUN, epsilon=1e7)
        (node, *_), study = masked(tmp_path, KPCA, policy, privacy=much)
        assert sentence in str(masked_target(tmp_path, node, study, privacy=much.text).ask(Introduce()))


def test_a_table_that_has_changed_by_one_row_is_told_by_no_refusal(tmp_path):
    for number, table in enumerate((TABLE, np.vstack([TABLE[1:], 9 * TABLE[:1]]))):
        (node, *_), study = masked(tmp_path, KPCA, privacy=RUN, id=f"run-{number}")
        target = masked_target(tmp_path, node, study, privacy=RUN.text)
        np.save(tmp_path / "north.npy", table)
        target.run = f"run-{number}"
        target.begin()
        assert not isinstance(target.ask(SumMoments(), round=1), str)


@pytest.mark.parametrize("begun_with", [None, RUN], ids=["no noise", "noise"])
def test_a_receipt_counts_each_start_of_no_study_and_has_no_epsilon_if_one_was_without_noise(tmp_path, begun_with):
    (node, *_), study = masked(tmp_path, KPCA, '[study]\napprove = "any"\n')
    own = {name: node[name] for name in ("identity", "pins", "policy")}
    flower_internals.ensure_task_identity()
    for noise in (begun_with, RUN):
        run = study.runs[0].model_copy(update={"privacy": noise})
        header = {"sums": "masked", "alike": True} | ({"privacy": noise.text} if noise else {})
        target = Target(tmp_path, Job(runs=[run]), header, **own)
        target.begin()
        assert not isinstance(target.ask(SumMoments(), round=1), str)
    (receipt,) = read_receipts(write_receipts(target.folder, "north", None))
    assert (receipt.privacy and receipt.privacy.epsilon) == (begun_with and 4.0)


def test_a_site_refuses_what_has_no_noise(tmp_path):
    plan = (*KPCA.plan(3, 0), *KPCA.evaluation_plan())
    (node, *_), study = masked(tmp_path, KPCA, plan=plan, privacy=replace(RUN, releases=3))
    target = masked_target(tmp_path, node, study, privacy=study.runs[0].privacy.text)
    target.begin()
    cells = SumCells(centers=TABLE[:6])
    assert "sites got different requests" in target.ask(cells, round=1, alike=False)
    target.begin()
    assert "privacy = '' in the request, but run 'trial' has" in target.ask(cells, privacy="")
    assert all(from_content(MaskedSum, target.ask(cells, round=number)).noisy for number in (1, 2, 3))
    landmarks = {**CarriesRows.of(TABLE[:6]), "before": 0, "kernel": COLUMNS, "precision": "float64", "tol": 2.0**-26}
    products = MultiplyKernel(**landmarks, basis=np.eye(6))
    assert "would be sum 4 with noise, of 3 that epsilon is for" in target.ask(products, round=4)

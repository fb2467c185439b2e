"""Decentralised kernel PCA by ADMM: the reference numbers, reductions, what is exchanged, models, what is refused."""

import numpy as np
import pytest
import scipy.stats
from grids import in_turn
from networks import admm, digits, judged, spread, unbalanced_digits
from sklearn.datasets import load_digits, load_iris
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, InputError, Linear, Polynomial, ProtocolError
from fedkernel.clients.admm_kpca import ADMMKPCAClient, ShareRows
from fedkernel.ground.noise import _normal, system_normal
from fedkernel.models import NodeComponents, center_blocks, load_model
from fedkernel.numerics import SubspaceEmbedding, normalised_gram
from fedkernel.strategies import ADMMKPCA, admm_kpca

SMALL = RBF(gamma=3e-4)  # of digits of 8 x 8 pixels


@pytest.mark.parametrize(("rows", "neighbors"), [(40, 2), (40, 8), (20, 4)])
def test_similarity_on_small_digits(rows, neighbors):
    """Figure 5, on a smaller table than the paper's: balanced nodes settle, near the ceiling, with multipliers."""
    result, metrics, steps = judged(admm(kernel=SMALL, neighbors=neighbors), digits(rows))
    assert max(steps["similarity"][:4]) > metrics["similarity_pooled"] > metrics["similarity_alone"] + 0.02
    assert metrics["similarity"] == pytest.approx(steps["similarity"][7], abs=1e-12)
    assert metrics["similarity_ceiling"] - metrics["similarity"] < 0.01
    assert result.model.without_multipliers_[0] == 0


@pytest.mark.parametrize(("nodes", "center"), in_turn([1, 2, 4], [True, False], every=2))
def test_equal_data_everywhere_is_central_kernel_pca(nodes, center):
    X = spread(1)[0]
    # one node shows its rows to nobody, so that no consent is needed
    strategy = ADMMKPCA(kernel=RBF(gamma=0.02), graph="full", center=center, share_rows=nodes > 1)
    result = strategy.fit([X] * nodes)
    central = strategy.central([X])
    a = central.eigenvectors_[:, 0] / np.sqrt(central.eigenvalues_[0])
    for node in range(nodes):
        alpha = result.outputs[node]["alpha"][:, 0]
        assert min(abs(alpha - a).max(), abs(alpha + a).max()) < 1e-8
        assert "iterates" not in result.outputs[node], "they are kept where that is asked for (record)"
    metrics = strategy.judge(result, [X] * nodes, strategy.central([X] * nodes))
    assert metrics["similarity"] == pytest.approx(1, abs=1e-8)
    assert result.ledger.rows_up == (0 if nodes == 1 else nodes * len(X))
    assert bool(result.ledger.letters) == (nodes > 1)


@pytest.mark.parametrize(
    ("rows", "nodes", "seed", "iterations", "falls_back"),
    [
        (10, 8, 1, 5, 3),  # few iterations are left, and the directions turn widely
        pytest.param(20, 20, 4, 12, 8, marks=pytest.mark.drill),  # many are left, and the directions do not settle
        (12, 10, 3, 12, 0),
    ],
)
def test_the_fall_back_helps_small_nodes_that_waver(monkeypatch, rows, nodes, seed, iterations, falls_back):
    shards = unbalanced_digits(seed, rows, nodes)
    strategy = ADMMKPCA(kernel=SMALL, neighbors=2, iterations=iterations, share_rows=True)
    result, metrics, _ = judged(strategy, shards)
    assert result.model.without_multipliers_[0] == falls_back
    assert [finding for finding in result.findings if "rad to go" in finding and falls_back != 8] == []
    assert metrics["similarity"] > metrics["similarity_pooled"] > metrics["similarity_alone"]
    if falls_back:
        monkeypatch.setattr(admm_kpca, "_unsettled", lambda turns, left: False)
        to_the_end, multiplied, _ = judged(strategy, shards)
        assert to_the_end.model.without_multipliers_[0] == 0
        assert metrics["similarity"] > multiplied["similarity"] + 0.05


def test_directions_that_still_turn_are_a_finding():
    """Of 480 digits the leading eigenvalues are 29.8 and 29.2, and 30 iterations end far from the answer."""
    nodes = [load_digits().data[:480][node::8] for node in range(8)]
    found = ADMMKPCA(kernel=RBF(gamma=5e-4), iterations=8, share_rows=True).fit(nodes).findings
    assert found[:1] == [
        "component 1's directions turned by 0.027 rad in iteration 8, the last, and have about 0.1 rad to go: "
        "raise iterations"
    ]
    for turns, left in [([0.4, 0.2, 0.1, 0.05], 0.05), ([0.1], 0.1), ([0.3, 0.0], 0.0), ([0.1, 0.2], np.pi / 2)]:
        assert admm_kpca._turn_left(turns) == pytest.approx(left)


def test_nodes_that_differ_are_a_finding_since_centring_takes_the_difference_away():
    X = StandardScaler().fit_transform(load_iris().data)
    by_kind, mixed = np.arange(len(X)), np.random.default_rng(0).permutation(len(X))
    for order, center, is_told in ((by_kind, True, True), (by_kind, False, False), (mixed, True, False)):
        result = admm(center=center, iterations=60).fit(np.array_split(X[order], 4), reference="central")
        assert any("the variance between neighbours' means" in finding for finding in result.findings) == is_told
        assert (result.metrics["similarity"] < 0.3) == is_told


@pytest.mark.parametrize(
    ("turns", "left", "unsettled"),
    [
        ([0.5, 0.4, 0.45, 0.3], 10, False),  # one rise in three
        ([0.3, 0.4, 0.45, 0.4], 10, False),  # two
        ([0.3, 0.4, 0.4, 0.5], 10, True),
        ([0.9, 0.3, 0.4, 0.4, 0.5], 10, True),  # what was before does not matter
        ([0.3, 0.4, 0.5], 10, False),  # two rises, where three are needed
        ([0.005, 0.01, 0.015, 0.02], 10, False),  # they hardly turn
        ([0.005, 0.01, 0.015, 0.021], 10, True),
        ([0.5, 0.4, 0.3, 0.21], 3, True),  # shrinking, but wide, and little is left
        ([0.21], 3, True),
        ([0.5, 0.4, 0.3, 0.21], 4, False),
        ([0.5, 0.4, 0.3, 0.2], 3, False),
        ([0.3, 0.4, 0.4, 0.5], 0, False),  # nothing is left
    ],
)
def test_what_does_not_settle(turns, left, unsettled):
    assert admm_kpca._unsettled(turns, left) is unsettled


def test_a_direction_that_nodes_disagree_about_is_removed_without_its_multipliers():
    """These outweighed the directions here, where the deflated kernel is indefinite: numbers overflowed."""
    shards = np.array_split(scipy.stats.zscore(np.random.default_rng(0).standard_t(3, (100, 10))), 4)
    strategy = ADMMKPCA(5, RBF(gamma=0.05), share_rows=True)
    metrics = strategy.fit(shards, reference="central", evaluate=True).metrics
    assert metrics["similarity_alone"] < metrics["similarity"] < metrics["similarity_ceiling"]


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.drill), 5])
def test_three_components_by_deflation(nodes):
    shards = spread(nodes, 40)
    strategy = ADMMKPCA(3, RBF(gamma=0.01), iterations=20, share_rows=True)
    result, metrics, _ = judged(strategy, shards)
    for node, X in enumerate(shards):
        alpha = result.outputs[node]["alpha"]
        assert alpha.shape == (40, 3)
        K = center_blocks(normalised_gram(strategy.kernel, X), [40])
        np.testing.assert_allclose(alpha.T @ K @ alpha, np.eye(3), atol=1e-8 if nodes == 1 else 0.15)
    assert metrics["similarity"] > (1 - 1e-8 if nodes == 1 else 0.85) * metrics["similarity_ceiling"]
    assert result.model.lagrangian_.shape[0] == result.model.without_multipliers_.size == 3


@pytest.mark.parametrize("kernel", [RBF(gamma=0.01), pytest.param(Polynomial(2, 0.1), marks=pytest.mark.drill)])
def test_features_in_place_of_rows(kernel):
    shards = spread(6, 40)
    rows, with_rows, _ = judged(admm(kernel=kernel), shards)
    features, with_features, _ = judged(admm(kernel=kernel, exchange="features", share_rows=False), shards)
    assert (rows.ledger.rows_up, features.ledger.rows_up) == (6 * 40, 0)
    assert with_features["similarity"] > with_rows["similarity"] - 0.02
    first = min(letter.round for letter in features.ledger.letters)
    assert {letter.floats for letter in features.ledger.of_round(first).letters} == {40 * 2000}


@pytest.mark.slow
def test_noise_on_the_rows_costs_little_and_is_counted():
    shards = spread(8, 40)
    _, plain, _ = judged(admm(kernel=RBF(gamma=0.01)), shards)
    result, noisy, _ = judged(admm(kernel=RBF(gamma=0.01), noise=0.3), shards)
    assert plain["similarity_alone"] < noisy["similarity"] < plain["similarity"]
    assert noisy["similarity"] > plain["similarity"] - 0.01
    assert result.ledger.rows_up == 8 * 40  # noise does not hide a row
    features, _, _ = judged(admm(kernel=RBF(gamma=0.01), noise=0.01, exchange="features"), shards)
    assert features.ledger.rows_up == 0


def test_noise_is_nobody_else_s_to_draw():
    """Neither by the run's seed nor by asking again; without it, features too are the same every time."""
    X = spread(2)[0]
    features = SubspaceEmbedding(RBF(gamma=0.01), None, 20)
    noisy, once = ShareRows(features=None, noise=0.5), []
    for _ in range(2):
        site = ADMMKPCAClient(X, client=0, seed=3)
        first = site._exchanged_rows(noisy) - X
        np.testing.assert_array_equal(site._exchanged_rows(ShareRows(features=None, noise=5.0)) - X, first)
        exchanged = site._exchanged_rows(ShareRows(features=features, noise=0.5))
        other = ShareRows(features=SubspaceEmbedding(RBF(gamma=0.02), None, 20), noise=0.5)
        np.testing.assert_array_equal(site._exchanged_rows(other), exchanged)
        assert np.abs(first - 0.5 * site.rng("noise").standard_normal(X.shape)).min() > 0
        once.append(first)
    assert np.abs(once[0] - once[1]).min() > 0
    noise = np.concatenate([system_normal((1000, 20)).ravel(), np.ravel(once) / 0.5])
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-4
    assert np.isfinite(noise).all()
    highest, lowest = _normal(b"\xff" * 8 + bytes(8), (2,))
    assert highest == -lowest < np.inf


def test_the_paper_s_schedule():
    strategy = ADMMKPCA(kernel=RBF(gamma=0.01), schedule="paper", iterations=6, share_rows=True)
    assert strategy._penalties(7.0) == [(100, 10), (100, 10), (100, 50), (100, 50), (100, 100), (100, 100)]
    result, metrics, _ = judged(strategy, spread(8, 40))
    assert result.model.rho_ == 100
    assert metrics["similarity"] > metrics["similarity_pooled"]


@pytest.mark.parametrize("fields", [{}, {"center": False}, {"exchange": "features", "n_features": 300}])
def test_a_node_projects_new_rows(fields, tmp_path):
    shards, new = spread(5, 20), spread(1, 7, seed=1)[0]
    strategy = ADMMKPCA(2, RBF(gamma=0.02), iterations=5, share_rows=True, **fields)
    result = strategy.fit(shards, seed=3)
    node = strategy.at_node(shards[1], result.outputs[1]["alpha"], seed=3)
    placed = node.transform(new)
    assert placed.shape == (7, 2)
    # of its own rows the coordinates are K alpha
    X, kernel = shards[1], RBF(gamma=0.02)
    if "exchange" in fields:
        mapped = strategy._features(strategy.kernel.settled(6), 3).map(6)
        X, kernel = mapped(X), Linear()
    K = normalised_gram(kernel, X)
    if strategy.center:
        K = center_blocks(K, [20])
    np.testing.assert_allclose(node.transform(shards[1]), K @ result.outputs[1]["alpha"], atol=1e-12)
    again = load_model(node.save(tmp_path / "node.npz"))
    assert isinstance(again, NodeComponents)
    np.testing.assert_array_equal(again.transform(new), placed)
    with pytest.raises(InputError, match="X has 5 columns, but the components were found in 6"):
        node.transform(new[:, 1:])
    with pytest.raises(InputError, match=r"alpha has shape \(19, 2\), but must be .*, with 20 rows"):
        strategy.at_node(shards[1], result.outputs[1]["alpha"][1:])


def test_new_rows_far_from_the_others_are_told_apart():
    """Two clusters: the first component is on which side a row lies, at nodes that agree on the sign or not."""
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((30, 3)) * 0.3 + np.repeat([[0, 0, 0], [3, 0, 0]], 15, axis=0) for _ in range(6)]
    strategy = ADMMKPCA(kernel=RBF(gamma=0.2), share_rows=True)
    result = strategy.fit(shards)
    nodes = [strategy.at_node(X, result.outputs[j]["alpha"]) for j, X in enumerate(shards)]
    sides = [node.transform([[0, 0, 0], [3, 0, 0]])[:, 0] for node in nodes]
    assert np.all(np.prod(sides, axis=1) < 0)
    assert len(set(np.sign(sides)[:, 0])) == 1  # and the nodes do agree


# --- what is refused

EQUAL = [np.ones((10, 6)), *spread(4, 10)]
NO_COMPONENT = "client 0 has no further component"


@pytest.mark.parametrize(
    ("error", "build", "text"),
    [
        (InputError, lambda: ADMMKPCA().fit(spread(5)), "share_rows = false, but ADMMKPCA sends raw data"),
        (InputError, lambda: ADMMKPCA(31, share_rows=True).fit(spread(5)), "client 0 has 30"),
        (InputError, lambda: ADMMKPCA(rho=3.0, schedule="paper"), 'rho = 3 .* only with schedule = "constant"'),
        (InputError, lambda: ADMMKPCA(neighbors=2, graph="star"), "neighbors = 2 .* only with graph = 'ring'"),
        (InputError, lambda: ADMMKPCA(neighbors=3), "neighbors = 3"),
        (InputError, lambda: admm(neighbors=6).fit(spread(5)), "neighbors = 6, but must be at most 4 on a ring of 5"),
        (
            InputError,
            lambda: admm(graph={"kind": "random-geometric", "radius": 1e-6}).fit(spread(5)),
            "is not connected but falls into 5 parts",
        ),
        (InputError, lambda: ADMMKPCA(kernel={"type": "sigmoid"}), "the sigmoid kernel is not positive semidefinite"),
        (InputError, lambda: ADMMKPCA(kernel=Linear(), exchange="features"), "has no meaning with a linear kernel"),
        (ProtocolError, lambda: admm(rho=0.1).fit(spread(5)), "rho = 0.1 and 0.1 sum to 0.5 .* client 0 .* exceed"),
        (ProtocolError, lambda: admm().fit(EQUAL), NO_COMPONENT),
        (ProtocolError, lambda: admm(kernel=Linear(), n_components=3).fit(spread(5, 10, lengths=(2, 1))), NO_COMPONENT),
        (
            ProtocolError,
            lambda: admm(kernel=Linear()).fit([np.zeros((5, 6)), *spread(4)]),
            r"client 0: .a row has k\(x, x\) = 0 and cannot be normalised",
        ),
    ],
)
def test_bad_input_is_one_sentence(error, build, text):
    with pytest.raises(error, match=text) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_equal_rows_are_no_harm_without_centring():
    """Without centring, equal rows have a direction; a node of few different rows has a singular kernel matrix."""
    _, metrics, _ = judged(admm(kernel=RBF(gamma=0.05), center=False), EQUAL)
    assert metrics["similarity"] > 0.9 * metrics["similarity_ceiling"]
    shards = spread(5, 10)
    _, once, _ = judged(admm(kernel=RBF(gamma=0.02)), shards)
    _, thrice, _ = judged(admm(kernel=RBF(gamma=0.02)), [np.repeat(X, 3, axis=0) for X in shards])
    assert thrice == pytest.approx(once, rel=1e-9)

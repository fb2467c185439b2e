"""VFedPCA and VFedAKPCA against an independent implementation, the papers' properties, and the reference numbers."""

import dataclasses

import naive
import numpy as np
import pytest
from allocation import peak_of
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusing
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, Linear, PeerVFedPCA, Sigmoid, VFedAKPCA, VFedPCA
from fedkernel.clients import vfedpca
from fedkernel.clients.eigenvector_merging import merge_eigenpairs, merging_weights
from fedkernel.clients.vfedpca import Multiply, VFedPCAClient
from fedkernel.data import PartitionSpec, split
from fedkernel.numerics import Eigenpairs, sin_theta_error

CANCER = StandardScaler().fit_transform(load_breast_cancer().data)  # 569 x 30
WINE = load_wine().data[::2]  # neither centred nor scaled
SHARDS = np.array_split(StandardScaler().fit_transform(WINE), 4, axis=1)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize("merge", ["eigenvalue", "average"])
@pytest.mark.parametrize("update", ["inplace", "original"])
def test_every_round_equals_the_naive_implementation(update, merge, scaling, warm):
    strategy = VFedPCA(1, merge, 3, 4, update, weight_scaling=scaling, warm_start=warm)
    result = strategy.fit(SHARDS, seed=11)
    merged, tables = naive.vfedpca(SHARDS, 11, 4, 3, update, merge, scaling, warm)
    for mine, theirs in zip(result.model.iterates_, merged, strict=True):
        assert naive.up_to_sign(mine[:, 0], theirs) < 1e-10
    assert result.ledger.floats_up == 4 * 4 * (len(WINE) + 1)  # T p (N + 1)
    for client, table in enumerate(SHARDS):
        # Equation 10: the projected features, computed and kept on the site
        features = result.model.eigenvectors_.T @ (table - table.mean(axis=0))
        np.testing.assert_allclose(result.outputs[client]["features"], features, atol=1e-12)
    assert np.linalg.matrix_rank(tables[0], tol=1e-10) == 1  # equation 14 leaves nothing but one direction


def test_each_merge_tells_how_often_vectors_have_come_back_and_its_distance_from_the_global_one():
    strategy = VFedPCA(merge="eigenvalue", rounds=3)
    result = strategy.fit(SHARDS, seed=11)
    assert [row["values"]["t"] for row in result.history if "t" in row.get("values", {})] == [0, 1, 2]
    steps = strategy.judge_steps(result, SHARDS, strategy.central(SHARDS))["distance"]
    X = np.hstack(SHARDS)
    principal = np.linalg.svd(X - X.mean(axis=0)).U[:, 0]
    distances = [naive.up_to_sign(merge[:, 0], principal) for merge in result.model.iterates_]
    np.testing.assert_allclose(steps, distances, atol=1e-9)


def test_original_updates_go_on_and_come_with_several_components_to_pca_of_tables_of_equal_weight():
    """Of tables that are divided by the root of their number of columns: A_m = X_m X_m^T / d_m."""
    model = VFedPCA(rounds=6, merge="eigenvalue").fit(SHARDS).model
    steps = [sin_theta_error(V, W) for V, W in zip(model.iterates_, model.iterates_[1:], strict=False)]
    assert min(steps) > 1e-12
    model = VFedPCA(3, "eigenvalue", rounds=100).fit(SHARDS).model
    values, vectors = naive.top(sum(naive.centred(X @ X.T) / X.shape[1] for X in SHARDS), 3)
    assert sin_theta_error(vectors, model.eigenvectors_) < 1e-16
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)


def test_with_a_linear_kernel_vfedakpca_is_vfedpca():
    even = [StandardScaler().fit_transform(WINE)[:, 3 * m : 3 * m + 3] for m in range(4)]  # equal d_m: equal weights
    for components in (1, 2):
        on_columns = VFedPCA(components, "eigenvalue", rounds=4).fit(even).model
        on_kernels = VFedAKPCA(components, "eigenvalue", rounds=4, kernel=Linear()).fit(even).model
        np.testing.assert_allclose(on_columns.iterates_, on_kernels.iterates_, atol=1e-9)


CENTERS = st.sampled_from(["columns", "rows", "none"])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), clients=st.integers(1, 13), k=st.integers(1, 6), center=CENTERS)
def test_exact_converges_to_the_pooled_pca_for_any_split(seed, clients, k, center):
    X = StandardScaler().fit_transform(WINE)
    shards = split(PartitionSpec(method="random", clients=clients, shuffle=True), X, seed=seed).shards
    strategy = VFedPCA(k, merge="exact", center=center)
    model, reference = strategy.fit(shards).model, strategy.central(shards)
    if center == "rows" and reference.eigenvalues_[-1] <= 1e-8 * reference.eigenvalues_[0]:
        return  # clients with one column have nothing left of it, and the last vectors are any
    assert np.sqrt(sin_theta_error(reference.eigenvectors_, model.eigenvectors_)) < 1e-8
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-8)


def test_exact_finds_a_direction_that_leads_at_no_single_site():
    drawn = np.random.default_rng(0).standard_normal((60, 31))
    axes = np.linalg.qr(np.hstack([np.ones((60, 1)), drawn]))[0][:, 1:]  # orthogonal, of mean 0
    shards = [np.column_stack([10 * axes[:, site], 2 * axes[:, -1]]) for site in range(30)]
    model = VFedPCA(1).fit(shards).model
    assert model.eigenvalues_[0] == pytest.approx(30 * 2**2, rel=1e-9)
    assert abs(model.eigenvectors_[:, 0] @ axes[:, -1]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("components", [1, "auto"])
def test_rounds_limit_the_search_and_a_finding_says_where_they_ended_it(components):
    strategy = VFedPCA(components, rounds=3, max_components=2 if components == "auto" else None)
    result = strategy.fit(SHARDS)
    assert [row["phase"] for row in result.history] == ["join", "IterateLocally", *["Multiply"] * 3, "Finish"]
    sentence = "rounds = 3 ended the search before it converged to tol = 1e-08: the components may be far from the "
    place = 1 if components == "auto" else 0  # after why so many
    assert [finding.startswith(sentence) for finding in result.findings].index(True) == place
    enough = dataclasses.replace(strategy, rounds=None).fit(SHARDS)
    assert not [finding for finding in enough.findings if "converged" in finding]
    assert dataclasses.replace(strategy, rounds=None, tol=0.1).fit(SHARDS).ledger.rounds < enough.ledger.rounds
    # as many as it took: the last of them finds that it has converged
    again = dataclasses.replace(strategy, rounds=enough.ledger.rounds - 2).fit(SHARDS)
    assert again.findings == enough.findings


def test_signs_are_those_of_the_largest_eigenvalue_by_magnitude_and_the_average_is_of_those_that_vary():
    """A sigmoid kernel's may be negative; the second vector agrees with the first's side, and not with the third's."""
    vectors = [np.array([[1.0], [0.0]]), np.array([[0.5], [-0.6]]), np.array([[0.5], [0.87]])]
    pairs = [Eigenpairs(np.array([value]), V) for value, V in zip([-5.0, 1.0, 2.0], vectors, strict=True)]
    total = sum(vectors)
    merge = merge_eigenpairs(pairs, np.ones((3, 1)))
    np.testing.assert_allclose(merge.vectors, total / np.linalg.norm(total), atol=1e-12)
    # A vector that belongs to no eigenvalue is the random start: it weighs nothing, and equation 15 keeps that.
    eigenvalues = np.array([[4.0, 1.0], [0.0, 0.0], [2.0, 1e-16]])
    weights = merging_weights(eigenvalues, "average", scaling=False)
    np.testing.assert_allclose(weights, [[1 / 3, 1 / 3], [0, 0], [1 / 3, 0]])
    scaled = merging_weights(eigenvalues, "average", scaling=True)
    np.testing.assert_array_equal(scaled > 0, weights > 0)
    np.testing.assert_allclose(merging_weights(np.zeros((3, 1)), "average", scaling=False), 1 / 3)


def random_pairs():
    """Three eigenpairs of each of 5 clients: two equal values, a negative one, one client without any."""
    rng = np.random.default_rng(0)
    values = np.array([[5.0, 2.0, 2.0], [4.0, 3.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.5], [3.0, 0.4, 1e-16]])
    return [Eigenpairs(own, np.linalg.qr(rng.standard_normal((20, 3)))[0]) for own in values]


def merge_of(pairs, rule="eigenvalue", scaling=False):
    return merge_eigenpairs(pairs, merging_weights(np.array([pair.values for pair in pairs]), rule, scaling))


def test_several_components_are_the_leading_eigenvectors_of_the_weighted_sum():
    pairs = random_pairs()
    total = sum(V @ np.diag(np.abs(values)) @ V.T for values, V in pairs)
    vectors = naive.top(total, 3)[1]
    result = merge_of(pairs)
    assert sin_theta_error(vectors, result.vectors) < 1e-20
    # equation 15: the factor is 1 + 1/5 for the three clients with the largest sums, 1 - 1/5 for the others
    factors = [1.2, 1.2, 0.8, 0.8, 1.2]
    total = sum(factor * V @ np.diag(np.abs(own)) @ V.T for factor, (own, V) in zip(factors, pairs, strict=True))
    assert sin_theta_error(naive.top(total, 3)[1], merge_of(pairs, scaling=True).vectors) < 1e-20
    # equal weights, but for those that have no eigenvalue
    total = sum(V @ np.diag((np.abs(own) > 1e-15) * 1.0) @ V.T for own, V in pairs)
    average = merge_of(pairs, "average")
    assert sin_theta_error(naive.top(total, 3)[1], average.vectors) < 1e-20
    # values: of the sum of the matrices that the pairs stand for, along the vectors, in order
    matrix = sum(V @ np.diag(values) @ V.T for values, V in pairs)
    for vectors, values in ((result.vectors, result.values), (average.vectors, average.values)):
        np.testing.assert_allclose(vectors.T @ matrix @ vectors, np.diag(values), atol=1e-12)
        assert np.all(np.diff(values) <= 0)


@pytest.mark.parametrize(("merge", "constant"), [("eigenvalue", 0.1), ("average", 1e9 / 3)])
@pytest.mark.parametrize("kernel", [None, RBF(gamma=0.1), Linear()], ids=repr)
def test_a_client_without_variance_has_no_vote(kernel, merge, constant):
    shards = [*SHARDS, np.full((len(WINE), 2), constant)]
    for update in ("inplace", "original"):
        fields = {"merge": merge, "update": update, "n_components": 2, "rounds": 2}
        strategy = VFedAKPCA(kernel=kernel, **fields) if kernel else VFedPCA(**fields)
        expected = strategy.fit(SHARDS).model
        model = strategy.fit(shards).model
        np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-9)
        np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
        peers = PeerVFedPCA(kernel=kernel, **fields).fit(shards)
        np.testing.assert_allclose(peers.outputs[0]["eigenvectors"], expected.eigenvectors_, atol=1e-9)


def test_equal_columns_have_no_vote_where_rows_are_centred_nor_constant_ones_in_the_exact_merge():
    equal = np.repeat(np.random.default_rng(0).standard_normal((len(WINE), 1)), 3, axis=1)
    centred = VFedPCA(merge="average", center="rows", rounds=2)
    for strategy, own in ((centred, equal), (VFedPCA(2), np.ones((len(WINE), 2)))):
        model, expected = (strategy.fit(shards).model for shards in ([*SHARDS, own], SHARDS))
        np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-9)


def test_of_an_indefinite_sigmoid_kernel_the_eigenvalue_of_largest_magnitude_counts():
    model = VFedAKPCA(1, "eigenvalue", 60, 1, kernel=Sigmoid(gamma=0.5, coef0=-2.0), center="none").fit(SHARDS).model
    spectra = [np.linalg.eigh(np.tanh(0.5 * X @ X.T - 2)) for X in SHARDS]
    values = np.array([values[0] for values, _ in spectra])
    assert np.all(-values > 3 * np.array([values[-1] for values, _ in spectra])), "negative at every client"
    best = spectra[int(np.argmin(values))][1][:, 0]
    weights = values / values.sum()
    mean = sum(w * V[:, 0] * np.sign(V[:, 0] @ best) for w, (_, V) in zip(weights, spectra, strict=True))
    mean /= np.linalg.norm(mean)
    assert naive.up_to_sign(model.eigenvectors_[:, 0], mean) < 1e-9
    along = values @ [(V[:, 0] @ mean) ** 2 for _, V in spectra]
    assert model.eigenvalues_[0] == pytest.approx(along, rel=1e-9)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: VFedPCA(merge="best"), "merge = 'best': input should be 'exact', 'eigenvalue' or 'average'"),
        (lambda: VFedPCA(update="inplace"), "update = 'inplace' has no meaning with merge = \"exact\"; allowed: "),
        (lambda: VFedAKPCA(warm_start=True), 'warm_start = True has no meaning with merge = "exact"; allowed: merge ='),
        (lambda: VFedPCA(weight_scaling=True), 'weight_scaling = True has no meaning with merge = "exact"; allowed: '),
        (lambda: VFedPCA(rounds=0), "rounds = 0: input should be greater than or equal to 1"),
        (lambda: VFedPCA(90).fit(SHARDS), "n_components = 90, but must be at most the number of rows, 89"),
        (lambda: VFedAKPCA(kernel=RBF(gamma=-1.0)), "gamma = -1.0: input should be greater than 0"),
        (lambda: VFedPCA(kernel=RBF()), "kernel is not a known name here"),
    ],
)
def test_bad_input_is_one_sentence(build, text):
    with refusing(text):
        build()


@pytest.mark.parametrize(
    "pair", [VFedPCA(3), VFedPCA(3, "average", rounds=3), PeerVFedPCA(3, merge="average", rounds=3)]
)
def test_tall_tables_are_iterated_in_their_columns_coordinates_with_the_same_result(pair, monkeypatch):
    shards = [np.random.default_rng(i).standard_normal((600, 20)) * 0.9 ** np.arange(20) for i in range(3)]
    found = []
    shortened = vfedpca.low_rank
    monkeypatch.setattr(vfedpca, "low_rank", lambda *args: (found.append(shortened(*args)), found[-1])[1])
    short = pair.fit(shards)
    assert len([low for low in found if low is not None]) == len(shards)
    monkeypatch.setattr(vfedpca, "low_rank_pays", lambda *_: False)
    full = pair.fit(shards)
    assert len(found) == len(shards)
    for client in range(3):
        for name in ("features", "eigenvectors"):
            expected = full.outputs[client][name]
            np.testing.assert_allclose(short.outputs[client][name], expected, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("center", ["columns", "rows", "none"])
@pytest.mark.parametrize("merge", ["exact", "eigenvalue"])
def test_a_large_table_is_never_copied_and_has_the_same_result(merge, center, monkeypatch):
    shards = [np.random.default_rng(i).standard_normal((3000, 30)) * 0.8 ** np.arange(30) + 5 for i in range(2)]
    strategy = VFedPCA(2, merge=merge, rounds=2, center=center)
    small = strategy.fit(shards, evaluate=True)
    new = strategy.transform(small.model, shards, [shard[:50] for shard in shards])
    monkeypatch.setattr(vfedpca, "MOST_CACHED_BYTES", 0)
    monkeypatch.setattr(vfedpca, "CENTRED_ROWS", 256)
    client, request = VFedPCAClient(shards[0]), Multiply(center=center, block=small.model.eigenvectors_)
    peak, _ = peak_of(lambda: client.multiply(request))
    assert peak < shards[0].nbytes * 0.6  # two blocks and some products
    large = strategy.fit(shards, evaluate=True)
    np.testing.assert_allclose(large.model.eigenvectors_, small.model.eigenvectors_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(large.outputs[1]["features"], small.outputs[1]["features"], rtol=1e-11, atol=1e-10)
    assert large.metrics == pytest.approx(small.metrics, rel=1e-12)
    again = strategy.transform(large.model, shards, [shard[:50] for shard in shards])
    np.testing.assert_allclose(again, new, rtol=0, atol=1e-10)

"""What must hold for every pair, whatever its paper."""

import numpy as np
import pytest
from cases import CASES, CLIENTS, SHARDS, WINE, N
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import REGISTRY as CLIENT_REGISTRY
from fedkernel.subspaces import sin_theta_error
from strategies import REGISTRY, VFedPCA

pytestmark = pytest.mark.parametrize("case", CASES, ids=str)


def subspace_error(one, other):
    return sin_theta_error(one.model.eigenvectors_, other.model.eigenvectors_)


def test_the_same_seed_gives_the_same_bits(case):
    one, two = (case.strategy.fit(SHARDS, seed=7) for _ in range(2))
    assert one.model.eigenvectors_.tobytes() == two.model.eigenvectors_.tobytes()
    assert one.model.eigenvalues_.tobytes() == two.model.eigenvalues_.tobytes()
    assert one.ledger == two.ledger
    for client in range(CLIENTS):
        assert one.outputs[client].keys() == two.outputs[client].keys()
        assert all(
            one.outputs[client][name].tobytes() == two.outputs[client][name].tobytes() for name in one.outputs[client]
        )


def test_the_model_is_orthonormal_and_ordered(case):
    model = case.strategy.fit(SHARDS).model
    k = case.strategy.n_components
    assert model.eigenvalues_.shape == (k,)
    assert model.eigenvectors_.shape == (N, k)
    np.testing.assert_allclose(model.eigenvectors_.T @ model.eigenvectors_, np.eye(k), atol=1e-12)
    assert np.all(np.diff(model.eigenvalues_) <= 1e-12 * abs(model.eigenvalues_[0]))


def test_floats_are_those_of_the_paper(case):
    result = case.strategy.fit(SHARDS)
    assert result.ledger.floats_up == case.floats_up(result)
    assert result.ledger.floats_down == case.floats_down(result)


def test_history_and_ledger_say_the_same(case):
    result = case.strategy.fit(SHARDS)
    for name in ("floats_up", "floats_down", "bytes_up", "bytes_down"):
        assert sum(row[name] for row in result.history) == getattr(result.ledger, name)
    assert result.ledger.rounds == len(result.history) - 1  # the clients' joining is no round
    assert sum(row["seconds"] for row in result.history) <= result.seconds


@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(CLIENTS)))
def test_the_order_of_the_clients_does_not_matter(case, order):
    one = case.strategy.fit(SHARDS)
    two = case.strategy.fit([SHARDS[client] for client in order])
    assert subspace_error(one, two) < 1e-16


@settings(max_examples=4, deadline=None)
@given(factor=st.floats(0.01, 100.0))
def test_scaling_the_data_scales_the_kernel(case, factor):
    one = case.strategy.fit(SHARDS)
    two = case.scaled(factor).fit([factor * shard for shard in SHARDS])
    assert subspace_error(one, two) < 1e-16


@settings(max_examples=4, deadline=None)
@given(signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=WINE.shape[1], max_size=WINE.shape[1]))
def test_the_sign_of_a_column_does_not_matter(case, signs):
    if not case.rotations and isinstance(case.strategy, VFedPCA):
        signs = [-1.0]  # centring rows is the one thing here that sees a single column's sign
    flipped = np.array_split(WINE * signs, CLIENTS, axis=1)
    assert subspace_error(case.strategy.fit(SHARDS), case.strategy.fit(flipped)) < 1e-16


def test_rotating_a_client_s_columns_does_not_matter(case):
    rng = np.random.default_rng(0)
    rotated = [shard @ np.linalg.qr(rng.standard_normal((shard.shape[1],) * 2))[0] for shard in SHARDS]
    error = subspace_error(case.strategy.fit(SHARDS), case.strategy.fit(rotated))
    assert error < 1e-16 if case.rotations else error > 1e-8


def test_the_order_of_the_rows_is_the_order_of_the_result(case):
    order = np.random.default_rng(1).permutation(N)
    one = case.strategy.fit(SHARDS).model.eigenvectors_
    two = case.strategy.fit([shard[order] for shard in SHARDS]).model.eigenvectors_
    assert sin_theta_error(one[order], two) < 1e-16


def test_the_clients_together_come_closer_than_each_alone(case):
    """Every method is some approximation of its central counterpart: closer to it than the clients on their own."""
    reference = case.strategy.central(SHARDS)
    error = sin_theta_error(reference.eigenvectors_, case.strategy.fit(SHARDS).model.eigenvectors_)
    alone = [case.strategy.central([shard]).eigenvectors_ for shard in SHARDS]
    assert error < np.mean([sin_theta_error(reference.eigenvectors_, V) for V in alone])


def test_the_pair_is_registered(case):
    name = type(case.strategy).__name__
    assert REGISTRY[name] is type(case.strategy)
    assert CLIENT_REGISTRY[case.strategy.client.__name__] is case.strategy.client

"""What must hold for every pair, whatever its paper."""

import collections
import functools

import numpy as np
import pytest
from cases import CASES, CLIENTS, WINE, N
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import REGISTRY as CLIENT_REGISTRY
from fedkernel.client import KernelClient
from fedkernel.subspaces import sin_theta_error
from strategies import REGISTRY, RFKKMeans, VFedPCA

OTHER_DRAWS = 0.1
"""Of a largest possible error of 3: components in the span of other rows, as near to the central ones."""

pytestmark = pytest.mark.parametrize("case", CASES, ids=str)


@functools.cache
def fitted(case):
    """The run with seed 0, once for all tests that only look."""
    return case.strategy.fit(case.shards())


def test_the_same_seed_gives_the_same_bits(case):
    one, two = fitted(case), case.strategy.fit(case.shards(), seed=0)
    arrays = [{k: v.tobytes() for k, v in vars(r.model).items() if isinstance(v, np.ndarray)} for r in (one, two)]
    assert arrays[0] == arrays[1] != {}
    assert one.ledger == two.ledger
    for client in range(CLIENTS):
        assert one.outputs[client].keys() == two.outputs[client].keys()
        assert all(
            one.outputs[client][name].tobytes() == two.outputs[client][name].tobytes() for name in one.outputs[client]
        )


def test_a_generator_serves_one_draw_at_a_client_in_a_run(case, monkeypatch):
    """A purpose that two kinds of requests share gives both the same numbers."""
    users = collections.defaultdict(list)
    respond, rng = KernelClient._respond, KernelClient.rng
    requests = {}

    def noting(self, answer, request, config):
        requests[self] = type(request).__name__
        return respond(self, answer, request, config)

    def used(self, purpose):
        users[self.client, purpose].append(requests[self])
        return rng(self, purpose)

    monkeypatch.setattr(KernelClient, "_respond", noting)
    monkeypatch.setattr(KernelClient, "rng", used)
    case.strategy.fit(case.shards())
    for (_, purpose), names in users.items():
        # the paper's local iterations begin at the same vector in every round
        assert len(names) == 1 or (purpose, set(names)) == ("start", {"PowerIteration"})


def test_the_model_is_orthonormal_and_ordered(case):
    result = fitted(case)
    V = case.vectors(result)
    k = V.shape[1]
    assert V.shape == (N, k)
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
    if isinstance(case.strategy, RFKKMeans):
        assert result.model.eigenvalues_ is None
        return
    values = result.model.eigenvalues_
    assert values.shape == (k,)
    assert k == (getattr(case.strategy, "n_components", None) or 3)
    assert np.all(np.diff(values) <= 1e-12 * abs(values[0]))


def test_floats_are_those_of_the_paper(case):
    result = fitted(case)
    assert result.ledger.floats_up == case.floats_up(result)
    assert result.ledger.floats_down == case.floats_down(result)


def test_history_and_ledger_say_the_same(case):
    result = fitted(case)
    for name in ("floats_up", "floats_down", "bytes_up", "bytes_down"):
        assert sum(row[name] for row in result.history) == getattr(result.ledger, name)
    assert result.ledger.rounds == len(result.history) - 1  # the clients' joining is no round
    assert sum(row["seconds"] for row in result.history) <= result.seconds


def test_the_order_of_the_clients_does_not_matter(case):
    one = case.vectors(fitted(case))
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        two = case.vectors(case.strategy.fit([case.shards()[client] for client in order]), order)
        assert sin_theta_error(one, two) < (OTHER_DRAWS if case.draws else 1e-16)


def test_scaling_the_data_scales_the_kernel(case):
    one = case.vectors(fitted(case))
    for factor in (0.013, 87.0):
        two = case.vectors(case.scaled(factor).fit(case.shards(factor * WINE)))
        assert sin_theta_error(one, two) < 1e-16


@settings(max_examples=2, deadline=None, derandomize=True)  # where draws decide, clusters may happen to be the same
@given(signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=WINE.shape[1], max_size=WINE.shape[1]))
def test_the_sign_of_a_column_does_not_matter(case, signs):
    if not case.rotations and isinstance(case.strategy, VFedPCA):
        signs = [-1.0]  # centring rows is the one thing here that sees a single column's sign
    if case.axis == 0:
        signs = [1.0, -1.0, *signs[2:]]  # with all signs changed, cosines would stay and sines change theirs
    flipped = case.vectors(case.strategy.fit(case.shards(WINE * signs)))
    error = sin_theta_error(case.vectors(fitted(case)), flipped)
    # A draw of random features is not symmetric, only its distribution.
    assert error < 1e-16 if case.axis == 1 or case.rotations else error > 1e-8


def test_rotating_a_client_s_columns_does_not_matter(case):
    rng = np.random.default_rng(0)
    if case.axis == 0:
        rotated = case.shards(WINE @ np.linalg.qr(rng.standard_normal((WINE.shape[1],) * 2))[0])
    else:
        rotated = [shard @ np.linalg.qr(rng.standard_normal((shard.shape[1],) * 2))[0] for shard in case.shards()]
    one, two = case.vectors(fitted(case)), case.vectors(case.strategy.fit(rotated))
    error = sin_theta_error(one, two)
    assert error < 1e-16 if case.rotations else error > 1e-8


def test_the_order_of_the_rows_is_the_order_of_the_result(case):
    order = np.random.default_rng(1).permutation(N)
    one = case.vectors(fitted(case))
    two = case.vectors(case.strategy.fit(case.shards(WINE[order])))
    error = sin_theta_error(one[order], two)
    assert 1e-8 < error < OTHER_DRAWS if case.draws else error < 1e-16


def test_the_clients_together_come_closer_than_each_alone(case):
    """Every method is some approximation of its central counterpart: closer to it than the clients on their own."""
    together, alone = case.errors(fitted(case))
    assert together < np.mean(alone)


def test_the_pair_is_registered(case):
    name = type(case.strategy).__name__
    assert REGISTRY[name] is type(case.strategy)
    assert CLIENT_REGISTRY[case.strategy.client.__name__] is case.strategy.client

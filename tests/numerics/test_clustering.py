"""k-means and its distributed form: against all partitions of few points, and against sums over all points."""

import itertools

import naive
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_info, threadpool_limits

from fedkernel.ground import EPS, InputError
from fedkernel.numerics import WeightedPoints, allot_samples, assign, coreset, k_means, landmark_centers


def generator(seed=0):
    return np.random.default_rng(seed)


def cost(points, centers, weights=None):
    """Weighted sum of squared distances to the nearest centre."""
    return (np.ones(len(points)) if weights is None else weights) @ cdist(points, centers, "sqeuclidean").min(axis=1)


def best_cost(points, k, weights):
    """Cost of the best of all divisions into k groups, each around its weighted mean."""
    costs = []
    for labels in itertools.product(range(k), repeat=len(points)):
        groups = [np.array(labels) == group for group in set(labels)]
        means = [np.average(points[group], axis=0, weights=weights[group]) for group in groups]
        own = zip(groups, means, strict=True)
        costs.append(sum(weights[group] @ ((points[group] - mean) ** 2).sum(axis=1) for group, mean in own))
    return min(costs)


def blobs(n=600, k=5, s=3, seed=0):
    return make_blobs(n, s, centers=k, cluster_std=1.5, random_state=seed)[0]


@pytest.mark.parametrize(("seed", "weighted"), [(0, False), (1, True), (2, True)])
def test_the_best_of_many_starts_is_the_best_of_all_divisions(seed, weighted):
    rng = generator(seed)
    points, weights = rng.standard_normal((7, 2)), rng.uniform(0.1, 5, 7) if weighted else None
    centers = k_means(points, 3, rng, weights=weights, restarts=60)
    expected = best_cost(points, 3, np.ones(7) if weights is None else weights)
    assert cost(points, centers, weights) == pytest.approx(expected, rel=1e-12)


def test_landmarks_are_nearly_as_good_as_centres_that_converged():
    points = np.vstack([blobs(6000, 8, 6), 40 + blobs(60, 3, 6)])  # some clusters are rare
    converged, rough = k_means(points, 60, generator()), landmark_centers(points, 60, generator())
    assert rough.shape == (60, 6)
    assert cost(points, rough) < 1.1 * cost(points, converged)
    assert len(landmark_centers(points[:50].repeat(40, axis=0), 60, generator())) == 50, "as many as distinct points"


def test_whole_weights_are_repetitions_and_points_of_none_do_not_count():
    points, weights = blobs(80, 3), generator(1).integers(0, 6, 80)
    repeated = np.repeat(points, weights, axis=0)
    weighted = k_means(points, 3, generator(), weights=weights.astype(float), restarts=20)
    plain = k_means(repeated, 3, generator(), restarts=20)
    assert cost(repeated, weighted) == pytest.approx(cost(repeated, plain), rel=1e-12)
    order = [np.lexsort(centers.T) for centers in (weighted, plain)]
    np.testing.assert_allclose(weighted[order[0]], plain[order[1]], rtol=1e-10)
    assert cost(points, weighted) > cost(points, k_means(points, 3, generator(), restarts=20)) * (1 + 1e-6)
    points = blobs(60, 3)
    far = np.vstack([points, np.full((9, 3), 1e3), -np.full((9, 3), 1e3)])
    weights = np.r_[generator(1).uniform(1, 2, 60), np.zeros(18)]
    expected = k_means(points, 3, generator(), weights=weights[:60])
    assert np.array_equal(k_means(far, 3, generator(), weights=weights), expected)
    few = k_means(np.arange(6.0)[:, None], 4, generator(), weights=np.array([0, 2.0, 0, 0, 1.0, 0]))
    assert sorted(few.ravel()) == [1.0, 4.0]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("distinct", [1, 2, 3, 4])
def test_fewer_distinct_points_than_clusters_are_the_centres(distinct, scale):
    points = generator(3).standard_normal((distinct, 2)) * scale
    for repetitions in (1, 50):
        centers = k_means(np.repeat(points, repetitions, axis=0), 4, generator())
        assert centers.shape == (distinct, 2)
        assert cdist(points, centers).min(axis=1).max() <= 1e-14 * scale


def test_copies_that_differ_in_the_last_bits_or_whose_distances_square_to_zero_are_one_point():
    assert k_means(np.array([[0.0], [1e-300]]), 2, generator(0)).shape == (1, 1)
    rng = generator(4)
    points = np.repeat(rng.standard_normal((3, 5)), 40, axis=0) * (1 + 4 * EPS * rng.uniform(-1, 1, (120, 5)))
    assert len(np.unique(points, axis=0)) > 100
    assert k_means(points, 6, rng).shape == (3, 5)
    assert k_means(points[:40], 6, rng).shape == (1, 5)
    with pytest.raises(InputError, match=r"n_clusters = 0, .*at least 1"):
        k_means(points, 0, rng)


@pytest.mark.parametrize("gap", 10.0 ** np.arange(-14, -4))
def test_points_of_any_distance_are_one_or_two_without_a_warning(gap):
    """Warnings are errors here."""
    rng = generator(5)
    for _ in range(20):
        step = rng.standard_normal(3)
        points = rng.standard_normal((3, 3))
        points = np.vstack([points, points[0] + step * gap / np.linalg.norm(step)])
        centers = k_means(np.repeat(points, 5, axis=0), 4, rng)
        assert len(centers) in {3, 4}
        assert cdist(points, centers).min(axis=1).max() <= 1.1 * gap


def test_more_openmp_threads_change_no_bit_and_stay_allowed():
    points = blobs(20000, 8)
    with threadpool_limits(1, user_api="openmp"):
        expected = k_means(points, 8, generator())
    with threadpool_limits(4, user_api="openmp"):
        for _ in range(5):
            assert np.array_equal(k_means(points, 8, generator()), expected)
        allowed = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "openmp"}
    assert allowed == {4}


@pytest.mark.parametrize(("n", "k", "s"), [(1, 1, 1), (40, 1, 3), (500, 7, 4), (2000, 3, 1)])
def test_every_point_goes_to_its_nearest_centre(n, k, s):
    points, centers = generator(1).standard_normal((n, s)), generator(2).standard_normal((k, s))
    every = np.array([[sum((p - c) ** 2) for c in centers] for p in points])
    labels, distances = assign(points, centers)
    assert labels.dtype == np.int64
    assert np.array_equal(labels, every.argmin(axis=1))
    np.testing.assert_allclose(distances, every.min(axis=1), rtol=1e-11, atol=1e-14)
    assert (distances >= 0).all()
    labels, distances = assign(np.array([[0.0], [2.0]]), np.array([[1.0], [-1.0], [3.0], [1.0]]))
    assert (labels.tolist(), distances.tolist()) == ([0, 0], [1.0, 1.0]), "of equally near centres the first"
    integers, corners = generator(3).integers(0, 9, (n, s)).astype(float), np.arange(k)[:, None] * np.ones(s)
    for near, far in zip(assign(integers, corners), assign(integers + 1e12, corners + 1e12), strict=True):
        np.testing.assert_array_equal(near, far)


@given(hnp.arrays(float, st.integers(1, 8), elements=st.floats(0, 1e12)), st.integers(0, 2000))
def test_samples_are_divided_by_cost_and_none_is_lost(costs, samples):
    counts = allot_samples(costs, samples)
    assert counts.shape == costs.shape
    assert counts.dtype == np.int64
    if costs.sum() == 0:
        assert not counts.any()
        return
    assert counts.sum() == samples
    shares = samples * (costs / costs.sum())
    assert (counts >= np.floor(shares * (1 - 1e-12))).all()
    assert (np.abs(counts - shares) < 1 + 1e-9).all()
    assert not counts[costs == 0].any()
    # with bounds: none is passed, what is over goes to others, and where all have some cost nothing is lost
    most = np.arange(len(costs)) * 7 % 50 + 1
    assert (allot_samples(costs, samples, np.maximum(counts, most)) == counts).all()
    bounded = allot_samples(costs, samples, most)
    assert (bounded <= most).all()
    assert not bounded[costs == 0].any()
    assert bounded.sum() == min(samples, most[costs > 0].sum())


@pytest.mark.parametrize(
    ("costs", "samples", "expected"),
    [
        ([3.0], 7, [7]),
        ([0.0], 7, [0]),
        ([0.0, 0.0, 0.0], 7, [0, 0, 0]),
        ([1.0, 1.0], 0, [0, 0]),
        ([1.0, 3.0], 8, [2, 6]),
        ([1.0, 1.0, 1.0], 7, [3, 2, 2]),  # of equal remainders the first
        ([1.0, 2.0, 4.0], 5, [1, 1, 3]),  # 0.71, 1.43, 2.86: the two largest remainders are .86 and .71
        ([0.0, 1e-300, 0.0, 1e-300], 3, [0, 2, 0, 1]),
        ([1.0] * 40, 60, [2] * 20 + [1] * 20),
    ],
)
def test_remainders_by_hand(costs, samples, expected):
    assert allot_samples(np.array(costs), samples).tolist() == expected


def rings(seed=0, n=90):
    """Points on rings around three centres, so that no point's cost is near zero, and these centres."""
    rng = generator(seed)
    centers = np.array([[0.0, 0.0], [6.0, 1.0], [-2.0, 7.0]])
    labels = np.repeat([0, 1, 2], [n // 2, n // 3, n // 6])
    angles, radii = rng.uniform(0, 2 * np.pi, n), rng.uniform(0.5, 1.5, n)
    return centers[labels] + radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)]), centers, labels


def drawn_places(points, chosen, samples):
    """Return which points were drawn, and check that they are points."""
    places = cdist(chosen.points[:samples], points).argmin(axis=1)
    assert np.array_equal(chosen.points[:samples], points[places])
    return places


@pytest.mark.parametrize("samples", [1, 7, 30, 89])
def test_samples_and_centres_weigh_what_the_paper_has_and_never_less_than_nothing(samples):
    points, centers, _ = rings()
    scaled = 0
    for seed in range(20):
        chosen = coreset(points, centers, samples, generator(seed))
        assert isinstance(chosen, WeightedPoints)
        assert chosen.points.shape == (samples + 3, 2)
        assert np.array_equal(chosen.points[samples:], centers)
        expected = naive.coreset_weights(points, centers, drawn_places(points, chosen, samples))
        np.testing.assert_allclose(chosen.weights, expected, rtol=1e-10, atol=1e-10)
        scaled += 0 in chosen.weights
    assert 0 < scaled <= 20  # so that clusters of which too much was drawn are seen


def test_points_are_drawn_in_proportion_to_their_cost():
    points, centers, _ = rings()
    costs = cdist(points, centers, "sqeuclidean").min(axis=1)
    drawn = [drawn_places(points, coreset(points, centers, 30, generator(seed)), 30) for seed in range(400)]
    counts = np.bincount(np.concatenate(drawn), minlength=90)
    assert scipy.stats.chisquare(counts, counts.sum() * costs / costs.sum()).pvalue > 1e-3
    assert costs.max() > 2 * costs.min(), "draws alike would be seen"


@given(st.integers(2, 60), st.integers(1, 5), st.integers(0, 70), st.integers(0, 2**32 - 1))
def test_the_weights_near_each_centre_are_as_many_as_its_points_whatever_was_drawn(n, k, samples, seed):
    rng = generator(seed)
    points = rng.standard_normal((n, 2)) * rng.choice([0.1, 1.0, 100.0], size=(n, 1))
    centers = points[:k] + rng.choice([0.0, 0.5])
    chosen = coreset(points, centers, samples, rng)
    assert (chosen.weights >= 0).all()
    assert chosen.weights.sum() == pytest.approx(n, rel=1e-12)
    near, labels = (assign(every, centers)[0] for every in (chosen.points, points))
    sizes = np.bincount(labels, minlength=len(centers))
    np.testing.assert_allclose(np.bincount(near, weights=chosen.weights, minlength=len(sizes)), sizes, atol=1e-9)


def test_with_samples_for_all_points_these_come_back_and_without_any_the_centres_stand_for_them():
    points, centers, _ = rings()
    for samples in (90, 91, 10**6):
        chosen = coreset(points, centers, samples, generator())
        assert np.array_equal(chosen.points, points)
        assert np.array_equal(chosen.weights, np.ones(90))
    integers = np.array([[0.0, 0.0], [5.0, 1.0], [2.0, 2.0]])
    for chosen, expected in [
        (coreset(points, centers, 0, generator()), centers),
        (coreset(np.repeat(integers, [45, 30, 15], axis=0), integers, 5, generator()), integers),
    ]:
        assert np.array_equal(chosen.points, expected)
        assert chosen.weights.tolist() == [45, 30, 15]


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_send_coresets_reach_the_quality_of_one_that_has_all_points(seed):
    points, of_blob = make_blobs(3000, 4, centers=6, cluster_std=2.0, random_state=seed)
    by_blob = [points[np.isin(of_blob, kinds)] for kinds in ([0, 1], [2, 3], [4, 5])]  # no client sees all clusters
    for shards in (np.array_split(points, 3), by_blob):
        solutions = [k_means(shard, 6, generator(client)) for client, shard in enumerate(shards)]
        counts = allot_samples(np.array([cost(*both) for both in zip(shards, solutions, strict=True)]), 300)
        parts = [
            coreset(shard, centers, int(count), generator(100 + client))
            for client, (shard, centers, count) in enumerate(zip(shards, solutions, counts, strict=True))
        ]
        assert sum(len(part.points) for part in parts) == 300 + 3 * 6
        merged = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        together = k_means(merged[0], 6, generator(), weights=merged[1], restarts=10)
        central = k_means(points, 6, generator(), restarts=10)
        assert cost(points, central) <= cost(points, together) * (1 + 1e-9)
        assert cost(points, together) <= 1.1 * cost(points, central)

"""Partitions lose nothing, depend on their seed alone, and refuse what contradicts itself or the data."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from refusals import refusing
from scipy.stats import pareto

from fedkernel.data import Dataset, Partition, PartitionSpec, load, split
from fedkernel.data.partition import METHODS
from fedkernel.ground import InputError

SPECS = TypeAdapter(PartitionSpec)
PAIRS = [(kind, method) for kind, methods in METHODS.items() for method in methods]
DRAWN = [("vertical", "random", {}), *(("horizontal", method, {}) for method in ("iid", "stratified", "dirichlet"))]
SHUFFLED = [(kind, "even", {"shuffle": True}) for kind in METHODS] + [("horizontal", "power", {"shuffle": True})]


def table(n, d, seed=0):
    """Return X and y; every value of X is another, and one is the zero whose sign a sum would lose."""
    rng = np.random.default_rng(seed)
    X = rng.permutation(n * d).astype(float).reshape(n, d) - n * d // 2
    X[X == 0] = -0.0
    return X, rng.integers(0, 3, size=n)


def composition(draw, total, parts):
    cuts = sorted(draw(st.sets(st.integers(1, total - 1), min_size=parts - 1, max_size=parts - 1))) if parts > 1 else []
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


@st.composite
def cases(draw):
    """A table, a valid specification of any kind and method for it, and the number of clients."""
    kind, method = draw(st.sampled_from(PAIRS))
    n, d = draw(st.integers(1, 25)), draw(st.integers(1, 25))
    length = d if kind == "vertical" else n
    clients = draw(st.integers(1, length))
    options = {}
    if method in ("random", "power", "dirichlet"):
        options["minimum"] = draw(st.none() | st.integers(1, length // clients))
    if method == "sizes":
        options["sizes"] = composition(draw, length, clients)
    elif method == "columns":
        order, sizes = draw(st.permutations(range(d))), composition(draw, d, clients)
        options["columns"] = [order[end - size : end] for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    elif method == "power":
        options["exponent"] = draw(st.none() | st.floats(1e-9, 1e3))
    elif method == "dirichlet":
        options["alpha"] = draw(st.none() | st.floats(1e-9, 1e6))
    if method != "columns":
        options["shuffle"] = draw(st.booleans())
    return table(n, d), PartitionSpec(kind=kind, method=method, **options), clients


@given(case=cases(), seed=st.integers(0, 2**63))
def test_every_partition_is_lossless_disjoint_and_as_its_specification_and_seed_say(case, seed):
    (X, y), spec, clients = case
    parts = split(spec, X, y, clients=clients, seed=seed)
    axis = 1 if spec.kind == "vertical" else 0
    assert parts.kind == spec.kind
    assert len(parts.indices) == len(parts.shards) == clients
    assert sorted(np.concatenate(parts.indices)) == list(range(X.shape[axis]))
    sizes = [len(index) for index in parts.indices]
    assert min(sizes) >= (spec.minimum or 1)
    if spec.method in ("even", "iid"):
        assert max(sizes) - min(sizes) <= 1
    if spec.method == "even" and not spec.shuffle:
        assert np.concatenate(parts.indices).tolist() == list(range(X.shape[axis]))
    if spec.method == "sizes":
        assert sizes == [*spec.sizes]
    if spec.method == "columns":
        assert [index.tolist() for index in parts.indices] == [[*own] for own in spec.columns]
    else:  # rows and columns keep their order within a client
        assert [sorted(index) for index in parts.indices] == [index.tolist() for index in parts.indices]
    for index, shard in zip(parts.indices, parts.shards, strict=True):
        np.testing.assert_array_equal(shard, X.take(index, axis=axis))
        assert shard.flags.c_contiguous
        assert not np.shares_memory(shard, X)
    if spec.kind == "vertical":
        assert parts.labels is None
        np.testing.assert_array_equal(parts.all_labels, y)
    else:
        for index, labels in zip(parts.indices, parts.labels, strict=True):
            np.testing.assert_array_equal(labels, y[index])
        np.testing.assert_array_equal(parts.all_labels, y[np.concatenate(parts.indices)])
    # the seed decides everything, whoever names it, and a specification goes through JSON
    own = dataclasses.replace(spec, seed=seed, clients=clients)
    for again in (split(spec, X, y, clients=clients, seed=seed), split(own, X, y, seed=seed // 2 + 1)):
        assert [index.tolist() for index in again.indices] == [index.tolist() for index in parts.indices]
    assert SPECS.validate_json(SPECS.dump_json(spec)) == spec
    assert hash(SPECS.validate_json(SPECS.dump_json(spec))) == hash(spec)


@pytest.mark.parametrize(("kind", "method", "options"), DRAWN + SHUFFLED)
def test_another_seed_draws_another_partition(kind, method, options):
    X, y = table(60, 60)
    spec = PartitionSpec(kind=kind, method=method, clients=4, **options)
    seen = {tuple(map(tuple, split(spec, X, y, seed=seed).indices)) for seed in range(5)}
    assert len(seen) == 5
    if method in ("even", "iid"):  # what even parts keep together is mixed
        assert 3 < sum(place < 15 for place in split(dataclasses.replace(spec, clients=2), X, y).indices[0]) < 12


@given(y=st.lists(st.sampled_from("abc"), min_size=1, max_size=60), data=st.data())
def test_stratified_parts_have_as_many_of_every_label(y, data):
    y = np.array(y)
    clients = data.draw(st.integers(1, len(y)))
    X = np.arange(len(y), dtype=float)[:, None]
    parts = split(PartitionSpec(kind="horizontal", method="stratified"), X, y, clients=clients)
    for label in np.unique(y):
        counts = [np.sum(own == label) for own in parts.labels]
        assert max(counts) - min(counts) <= 1
    sizes = [len(own) for own in parts.labels]
    assert max(sizes) - min(sizes) <= 1


def test_columns_by_position_and_by_name_in_the_order_listed():
    iris = load("iris")
    spec = PartitionSpec(method="columns", columns=[["petal width (cm)", 0], [2, "sepal width (cm)"]])
    parts = split(spec, iris)
    np.testing.assert_array_equal(parts.shards[0], iris.X[:, [3, 0]])
    np.testing.assert_array_equal(parts.shards[1], iris.X[:, [2, 1]])


def test_random_sizes_are_uniform_over_all_compositions():
    X = np.ones((1, 8))
    spec = PartitionSpec(method="random", clients=3, minimum=2)  # 8 = 2+2+4 = 2+3+3 in any order: six ways
    drawn = [tuple(len(index) for index in split(spec, X, seed=seed).indices) for seed in range(1200)]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.sum((counts - 200) ** 2 / 200) < 20.5  # chi-square with 5 degrees of freedom: p = .001


@pytest.mark.parametrize(("density", "exponent"), [(2.0, None), (1.5, 2.0), (3.0, 0.5)])
@pytest.mark.parametrize("clients", [5, 10, 20, 40])
def test_power_sizes_are_quantiles_of_a_power_law_s_density(density, exponent, clients):
    """Of sizes from the density p(x) ~ x^-a, by default the disKPCA paper's a = 2, a share k / M is above the k-th.

    For a = 2 that is M / k times the least, and the first worker's share 1 / (1 + 1/2 + ... + 1/M).
    """
    spec = PartitionSpec(kind="horizontal", method="power", clients=clients, exponent=exponent)
    sizes = np.array([len(index) for index in split(spec, np.ones((100_000, 1))).indices])
    quantiles = pareto(density - 1).isf(np.arange(1, clients + 1) / clients)
    np.testing.assert_allclose(sizes, 100_000 * quantiles / quantiles.sum(), atol=1)
    if density == 2:
        harmonic = sum(1 / rank for rank in range(1, clients + 1))
        assert sizes[0] == pytest.approx(100_000 / harmonic, abs=1)


def test_power_keeps_the_law_among_those_above_the_minimum():
    spec = PartitionSpec(kind="horizontal", method="power", clients=20, minimum=10, exponent=2.0)
    sizes = [len(index) for index in split(spec, np.ones((1000, 1))).indices]
    assert sizes[-10:] == [10] * 10
    np.testing.assert_allclose(sizes[0] / np.array(sizes[1:4]), [4, 9, 16], rtol=0.02)


def skew(alpha, minimum=None):
    """Return the mean share that a client's most frequent label has among its rows; 0.25 would be even."""
    y = np.repeat(np.arange(4), 100)
    spec = PartitionSpec(kind="horizontal", method="dirichlet", clients=8, alpha=alpha, minimum=minimum)
    parts = [split(spec, np.ones((400, 1)), y, seed=seed) for seed in range(10)]
    return np.mean([np.bincount(labels).max() / len(labels) for part in parts for labels in part.labels])


def test_small_alpha_is_more_skewed_than_large():
    small, middle, large = skew(0.05), skew(1.0), skew(1000.0)
    assert small > 0.8
    assert small > middle + 0.1
    assert middle > large + 0.1
    assert large < 0.35


def test_a_dataset_brings_its_labels_and_no_second_ones_or_ambiguous_names_are_taken():
    wine = load("wine")
    spec = PartitionSpec(kind="horizontal", method="dirichlet", clients=3)
    ours, theirs = split(spec, wine), split(dataclasses.replace(spec, alpha=0.5), wine.X, wine.y)
    for a, b in zip(ours.labels, theirs.labels, strict=True):
        np.testing.assert_array_equal(a, b)
    assert split(PartitionSpec(kind="horizontal", clients=2), wine.X).labels is None
    with pytest.raises(InputError, match="data: the value in row 1, column 0"):
        split(PartitionSpec(clients=1), [[0.0], [np.nan]])
    twice = Dataset("twice", np.eye(2), np.array([0, 1]), ("a", "a"), "here")
    with pytest.raises(InputError, match="columns: 'a' names several columns"):
        split(PartitionSpec(method="columns", columns=[["a"], [1]]), twice)
    with pytest.raises(InputError, match="y is for an array"):
        split(PartitionSpec(clients=1), twice, [1, 0])


@pytest.mark.parametrize(
    ("spec", "arguments", "text"),
    [
        ({"kind": "diagonal"}, {}, "kind = 'diagonal': input should be 'vertical' or 'horizontal'"),
        ({"method": "iid"}, {}, "'iid': allowed for a vertical partition: even, sizes, columns, random"),
        ({"kind": "horizontal", "method": "columns"}, {}, "for a horizontal partition: even, sizes, iid, stratified"),
        ({"clients": 0}, {}, "clients = 0: input should be greater than 0"),
        ({"seed": -1}, {}, "seed = -1: input should be greater than or equal to 0"),
        ({"kind": "horizontal", "method": "power", "exponent": 0}, {}, "exponent = 0: input should be greater than 0"),
        ({"kind": "horizontal", "method": "dirichlet", "alpha": -1}, {}, "alpha = -1: input should be greater than 0"),
        ({"alpha": 1}, {}, "alpha is used by method dirichlet only; method = 'even'"),
        ({"minimum": 2}, {}, "minimum is used by method random or power or dirichlet only; method = 'even'"),
        ({"method": "columns", "columns": [[0]], "shuffle": True}, {}, "shuffle is used by method even or sizes"),
        ({"method": "sizes"}, {}, "sizes is required by method 'sizes'"),
        ({"method": "columns"}, {}, "columns is required by method 'columns'"),
        ({"method": "sizes", "sizes": [3, 0]}, {}, "sizes.1 = 0: input should be greater than 0"),
        ({"method": "sizes", "sizes": []}, {}, "sizes = []"),
        ({"method": "columns", "columns": [[0], []]}, {}, "columns.1 = []"),
        ({"method": "sizes", "sizes": [1, 2], "clients": 3}, {}, "clients = 3 but the number of sizes = 2"),
        ({"method": "columns", "columns": [[0], [1]], "clients": 3}, {}, "clients = 3 but the number of lists in"),
        ({"client": 3}, {}, "client is not a known name here (did you mean clients? allowed: kind, method"),
        ({}, {}, "clients is required"),
        ({}, {"clients": 0}, "clients = 0; allowed: 1 or more"),
        ({}, {"clients": 2, "seed": -3}, "seed = -3; allowed: 0 or more"),
        ({"clients": 2}, {"clients": 3}, "clients = 2 but clients (the caller's) = 3; allowed: the same number"),
        ({"method": "sizes", "sizes": [2, 2]}, {"clients": 3}, "the number of sizes = 2 but clients (the caller's) ="),
        ({"clients": 5}, {}, "clients = 5, but must be at most 4, since the data has 4 columns"),
        ({"clients": 7, "kind": "horizontal"}, {}, "clients = 7, but must be at most 6, since the data has 6 rows"),
        ({"clients": 3, "method": "random", "minimum": 2}, {}, "clients = 3, but must be at most 2, since the data"),
        ({"method": "sizes", "sizes": [2, 3]}, {}, "sizes = [2, 3] sum to 5; allowed: sum 4"),
        ({"method": "columns", "columns": [[0, 1], [1, 2, 3]]}, {}, "columns: 1 is listed twice"),
        ({"method": "columns", "columns": [[0], [3]]}, {}, "columns: 2 of 4 are not listed (1, 2)"),
        ({"method": "columns", "columns": [[0, 1, 2, 3, 4]]}, {}, "columns: 4 is not a column; allowed: positions 0"),
        ({"method": "columns", "columns": [[0, 1, 2, "d"]]}, {}, "columns: 'd' is not a column"),
        ({"kind": "horizontal", "method": "dirichlet", "clients": 2}, {}, "needs labels; allowed: data with y"),
        ({"kind": "horizontal", "clients": 2}, {"y": [1, 2]}, "y has shape (2,); allowed: one label per row, (6,)"),
        (
            {"kind": "horizontal", "method": "dirichlet", "clients": 2},
            {"y": [0.5, 1, 2, 3, 4, 5]},
            "y holds fractions; allowed: integers or text",
        ),
    ],
)
def test_specs_that_contradict_themselves_or_do_not_fit_the_data(spec, arguments, text):
    with refusing(text):
        split(PartitionSpec(**spec), table(6, 4)[0], **arguments)


@pytest.mark.parametrize(
    ("indices", "shards", "labels", "text"),
    [
        ([[0, 1], [1]], [(3, 2), (3, 1)], None, "must hold each of 0 to 2 exactly once"),
        ([[0], [2]], [(3, 1), (3, 1)], None, "must hold each of 0 to 1 exactly once"),
        ([[0], [1]], [(3, 1), (3, 2)], None, "do not fit indices of lengths [1, 1]"),
        ([[0], [1]], [(3, 1)], None, "do not fit indices of lengths [1, 1]"),
        ([], [], None, "do not fit indices of lengths []"),
        ([[0], [1]], [(3, 1), (4, 1)], None, "the shards differ in their rows"),
        ([[0], [1]], [(3, 1), (3, 1)], [[1], [1, 2]], "labels do not fit"),
    ],
)
def test_partitions_are_checked_when_made(indices, shards, labels, text):
    with refusing(text):
        Partition(
            "vertical",
            tuple(np.array(index, dtype=int) for index in indices),
            [np.zeros(shape) for shape in shards],
            None if labels is None else tuple(np.array(part) for part in labels),
        )

"""Attacks of a coordinator that keeps to the plan: the products and vectors of one run are equations for the table.

Each takes a `Target` and returns the relative error of what it recovers, as those of `attacks.coordinator`. Where a
site refuses, it is of what came before.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from attacks.algebra import (
    coordinates_of_distances,
    coordinates_of_products,
    cosines_of,
    in_order_of,
    relative,
    rows_of_products,
    rows_within,
    unknown_error,
)
from attacks.honest import answers_to, rounds_of
from attacks.target import CANCER, WINE, Target
from fedkernel import RBF, CentroidKPCA, DisKPCA, FKKMeans, RFKKMeans, VFedAKPCA, VFedPCA
from fedkernel.clients.cell_sums import LEAST_ROWS, SumCells, SumEmbeddedCells
from fedkernel.clients.fk_kmeans import FKKMeansClient, MultiplyColumns
from fedkernel.clients.landmark_base import MultiplyKernel
from fedkernel.clients.vfedpca import Finish, IterateLocally, Multiply
from fedkernel.numerics import RandomFeatures, pack_symmetric, row_groups, unpack_symmetric, with_width


def _others(target: Target) -> list[Any]:
    """Return the tables of two other sites, of about as many other rows of wine, every n-th of which is the target."""
    step = round(len(WINE) / target.rows)
    return [WINE[1::step], WINE[2::step]]


def _kernel(target: Target) -> RBF:
    """Return the kernel of the width by rule on all sites' rows."""
    return with_width(RBF(), np.vstack([target.X, *_others(target)]))


def _gram_rounds(target: Target, n_features: int, iterations: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return FK k-means' requests for products, and the replies of all three sites to each."""
    strategy = FKKMeans(3, kernel=_kernel(target), n_features=n_features, iterations=iterations)
    rounds = rounds_of(target, strategy, _others(target))
    requests, replies = zip(*takewhile(lambda round_: isinstance(round_[0], MultiplyColumns), rounds), strict=True)
    return requests, replies


def _missed(target: Target, products: Any, cosines: Any, mix: Any, rows: int) -> float:
    """Search for so many rows, and return how far off the target's are: but for their order, which stays unknown."""
    return relative(in_order_of(target.X, rows_of_products(products, cosines, mix, rows)), target.X)


def _missed_by_grams(target: Target, requests: Sequence[Any], uppers: Sequence[Any], rows: int) -> float:
    """Search by the products of the columns, of which those of the features lead."""
    D, d = requests[0].features.n_features, target.X.shape[1]
    products = [unpack_symmetric(upper)[:D, :D] for upper in uppers]
    cosines = [cosines_of(request.features, d, request.t) for request in requests]
    return _missed(target, products, cosines, np.sqrt(2) * np.eye(D), rows)


def products_of_features(target: Target, n_features: int = 50, iterations: int = 4) -> float:
    """Find a site's rows by a non-linear search from its products of features. Exact but for what the search leaves."""
    requests, replies = _gram_rounds(target, n_features, iterations)
    return _missed_by_grams(target, requests, [reply.upper for reply, *_ in replies], target.rows)


def products_of_few_features(target: Target) -> float:
    """Search by fewer numbers than entries: no row is found, but all come nearer than rows of the same covariance."""
    return products_of_features(target, 20, 3)


def pooled_products_of_features(target: Target) -> float:
    """Find the rows of three sites from the sums of their products, as of one. The target's, as exact."""
    requests, replies = _gram_rounds(target, 50, 4)
    rows = target.rows + sum(map(len, _others(target)))
    return _missed_by_grams(target, requests, [sum(reply.upper for reply in round_) for round_ in replies], rows)


def products_of_an_embedding(target: Target) -> float:
    """Find a site's rows from the products of 50 coordinates, each a sum of cosines, which are sent once. As exact."""
    strategy = DisKPCA(3, _kernel(target), n_adaptive=20, share_rows=True)
    request, (reply, *_) = next(rounds_of(target, strategy, _others(target)))
    e = request.embedding
    features = RandomFeatures(e.kernel, e.n_features, "cosine", e.seed, e.frequencies)
    mix = np.sqrt(2 / e.n_features) * np.repeat(np.eye(e.size), e.n_features // e.size, axis=0)
    cosines = [cosines_of(features, target.X.shape[1])]
    return _missed(target, [unpack_symmetric(reply.upper)], cosines, mix, target.rows)


def means_of_features(target: Target, known: int = 0) -> float:
    """Search for the rows of a group, so many of them known, by the mean of their 200 features in an honest run.

    By half as many numbers as entries, they come nearer than the group's mean, which is off by 0.6, and none exactly.
    """
    rounds = [*rounds_of(target, RFKKMeans(3, kernel=_kernel(target), clusters="lloyd"), _others(target))]
    D, features = rounds[0][0].features.n_features, rounds[0][0].features.map(target.X.shape[1], 1)
    _, (cells, *_) = next(round_ for round_ in rounds[::-1] if isinstance(round_[0], SumEmbeddedCells))
    cell = int(np.where(cells.counts > 0, cells.counts, np.inf).argmin())
    told = cells.sums[cell] * D**0.5

    def residuals(rows: Any) -> Any:
        return features(np.vstack([group[:known], rows])).sum(axis=0) - told

    groups = row_groups(target.X, FKKMeansClient(target.X)._least_embedded(LEAST_ROWS, D))
    group = min(groups, key=lambda rows: np.linalg.norm(features(target.X[rows]).sum(axis=0) - told))
    group = target.X[group]
    ranges, rng = np.stack([target.X.min(axis=0), target.X.max(axis=0)]), np.random.default_rng(0)
    starts = (
        ranges.mean(axis=0) + np.ptp(ranges, axis=0) / 6 * rng.standard_normal(group[known:].shape) for _ in range(5)
    )
    return relative(in_order_of(group[known:], rows_within(residuals, starts, ranges)), group[known:])


def means_of_features_and_known_rows(target: Target) -> float:
    """Search for the last 9 of 44 rows, for which there are 1.7 numbers for each entry. Exact."""
    return means_of_features(target, 35)


def cells_and_products(target: Target) -> float:
    """Search for a site's rows by the columns' squares, the last cells' sums, and the landmarks' kernel products.

    No nearer than the means of the cells are.
    """
    rounds = [*rounds_of(target, CentroidKPCA(3, _kernel(target)), _others(target))]
    _, (cells, *_) = next(round_ for round_ in rounds[::-1] if isinstance(round_[0], SumCells))
    products, (reply, *_) = next(round_ for round_ in rounds if isinstance(round_[0], MultiplyKernel))
    moments = rounds[0][1][0]
    cell, numbers = np.repeat(np.arange(len(cells.counts)), cells.counts.astype(int)), np.maximum(cells.counts, 1)

    def residuals(rows: Any) -> Any:
        K = products.kernel.gram(rows, products.dense)
        sums = np.zeros_like(cells.sums)
        np.add.at(sums, cell, rows)
        squares = np.square(rows).sum(axis=0) - moments.squares
        return np.concatenate([pack_symmetric(K.T @ K) - reply.upper, (sums - cells.sums).ravel(), squares])

    means, rng = (cells.sums / numbers[:, np.newaxis])[cell], np.random.default_rng(0)
    ranges = np.stack([target.X.min(axis=0), target.X.max(axis=0)])
    rows = rows_within(residuals, [means + 0.5 * rng.standard_normal(means.shape)], ranges)
    return relative(in_order_of(target.X, rows), target.X)


def _products(target: Target, strategy: VFedPCA) -> tuple[Any, Any]:
    """Return the blocks (n, m) that an honest run multiplies, other sites having 5 columns each, and the products."""
    d = target.X.shape[1]
    others = [CANCER[:, d : d + 5], CANCER[:, d + 5 : d + 10]]
    rounds = takewhile(lambda round_: not isinstance(round_[0], Finish), rounds_of(target, strategy, others))
    pairs = [(request.block, reply.product) for request, (reply, *_) in rounds if isinstance(request, Multiply)]
    nothing = np.empty((target.rows, 0))
    return np.hstack([nothing, *(Q for Q, _ in pairs)]), np.hstack([nothing, *(P for _, P in pairs)])


def products_of_a_run(target: Target) -> float:
    """Compute a site's inner products from an honest run's products with vectors that span its columns.

    d + 1 known rows give the others. Exact. With an RBF kernel the products are of its matrix, of which some directions
    are missing: it gives distances, and these the rows, nearly.
    """
    d = target.X.shape[1]
    if target.strategy == "VFedPCA":
        return unknown_error(coordinates_of_products(*_products(target, VFedPCA(3)), d), target.X, d + 1)
    kernel = with_width(RBF(), CANCER[:, : d + 10])
    blocks, products = _products(target, VFedAKPCA(3, kernel=kernel))
    C = coordinates_of_products(blocks, products, target.rows)
    squares = np.square(C).sum(axis=1)
    K = 1 - (squares[:, None] + squares - 2 * C @ C.T) / 2
    points = coordinates_of_distances(-np.log(np.clip(K, 1e-12, 1)) / kernel.gamma, d)
    return unknown_error(points, target.X, 2 * d)


def _blocks(target: Target, width: int) -> list[Any]:
    """Return random orthonormal vectors, as many as the target has columns or a few more, in blocks."""
    n, d = target.X.shape
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((n, -(-d // width) * width)))[0]
    return [np.ascontiguousarray(block) for block in np.split(Q, Q.shape[1] // width, axis=1)]


def _rows_of_images(target: Target, images: Sequence[Any]) -> float:
    """Fit the rows to a basis of what the site's matrix makes of vectors, by as many known rows as columns and one."""
    d = target.X.shape[1]
    span = np.linalg.svd(np.hstack([P / np.linalg.norm(P, axis=0) for P in images]), full_matrices=False)[0]
    return unknown_error(span[:, :d], target.X, d + 1)


def products_of_own_blocks(target: Target) -> float:
    """Send random blocks of 3 orthonormal vectors in place of those of the search, till they span 30 columns. Exact."""
    blocks = [Multiply(block=block) for block in _blocks(target, 3)]
    local, *replies = answers_to(target, [IterateLocally(n_components=3, iterations=10), *blocks])
    return _rows_of_images(target, [local.vectors, *(reply.product for reply in replies)])


def vectors_from_own_directions(target: Target) -> float:
    """Send random directions in place of merged ones, 4 in each of 8 rounds, and fit the rows to the local vectors.

    After an update by directions U the site's matrix, and so its vectors, span A U. Exact, as these span the columns.
    """
    blocks = _blocks(target, 4)
    requests = [IterateLocally(n_components=4, iterations=10, directions=block) for block in blocks]
    return _rows_of_images(target, [reply.vectors for reply in answers_to(target, requests)])


def multiply_identity(target: Target) -> float:
    """Ask for the products of all rows, X X^T; d + 1 known rows turn the rotation. The other rows, exact."""
    n, d = target.X.shape
    gram = target.ask(Multiply(block=np.eye(n), center="none")).product
    return unknown_error(coordinates_of_products(np.eye(n), gram, d), target.X, d + 1)


def multiply_over_beginnings(target: Target) -> float:
    """Begin the run three times, and ask for the products of a third of an orthonormal basis each time.

    By three vectors, as the method does: one run's are few enough for the guards. The rows follow as from all products.
    """
    n, d = target.X.shape
    V, products = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0], []
    for third in np.array_split(V, 3, axis=1):
        target.restart()
        for block in np.array_split(third, 20, axis=1):
            products.append(target.ask(Multiply(block=np.ascontiguousarray(block))).product)
    return unknown_error(coordinates_of_products(V, np.hstack(products), d), target.X, d + 1)

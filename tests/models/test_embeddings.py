"""Embeddings: what they compute by blocks and closed forms is what the recursion and the full matrices give."""

import numpy as np
import pytest
import scipy.sparse
from kernel_cases import rows

from fedkernel.ground import BLOCK_ROWS, InputError, row_blocks
from fedkernel.models import FeatureChain, KernelPCA, combine_draws, multiply_step
from fedkernel.models.embedding_maps import Landmarks
from fedkernel.numerics import RBF, Laplacian, Polynomial, RandomFeatures

SIZES = [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 5]


def chain_of(ranks, dimensions, form="pairs", D=8, d=3):
    """A chain with random maps whose step t leaves ranks[t] columns, dimensions[t] of which count."""
    rng = np.random.default_rng(7)
    before = [0, *ranks[:-1]]
    maps = tuple(rng.standard_normal((D + r, after)) for r, after in zip(before, ranks, strict=True))
    finish = tuple(rng.uniform(0.5, 2, s) for s in dimensions)
    return FeatureChain(RandomFeatures(RBF(gamma=0.3), D, form, seed=4), d, maps, finish)


def estimates_by_definition(chain, X):
    """B_{t+1} = [A_t, B_t] M_t with whole matrices, H_t = B_{t+1} diag(f_t)."""
    B, steps = np.empty((len(X), 0)), []
    for t, (M, f) in enumerate(zip(chain.maps, chain.finish, strict=True), start=1):
        B = np.hstack([chain.features.map(X.shape[1], t)(X), B]) @ M
        steps.append(B[:, : len(f)] @ np.diag(f))
    return steps


CHAINS = {
    "one step": chain_of([3], [3]),
    "same ranks": chain_of([3, 3, 3, 3], [3, 3, 3, 3]),
    "changing ranks": chain_of([2, 6, 4, 5, 1, 3], [2, 3, 3, 3, 1, 2]),
    "cosines": chain_of([4, 4], [2, 2], "cosine", D=7),
    "one of everything": chain_of([1, 1], [1, 1], "cosine", D=1, d=1),
}
every_chain = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


@pytest.mark.parametrize("n", [0, *SIZES])
def test_blocks_cover_every_row_once(n):
    covered = [row for block in row_blocks(n) for row in range(n)[block]]
    assert covered == list(range(n))
    assert all(len(range(n)[block]) <= BLOCK_ROWS for block in row_blocks(n))


@pytest.mark.parametrize("r", [0, 1, 4])
@pytest.mark.parametrize("n", SIZES)
def test_an_advance_is_the_product_with_both_parts_side_by_side(n, r):
    X, B, M = rows(n, 3), rows(n, r, seed=1), rows(10 + r, 5, seed=2)
    features = RandomFeatures(RBF(gamma=0.3), 10).map(3)
    sizes = []
    advanced = multiply_step(X, B, lambda part: (sizes.append(len(part)), features(part))[1], M)
    np.testing.assert_allclose(advanced, np.hstack([features(X), B]) @ M, atol=1e-12)
    assert sum(sizes) == n
    assert max(sizes) <= BLOCK_ROWS


@pytest.mark.parametrize("n", SIZES)
def test_combined_draws_are_the_sum_over_whole_matrices(n):
    X, C = rows(n, 3), rows(4 * 6, 2, seed=1).reshape(4, 6, 2)
    features = RandomFeatures(Laplacian(gamma=0.2), 6)
    expected = sum(features.map(3, t)(X) @ C[t - 1] for t in (1, 2, 3, 4))
    np.testing.assert_allclose(combine_draws(X, features, C), expected, atol=1e-12)
    np.testing.assert_allclose(combine_draws(X, features, None), features.map(3, 1)(X) / np.sqrt(6), atol=1e-15)


@every_chain
def test_estimates_follow_the_recursion_and_the_last_is_the_embedding(chain):
    X = rows(40, chain.columns)
    expected = estimates_by_definition(chain, X)
    estimates = list(chain.estimates(X))
    assert len(estimates) == len(expected)
    for H, definition in zip(estimates, expected, strict=True):
        np.testing.assert_allclose(H, definition, rtol=1e-12, atol=1e-12 * np.abs(definition).max())
    # By the coefficients, which the recursion does not know.
    np.testing.assert_allclose(chain(X), expected[-1], rtol=1e-11, atol=1e-11 * np.abs(expected[-1]).max())
    assert chain(X).shape == (40, chain.width)
    assert chain.coefficients.shape == (len(chain.maps), chain.features.n_features, chain.width)


def test_an_embedding_of_more_rows_than_a_block_is_that_of_each_row():
    X = rows(2 * BLOCK_ROWS + 5, 3)
    for embedding in (CHAINS["changing ranks"], landmarks_of(RBF(gamma=0.2), X[:30])[0]):
        whole = embedding(X)
        for i in (0, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS, len(X) - 1):
            np.testing.assert_allclose(embedding(X[i : i + 1])[0], whole[i], atol=1e-11 * np.abs(whole).max())


def test_without_steps_the_features_themselves_are_the_embedding():
    X, features = rows(20, 3), RandomFeatures(RBF(gamma=0.3), 12, seed=4)
    chain = FeatureChain(features, 3)
    assert (chain.width, chain.coefficients, list(chain.estimates(X))) == (12, None, [])
    np.testing.assert_allclose(chain(X), features.map(3)(X) / np.sqrt(12), rtol=1e-15)
    np.testing.assert_allclose((chain(X) ** 2).sum(axis=1), np.ones(20), rtol=1e-14)  # k(x, x)


def landmarks_of(kernel, X, s=4):
    """Landmarks at all rows, and the eigenpairs of their kernel matrix."""
    values, vectors = np.linalg.eigh(kernel.gram(X))
    values, vectors = values[::-1][:s], vectors[:, ::-1][:, :s]
    return Landmarks(kernel, X, vectors / np.sqrt(values)), values, vectors


@pytest.mark.parametrize(
    "kernel", [RBF(gamma=0.2), RBF(width="columns"), Laplacian(gamma=0.1), Polynomial(degree=2, gamma=0.5)], ids=repr
)
def test_landmarks_at_all_rows_give_the_coordinates_of_kernel_pca(kernel):
    X, new = rows(50, 3), rows(9, 3, seed=1)
    embedding, values, vectors = landmarks_of(kernel, X)
    assert (embedding.columns, embedding.width) == (3, 4)
    tolerance = 1e-11 * np.sqrt(values[0])
    np.testing.assert_allclose(embedding(X), vectors * np.sqrt(values), atol=tolerance)
    model = KernelPCA(values, vectors, kernel)
    np.testing.assert_allclose(embedding(X), model.embedding(), atol=tolerance)
    np.testing.assert_allclose(embedding(new), model.project(kernel.gram(new, X)), atol=tolerance)


# All embeddings

EVERY = {**CHAINS, "no steps": FeatureChain(RandomFeatures(Laplacian(gamma=2.0), 4), 3)}
EVERY |= {
    repr(kernel): landmarks_of(kernel, rows(12, 3))[0]
    for kernel in (RBF(gamma=0.2), RBF(width="columns"), Laplacian(width="columns"))
}
every_embedding = pytest.mark.parametrize("embedding", EVERY.values(), ids=EVERY)


@every_embedding
def test_rows_may_be_lists_or_whole_numbers_and_of_landmarks_sparse_and_what_is_no_table_is_refused(embedding):
    d = embedding.columns
    for table, text in (
        (np.ones((4, d + 1)), rf"X has {d + 1} columns, but the model was made for {d}"),
        (np.ones((4, d - 1)), rf"X has {d - 1} columns" if d > 1 else "X has shape"),
        (np.full((2, d), np.nan), "row 0, column 0"),
    ):
        with pytest.raises(InputError, match=text):
            embedding(table)
    X = np.arange(4 * embedding.columns).reshape(4, -1) % 5
    expected = embedding(X.astype(float))
    assert np.array_equal(embedding(X), expected)
    assert np.array_equal(embedding(X.tolist()), expected)
    sparse = scipy.sparse.csr_array(X.astype(float))
    if isinstance(embedding, Landmarks):
        np.testing.assert_allclose(embedding(sparse), expected, atol=1e-12)
        return
    with pytest.raises(InputError, match="X is a sparse matrix; allowed: a dense array"):
        embedding(sparse)

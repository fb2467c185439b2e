"""Every pair's protocol as a bare generator: replies made by hand, and what follows from them on paper."""

import numpy as np
import pytest

import strategies
from clients import admm_kpca, diskpca
from clients.dkpca import FindLocalEigenpairs, FindLocalProducts, LocalProducts, LocalSpectrum
from clients.fk_kmeans import EmbedRows, MultiplyColumns, PackedGram
from clients.kmeans import LabelRows, LocalCoreset, LocalCost, SampleCoreset, SolveLocally
from clients.peer_vfedpca import FinishAmongPeers, IterateAmongPeers
from clients.vfedpca import Finish, Finished, IterateLocally, LeadingVectors, Multiply, Product
from fedkernel import RBF, Linear
from fedkernel.numerics.sketch import RandomFeatures, SubspaceEmbedding
from fedkernel.peers.keys import PublicKeys, PublishKeys, TakeKeys
from fedkernel.peers.letters import OVERHEAD, Letters, pack
from fedkernel.peers.sealing import HEADER, Header
from fedkernel.protocol.messages import CarriesRows, Receipt, encode
from fedkernel.protocol.rounds import Member, Run
from strategies import DKPCA, FKKMeans, VFedPCA

DONE = [Receipt(), Receipt()]
ROOT = float(np.sqrt(np.finfo(np.float64).eps))


def begun(strategy, *shapes, seed=0):
    """Return the protocol of a run with tables of such shapes."""
    return strategy.protocol(Run(tuple(Member(number, number, *shape) for number, shape in enumerate(shapes)), seed))


def driven(protocol, *rounds):
    """Drive a protocol through rounds of (what it is to ask, the replies), and return its result.

    What is asked is a request, to all, a dictionary by client, or a function that looks at it; replies are a list, or a
    function of the request.
    """
    pending, replies = next(protocol), None
    for number, (expected, replies) in enumerate(rounds, start=1):
        if isinstance(expected, dict):
            assert list(pending.requests) == list(expected), number
            for client, request in expected.items():
                assert_same(pending.requests[client], request)
        elif callable(expected):
            expected(pending.requests)
        else:
            assert_same(pending.requests, expected)
        answers = replies(pending.requests) if callable(replies) else replies
        if pending.summed:
            answers = type(answers[0]).sum_of(answers)
        try:
            pending = protocol.send(answers)
        except StopIteration as stop:
            assert number == len(rounds), "the protocol has ended early"
            return stop.value
    raise AssertionError(f"the protocol goes on with {pending.phase}")


def assert_same(request, expected):
    (arrays, scalars), (expected_arrays, expected_scalars) = encode(request), encode(expected)
    assert scalars == expected_scalars
    for array, other in zip(arrays, expected_arrays, strict=True):
        np.testing.assert_allclose(array, other, rtol=0, atol=1e-12)


def progress(lagrangian, turned):
    return admm_kpca.Progress(lagrangian=float(lagrangian), turned=float(turned))


def both(request):
    return dict.fromkeys((0, 1), request)


def column(*numbers):
    return np.array(numbers, dtype=float)[:, None]


def numbers(*entries):
    return np.array(entries, dtype=float)


def test_dkpca_adds_parts_up_or_multiplies_them_makes_distances_and_a_certificate():
    ask = FindLocalEigenpairs(kernel=Linear(), n_components=1)
    uploads = [
        LocalSpectrum(vectors=column(0.6, 0.8), values=numbers(2)),
        LocalSpectrum(vectors=column(0.8, -0.6), values=numbers(5)),
    ]
    model = driven(begun(DKPCA(1), (2, 3), (2, 1)), (ask, uploads))
    # the vectors are orthogonal, so that they are the eigenvectors of the sum
    np.testing.assert_allclose(model.eigenvalues_, [5])
    np.testing.assert_allclose(model.eigenvectors_, column(0.8, -0.6))
    # [[1, 1/2], [1/2, 1]] twice, entry by entry, is [[1, 1/4], [1/4, 1]]
    part = LocalSpectrum(vectors=np.array([[1, 1], [1, -1]]) / np.sqrt(2), values=numbers(1.5, 0.5))
    kernel = RBF(gamma=0.1)
    model = driven(
        begun(DKPCA(2, kernel), (2, 3), (2, 1)), (FindLocalEigenpairs(kernel=kernel, n_components=2), [part, part])
    )
    np.testing.assert_allclose(model.eigenvalues_, [1.25, 0.75])
    ask = FindLocalProducts(n_components=1)
    # rows at (1, -1) sqrt(l / 2), which are sqrt(2 l) apart
    uploads = [LocalProducts(vectors=np.sqrt([[0.5], [0.5]]) * [[1], [-1]], values=numbers(value)) for value in (2, 5)]
    strategy = DKPCA(2, RBF(gamma=0.1), local_components=1, upload="inner products")
    model = driven(begun(strategy, (2, 3), (2, 1)), (ask, uploads))
    np.testing.assert_allclose(model.eigenvalues_, [1 + np.exp(-1.4), 1 - np.exp(-1.4)])
    np.testing.assert_allclose(model.with_kernel(RBF(gamma=0.3)).eigenvalues_, [1 + np.exp(-4.2), 1 - np.exp(-4.2)])
    ask = FindLocalEigenpairs(kernel=Linear(), n_components=1, omitted=True)
    uploads = [
        LocalSpectrum(vectors=column(1, 0, 0), values=numbers(8), omitted=0.25),
        LocalSpectrum(vectors=column(0, 1, 0), values=numbers(3), omitted=1.0),
    ]
    model = driven(begun(DKPCA(1, certificate=True), (3, 3), (3, 3)), (ask, uploads))
    # sqrt(min(1, 2)) (0.25 + 1) / (8 - 3)
    assert model.certificate_ == pytest.approx(0.25, rel=1e-12)
    uploads[1] = LocalSpectrum(vectors=column(0, 1, 0), values=numbers(7.5), omitted=1.0)
    model = driven(begun(DKPCA(1, certificate=True), (3, 3), (3, 3)), (ask, uploads))
    assert model.certificate_ == 1.0, "no two directions are more than 1 apart"


def test_vfedpca_merges_by_weight_and_sends_the_merged_vector_on():
    fields = {"n_components": 1, "iterations": 10}
    first = [
        LeadingVectors(vectors=column(1, 0), values=numbers(3)),
        LeadingVectors(vectors=column(-0.6, 0.8), values=numbers(1)),
    ]
    merged = column(0.9, -0.2) / np.sqrt(0.85)  # 3/4 (1, 0) + 1/4 (0.6, -0.8), the sign that of the larger one
    second = [LeadingVectors(vectors=column(1, 0), values=numbers(value)) for value in (2, 7)]
    model = driven(
        begun(VFedPCA(merge="eigenvalue", rounds=2), (2, 1), (2, 1)),
        (IterateLocally(**fields), first),
        (IterateLocally(**fields, directions=merged), second),
        (Finish(directions=column(1, 0)), [Finished(), Finished()]),
    )
    np.testing.assert_allclose(model.eigenvectors_, column(1, 0), atol=1e-12)
    np.testing.assert_allclose(model.iterates_[0], merged)
    np.testing.assert_allclose(model.eigenvalues_, [2 + 7])  # along the merged vector


def test_vfedakpca_exact_multiplies_until_the_basis_is_whole():
    kernel = RBF(gamma=0.2)
    matrices = np.diag([2.0, 0.5]), np.diag([1.0, 0.5])  # of which the sum has the eigenpairs (3, e1) and (1, e2)
    starts = [LeadingVectors(vectors=column(0.6, 0.8), values=numbers(1))] * 2
    multiplied = lambda request: [Product(product=A @ request.block) for A in matrices]  # noqa: E731

    def up_to_sign(block):
        return lambda request: assert_same(request, Multiply(kernel=kernel, block=block * np.sign(request.block[0, 0])))

    model = driven(
        begun(strategies.VFedAKPCA(kernel=kernel), (2, 1), (2, 1)),
        (IterateLocally(kernel=kernel, n_components=1, iterations=10), starts),
        (up_to_sign(column(0.6, 0.8)), multiplied),
        (up_to_sign(column(0.8, -0.6)), multiplied),
        (Finish(kernel=kernel, directions=column(1, 0)), [Finished(kernel_mean=0.5), Finished(kernel_mean=0.4)]),
    )
    np.testing.assert_allclose(model.eigenvalues_, [3])


def sealed(sender, receiver, number, floats):
    """Return a letter as the coordinator sees it: a header, and bytes that it cannot read."""
    return Header(sender, receiver, number, 0).pack() + bytes(OVERHEAD - 4 - HEADER + 8 * floats)


KEYS = [np.full(32, number, np.uint8) for number in range(4)]
AGREEING = (
    (both(PublishKeys()), [PublicKeys(identity=KEYS[i], ephemeral=KEYS[i + 2]) for i in (0, 1)]),
    (
        {
            client: TakeKeys(peers=np.array([other]), identities=KEYS[other][None], ephemerals=KEYS[other + 2][None])
            for client, other in ((0, 1), (1, 0))
        },
        DONE,
    ),
)


def test_peer_vfedpca_forwards_each_letter_to_whom_it_is_for():
    fields = {"kernel": None, "center": "columns", "rule": "eigenvalue", "weight_scaling": False}
    local = {"n_components": 1, "iterations": 10, "update": "original", "warm_start": False, **fields}
    letters = {(sender, number): sealed(sender, 1 - sender, number, 3) for sender in (0, 1) for number in (3, 4)}

    def of_round(number):
        return [Letters(letters=pack([letters[sender, number]])) for sender in (0, 1)]

    model = driven(
        begun(strategies.PeerVFedPCA(rounds=2, merge="eigenvalue"), (2, 1), (2, 1)),
        *AGREEING,
        ({node: IterateAmongPeers(first=True, **local) for node in (0, 1)}, of_round(3)),
        (
            {node: IterateAmongPeers(first=False, letters=pack([letters[1 - node, 3]]), **local) for node in (0, 1)},
            of_round(4),
        ),
        (
            {node: FinishAmongPeers(letters=pack([letters[1 - node, 4]]), **fields) for node in (0, 1)},
            [Finished(), Finished()],
        ),
    )
    assert (model.kernel, model.n_components) == (Linear(), 1)


def test_admm_kpca_takes_the_largest_bound_and_signs_that_agree_and_ends_when_nothing_turns():
    kernel = RBF(gamma=0.1)
    exchange = {"features": None, "noise": 0.0}
    rho = {"rho_self": 7.0, "rho_peers": 7.0}
    signs = numbers(1, -1)  # the starts point in opposite directions
    start = admm_kpca.StartLocally(kernel=kernel, center=True, record=False, **exchange)
    update = both(admm_kpca.UpdateDirection(dual=True, **rho))
    model = driven(
        begun(strategies.ADMMKPCA(kernel=kernel, share_rows=True), (3, 2), (3, 2)),
        *AGREEING,
        (both(admm_kpca.ShareRows(**exchange)), [admm_kpca.RowLetters(shown=3)] * 2),
        (both(start), [admm_kpca.PenaltyBound(bound=bound) for bound in (3.0, 7.0)]),
        (both(admm_kpca.CompareStarts()), [admm_kpca.Likeness(cosines=numbers(-0.5))] * 2),
        (both(admm_kpca.UpdateConsensus(signs=signs, **rho)), [Letters(), Letters()]),
        (update, [progress(-1, 0.3), progress(-2, 0.1)]),
        (both(admm_kpca.UpdateConsensus(**rho)), [Letters(), Letters()]),
        (update, [progress(-2, 0), progress(-2.5, 0)]),
        (admm_kpca.KeepComponents(), DONE),
    )
    assert model.rho_ == 7
    np.testing.assert_array_equal(model.lagrangian_, [[-3, -4.5]])
    assert model.without_multipliers_ == [0]


CLUSTERING = (
    (SolveLocally(n_clusters=1), [LocalCost(cost=numbers(3)), LocalCost(cost=numbers(1))]),
    # four samples in proportion to the costs; the centre is (1 + 3 + 2 * 5) / 4
    (
        {0: SampleCoreset(samples=3), 1: SampleCoreset(samples=1)},
        [
            LocalCoreset(points=column(1, 3), weights=numbers(1, 1)),
            LocalCoreset(points=column(5), weights=numbers(2)),
        ],
    ),
    (LabelRows(centers=column(3.5)), DONE),
)


def test_fk_kmeans_shrinks_eigenvalues_and_restores_them_at_the_end():
    kernel = RBF(gamma=0.1)
    features = RandomFeatures(kernel, 2, "pairs", 6, "orthogonal")
    strategy = FKKMeans(1, 1, 2, iterations=1, kernel=kernel, penalty=0.5, coreset_size=4)
    # the Gram matrices add up to diag(4, 2), with weights 1/2 to diag(2, 1); at t = 1 shrinking is undone in full, so
    # that the map is that of plain kernel PCA of the features: sqrt(1/2) e1
    model = driven(
        begun(strategy, (2, 3), (2, 3), seed=6),
        (
            MultiplyColumns(features=features, t=1, columns=2),
            [PackedGram(upper=numbers(3, 0, 1)), PackedGram(upper=numbers(1, 0, 1))],
        ),
        (EmbedRows(features=features, t=2, map=column(np.sqrt(0.5), 0)), DONE),
        *CLUSTERING,
    )
    np.testing.assert_allclose(model.eigenvalues_, [2])
    np.testing.assert_allclose(model.centers_, [[3.5]])


def test_rfk_kmeans_takes_features_of_its_kernel():
    features = RandomFeatures(RBF(gamma=0.05), 2, "pairs", 6, "orthogonal")
    model = driven(
        begun(strategies.RFKKMeans(1, n_features=2, kernel=RBF(gamma=0.05), coreset_size=4), (2, 1), (2, 1), seed=6),
        (EmbedRows(features=features, t=1), DONE),
        *CLUSTERING,
    )
    np.testing.assert_allclose(model.centers_, [[3.5]])
    assert model.eigenvalues_ is None


STEP = {"kernel": Linear(), "precision": "float64", "tol": ROOT}
# Rows 1 and 2 of one column: K = [[1, 2], [2, 4]] has the eigenvalue 5 and the vector (1, 2) / sqrt(5); divided by its
# root the coefficients (1, 2) / 5
COEFFICIENTS = column(0.2, 0.4)


def rows(*entries):
    return CarriesRows.of(column(*entries))


OTHERS = {0: CarriesRows.of(column(2)), 1: CarriesRows.of(column(1))}
BATCH = (
    (both(diskpca.DrawUniformly(samples=1)), [diskpca.DrawnRows(**rows(1)), diskpca.DrawnRows(**rows(2))]),
    # each gets the other's row, before its own or after it
    ({node: diskpca.TakeLandmarks(**other, before=node, **STEP) for node, other in OTHERS.items()}, DONE),
    (diskpca.TakeComponents(coefficients=COEFFICIENTS, kernel=Linear(), precision="float64", embed=True), DONE),
)


def uniform():
    return strategies.UniformKPCA(1, Linear(), n_samples=2, solver="batch", share_rows=True)


def test_uniform_kpca_decomposes_the_drawn_rows():
    model = driven(begun(uniform(), (1, 1), (1, 1)), *BATCH)
    np.testing.assert_allclose(model.eigenvalues_, [5])
    np.testing.assert_array_equal(model.landmarks_, column(1, 2))


def test_spectral_kmeans_finds_components_and_then_clusters():
    model = driven(begun(strategies.SpectralKMeans(1, uniform(), coreset_size=4), (1, 1), (1, 1)), *BATCH, *CLUSTERING)
    np.testing.assert_allclose(model.centers_, [[3.5]])
    np.testing.assert_allclose(model.embedding.coefficients, COEFFICIENTS)


def test_diskpca_draws_where_the_leverage_is_and_solves_in_the_span():
    fields = {"n_adaptive": 0, "n_leverage": 2, "embedding_size": 1, "n_random_features": 1}
    strategy = strategies.DisKPCA(
        1, Linear(), **fields, point_sketch_size="exact", projection_size="exact", share_rows=True
    )
    embedding = SubspaceEmbedding(Linear(), 1, 1, 6)
    landmarks = diskpca.DrawnRows(**rows(1, 2))
    none = CarriesRows.of(np.empty((0, 1)))
    # products 5 and 0 of the embedded rows 1, 2 and 0; the whole leverage is at client 0
    model = driven(
        begun(strategy, (2, 1), (1, 1), seed=6),
        (
            diskpca.MultiplyPoints(embedding=embedding, precision="float64"),
            [diskpca.Products(upper=numbers(product)) for product in (5, 0)],
        ),
        (diskpca.ScoreRows(whitening=column(np.sqrt(0.2))), [diskpca.Total(total=numbers(own)) for own in (1, 0)]),
        ({0: diskpca.DrawByLeverage(samples=2, embedding=embedding, precision="float64")}, [landmarks]),
        # k(Y, X_0) k(X_0, Y) = 5 (1, 2)^T (1, 2), and all rows lie in the span
        (
            {
                0: diskpca.MultiplyKernel(**none, before=0, **STEP),
                1: diskpca.MultiplyKernel(**rows(1, 2), before=2, **STEP),
            },
            [diskpca.Products(upper=numbers(5, 10, 20)), diskpca.Products(upper=numbers(0, 0, 0))],
        ),
        (diskpca.TakeComponents(coefficients=COEFFICIENTS, kernel=Linear(), precision="float64", embed=True), DONE),
    )
    np.testing.assert_allclose(model.eigenvalues_, [5])
    np.testing.assert_array_equal(model.landmarks_, column(1, 2))


def test_a_protocol_that_asks_something_else_or_ends_early_is_seen():
    ask = FindLocalEigenpairs(kernel=Linear(), n_components=1)
    upload = [LocalSpectrum(vectors=column(0.6, 0.8), values=numbers(2))]
    with pytest.raises(AssertionError):
        driven(begun(DKPCA(2), (2, 3)), (ask, upload))
    with pytest.raises(AssertionError, match="early"):
        driven(begun(DKPCA(1), (2, 3)), (ask, upload), (ask, upload))
    once = [LeadingVectors(vectors=column(1, 0), values=numbers(3))]
    with pytest.raises(AssertionError, match="goes on with Finish"):
        driven(
            begun(VFedPCA(merge="eigenvalue", rounds=1), (2, 1)), (IterateLocally(n_components=1, iterations=10), once)
        )

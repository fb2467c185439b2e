"""Guards: what a coordinator that does not follow a protocol asks of a site with data of its own is refused."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from cases import CLIENTS_OF_OURS
from grids import in_turn
from named_sites import NAMES, Sites, run_on, settings_of, spec
from networks import digits
from refusals import refusing
from scipy.linalg import hadamard
from test_consent import asked
from test_gate import PATIENTS, WINE, nodes_of

from fedkernel import RBF, Laplacian, Linear, Polynomial, ProtocolError
from fedkernel.clients.cell_sums import SumEmbeddedCells
from fedkernel.clients.diskpca import DisKPCAClient, SketchPoints
from fedkernel.clients.dkpca import ComputeKernelRows, DKPCAClient, FindLocalEigenpairs, MeasureKept, ProjectNewRows
from fedkernel.clients.fk_kmeans import EmbedRows, FKKMeansClient, SumFeatures
from fedkernel.clients.kmeans_base import Embedding, LocalCenters, SampleCoreset, SolveLocally
from fedkernel.clients.landmark_base import MultiplyKernel, TakeComponents, TakeLandmarks
from fedkernel.clients.peer_vfedpca import NextBlock, PeerVectors
from fedkernel.clients.spectral_kmeans import SpectralKMeansClient
from fedkernel.clients.vfedpca import IterateLocally, MeasureVariance, Multiply, ProjectOntoDirections, VFedPCAClient
from fedkernel.numerics import RandomFeatures, SubspaceEmbedding, assign
from fedkernel.numerics.widths import median_sigma
from fedkernel.peers import Mailbox
from fedkernel.protocol import CarriesRows, Guards
from fedkernel.protocol.guards import Probed, widen_span, width_range
from fedkernel.site import Site, read_outbox
from fedkernel.strategies import DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, RFKKMeans, UniformKPCA, VFedAKPCA, VFedPCA
from fedkernel.strategy import simulation

rng = np.random.default_rng(0)
N = 120
TABLE = rng.standard_normal((N, 5))
ROW = np.eye(N)[7]
FEATURES = RandomFeatures(RBF(gamma=0.05), 20)


def guarded(kind=VFedPCAClient, **more):
    return kind(TABLE, guards=Guards(table_share=1000), **more)


def refusal(site, request):
    with refusing() as caught:
        asked(site, request)
    return str(caught.value)


def flat(columns, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((N, columns)))[0]


# Vectors by which the rows are weighed

PROBES = {
    "Multiply.block": (VFedPCAClient, lambda V: Multiply(block=V)),
    "IterateLocally.directions": (VFedPCAClient, lambda V: IterateLocally(n_components=1, iterations=1, directions=V)),
    "MeasureVariance.directions": (VFedPCAClient, lambda V: MeasureVariance(directions=V)),
    "MeasureKept.vectors": (DKPCAClient, lambda V: MeasureKept(center=False, vectors=V)),
    "ProjectNewRows.vectors": (DKPCAClient, lambda V: ProjectNewRows(vectors=V)),
    "ProjectOntoDirections.directions": (VFedPCAClient, lambda V: ProjectOntoDirections(directions=V)),
    "SumFeatures.vector": (FKKMeansClient, lambda V: SumFeatures(features=FEATURES, t=1, vector=V[:, 0])),
}


@pytest.mark.parametrize(("name", "probe"), PROBES.items(), ids=PROBES)
def test_no_vector_may_single_a_row_out(name, probe):
    kind, request = probe
    asked(guarded(kind, new=TABLE[:3]), request(flat(1)))
    asked(kind(TABLE, new=TABLE[:3]), request(ROW[:, None]))  # as a simulated site answers
    assert refusal(guarded(kind, new=TABLE[:3]), request(ROW[:, None])) == (
        f"{name} singles out a row: with the vectors before, a combination has 1 of its squared length "
        "there; allowed: at most 0.75 (guard: probes)"
    )


def test_nor_may_flat_vectors_that_do_so_together():
    """Those of a Hadamard matrix on 16 rows: the largest entry is 0.25, and their span holds each of the rows."""
    site, block = guarded(), np.zeros((N, 16))
    block[:16] = hadamard(16) / 4
    assert "a combination has 1 of its squared length there" in refusal(guarded(), Multiply(block=block))
    for column in block.T[:12]:  # 12 of 16: the leverage is 0.75
        asked(site, Multiply(block=column[:, None]))
    assert "a combination has 0.81" in refusal(site, Multiply(block=block[:, 12:13]))


@pytest.mark.parametrize("apart", [0.5, 1e-4, 1e-8, 1e-12, 1e-14, 1e-15])
def test_nor_the_difference_of_two(apart):
    site, first = guarded(), flat(1)
    asked(site, Multiply(block=first))
    second = first + apart * ROW[:, None]
    assert "singles out a row" in refusal(site, Multiply(block=second / np.linalg.norm(second)))


@pytest.mark.parametrize("first", [flat(1)[:, 0], np.eye(N)[:2].sum(axis=0) / 2], ids=["all rows", "two rows"])
def test_nor_a_difference_beside_which_their_other_parts_cancel_to_the_last_bit(first):
    """Of sums so small that rounding hides little of such a difference."""
    ask = lambda vector: SumFeatures(features=FEATURES, t=1, vector=vector)  # noqa: E731
    for apart in (2e-14, 5e-15, 1e-15):
        site = guarded(FKKMeansClient)
        asked(site, ask(first))
        asked(site, ask(first))
        assert "singles out a row" in refusal(site, ask(first + apart * ROW))


def test_what_other_requests_have_asked_counts_once_and_all_together_span_no_more_than_a_half_of_the_rows():
    site, V = guarded(), flat(3)
    hidden = np.linalg.qr(np.column_stack([V[:, 0] + 0.3 * ROW, V[:, 1:]]))[0]
    asked(site, Multiply(block=V))
    for _ in range(3):
        asked(site, Multiply(block=V @ np.linalg.qr(rng.standard_normal((3, 3)))[0]))
    assert Probed.load(site.memory).basis.shape == (N, 3)
    assert refusal(site, IterateLocally(n_components=3, iterations=1, directions=hidden)).startswith("IterateLocally.")
    site, V = VFedPCAClient(TABLE, guards=Guards(table_share=1000, leverage=1.0)), flat(N)
    for first in range(0, 60, 20):
        asked(site, Multiply(block=V[:, first : first + 20]))
    assert refusal(site, Multiply(block=V[:, 60:61])) == (
        "Multiply.block and the vectors before, which weigh the 120 rows, span 61 dimensions; allowed: at most 60 "
        "(guard: probes)"
    )


def test_blocks_have_the_form_that_methods_send_and_no_iteration_s_features_come_again():
    for block in (np.ones((N, 1)), np.column_stack([flat(1), flat(1)]), 2 * flat(3)):
        assert "are not orthonormal: products are off by" in refusal(guarded(), Multiply(block=block))
    text = refusal(guarded(FKKMeansClient), SumFeatures(features=FEATURES, t=1, vector=np.ones(N)))
    assert text == "SumFeatures.vector has length 11; allowed: at most 1 (guard: probes)"
    site, V = guarded(FKKMeansClient), flat(40)
    ask = lambda t, vector: SumFeatures(features=FEATURES, t=t, vector=vector)  # noqa: E731
    for t in (1, 1, 2, 5):
        asked(site, ask(t, V[:, t]))
    assert Probed.load(site.memory).basis.shape == (N, 1)
    assert "has draw = 2, but must have at least 5 by now" in refusal(site, ask(2, V[:, 3]))


NOTHING = Probed(np.empty((N, 0)), np.empty((0, 0)), np.zeros(1, np.int64))


def test_a_basis_stays_orthonormal_and_what_is_left_of_a_direction_known_to_few_digits_is_none():
    probed, first = NOTHING, flat(1)[:, 0]
    for digits_ in range(1, 14):
        probed = widen_span(probed, first + 10.0**-digits_ * rng.standard_normal(N))
    assert probed.basis.shape == (N, 13)
    np.testing.assert_allclose(probed.basis.T @ probed.basis, np.eye(13), rtol=0, atol=1e-14)
    # blocks in one space of three dimensions, the second of which turns one vector by 1e-8 and the other by 0.01
    space, probed = flat(3), NOTHING
    turned = space[:, :2] + space[:, 2:] * [1e-8, 0.01]
    again = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    for vectors, dimension in ((space[:, :2], 2), (turned, 3), (space[:, :2] @ again, 3), (np.zeros(N), 3)):
        probed = widen_span(probed, vectors)
        assert probed.basis.shape == (N, dimension)
    assert widen_span(probed, space[:, 0] + 0.01 * space[:, 2] + 1e-12 * flat(4)[:, 3]).basis.shape == (N, 4)


NO_PROBES = {
    "combine columns, over all rows alike": (
        *("MultiplyGram.vector", "MultiplyKernel.basis", "IterationRequest.map", "ScoreRows.whitening"),
    ),
    "combine columns, for replies that have a number of each row whatever they are": ("CombineFeatures.vector",),
    "are points among the rows, which all rows are compared with": (
        *("CarriesRows.dense", "LabelRows.centers", "CellRequest.centers"),
    ),
    "are results, from which nothing comes back": (
        *("Finish.directions", "LabelNewRows.coefficients", "TakeCoordinates.coordinates"),
        *("LabelNewRows.centers", "TakeEmbedding.embedding", "TakeComponents.coefficients"),
    ),
    "say how a node's own direction and its neighbours' go together": ("UpdateConsensus.signs",),
}


def test_every_array_that_a_site_is_sent_is_a_probe_or_known_not_to_be():
    decided = {**dict.fromkeys(PROBES, True), **{name: False for names in NO_PROBES.values() for name in names}}
    requests, seen = {request for client in CLIENTS_OF_OURS.values() for request in client.answers}, set()
    for request in requests:
        for field, shape in request.shapes().items():
            named = {f"{base.__name__}.{field}" for base in request.__mro__} & {*decided}
            seen |= named
            if shape.dtype == np.float64 and field != "values":  # of sparse rows
                assert {decided[name] for name in named} == {field in request.probes}, (request, field)
    assert seen == {*decided}


# Coresets and sketches

GUARD = "(guard: coreset)"


class SampleElsewhere(SampleCoreset):
    """Another request of a stranger's pair by which rows are sampled."""


def test_no_row_is_alone_in_its_sum():
    embedding = SubspaceEmbedding(Linear(), None)
    ask = lambda sums: SketchPoints(embedding=embedding, columns=sums, precision="float64")  # noqa: E731
    shown, _, _ = asked(DisKPCAClient(TABLE), ask(60))
    lone = [row for row in TABLE if any(np.allclose(abs(row), abs(column)) for column in shown[0].T)]
    assert len(lone) == pytest.approx(120 * (59 / 60) ** 119, rel=0.5)  # which the guard is for
    assert refusal(guarded(DisKPCAClient), ask(60)) == (
        "SketchPoints.columns = 60 (point_sketch_size) makes sums of 120 rows, of which 16 would be alone in theirs; "
        "allowed: 0.1 in the mean, by fewer sums, or products (guard: sums)"
    )
    shown, _, _ = asked(guarded(DisKPCAClient), ask(16))
    assert not any(np.allclose(abs(row), abs(column)) for row in TABLE for column in shown[0].T)
    for sums in (61, 120):
        shown, _, _ = asked(guarded(DisKPCAClient), ask(sums))
        np.testing.assert_allclose(shown[0], (TABLE.T @ TABLE)[np.triu_indices(5)], rtol=1e-12)


def foreseen(strategy, rows, **guards):
    """What guards say of a plan: those that are certain, and those that are not."""
    faults = list(Guards(**guards).refusals(strategy.plan(3, 0), strategy.client.answers, rows))
    return [[fault.text for fault in faults if fault.certain is certain] for certain in (True, False)]


def test_what_rows_decide_is_foreseen_where_the_plan_settles_it_and_else_said_to_be_open():
    sketched = {"n_components": 2, "n_adaptive": 5, "share_rows": True}
    for sums in (17, 18, 60, 61, 120):
        certain, open_ = foreseen(DisKPCA(**sketched, point_sketch_size=sums, projection_size="exact"), N)
        site, embedding = guarded(DisKPCAClient), SubspaceEmbedding(RBF(gamma=0.1), 20, 30)
        request = SketchPoints(embedding=embedding, columns=sums, precision="float64")
        if certain:
            assert certain == [refusal(site, request)]
        else:
            asked(site, request)
        assert bool(certain) == (sums in (18, 60))
        assert open_ == []
    landmarks = sketched | {"point_sketch_size": 16, "projection_size": "landmarks"}
    # |Y| columns, of at most 7 landmarks, or 1001 of which no more than a half of the rows is sketched
    assert foreseen(DisKPCA(**landmarks), N) == [[], []]
    (text,) = foreseen(DisKPCA(**landmarks | {"n_adaptive": 999}), N)[1]
    assert "at most: SketchKernel.columns = 60 (projection_size) makes sums of 120 rows" in text
    for size in (30, 31):
        certain, open_ = foreseen(RFKKMeans(2, n_features=10, coreset_size=size), N)
        assert certain == [], "the sites share it"
        expected = "the plan has at most: SampleCoreset.samples = 31 (coreset_size) of 120"
        assert [text[:70] for text in open_] == [expected] * (size == 31)
    for rounds in (20, 21):
        _, open_ = foreseen(VFedPCA(3, merge="eigenvalue", rounds=rounds), N)
        expected = "vectors that the 120 rows are multiplied with span up to 63 dimensions; allowed:"
        assert [text[:80] for text in open_] == [expected] * (rounds == 21)
    lanczos = FKKMeans(2, n_features=10, iterations=3, cem=False, penalty=0.0, coreset_size=5)
    most = max(step.times for step in lanczos.plan(3, 0))
    assert [foreseen(lanczos, 2 * most - few)[1] == [] for few in (0, 1)] == [True, False], "each draw is another"


def test_widths_by_rule_are_in_range_and_those_that_single_rows_out_are_not():
    for X in (WINE, PATIENTS, np.vstack(digits(40, 10)), TABLE):
        low, high = width_range(X)
        median = 1 / (2 * median_sigma(X) ** 2)
        assert low < median < high
        assert low < 1 / (4 * X.var(axis=0).sum()) < high  # that of the mean distance
        assert RBF(gamma=high).gram(X)[np.triu_indices(len(X), 1)].mean() < 0.01
    assert low < 25 * median < high  # 0.2 medians
    assert width_range(np.ones((30, 2))) == (0.0, np.inf)
    X = 1e3 + rng.standard_normal((5000, 3))
    expected = 1 / (4 * X.var(axis=0).sum())
    for table in (X, DisKPCAClient(X).X):  # block by block
        np.testing.assert_allclose(width_range(table), [0.01 * expected, 50 * expected], rtol=1e-12)


NARROW = SketchPoints(embedding=SubspaceEmbedding(RBF(gamma=100.0), 10, 30), columns=16, precision="float64")
WIDTHS = {
    "narrow": (DKPCAClient, FindLocalEigenpairs(kernel=RBF(gamma=100.0), n_components=3)),
    "narrow, Laplacian": (DKPCAClient, FindLocalEigenpairs(kernel=Laplacian(gamma=100.0), n_components=3)),
    "narrow, new rows": (DKPCAClient, ComputeKernelRows(kernel=RBF(gamma=100.0))),
    "narrow, embedded": (DisKPCAClient, NARROW),
    "wide features": (FKKMeansClient, EmbedRows(features=RandomFeatures(RBF(gamma=1e-9), 20), t=1)),
    "wide features, Laplacian": (FKKMeansClient, EmbedRows(features=RandomFeatures(Laplacian(gamma=1e-9), 20), t=1)),
}


@pytest.mark.parametrize(("kind", "request_"), WIDTHS.values(), ids=WIDTHS)
def test_a_width_at_which_rows_stand_alone_or_features_are_linear_is_refused(kind, request_):
    text = refusal(guarded(kind, new=TABLE[:3]), request_)
    assert "kernel.gamma = " in text
    assert text.endswith("(guard: widths)")
    # a kernel itself may be wide
    asked(guarded(DKPCAClient), FindLocalEigenpairs(kernel=RBF(gamma=1e-9), n_components=3))


def test_a_polynomial_whose_sums_are_those_of_one_row_is_refused():
    kernel = {"kernel": Polynomial(degree=100, gamma=0.1), "precision": "float64", "tol": 0.0}
    ask = MultiplyKernel(**CarriesRows.of(TABLE[:2]), before=0, **kernel)
    total, _, _ = asked(DisKPCAClient(TABLE), ask)
    values = (0.1 * TABLE @ TABLE[0] + 1) ** 200
    assert values.max() > 0.99 * total[0][0]
    text = refusal(guarded(DisKPCAClient), ask)
    assert (
        text == "MultiplyKernel.kernel.degree = 100, so that one row makes up a sum; allowed: at most 5 (guard: widths)"
    )
    asked(guarded(DisKPCAClient), ask.model_copy(update={"kernel": Polynomial(degree=5, gamma=0.1)}))


def test_new_rows_and_the_result_are_measured_once():
    of_directions = [kind(directions=flat(2)) for kind in (ProjectOntoDirections, MeasureVariance)]
    for request in (ComputeKernelRows(kernel=Linear()), *of_directions):
        site = guarded(DKPCAClient if isinstance(request, ComputeKernelRows) else VFedPCAClient, new=TABLE[:3])
        asked(site, request)
        assert "was answered before in this run" in refusal(site, request)


@pytest.mark.parametrize(
    ("kind", "before", "embed"),
    [
        (FKKMeansClient, [], EmbedRows(features=FEATURES, t=1)),
        (
            SpectralKMeansClient,
            [TakeLandmarks(**CarriesRows.of(TABLE[:4]), before=0, kernel=RBF(gamma=0.1), precision="float64", tol=0.0)],
            TakeComponents(coefficients=np.eye(4), kernel=RBF(gamma=0.1), precision="float64", embed=True),
        ),
    ],
    ids=["FK", "spectral"],
)
def test_rows_are_embedded_once(kind, before, embed):
    """Else sums of the same few rows' coordinates under many embeddings would add up to equations for these rows."""
    site = guarded(kind)
    for request in (*before, embed, SumEmbeddedCells(centers=np.zeros((1, 4 if before else FEATURES.n_features)))):
        asked(site, request)
    assert "was answered before in this run" in refusal(site, embed)


@pytest.mark.parametrize(
    ("before", "samples", "text"),
    [
        ([], N, f"SampleCoreset.samples = {N} (coreset_size) of {N} rows; allowed: at most 30, 0.25 of them {GUARD}"),
        ([30], 29, "SampleCoreset was answered before in this run; allowed: once (guard: repetition)"),
    ],
)
def test_a_coreset_is_a_share_of_the_rows_comes_once_and_its_centres_stand_for_some(before, samples, text):
    site = guarded(FKKMeansClient)
    asked(site, EmbedRows(features=FEATURES, t=1))
    assert refusal(site, SolveLocally(n_clusters=N)) == (
        "each local centre would stand for 1 rows or fewer; allowed: at least 3, as with fewer clusters (n_clusters, "
        "max_clusters) (guard: groups)"
    )
    asked(site, SolveLocally(n_clusters=N // 2))  # of which some have one row or two
    centers = LocalCenters.load(site.memory).centers
    assert 0 < len(centers) < N // 2
    assert np.bincount(assign(Embedding.load(site.memory).rows, centers)[0]).min() >= 3
    asked(site, SolveLocally(n_clusters=2))
    for number in before:
        asked(site, SampleCoreset(samples=number))
        with refusing(whole=f"SampleElsewhere: rows were sampled before in this run; allowed: once {GUARD}"):
            Guards().check(SampleElsewhere(samples=1), site.X, site.memory)
    assert refusal(site, SampleCoreset(samples=samples)) == text


# Runs

EVEN = np.random.default_rng(3).uniform(-1, 1, (N, 12))
OF_RANK_2 = EVEN[:, :2] @ EVEN[:2]
DEGENERATE = {
    "duplicate rows": EVEN[np.arange(N) // 2 * 2],
    "three rows": EVEN[np.arange(N) % 3],
    "constant columns": np.where(np.arange(12) % 2, EVEN, 0.1),
    "rank 2": OF_RANK_2,
    "rank 1": np.outer(EVEN[:, 0], np.ones(12)),
    "no variance": np.full((N, 12), 0.1),
    "rank 2, small": 1e-150 * OF_RANK_2,
    "small": 1e-150 * EVEN,
    "large": 1e70 * EVEN,
    "one site's small": np.where(np.arange(12) < 3, 1e-160, 1.0) * EVEN,
}
HONEST = {
    "VFedPCA": VFedPCA(3),
    "VFedPCA, auto": VFedPCA("auto", max_components=6),
    "VFedPCA, warm start": VFedPCA(3, merge="eigenvalue", update="inplace", warm_start=True),
    "VFedPCA, average": VFedPCA(1, merge="average", local_iterations=400, rounds=2),
    "VFedAKPCA": VFedAKPCA(3, kernel=Laplacian(gamma=0.1)),
    "VFedPCA, scaled weights": VFedPCA(2, merge="average", weight_scaling=True, rounds=2),
    "peer VFedPCA": PeerVFedPCA(3, graph="ring"),
    "DKPCA": DKPCA(3, RBF(gamma=0.1), local_components=4),
}


ALONE = ("VFedAKPCA", "large"), ("DKPCA", "large")
"""At a width that is given a kernel sees no row but its own in a large table."""
TRIED = [case for case in in_turn(HONEST, DEGENERATE, every=2) if case.values not in ALONE]


@pytest.mark.parametrize(("pair", "table"), TRIED)
def test_no_honest_site_is_refused_for_what_rounding_leaves(monkeypatch, pair, table):
    """Vectors of a rank that a table does not have would be rounding, scaled up: they may stand on a single row."""
    strategy = HONEST[pair]
    monkeypatch.setattr(simulation, "Site", partial(Site, guards=Guards(table_share=1000)))
    shards = np.array_split(DEGENERATE[table], 4, axis=1)
    result = strategy.fit(shards)
    if pair in ("VFedPCA", "VFedPCA, auto"):
        exact, values = strategy.central(shards).eigenvalues_, result.model.eigenvalues_
        off = 1e-12 * exact[0] + 1e-20 * np.square(DEGENERATE[table]).sum()
        np.testing.assert_allclose(values, exact[: len(values)], rtol=1e-9, atol=off)


OF_ROWS = RFKKMeans(3, n_features=10), UniformKPCA(3, n_samples=10, share_rows=True)


@pytest.mark.parametrize("strategy", [VFedPCA(3), DKPCA(3), VFedAKPCA(3), *OF_ROWS], ids=type)
def test_numbers_that_no_message_can_hold_are_said_of_the_table(strategy):
    axis = int(strategy.partition == "vertical")
    with pytest.raises(ProtocolError, match=r"numbers beyond 1e\+30, so the reply to \w+ may be too large|overflow"):
        strategy.fit(np.array_split(1e150 * EVEN, 4, axis=axis))


def guarded_nodes(folder, policy=""):
    """Three sites whose operators have approved whatever is asked."""
    return [node | {"approve": "any"} for node in nodes_of(folder, NAMES, np.array_split(WINE, 3, axis=1), policy)]


def clustered(folder, rows, coreset_size):
    """Run k-means at three sites with so many rows each, the last one's far apart."""
    nodes, parts = guarded_nodes(folder), np.split(np.vstack([TABLE, TABLE])[: sum(rows)], np.cumsum(rows)[:-1])
    for node, part, scale in zip(nodes, parts, (1, 1, 9), strict=True):
        np.save(node["data"], scale * part)
        Path(node["out"]).mkdir(exist_ok=True)  # with a secret that is drawn, so would the seed be
        (Path(node["out"]) / "secret").write_bytes(node["name"].encode().ljust(32))
    return run_on(nodes, RFKKMeans(2, n_features=10, coreset_size=coreset_size), align=False)[0]


def test_a_coreset_too_large_for_the_sites_is_refused_before_the_rounds(tmp_path):
    refusal = "coreset_size = 46, but must be at most 45, the rows that all sites together allow to be sampled"
    with refusing(whole=f"{refusal}; client 1 (site 'east') allows 10 of its 40 {GUARD}"):
        clustered(tmp_path, (60, 40, 80), 46)
    for name in NAMES:
        answered = [line.request for line in read_outbox(tmp_path / name).departures]
        assert answered == ["Introduce", "ShowShare", "TakeShares"]


def test_what_a_site_does_not_let_be_sampled_others_sample(tmp_path):
    """By cost alone the last site, whose rows are far apart, would give nearly all points."""
    result = clustered(tmp_path, (60, 40, 80), 44)
    left = [line for name in NAMES for line in read_outbox(tmp_path / name).departures]
    samples = [line.parameters["samples"] for line in left if line.request == "SampleCoreset"]
    assert sum(samples) == 44
    assert samples[2] == 20
    assert all(most - 1 <= number <= most for number, most in zip(samples, (15, 10, 20), strict=True))
    assert result.model.centers_.shape == (2, 10)


def test_a_sketch_that_shows_rows_is_refused_as_the_run_begins(tmp_path):
    strategy = DisKPCA(2, RBF(gamma=0.05), n_adaptive=5, point_sketch_size=40, share_rows=True)
    refusal = "client 0 (site 'north'): SketchPoints.columns = 40 (point_sketch_size) makes sums of 178 rows, of which "
    with refusing(start=f'DisKPCAClient, joining: node 1: "{refusal}', error=ProtocolError):
        run_on(guarded_nodes(tmp_path, "[limits.total]"), strategy, align=False)
    assert [line.request for line in read_outbox(tmp_path / "north").departures] == ["Introduce"]


@pytest.mark.parametrize("merge", ["exact", "eigenvalue"])
def test_a_neighbour_that_writes_a_row_s_place_is_refused(tmp_path, monkeypatch, merge):
    write, place = Mailbox.write, np.eye(len(WINE))[:, :1]
    lies = {PeerVectors: {"vectors": place, "values": np.array([1e9])}, NextBlock: {"block": place}}

    def lying(self, peer, letter):
        write(self, peer, letter.model_copy(update=lies[type(letter)]) if type(letter) in lies else letter)

    monkeypatch.setattr(Mailbox, "write", lying)
    nodes = guarded_nodes(tmp_path)
    with pytest.raises(ProtocolError, match="a neighbour's letter singles out a row"):
        run_on(nodes, PeerVFedPCA(merge=merge))


def test_a_coordinator_that_asks_for_every_row_gets_none(tmp_path):
    """Also where the operator has approved whatever it asks."""

    class Greedy(VFedPCA):
        def _exact_search(self, run):
            return (yield from self._multiply(np.eye(len(WINE)), 1))

    nodes = guarded_nodes(tmp_path, "[study]\nplan = false\njoint_seed = 'never'")
    run = spec("VFedPCA", NAMES, plan=None)
    with Sites(run, nodes) as grid, pytest.raises(ProtocolError, match="which weigh the 178 rows, span"):
        Greedy(merge="exact").run(grid, settings_of(run))
    for name in NAMES:
        assert "(guard: probes)" in (tmp_path / name / "outbox.jsonl").read_text()

"""Attacks of a coordinator: what it asks, and what it makes of the answers.

Each takes a `Target` and returns ||recovered - true||_F / ||true||_F of what it recovers; its docstring says what that
is, why it works, and how exact it must be.
"""

import itertools
from typing import Any

import numpy as np

from attacks.algebra import coordinates_of_distances, relative, rows_of_features, rows_of_small_angles, unknown_error
from attacks.target import IDS, Refused, Target
from fedkernel import RBF, Linear
from fedkernel.clients.cell_sums import LEAST_ROWS, SumCells
from fedkernel.clients.diskpca import DrawByLeverage, DrawUniformly, MultiplyPoints, ScoreRows, SketchPoints
from fedkernel.clients.dkpca import FindLocalEigenpairs, FindLocalProducts
from fedkernel.clients.fk_kmeans import CombineFeatures, EmbedRows, MultiplyColumns, SumFeatures
from fedkernel.clients.kmeans_base import LabelRows, MeasureClusters, SampleCoreset, SolveLocally
from fedkernel.clients.landmark_base import MultiplyKernel, TakeComponents, TakeLandmarks
from fedkernel.clients.peer_vfedpca import IterateAmongPeers
from fedkernel.clients.vfedpca import IterateLocally, Multiply
from fedkernel.ground import generator
from fedkernel.kernel_width.client import MeasureSquares, SumColumns
from fedkernel.numerics import RandomFeatures, RowSketch, SubspaceEmbedding, unpack_symmetric, with_width
from fedkernel.peers import PublishKeys
from fedkernel.protocol import CarriesRows
from fedkernel.wire import HashIds, TakeRows, hash_ids

KNOWN = 8
"""Rows of the table that an attack knows beforehand, where it says that it knows some."""

FLAT = 1e-6
"""gamma of a kernel that is so wide that cos and sin of its frequencies times a row are small angles."""

REPLAYS = 40


def draw_all(target: Target) -> float:
    """Ask for as many rows as there are. Exact: they are the rows."""
    return relative(target.ask(DrawUniformly(samples=target.rows)).rows, target.X)


def draw_one_row(target: Target) -> float:
    """Try seeds until a draw of 20 rows has the one that it is after; ask with that. That row, exact."""
    row, samples = 100, 20
    draws = (generator("uniform", seed, 0).choice(target.rows, samples, replace=False) for seed in itertools.count())
    seed = next(seed for seed, drawn in enumerate(draws) if row in drawn)
    rows = target.ask(DrawUniformly(samples=samples), seed).rows
    return min(relative(shown, target.X[row]) for shown in rows)


def thin_cells(target: Target) -> float:
    """Ask for the sums of 15 thin cells along the first column, and look at the smallest. Exact: a single row's sum."""
    centers = np.zeros((15, target.X.shape[1]))
    centers[:, 0] = np.linspace(target.X[:, 0].min(), target.X[:, 0].max(), len(centers))
    cells = target.ask(SumCells(centers=centers, least=1 if target.mode == "unguarded" else LEAST_ROWS))
    counts = np.where(cells.counts > 0, cells.counts, np.inf)
    return _from_the_table(target, [cells.sums[counts.argmin()] / counts.min()])


def landmarks(target: Target) -> float:
    """Look at the landmarks of a run, 40 draws: the rows that the method sends as they are. Exact: of these rows."""
    if target.strategy == "UniformKPCA":
        return _from_the_table(target, target.ask(DrawUniformly(samples=40)).rows)
    embedding = SubspaceEmbedding(RBF(1 / target.X.shape[1]), 50, 50)
    target.ask(MultiplyPoints(embedding=embedding, precision="float64"))
    target.ask(ScoreRows(whitening=np.eye(50)))
    drawn = target.ask(DrawByLeverage(samples=40, embedding=embedding, precision="float64"))
    return _from_the_table(target, drawn.rows)


def _from_the_table(target: Target, rows: Any) -> float:
    """Return how far rows are from those of the table that are nearest to them."""
    nearest = [int(np.argmin(np.square(target.X - row).sum(axis=1))) for row in rows]
    return relative(rows, target.X[nearest])


def sketch_again(target: Target) -> float:
    """Ask for sums of two rows in the mean, with signs from another seed each time, until there are equations enough.

    The embedding of a linear kernel is the row itself, and whoever knows the seed knows which rows are added up with
    which signs. A sketch of n / 2 sums leaves about a seventh of them empty: six have 2.6 n equations. Exact.
    """
    columns, ask = target.rows // 2, SketchPoints
    embedding, sums, weights = SubspaceEmbedding(Linear()), [], []
    for seed in range(6):
        sums.append(target.ask(ask(embedding=embedding, columns=columns, precision="float64"), seed).factor.T)
        sketch = RowSketch(target.rows, columns, generator("point sketch", seed, 0))
        sketch.add(np.eye(target.rows))
        weights.append(sketch.factor.T)
    return relative(np.linalg.lstsq(np.vstack(weights), np.vstack(sums), rcond=None)[0], target.X)


def second_moments(target: Target) -> float:
    """Ask for the products of the rows, embedded by a linear kernel. Exact: X^T X, which is no rows."""
    upper = target.ask(MultiplyPoints(embedding=SubspaceEmbedding(Linear()), precision="float64")).upper
    return relative(unpack_symmetric(upper), target.X.T @ target.X)


def products_at_axes(target: Target) -> float:
    """Read the products of a run whose landmarks are the unit vectors. Exact: X^T X, which is no rows."""
    handed = {"before": 0, "precision": "float64", "tol": 0.0, **CarriesRows.of(np.eye(target.X.shape[1]))}
    upper = target.ask(MultiplyKernel(kernel=Linear(), **handed)).upper
    return relative(unpack_symmetric(upper), target.X.T @ target.X)


def narrow_width(target: Target) -> float:
    """Find one attribute of 20 rows whose others are known, with landmarks of one's own and a narrow kernel.

    Landmarks stand every 0.25 along the attribute. With gamma = 20, rows at a squared distance of more than 1 weigh
    below e^-40 in the sum of k(y, x)^2, which is so of the row alone: a parabola under the logarithm, whose top three
    points give it. Other rows are what is left of error: below 1e-3. Of clusters' sums it is k(y, x), half as narrow.
    """
    gamma, step, column = 20.0, 0.25, 12
    grid = np.arange(-4, 5, step)
    recovered = []
    for row in target.X[:20]:
        landmarks = np.tile(row, (len(grid), 1))
        landmarks[:, column] = grid
        target.restart()
        sums = _sums_at(target, landmarks, gamma)
        logs = np.log(np.maximum(sums, 1e-300))
        top = 1 + int(np.argmax(logs[1:-1]))
        recovered.append(grid[top] + (logs[top + 1] - logs[top - 1]) / (8 * gamma * step))
    return relative(recovered, target.X[:20, column])


def _sums_at(target: Target, landmarks: Any, gamma: float) -> Any:
    """Return the sums over all rows of exp(-2 gamma |y - x|^2) for each landmark y."""
    handed = {"before": 0, "precision": "float64", "tol": 0.0, **CarriesRows.of(landmarks)}
    if target.strategy != "CentroidKMeans":
        return np.diag(unpack_symmetric(target.ask(MultiplyKernel(kernel=RBF(gamma), **handed)).upper))
    kernel, identity = RBF(2 * gamma), np.eye(len(landmarks))
    target.ask(TakeLandmarks(kernel=kernel, **handed))
    target.ask(TakeComponents(coefficients=identity, kernel=kernel, precision="float64", embed=True))
    target.ask(LabelRows(centers=identity[:1]))
    return target.ask(MeasureClusters(kernel=kernel)).sum


def embed_and_sample(target: Target) -> float:
    """Hand over landmarks and components by which each row's coordinates are the row; ask for a coreset of all. Exact.

    With a linear kernel k(X, Y) C = X Y^T C is X where Y and C are identities; a coreset of as many points as rows is
    the points themselves.
    """
    identity, kernel = np.eye(target.X.shape[1]), Linear()
    target.ask(TakeLandmarks(before=0, kernel=kernel, precision="float64", tol=0.0, **CarriesRows.of(identity)))
    target.ask(TakeComponents(coefficients=identity, kernel=kernel, precision="float64", embed=True))
    target.ask(SolveLocally(n_clusters=2))
    return relative(target.ask(SampleCoreset(samples=target.rows)).points, target.X)


def flat_coreset(target: Target) -> float:
    """Have rows embedded by features of a very wide kernel; ask for a coreset of all of them. Exact but for rounding.

    cos and sin of small angles give the angles, d of which give the row.
    """
    d = target.X.shape[1]
    features = RandomFeatures(RBF(FLAT), 4 * d)
    target.ask(EmbedRows(features=features, t=1))
    target.ask(SolveLocally(n_clusters=2))
    points = target.ask(SampleCoreset(samples=target.rows)).points
    return relative(rows_of_small_angles(points, features._draw(d)[0]), target.X)


def honest_coreset(target: Target) -> float:
    """Invert the features of the points of the method's own coreset, with coreset_size = 1000.

    200 features, the width by the method's rule, and 1000 samples over three sites alike: more than the site has rows,
    so that its coreset is all of them; by default it would be a quarter. 200 smooth functions of 13 numbers determine
    these. Exact but for rounding.
    """
    d = target.X.shape[1]
    gamma = with_width(RBF(), target.X).gamma  # that of all sites, were this the only one
    features = RandomFeatures(RBF(gamma), 200)
    target.ask(EmbedRows(features=features, t=1))
    target.ask(SolveLocally(n_clusters=3))
    points = target.ask(SampleCoreset(samples=333)).points * np.sqrt(200)
    return relative(rows_of_features(points, features.map(d), d, gamma), target.X)


def combine_unit_vectors(target: Target) -> float:
    """Ask for one feature of every row at a time, of a very wide kernel. Exact but for rounding, after 2 d requests."""
    d = target.X.shape[1]
    features = RandomFeatures(RBF(FLAT), 2 * d)
    values = [target.ask(CombineFeatures(features=features, t=1, vector=e)).values for e in np.eye(2 * d)]
    return relative(rows_of_small_angles(np.array(values).T, features._draw(d)[0]), target.X)


def weigh_one_row(target: Target) -> float:
    """Ask for the sum of the features over the rows, with weights that single one row out; all rows. As exact."""
    n, d = target.X.shape
    features = RandomFeatures(RBF(FLAT), 2 * d)
    sums = [target.ask(SumFeatures(features=features, t=1, vector=e)).sums for e in np.eye(n)]
    return relative(rows_of_small_angles(np.array(sums), features._draw(d)[0]), target.X)


def scatter_of_means(target: Target) -> float:
    """Ask for the scatter around d + 1 points: n ||m - p||^2 + c is linear in what differs. The mean, exact."""
    n, d = target.X.shape
    at_zero = target.ask(MeasureSquares(mean=np.zeros(d))).squares
    recovered = [(1 + (at_zero - target.ask(MeasureSquares(mean=e)).squares) / n) / 2 for e in np.eye(d)]
    return relative(recovered, target.X.mean(axis=0))


def leading_components(d: int) -> int:
    """Return how many components a run has: 5 of 4 columns, which these span, and 10 of 30, as guards allow."""
    return max(5, d // 3)


def leading_vectors(target: Target) -> float:
    """Look at the first reply of a run, knowing twice as many of the site's rows as it has columns.

    Exact where the vectors span all columns: an affine map of 6 coordinates is determined by 8 rows. Elsewhere the
    others' parts along them: of breast cancer's 30 columns, 10 vectors leave an error of 0.3.
    """
    d = target.X.shape[1]
    ask: Any = IterateLocally(n_components=leading_components(d), iterations=10)
    if target.strategy == "DKPCA":
        ask = FindLocalEigenpairs(kernel=Linear(), n_components=leading_components(d))
    return unknown_error(target.ask(ask).vectors, target.X, 2 * d)


def products_of_few_columns(target: Target) -> float:
    """Look at the reply of an RBF kernel's run by inner products, knowing d_m + 1 = 5 rows of 4 columns. Exact, so."""
    reply = target.ask(FindLocalProducts(n_components=4))
    return unknown_error(reply.vectors * np.sqrt(reply.values), target.X, target.X.shape[1] + 1)


def rbf_spectrum(target: Target, **rule: Any) -> float:
    """Turn the kernel matrix that a reply holds into distances, these into points, and 8 known rows place the points.

    The truncated eigenpairs leave an error in every kernel value, which the logarithm magnifies where they are small.
    """
    gamma = 1 / 13
    reply = target.ask(FindLocalEigenpairs(kernel=RBF(gamma), **(rule or {"epsilon": 0.0005})))
    K = np.clip((reply.vectors * reply.values) @ reply.vectors.T, 1e-12, 1.0)
    return unknown_error(coordinates_of_distances(-np.log(K) / gamma, target.X.shape[1]), target.X, KNOWN)


def whole_spectrum(target: Target) -> float:
    """The same, having asked for all eigenpairs: exact but for rounding."""
    return rbf_spectrum(target, n_components=target.rows)


def guess_ids(target: Target) -> float:
    """Hash a thousand likely ids as the site does, and see which it has. Exact: who is in the table."""
    candidates = sorted(IDS)
    hashes = {row.tobytes() for row in target.ask(HashIds()).hashes}
    likely = hash_ids(candidates, b"", target.run, target.seed)
    inside = np.array([row.tobytes() in hashes for row in likely], float)
    members = set(IDS[: target.rows])
    return relative(inside, np.array([candidate in members for candidate in candidates], float))


def _sum_over(target: Target, hashes: Any, places: Any) -> Any:
    """Begin the run anew, align the site to these of its rows, and ask for their sum."""
    common = sorted(hashes[place].tobytes() for place in places)
    target.restart()
    target.ask(TakeRows(hashes=np.frombuffer(b"".join(common), np.uint8).reshape(-1, 16)))
    return target.ask(SumColumns()).sums


def align_to_one(target: Target) -> float:
    """Align to one row and ask for the sum, every row. Exact."""
    hashes = target.ask(HashIds()).hashes
    return relative([_sum_over(target, hashes, [place]) for place in range(target.rows)], target.X)


def differences(target: Target) -> float:
    """Align to 21 rows and to 20 of them, and subtract; all rows. Exact but for rounding."""
    hashes, n = target.ask(HashIds()).hashes, target.rows
    recovered = []
    for first in range(0, n, 21):
        block = [place % n for place in range(first, first + 21)]
        whole = _sum_over(target, hashes, block)
        recovered += [whole - _sum_over(target, hashes, sorted({*block} - {place})) for place in block]
    return relative(recovered[:n], target.X)


def _random_request(target: Target, rng: np.random.Generator) -> Any:
    """Return a request of the target's client with parameters that no run has."""
    n, gamma, k = target.rows, float(rng.uniform(0.01, 10)), int(rng.integers(1, 4))
    columns = 2 * int(rng.integers(1, 20))
    requests = {
        "VFedPCAClient": lambda: Multiply(block=rng.standard_normal((n, k)), center="none"),
        "ADMMKPCAClient": PublishKeys,
        **dict.fromkeys(
            ("CentroidKMeansClient", "CentroidKPCAClient"),
            lambda: SumCells(centers=rng.standard_normal((columns, target.X.shape[1]))),
        ),
        "DKPCAClient": lambda: FindLocalEigenpairs(kernel=RBF(gamma), n_components=k),
        "FKKMeansClient": lambda: MultiplyColumns(features=RandomFeatures(RBF(gamma), columns), t=1, columns=columns),
        "PeerVFedPCAClient": lambda: IterateAmongPeers(
            rule="average", weight_scaling=False, n_components=k, iterations=k, first=True
        ),
    }
    if target.client in requests:
        return requests[target.client]()
    return MultiplyPoints(embedding=SubspaceEmbedding(RBF(gamma), None, columns), precision="float64")


def replays(target: Target) -> float:
    """Send more requests, each with other parameters: the share that is not answered."""
    rng = np.random.default_rng(0)
    answered = 0
    for _ in range(REPLAYS):
        try:
            target.ask(_random_request(target, rng))
            answered += 1
        except Refused:
            continue
    return 1 - answered / REPLAYS

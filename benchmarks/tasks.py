"""Tasks of the benchmark page: data, parameters, and the measure of an answer that all programs share.

Data are generated, bundled with scikit-learn, or in the folder FEDKERNEL_DATA; all are standardised. Coordinates of
kernel PCA are measured as the space that they span: error(Z) = tr(K) - tr(Q' K Q), K the centred kernel matrix and Q an
orthonormal basis of the centred columns of Z, as a share above the least error for as many components. So neither the
scale nor the order of coordinates matters, and features that are not the kernel's cannot look better than they are.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

Arrays = dict[str, np.ndarray]

EVALUATED = 10_000
"""Most rows on which coordinates are measured; of more, a sample."""

SITES = 8


def clustered(rows: int, columns: int, *, clusters: int = 10, rare: int = 0, tails: bool = False) -> Arrays:
    """Make Gaussian clusters, of which `rare` have one row in 500 each; with `tails`, columns are t-distributed."""
    rng = np.random.default_rng(7)
    centers = 1.5 * rng.standard_normal((clusters + rare, columns))
    centers[clusters:] *= 3
    shares = np.r_[np.full(clusters, (1 - rare / 500) / clusters), np.full(rare, 1 / 500)]
    y = rng.choice(clusters + rare, size=rows, p=shares)
    noise = rng.standard_t(3, (rows, columns)) if tails else rng.standard_normal((rows, columns))
    return {"X": centers[y] + noise, "y": y}


def spread(rows: int, columns: int) -> Arrays:
    """Make columns whose variance lies in directions that count less and less."""
    rng = np.random.default_rng(7)
    few = rng.standard_normal((rows, 20)) * 0.8 ** np.arange(20)
    return {"X": few @ rng.standard_normal((20, columns)) + 0.3 * rng.standard_normal((rows, columns))}


def digits() -> Arrays:
    """Load the handwritten digits that scikit-learn has."""
    X, y = load_digits(return_X_y=True)
    return {"X": X, "y": y}


def named(name: str, rows: int | None = None) -> Callable[[], Arrays]:
    """Return a loader of a set in the folder FEDKERNEL_DATA, of its first rows in a drawn order."""

    def load() -> Arrays:
        with np.load(Path(os.environ["FEDKERNEL_DATA"]) / f"{name}.npz") as stored:
            X, y = np.asarray(stored["X"], dtype=float), stored["y"]
        order = np.random.default_rng(0).permutation(len(X))[:rows]
        return {"X": X[order], "y": np.unique(y[order], return_inverse=True)[1]}

    return load


@dataclass
class Problem:
    """Data of a task, and what a program is told of them.

    Attributes
    ----------
    name : str
    load : callable
        Makes X, and y where there are classes, which no program is given.
    parameters : dict
        Of the job, beside `gamma`.
    cuts : str
        Empty, "rows", "sorted rows" (sites differ) or "columns": where the sites' tables begin and end.
    public : bool
        Whether the data come with this project or its dependencies.
    """

    name: str
    load: Callable[[], Arrays]
    parameters: dict[str, Any]
    cuts: str = ""
    sites: int = SITES
    public: bool = True

    @cached_property
    def arrays(self) -> Arrays:
        """Standardised X, y, and the cuts."""
        arrays = self.load()
        X = arrays["X"] - arrays["X"].mean(axis=0)
        X = X[:, X.std(axis=0) > 0]
        arrays["X"] = X / X.std(axis=0)
        if self.cuts == "sorted rows":
            order = np.argsort(arrays["y"], kind="stable")
            arrays = {name: values[order] for name, values in arrays.items()}
        if self.cuts:
            extent = arrays["X"].shape[1 if self.cuts == "columns" else 0]
            arrays["cuts"] = np.linspace(0, extent, self.sites + 1).astype(int)
        return arrays

    def forget(self) -> None:
        """Free the memory of the data and of the kernel matrix."""
        for name in ("arrays", "sample", "kernel", "gamma"):
            self.__dict__.pop(name, None)

    @cached_property
    def gamma(self) -> float:
        """Width of the RBF kernel, at which the mean exponent between two rows is 1."""
        return 1 / (2 * self.arrays["X"].shape[1])

    @cached_property
    def sample(self) -> np.ndarray:
        """Rows on which coordinates are measured."""
        rows = len(self.arrays["X"])
        return np.sort(np.random.default_rng(1).permutation(rows)[:EVALUATED])

    @cached_property
    def kernel(self) -> tuple[np.ndarray, float, float]:
        """Centred kernel matrix of the sample, its trace, and the least error for k components."""
        X = self.arrays["X"][self.sample]
        K = rbf_kernel(X, gamma=self.gamma).astype(np.float32)
        mean = K.mean(axis=0, dtype=float)
        K -= mean[:, None].astype(np.float32)
        K -= (mean - mean.mean()).astype(np.float32)
        product = LinearOperator(K.shape, matvec=lambda v: (K @ v.astype(np.float32)).astype(float))
        values = eigsh(product, self.parameters["k"], return_eigenvectors=False, tol=1e-6)
        trace = float(np.trace(K, dtype=float))
        return K, trace, trace - float(values.sum())

    def measured_coordinates(self, answer: Arrays) -> float:
        """Return the error of coordinates above the least, as a share of it."""
        Z = answer["coordinates"][self.sample]
        if not np.isfinite(Z).all():
            return float("nan")
        K, trace, least = self.kernel
        Q = np.linalg.qr(Z - Z.mean(axis=0))[0]
        return max((trace - float(np.sum(Q * (K @ Q.astype(np.float32))))) / least - 1, 0.0)

    def measured_components(self, answer: Arrays) -> float:
        """Return the error of principal components above the least, as a share of it."""
        X = self.arrays["X"]
        k = self.parameters["k"]
        if "components" in answer:
            Q = np.linalg.qr(answer["components"].T)[0]
            captured = float(np.sum((X @ Q) ** 2))
        else:
            Q = np.linalg.qr(answer["coordinates"] - answer["coordinates"].mean(axis=0))[0]
            captured = float(np.sum((X.T @ Q) ** 2))
        values = np.linalg.eigvalsh(X.T @ X)
        return max((values.sum() - captured) / values[:-k].sum() - 1, 0.0)

    def measured_labels(self, answer: Arrays) -> float:
        """Return the normalised mutual information of labels and classes."""
        return float(normalized_mutual_info_score(self.arrays["y"], answer["labels"]))


@dataclass(frozen=True)
class Task:
    """A table of the page.

    Attributes
    ----------
    letter, name, heading : str
        `name` is what programs are marked with.
    quality : callable
        Measure of an answer: a share above the least error, or the mutual information of labels and classes.
    problems : tuple of Problem
    repeats : int
        Runs with a seed each.
    seconds : float
        After which a run is ended; a program that has taken half of them is not run once more.
    quick : tuple of int
        Problems of `make benchmark QUICK=1`.
    """

    letter: str
    name: str
    heading: str
    quality: Callable[[Problem, Arrays], float]
    problems: tuple[Problem, ...]
    repeats: int = 3
    seconds: float = 60.0
    quick: tuple[int, ...] = (0,)

    @property
    def clusters(self) -> bool:
        """Whether more is better."""
        return self.quality is Problem.measured_labels

    def good(self, quality: float, best: float) -> bool:
        """Return whether a quality is as good as the best: within .01 of NMI, or a tenth of the error."""
        return quality >= best - 0.01 if self.clusters else quality <= max(1.1 * best, 0.01)


def mixed(rows: int, columns: int = 20) -> Callable[[], Arrays]:
    """Return a maker of ten clusters and five rare ones."""
    return lambda: clustered(rows, columns, rare=5)


def kernel_pca_problems() -> Iterator[Problem]:
    """Yield tables of more and more rows, and real ones."""
    for rows in (4_000, 20_000, 100_000, 1_000_000):
        yield Problem(f"{rows:,} x 20", mixed(rows), {"k": 10})
    yield Problem("heavy tails, 4,000 x 20", lambda: clustered(4_000, 20, tails=True), {"k": 10})
    yield Problem("spambase", named("spambase"), {"k": 10}, public=False)
    yield Problem("shuttle, 5,000 rows", named("shuttle", 5_000), {"k": 10}, public=False)
    yield Problem("fashion, 5,000 x 784", named("fashion_train20k", 5_000), {"k": 10}, public=False)


SATELLITE = ("satellite", named("satellite"), 6, 5.0, False)
CLUSTERS = [("clusters, 20,000 x 16", lambda: clustered(20_000, 16), 10, 5.0, True), SATELLITE]
CLUSTERS += [("mnist5k", named("mnist5k"), 10, 20.0, False)]
COMPONENTS = [("20,000 x 16", lambda: spread(20_000, 16), 5, 5.0, True), SATELLITE]
COMPONENTS += [("20,000 x 6", lambda: spread(20_000, 6), 2, 3.0, True)]


def private_problems(sets: Sequence[tuple[str, Callable[[], Arrays], int, float, bool]]) -> Iterator[Problem]:
    """Yield sets, each with its loader, k, radius, and whether it comes with the project, at four values of epsilon."""
    for epsilon in (1.0, 2.0, 4.0, 8.0):
        for name, load, k, radius, public in sets:
            private = {"k": k, "epsilon": epsilon, "delta": 1e-5, "radius": radius}
            yield Problem(f"{name}, epsilon {epsilon:g}", load, private, "rows", 5, public)


BLOBS = Problem("clusters, 4,000 x 16", lambda: clustered(4_000, 16, tails=True), {"k": 10})
LARGE = (
    Problem("200,000 x 50", lambda: spread(200_000, 50), {"k": 10}),
    Problem("200,000 x 50, ten clusters", lambda: clustered(200_000, 50, tails=True), {"k": 10}),
)


def divided(cuts: str) -> tuple[Problem, ...]:
    """Return digits and a generated table, divided among the sites."""
    return (
        Problem("digits", digits, {"k": 10}, cuts),
        Problem("clusters, 4,000 x 16", lambda: clustered(4_000, 16, tails=True), {"k": 10}, cuts),
        Problem("mnist5k", named("mnist5k"), {"k": 10}, cuts, public=False),
    )


TASKS = (
    Task(
        "A",
        "kernel PCA",
        "Kernel PCA in one place",
        Problem.measured_coordinates,
        tuple(kernel_pca_problems()),
        seconds=40,
    ),
    Task(
        "B",
        "kernel k-means",
        "Kernel k-means in one place",
        Problem.measured_labels,
        (
            BLOBS,
            Problem("digits", digits, {"k": 10}),
            Problem("mnist5k", named("mnist5k"), {"k": 10}, public=False),
            Problem("satellite", named("satellite"), {"k": 6}, public=False),
        ),
        5,
    ),
    Task("C", "PCA", "PCA in parallel", Problem.measured_components, LARGE[:1]),
    Task("C", "k-means", "k-means in parallel", Problem.measured_labels, LARGE[1:]),
    Task("D", "federated PCA, rows", "PCA, rows at eight sites", Problem.measured_components, divided("rows")),
    Task("D", "federated PCA, columns", "PCA, columns at eight sites", Problem.measured_components, divided("columns")),
    Task("D", "federated kernel PCA", "Kernel PCA, rows at eight sites", Problem.measured_coordinates, divided("rows")),
    Task(
        "D",
        "federated k-means",
        "Clusters, rows at eight sites",
        Problem.measured_labels,
        (
            *divided("rows"),
            *(
                Problem(f"{one.name}, sites differ", one.load, one.parameters, one.cuts, one.sites, one.public)
                for one in divided("sorted rows")
            ),
        ),
        5,
    ),
    Task(
        "E",
        "private k-means",
        "Clusters under differential privacy",
        Problem.measured_labels,
        tuple(private_problems(CLUSTERS)),
        5,
        quick=(0, 9),
    ),
    Task(
        "E",
        "private PCA",
        "PCA under differential privacy",
        Problem.measured_components,
        tuple(private_problems(COMPONENTS)),
        5,
        seconds=30,
        quick=(0, 9),
    ),
)
"""All tasks, in the order of the page."""

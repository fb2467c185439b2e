"""Estimators that deal a table's rows or columns to simulated sites, and run a federated method there."""

import dataclasses
import inspect
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fedkernel.ground import AnyArray, Division, FloatArray, InputError, load_class, load_function
from fedkernel.models import RESTARTS, KernelKMeans, KernelPCA, LandmarkPCA
from fedkernel.numerics import IntArray, Kernel, Linear, assign, k_means
from fedkernel.protocol import Member
from fedkernel.sklearn.estimator_base import ClustersEstimator, ComponentsEstimator, KernelEstimator
from fedkernel.strategy import KernelStrategy


class _FederatedEstimator(KernelEstimator):
    """Base of federated estimators: division of a table among sites, choice of a strategy, run, and coordinates."""

    method: Any
    sites: Any
    engine: str
    goal: ClassVar[Literal["components", "clusters"]]
    usual: ClassVar[int]
    divided: ClassVar[Division] = "horizontal"
    """Division by a number of sites, unless the method says otherwise."""

    def _positions(self, sites: Any, shape: tuple[int, ...], divided: Division) -> list[IntArray]:
        axis = int(divided == "vertical")
        whole, what = shape[axis], ("rows, n_samples", "columns, n_features")[axis]
        if np.ndim(sites) == 0:
            if not isinstance(sites, int | np.integer) or not 1 <= sites <= whole:
                raise InputError(f"sites = {sites!r}, but must be from 1 to the number of {what} = {whole}")
            return list(np.array_split(np.arange(whole), int(sites)))
        if len(sites) != whole:
            raise InputError(f"sites has {len(sites)} entries, but must have one for each of the {what} = {whole}")
        names, owners = np.unique(np.asarray(sites), return_inverse=True)
        return [np.flatnonzero(owners == site) for site in range(len(names))]

    def _recommended(self, sites: Any, shape: tuple[int, ...], number: int, kernel: Kernel | None) -> Any:
        lengths: dict[Division, int] = {"horizontal": shape[0], "vertical": shape[1]}
        fitting = [divided for divided, whole in lengths.items() if np.ndim(sites) and len(sites) == whole]
        divided = fitting[0] if len(fitting) == 1 else self.divided
        parts = [len(own) for own in self._positions(sites, shape, divided)]
        sizes = [(shape[0], own) if divided == "vertical" else (own, shape[1]) for own in parts]
        cohort = [Member(client, client, *size) for client, size in enumerate(sizes)]
        return load_function("auto", "advice", "method")(cohort, divided, self.goal, number, kernel)

    def _find_strategy(self, sites: Any, shape: tuple[int, ...]) -> KernelStrategy[Any]:
        """Return the strategy of `method`, with the estimator's kernel and n_components or n_clusters, if given."""
        kernel = None if self.kernel is None and self.gamma is None else self._kernel()
        strategy, number = self.method, getattr(self, f"n_{self.goal}")
        if isinstance(strategy, str) and strategy == "auto":
            usual = self.usual if number in (None, "auto") else number
            strategy = self._recommended(sites, shape, usual, kernel)
        elif isinstance(strategy, str):
            kind: Any = load_class(strategy, KernelStrategy, "pairs", "method")
            fields = inspect.signature(kind).parameters
            own = {"n_clusters" if "n_clusters" in fields else "n_components": number or self.usual}
            own |= {"kernel": kernel or "rbf"} if "kernel" in fields else {}
            own |= {"center": True} if "center" in fields and fields["center"].default is False else {}
            strategy = kind(**own)
        if not isinstance(strategy, KernelStrategy):
            raise InputError(f'method = {strategy!r}, but must be "auto", the name of a pair, or a strategy')
        counts = "n_clusters" if "n_clusters" in (known := strategy.get_params()) else "n_components"
        if self.goal == "clusters" and counts == "n_components" and number == "auto":
            raise InputError(f'n_clusters = "auto", but must be a number: {type(strategy).__name__} finds components')
        if not isinstance(kernel, Linear | None) and "kernel" not in known:
            raise InputError(f"kernel = {kernel!r}, but {type(strategy).__name__} takes none; allowed: None")
        wanted = {counts: number, "kernel": kernel}
        changed = {name: value for name, value in wanted.items() if value is not None and name in known}
        return dataclasses.replace(strategy, **changed)  # type: ignore[type-var]

    def _run(self, X: Any, sites: Any) -> FloatArray:
        """Run the strategy on rows X (n, d), and return the checked rows."""
        rows, sites = self._rows(X, ensure_min_samples=2), self.sites if sites is None else sites
        self.strategy_ = self._find_strategy(sites, rows.shape)
        self.positions_ = self._positions(sites, rows.shape, self.strategy_.partition)
        self._shards = self._dealt(rows)
        self.result_ = self.strategy_.fit(self._shards, engine=self.engine, seed=self._seed())
        model, allowed = self.result_.model, LandmarkPCA if self.goal == "components" else KernelKMeans
        if not isinstance(model, KernelPCA | allowed):
            which = f"finds a {type(model).__name__}, which has no {self.goal} of all rows"
            such = "CentroidKPCA" if self.goal == "components" else "CentroidKMeans"
            raise InputError(f'method = {self.method!r} {which}; allowed: a pair that finds such, as {such}, or "auto"')
        self.embedding_ = model.embedding() if isinstance(model, KernelPCA) else self._gathered("embedding")
        return rows

    def _dealt(self, X: FloatArray) -> list[FloatArray]:
        vertical = self.strategy_.partition == "vertical"
        return [X[:, own] if vertical else X[own] for own in self.positions_]

    def _gathered(self, name: str) -> AnyArray:
        """Return an output of all sites for divided rows, in the input's row order."""
        outputs = [self.result_.outputs[client][name] for client in range(len(self.positions_))]
        return np.asarray(np.concatenate(outputs)[np.argsort(np.concatenate(self.positions_))])

    def _coordinates(self, X: FloatArray) -> FloatArray:
        model, strategy = self.result_.model, vars(self)["strategy_"]
        if isinstance(model, KernelPCA):
            return np.asarray(strategy.transform(model, self._shards, self._dealt(X)))
        return np.asarray(model.transform(X))


class FederatedKernelPCA(_FederatedEstimator, ComponentsEstimator):
    """Kernel PCA over simulated sites, by any pair that finds components of all rows.

    A rehearsal: all rows are in one place, and are dealt to sites that send what they would from elsewhere.

    Parameters
    ----------
    n_components : int or "auto", optional
        k; by default 2, or that of a strategy.
    method : str or KernelStrategy
        "auto" is the first that ``fedkernel advise`` recommends; the name of a pair; or a strategy with its own
        parameters, of which `n_components` and `kernel`, if given, take the place.
    sites : int or array-like
        A number, or for each row, or column, whose it is. A number divides rows, or columns if the pair does.
    engine : {"local", "grpc", "ray"}
        This process, a process for each site, or Flower's simulation.
    kernel : str, dict or Kernel, optional
        As for `LandmarkKernelPCA`; by default "rbf", or that of a strategy.
    gamma, alpha
        As for `LandmarkKernelPCA`. Pre-images are fitted on all rows in one place, which no federation could.
    random_state : int, RandomState instance or None
        The run's seed.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, k)
        Coordinates of the training rows, in their order.
    result_ : Result
        The run's model, costs of each message, history, findings and each site's outputs.
    strategy_ : KernelStrategy

    Notes
    -----
    Rounds, floats and memory are the strategy's: `result_.ledger`. Pairs for divided rows do not centre them in feature
    space. New rows of divided columns take a run of one round; where sites send fewer eigenpairs than their parts have,
    `transform` of the training rows is not quite `embedding_`.
    """

    goal: ClassVar = "components"
    usual: ClassVar = 2

    def __init__(
        self,
        n_components: int | Literal["auto"] | None = None,
        *,
        method: Any = "auto",
        sites: Any = 2,
        engine: str = "local",
        kernel: Any = None,
        gamma: float | None = None,
        alpha: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.n_components, self.method, self.sites, self.engine = n_components, method, sites, engine
        self.kernel, self.gamma, self.alpha, self.random_state = kernel, gamma, alpha, random_state

    def fit(self, X: Any, y: Any = None, sites: Any = None) -> Self:
        """Fit the components of rows X (n, d). `sites`, if given, replaces the parameter of that name."""
        rows, model = self._run(X, sites), self.result_.model
        self.eigenvalues_ = model.eigenvalues_
        self._keep_training(rows, Z := self.embedding_, Z.shape[1], linear=isinstance(model.kernel, Linear))
        return self


class FederatedPCA(FederatedKernelPCA):
    """PCA over simulated sites that have different columns of the same rows, or different rows.

    Parameters and attributes are those of `FederatedKernelPCA`, but the kernel is linear, and a number of sites divides
    columns with "auto". Pairs for divided rows do not centre them: scale them first, as StandardScaler does.
    """

    divided: ClassVar[Division] = "vertical"
    kernel, gamma = "linear", None

    def __init__(
        self,
        n_components: int | Literal["auto"] | None = None,
        *,
        method: Any = "auto",
        sites: Any = 2,
        engine: str = "local",
        alpha: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.n_components, self.method, self.sites, self.engine = n_components, method, sites, engine
        self.alpha, self.random_state = alpha, random_state


class FederatedKernelKMeans(_FederatedEstimator, ClustersEstimator):
    """Kernel k-means over simulated sites, by any pair that finds clusters, or components of divided columns.

    Parameters and attributes are those of `FederatedKernelPCA`, but `n_clusters`, by default 8. `labels_` (n,) are the
    training rows' clusters, in their order, `cluster_centers_` (k, s) among the coordinates. With divided columns the
    coordinator clusters the rows' coordinates, by the best of ten starts of k-means, without a round.
    """

    goal: ClassVar = "clusters"
    usual: ClassVar = 8

    def __init__(
        self,
        n_clusters: int | Literal["auto"] | None = None,
        *,
        method: Any = "auto",
        sites: Any = 2,
        engine: str = "local",
        kernel: Any = None,
        gamma: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters, self.method, self.sites, self.engine = n_clusters, method, sites, engine
        self.kernel, self.gamma, self.random_state = kernel, gamma, random_state

    def fit(self, X: Any, y: Any = None, sites: Any = None) -> Self:
        """Fit the clusters of rows X (n, d). `sites`, if given, replaces the parameter of that name."""
        self._run(X, sites)
        model = self.result_.model
        if isinstance(model, KernelKMeans):
            self._keep(model.centers_, self._gathered("labels"))
        else:
            number, rng = int(self.n_clusters or self.usual), np.random.default_rng(self._seed())
            centers = k_means(self.embedding_, number, rng, restarts=RESTARTS)
            self._keep(centers, assign(self.embedding_, centers)[0])
        return self

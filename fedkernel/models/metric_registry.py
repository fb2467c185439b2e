"""Registry of result metrics, built-in or user-defined: meaning, better direction and display format of each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from fedkernel.ground import AnyArray, FedkernelError, InputError, Rows, imported, load_function, one_line, short_names
from fedkernel.models.class_metrics import classification_error, cluster_ari, cluster_nmi
from fedkernel.models.clusters import clustering_objective

MAIN_METRIC = "error"
"""Default metric to show first, also reported per round."""

ERROR_ROUNDING = 1e-16
"""Errors below this are rounding errors of double precision."""


@dataclass(frozen=True)
class Metric:
    """Metric of a result: its meaning, in one clause, and its display in tables and figures.

    - `name`, `title`: as in a result's ``metrics``, and a heading, by default the name.
    - `better`: the better direction; None if there is none.
    - `axis`: axis of figures: "close", for values far from 0 or of similar size, whose differences an axis from 0 would
      hide; "orders", for errors that span orders of magnitude down to 0.
    - `digits`: formats of a mean and of its standard deviation.
    - `leads`: whether tables and figures may show the metric first by default: not costs, nor bounds.
    - `counted`: whether it counts over the whole run, in a row of results beside its metrics; it is summed over rounds.
    - `cost`: whether it is a cost of the run rather than a quality of its answer.
    - `falls`: whether theory predicts O(1/t) in the iterations t, so that figures compare it with c / t.
    - `function`: for metrics computed on request only, as user-defined ones are: takes the model and the clients'
      tables, and returns a number.
    - `of_classes`: the same for a metric of the rows' classes: takes these, too, (N,), and the run's seed.
    """

    name: str
    meaning: str = ""
    better: Literal["lower", "higher"] | None = None
    unit: str = ""
    axis: Literal["from 0", "close", "orders"] = "from 0"
    digits: tuple[str, str] = (".2e", ".1e")
    leads: bool = True
    title: str = ""
    counted: bool = False
    cost: bool = False
    falls: bool = False
    function: Callable[[Any, Sequence[Rows]], float] | None = None
    of_classes: Callable[[Any, Sequence[Rows], AnyArray, int], float] | None = None

    def __call__(self, model: Any, shards: Sequence[Rows]) -> float:
        """Compute the metric of a model from the clients' tables."""
        if self.function is None:
            raise InputError(f"metric = {self.name!r} has no function; allowed: Metric(..., function=...)")
        return self.function(model, shards)

    @property
    def heading(self) -> str:
        """Heading of a column or an axis."""
        return self.title or self.name

    def written(self, mean: float, std: float | None = None) -> str:
        """Format a mean and its standard deviation; an error at rounding level shows no digits."""
        if self.axis == "orders" and abs(mean) < ERROR_ROUNDING:
            return f"≤ {ERROR_ROUNDING:.0e}"
        whole, part = self.digits
        return f"{mean:{whole}}" if std is None else f"{mean:{whole}} ± {std:{part}}"


_ERROR = partial(Metric, better="lower", axis="orders")
_SHARE = partial(Metric, better="higher", digits=(".4f", ".4f"))
_COSINE = partial(_SHARE, axis="close")
_LEVEL = partial(Metric, better="lower", axis="close", digits=(".4g", ".2g"))
_COUNT = partial(Metric, better="lower", leads=False, cost=True)
_TOTAL = partial(_COUNT, counted=True)

_KNOWN = (
    _ERROR(
        "error",
        "sin-theta error D - ||V^T W||_F^2 between the subspaces of eigenvectors: 0 is equal, D is orthogonal",
        title="error against central",
    ),
    Metric(
        "distance",
        "Euclidean distance between the eigenvectors after aligning their signs (VFedPCA paper, equation 4)",
        better="lower",
    ),
    _ERROR("worst_error", "of isolated baselines, whose error is the clients' mean: the largest"),
    Metric("bound", "the paper's bound on ||sin Theta||_F, the root of the error, where there is one", leads=False),
    Metric("certificate", "a bound on ||sin Theta||_F that the coordinator has without data", leads=False),
    _COUNT("local_components", "eigenpairs that all clients together send (DKPCA paper, figure 3)"),
    _ERROR(
        "recover_error",
        "||H H^T - K_s||_F^2 / N^2 of an embedding H and the best rank-s kernel matrix (FK k-means paper)",
        falls=True,
    ),
    _SHARE("nmi", "normalised mutual information of the clusters and the data set's classes: 1 is the same division"),
    _SHARE("ari", "adjusted Rand index of the clusters and the data set's classes: 1 is the same, 0 is chance"),
    _SHARE(
        "features_nmi",
        "normalised mutual information of the data set's classes and k-means of the coordinates, as many clusters",
        of_classes=cluster_nmi,
    ),
    _SHARE(
        "features_ari",
        "adjusted Rand index of the data set's classes and k-means of the coordinates, as many clusters",
        of_classes=cluster_ari,
    ),
    _SHARE("nmi_central", "normalised mutual information of the clusters and those found with all rows in one place"),
    _LEVEL(
        "classification_error",
        "share of the test rows that a linear support vector machine on the coordinates puts into a wrong class",
        of_classes=classification_error,
    ),
    _COUNT("floats_up_per_iteration", "mean floats that all clients upload in an outer iteration", unit="floats"),
    _COUNT("lanczos_iterations", "mean Lanczos iterations in an outer iteration"),
    _COSINE(
        "similarity",
        "cosine in feature space to the directions of all rows, mean over the nodes (ADMM paper): 1 is equal",
    ),
    _COSINE("similarity_alone", "the same for the directions that each node finds alone"),
    _COSINE(
        "similarity_pooled", "the same for directions from all rows of the node's cell, restricted to its own rows"
    ),
    _COSINE("similarity_ceiling", "the largest possible for combinations of each node's rows"),
    _LEVEL(
        "kmeans_objective", "mean squared distance of rows to their clusters' centres in feature space (disKPCA paper)"
    ),
    _LEVEL(
        "clustering_objective",
        "mean squared distance of rows to the means of their clusters in feature space (FK k-means paper, theorem 3)",
        function=clustering_objective,
    ),
    _LEVEL(
        "reconstruction_error", "||phi(X) - L L^T phi(X)||^2 / ||phi(X)||^2 of components L, all rows (disKPCA paper)"
    ),
    _LEVEL(
        "error_ratio",
        "reconstruction error relative to the least that so many components can have: 1 is the optimum; none where "
        "they capture hardly more than as many rows would",
    ),
    _LEVEL(
        "parallel_seconds",
        "seconds of computing with a machine per client: the slowest client's, summed over the rounds",
        unit="seconds",
        leads=False,
        cost=True,
    ),
    _LEVEL(
        "table_share",
        "numbers that left a site per entry of its table, at the site with the most: real sites allow 0.5",
        unit="numbers per entry",
        title="numbers per entry",
        leads=False,
        cost=True,
    ),
    _SHARE(
        "simplified_silhouette",
        "mean over all rows, by sums over the clients, of 1 - distance to the nearest centre / to the second nearest: "
        "from 0 to 1; above the silhouette, which takes distances between rows, by some 0.1 where clusters are weak",
        axis="close",
    ),
    _SHARE(
        "calinski_harabasz",
        "variance between clusters relative to that within, each by its degrees of freedom, of all rows by sums over "
        "the clients: about the model's centres in place of the clusters' means, no more than about these",
        digits=(".4g", ".2g"),
    ),
    Metric(
        "site_nmi",
        "normalised mutual information of clusters and sites, of sizes in steps of 5 rows: 0 is no relation, 1 is that "
        "clusters are sites",
        leads=False,
        digits=(".4f", ".4f"),
    ),
    Metric(
        "smallest_cluster",
        "rows of the smallest cluster, each site's in steps of 5",
        unit="rows",
        leads=False,
        digits=(",.0f", ",.1f"),
    ),
    _SHARE("stability", "adjusted Rand index of the clusters and those of the first seed, of all rows: 1 is the same"),
    Metric(
        "stability_error",
        "largest error of stability, if rows stay at sites and cluster overlaps are sent in steps of 5",
        better="lower",
        leads=False,
        digits=(".4f", ".4f"),
    ),
    Metric("n_clusters", "clusters that the run chose", leads=False, digits=(".3g", ".2g")),
    Metric("n_components", "components that the run chose", leads=False, digits=(".3g", ".2g")),
    _SHARE(
        "explained_variance_ratio",
        "share of the rows' squared lengths, centred where the method centres, that the components keep",
    ),
    _SHARE(
        "explained_variance",
        "squared length that the components keep of the rows, centred where the method centres: mean over the rows",
        axis="close",
        digits=(".4g", ".2g"),
    ),
    _SHARE(
        "explained_variance_bound",
        "share of the kernel matrix's trace that the components keep at least, as the coordinator knows without data",
        leads=False,
    ),
    _TOTAL("floats_up", "floats that all clients upload", unit="floats", title="floats uploaded"),
    _TOTAL("floats_down", "floats that all clients download", unit="floats", title="floats downloaded"),
    _TOTAL("bytes_up", "bytes that all clients upload", unit="bytes", title="bytes uploaded"),
    _TOTAL("bytes_down", "bytes that all clients download", unit="bytes", title="bytes downloaded"),
    _TOTAL("rows_up", "rows of tables that all clients upload", unit="rows", title="rows uploaded"),
    _TOTAL("rounds", "rounds of communication"),
    _TOTAL("seconds", "time of the whole run", unit="seconds"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _KNOWN}
"""All built-in metrics by name."""


def metric_of(name: str) -> Metric:
    """Return the metric of a name: built-in, a user's already imported, or one with defaults. Nothing is imported."""
    if name in METRICS:
        return METRICS[name]
    own = imported(short_names("metrics").get(name, name))
    if isinstance(own, Metric):
        return replace(own, name=name, title=own.heading)
    return _ERROR(name) if name.endswith("_error") else Metric(name)


def check_metric(name: str, *, counted: bool = False) -> str:
    """Return a metric's name. Raises InputError unless a configuration may use it (`counted`: also counted metrics)."""
    allowed = [metric.name for metric in METRICS.values() if counted or not metric.counted]
    if name not in allowed and not is_user_defined(name):
        raise InputError(f"{name!r} is not known (allowed: {', '.join(allowed)})")
    return name


def is_user_defined(name: str) -> bool:
    """Return whether a metric is user-defined, by its address or entry point. Names of built-in metrics never are."""
    return name not in METRICS and (":" in name or name in short_names("metrics"))


def namesakes(named: Iterable[str]) -> dict[str, str]:
    """Return by name the addresses of other packages' metrics in `named` that built-in ones of that name hide."""
    return {name: address for name, address in short_names("metrics").items() if name in METRICS and name in named}


def compute_metrics(
    named: Iterable[str], model: Any, shards: Sequence[Rows], classes: AnyArray | None = None, seed: int = 0
) -> dict[str, float]:
    """Compute the named metrics that have a function or are user-defined. `classes` (N,): of all rows, if known."""
    computed = {}
    for name in named:
        metric = load_function(name, "metrics", "metric") if is_user_defined(name) else METRICS.get(name)
        of_classes = metric.of_classes if isinstance(metric, Metric) else None
        if of_classes is not None:
            if classes is None:
                raise InputError(f"metric = {name!r} needs classes of the rows, but the data have none")
            computed[name] = _number(name, of_classes, model, shards, classes, seed)
        elif is_user_defined(name) or getattr(metric, "function", None) is not None:
            computed[name] = _number(name, metric, model, shards)
    return computed


def _number(name: str, metric: Any, *arguments: Any) -> float:
    try:
        return float(metric(*arguments))
    except FedkernelError:
        raise
    except Exception as error:  # a user's code
        text = one_line(f"{type(error).__name__}: {error}")
        raise InputError(f"metric = {name!r} fails or returns no number for (model, tables): {text}") from error

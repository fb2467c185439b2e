"""Strategy-client pairs that `fedkernel advise` chooses from, with settings, and the rules to recommend one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedkernel.experiments.commands.advise import Goal
from fedkernel.ground import Division, InputError, load_class
from fedkernel.numerics import Kernel, Linear
from fedkernel.protocol import Forecast, Member, Plan, leading_bytes
from fedkernel.site import values_of
from fedkernel.strategy import KernelStrategy

NARROW_COLUMNS = 40
"""Columns of a part up to which inner products are exact for no more floats than 40 eigenpairs."""


@dataclass(frozen=True)
class Situation:
    """Facts known before a study: the sites' tables, the goal, and the permitted disclosures.

    - `no_trusted_coordinator`: whether the sites trust no coordinator.
    - `share_rows`: whether raw rows may leave the sites.
    - `components_or_clusters`: number of components, or of clusters.
    - `round_overhead`: seconds that a round takes in addition to computing and sending.
    - `memory`: bytes of memory of each machine.
    """

    cohort: Sequence[Member]
    divided: Division
    goal: Goal
    no_trusted_coordinator: bool = False
    share_rows: bool = False
    components_or_clusters: int = 2
    round_overhead: float = 0.1
    memory: float = 16e9

    @property
    def widest(self) -> int:
        """Number of columns of the widest table."""
        return max(member.columns for member in self.cohort)

    @property
    def rows(self) -> int:
        """Number of rows of the smallest table."""
        return min(member.rows for member in self.cohort)

    @property
    def components(self) -> int:
        """Number of components, limited to the possible ones. For clusters, the number of clusters, as in the paper."""
        return min(self.components_or_clusters, self.rows if self.divided == "vertical" else self.widest)

    @property
    def kernel_matrix_fits(self) -> bool:
        """True if a machine's memory holds a kernel matrix of all rows and the work for its leading eigenpairs."""
        return leading_bytes(self.rows, self.components) <= self.memory


def _all_directions(situation: Situation) -> int:
    return min(situation.widest, situation.rows)


RBF = {"type": "rbf", "width": "mean"}

PAPER_SETTINGS = {"merge": "eigenvalue", "update": "inplace"}  # VFedPCA's in its paper

BOTH_GOALS: tuple[Goal, ...] = ("components", "clusters")
CLUSTERS_ONLY: tuple[Goal, ...] = ("clusters",)


@dataclass(frozen=True)
class Candidate:
    """Strategy-client pair with settings, and the rule for recommending it.

    - `method`: the strategy's short name.
    - `settings`: the strategy's parameters except the number of components, or of clusters.
    - `reason`: reason for the pair.
    - `condition`: situation in which the pair is recommended, if no earlier candidate is; "": never.
    - `is_recommended`: the rule in `condition`, for a situation.
    """

    name: str
    method: str
    settings: Mapping[str, Any]
    reason: str
    condition: str = ""
    is_recommended: Callable[[Situation], bool] = lambda situation: True
    goals: tuple[Goal, ...] = ("components",)

    @property
    def kind(self) -> type[KernelStrategy[Any]]:
        """Class of the strategy."""
        kind: type[KernelStrategy[Any]] = load_class(self.method, KernelStrategy, "pairs", "method")
        return kind

    @property
    def peers(self) -> bool:
        """True if the pair needs no coordinator that could read anything."""
        return "graph" in self.settings

    @property
    def evidence(self) -> str:
        """Experiment of `experiments/papers` with evidence for the pair; docs/results has its figures."""
        if self.peers:
            return "compared_peers" if self.kind.partition == "vertical" else "compared_peers_rows"
        return f"compared_{self.kind.partition}"

    @property
    def experiment(self) -> str:
        """Path of the experiment."""
        own = {"CentroidKPCA": "which_method/landmarks", "CentroidKMeans": "which_method/horizontal"}
        return f"experiments/{own.get(self.method, f'papers/{self.evidence}')}.toml"

    def parameters(self, situation: Situation) -> dict[str, Any]:
        """Return the strategy's parameters for a situation."""
        clusters, components = {"n_clusters": situation.components_or_clusters}, {"n_components": situation.components}
        settings = {key: value(situation) if callable(value) else value for key, value in self.settings.items()}
        return (clusters if self.goals == CLUSTERS_ONLY else components) | settings

    def strategy(self, situation: Situation) -> KernelStrategy[Any]:
        """Return the strategy. Raise InputError if settings do not fit the situation."""
        parameters = self.parameters(situation)
        if any(values_of("share_rows", parameters)) and not situation.share_rows:
            raise InputError("this method sends raw rows; pass --share-rows to allow it")
        strategy = self.kind(**parameters)
        strategy.check_cohort(situation.cohort)
        return strategy


CANDIDATES: tuple[Candidate, ...] = (
    # columns are divided
    Candidate(
        "DKPCA, inner products",
        "DKPCA",
        {"kernel": RBF, "local_components": _all_directions, "center": True, "upload": "inner products"},
        "one round, exact for any RBF width, for fewer floats than eigenpairs that come as near",
        condition=f"parts have {NARROW_COLUMNS} columns or fewer, and a kernel matrix of all rows fits into memory",
        is_recommended=lambda situation: situation.widest <= NARROW_COLUMNS and situation.kernel_matrix_fits,
        goals=BOTH_GOALS,
    ),
    Candidate(
        "DKPCA",
        "DKPCA",
        {"kernel": RBF, "local_components": lambda situation: min(NARROW_COLUMNS, situation.rows), "center": True},
        "one round, and with enough eigenpairs nearer to kernel PCA of all columns than VFedAKPCA",
        condition="parts are wider, and a kernel matrix of all rows fits into memory",
        is_recommended=lambda situation: situation.kernel_matrix_fits,
        goals=BOTH_GOALS,
    ),
    Candidate(
        "DKPCA, linear",
        "DKPCA",
        {"local_components": _all_directions, "center": True},
        "one round, exact, without a matrix of rows by rows; where linear components will do",
        condition="a kernel matrix of all rows does not fit into memory",
        goals=BOTH_GOALS,
    ),
    Candidate(
        "VFedPCA, exact",
        "VFedPCA",
        {},
        "exact in some 16 rounds of k vectors; where linear components will do, and columns are many more than rows",
    ),
    Candidate(
        "VFedPCA",
        "VFedPCA",
        PAPER_SETTINGS,
        "to reproduce its paper; never as near as one round of DKPCA",
    ),
    Candidate(
        "VFedAKPCA",
        "VFedAKPCA",
        {"kernel": RBF, **PAPER_SETTINGS},
        "to reproduce its paper; the sum of the sites' kernels is not the kernel of all columns",
    ),
    # rows are divided
    Candidate(
        "centroid KPCA, local",
        "CentroidKPCA",
        {"kernel": RBF, "centroids": "local"},
        "no row leaves, 3 rounds, and local centres are better landmarks than the same number of rows",
        condition="means of a few rows may leave",
    ),
    Candidate(
        "centroid KPCA",
        "CentroidKPCA",
        {"kernel": RBF},
        "only sums over all sites are needed; as near, for more floats",
        condition="sums alone may leave",
    ),
    Candidate(
        "disKPCA",
        "DisKPCA",
        {"kernel": RBF, "share_rows": True},
        "7 rounds for any number of rows, and an error within a stated factor of the least",
        condition="rows may leave",
    ),
    Candidate(
        "uniform landmarks",
        "UniformKPCA",
        {"kernel": RBF, "share_rows": True},
        "disKPCA's rival: 3 rounds; on these data as near, for as many floats",
    ),
    Candidate(
        "centroid k-means, local",
        "CentroidKMeans",
        {"centroids": "local"},
        "no row leaves, 4 rounds, clusters on most sets as good as FK k-means', for at most half of its floats",
        condition="means of a few rows may leave",
        goals=CLUSTERS_ONLY,
    ),
    Candidate(
        "centroid k-means",
        "CentroidKMeans",
        {},
        "only sums over all sites are needed; clusters about as good, for more floats",
        condition="sums alone may leave",
        goals=CLUSTERS_ONLY,
    ),
    Candidate(
        "FK k-means",
        "FKKMeans",
        {},
        "for coordinates: nearer to the best of their rank than random features that are drawn once; no row leaves",
        goals=CLUSTERS_ONLY,
    ),
    Candidate(
        "RFK k-means",
        "RFKKMeans",
        {"n_features": 200},
        "4 rounds, no row leaves; clusters as good as FK k-means' at equal floats, or better",
        goals=CLUSTERS_ONLY,
    ),
    Candidate(
        "k-means of disKPCA",
        "SpectralKMeans",
        {"components": lambda its: {"n_components": its.components_or_clusters, "kernel": RBF, "share_rows": True}},
        "for coordinates, where rows may leave: nearest to the best of their rank; clusters no better",
        goals=CLUSTERS_ONLY,
    ),
    # no coordinator is trusted; it forwards sealed letters that it cannot read
    Candidate(
        "peers, exact merge",
        "PeerVFedPCA",
        {"graph": "ring"},
        "the subspace of all columns on any connected graph",
        condition="columns are divided among peers",
        is_recommended=lambda situation: situation.no_trusted_coordinator,
    ),
    Candidate(
        "peers, forwarded",
        "PeerVFedPCA",
        {"graph": "ring", "relay": True, "merge": "eigenvalue"},
        "the paper's merge of all vectors, on any graph",
    ),
    Candidate(
        "peers, neighbours",
        "PeerVFedPCA",
        {"graph": "ring", "merge": "eigenvalue"},
        "to reproduce its paper; farther from the leading component than a merge of all vectors",
    ),
    Candidate(
        "ADMM, rows",
        "ADMMKPCA",
        {"graph": "ring", "kernel": RBF, "share_rows": True},
        "nearer than with features, and less to send if there are more features than columns",
        condition="rows are divided among peers, and may go to neighbours",
        is_recommended=lambda situation: situation.no_trusted_coordinator,
    ),
    Candidate(
        "ADMM, features",
        "ADMMKPCA",
        {"graph": "ring", "kernel": RBF, "exchange": "features", "n_features": 2000},
        "no row leaves as it is, but neighbours can invert features",
        condition="rows are divided, and may not leave",
    ),
)
"""In order of recommendation: the first that fits a situation and whose rule holds."""


DIVIDED = {"vertical": "columns", "horizontal": "rows"}


def rules() -> str:
    """Return the rules as a table in Markdown, for docs/how-to/which-method.md."""
    lines = ["| divided: wanted | take | where | because |", "| --- | --- | --- | --- |"]
    for candidate in CANDIDATES:
        peers = ", peers" if candidate.peers else ""
        what = f"{DIVIDED[candidate.kind.partition]}{peers}: {', '.join(candidate.goals)}"
        where = candidate.condition or "*only if named*"
        lines.append(f"| {what} | {candidate.name} | {where} | {candidate.reason} |")
    return "\n".join(lines) + "\n"


class Advice(NamedTuple):
    """Advice on one candidate in a situation. `refusal`: the reason against the candidate, or "" if it fits."""

    candidate: Candidate
    refusal: str = ""
    forecast: Forecast | None = None
    plan: Plan | None = None


def advise(situation: Situation) -> list[Advice]:
    """Return advice on all candidates: the recommended first, then suitable ones, then the refused."""
    advice = [_advice_on(candidate, situation) for candidate in CANDIDATES]
    return sorted(advice, key=lambda each: (bool(each.refusal), not _is_recommended(each, situation)))


def _is_recommended(advice: Advice, situation: Situation) -> bool:
    candidate = advice.candidate
    return bool(candidate.condition) and advice.forecast is not None and candidate.is_recommended(situation)


def _advice_on(candidate: Candidate, situation: Situation) -> Advice:
    if candidate.kind.partition != situation.divided:
        kinds = DIVIDED[candidate.kind.partition], DIVIDED[situation.divided]
        return Advice(candidate, "is for divided {}, but {} are divided".format(*kinds))
    if situation.no_trusted_coordinator and not candidate.peers:
        return Advice(candidate, "needs a trusted coordinator")
    if situation.goal not in candidate.goals:
        return Advice(candidate, f"finds {' and '.join(candidate.goals)}, not {situation.goal}")
    try:
        strategy, cohort = candidate.strategy(situation), situation.cohort
        return Advice(candidate, "", strategy.forecast_of_run(cohort), strategy.plan_of_run(len(cohort), 0))
    except InputError as error:
        return Advice(candidate, str(error))


def recommended_strategy(
    cohort: Sequence[Member], divided: Division, goal: Goal, number: int, kernel: Kernel | None
) -> KernelStrategy[Any]:
    """Return the first recommended strategy that sends no rows and takes the kernel. `kernel` None: its default."""
    advice = advise(situation := Situation(cohort, divided, goal, components_or_clusters=number))
    fitting = [each.candidate for each in advice if not each.refusal and _is_recommended(each, situation)]
    if isinstance(kernel, Linear):
        fitting.sort(key=lambda candidate: "kernel" in candidate.settings)
    for candidate in fitting:
        takes = "kernel" in inspect.signature(candidate.kind).parameters
        own = {"kernel": kernel} if takes and kernel is not None else {}
        with suppress(InputError):
            return candidate.kind(**candidate.parameters(situation) | own)
    with_kernel = "" if kernel is None else f" with {kernel!r}"
    raise InputError(f"no recommended pair finds {goal} of these sites{with_kernel}; allowed: the name of a pair")

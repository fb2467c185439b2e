"""The pairs that `fedkernel advise` chooses from, with settings, and the rules by which it does: one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedkernel.addresses import find
from fedkernel.data import Divided
from fedkernel.errors import InputError
from fedkernel.protocol import Forecast, Member, leading_bytes
from fedkernel.strategy import KernelStrategy

Goal = Literal["components", "clusters"]

NARROW = 40
"""Columns of a part, up to which inner products are exact for no more floats than 40 eigenpairs."""

PATIENT = 3600.0
"""Seconds of rounds: the method that waits longer than this for nothing but rounds gives way to one of fewer."""


@dataclass(frozen=True)
class Situation:
    """What is known before a study: the sites' tables, what is wanted, and what may leave.

    Attributes
    ----------
    cohort : sequence of Member
    divided : {"vertical", "horizontal"}
    goal : {"components", "clusters"}
    peers : bool
        Whether there is no coordinator that they trust.
    share_rows : bool
        Whether rows may leave as they are.
    number : int
        Of components, or of clusters.
    wait : float
        Seconds that a round takes beside computing and sending.
    memory : float
        Bytes that each machine has for it.
    """

    cohort: Sequence[Member]
    divided: Divided
    goal: Goal
    peers: bool = False
    share_rows: bool = False
    number: int = 2
    wait: float = 0.1
    memory: float = 16e9

    @property
    def widest(self) -> int:
        """Columns of the widest part."""
        return max(member.columns for member in self.cohort)

    @property
    def rows(self) -> int:
        """Rows of the smallest part."""
        return min(member.rows for member in self.cohort)

    @property
    def kernel_matrix_fits(self) -> bool:
        """Whether a machine can hold a kernel matrix of all rows, and find its leading eigenpairs."""
        return leading_bytes(self.rows, _components(self)) <= self.memory


def _always(situation: Situation, forecast: Forecast) -> bool:
    return True


def _never(situation: Situation, forecast: Forecast) -> bool:
    return False


Parameters = Callable[[Situation], dict[str, Any]]

RBF = {"type": "rbf", "width": "mean"}

PAPER = {"merge": "eigenvalue", "update": "inplace"}
"""VFedPCA as its paper has it."""


@dataclass(frozen=True)
class Candidate:
    """A pair with settings, and when it is the one to take.

    Attributes
    ----------
    name : str
    method : str
        The strategy's short name.
    goals : tuple of {"components", "clusters"}
    parameters : callable
        The strategy's, for a situation.
    because : str
        What speaks for it.
    evidence : str
        The experiment of `experiments/papers` that shows that; docs/results has its figures.
    when : str
        In which situation it is recommended, if no candidate before it is; "" never.
    holds : callable
        The same of a situation and what the run is forecast to take.
    peers : bool
        Whether it needs no coordinator that could read anything.
    """

    name: str
    method: str
    goals: tuple[Goal, ...]
    parameters: Parameters
    because: str
    evidence: str
    when: str = ""
    holds: Callable[[Situation, Forecast], bool] = _never
    peers: bool = False

    @property
    def kind(self) -> type[KernelStrategy[Any]]:
        """The strategy's class."""
        kind: type[KernelStrategy[Any]] = find(self.method, KernelStrategy, "pairs", "method")
        return kind

    def strategy(self, situation: Situation) -> KernelStrategy[Any]:
        """Return the strategy with these settings; InputError where they do not fit the situation.

        A kernel has width 1 in place of one that follows from the data, of which no cost depends.
        """
        if "share_rows" in self.needs(situation) and not situation.share_rows:
            raise InputError("rows leave as they are; allowed only with --share-rows")
        strategy = self.kind(**_settled(self.parameters(situation)))
        strategy.check_cohort(situation.cohort)
        return strategy

    def needs(self, situation: Situation) -> set[str]:
        """Return what must be allowed: ``share_rows``, or nothing."""
        parameters = self.parameters(situation)
        inner = parameters.get("components")
        shares = parameters.get("share_rows") or (isinstance(inner, dict) and inner.get("share_rows"))
        return {"share_rows"} if shares else set()


def _settled(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with a number in place of a width by rule."""
    return {
        name: {"type": "rbf", "gamma": 1.0} if value == RBF else _settled(value) if isinstance(value, dict) else value
        for name, value in parameters.items()
    }


def _components(situation: Situation) -> int:
    """Return how many components are asked for; of clusters as many as these are, as their paper has it."""
    return min(situation.number, situation.rows if situation.divided == "vertical" else situation.widest)


def _local(most: int) -> Parameters:
    def parameters(situation: Situation) -> dict[str, Any]:
        return {
            "n_components": _components(situation),
            "kernel": RBF,
            "local_components": min(most, situation.rows),
            "center": True,
        }

    return parameters


def _inner_products(situation: Situation) -> dict[str, Any]:
    exact = {"upload": "inner products", "local_components": min(situation.widest, situation.rows)}
    return _local(1)(situation) | exact


def _linear(situation: Situation) -> dict[str, Any]:
    all_of_them = min(situation.widest, situation.rows)
    return {"n_components": _components(situation), "local_components": all_of_them, "center": True}


def _landmarks(situation: Situation) -> dict[str, Any]:
    return {"n_components": _components(situation), "kernel": RBF, "share_rows": True}


def _clusters(**more: Any) -> Parameters:
    return lambda situation: {"n_clusters": situation.number, **more}


def _spectral(situation: Situation) -> dict[str, Any]:
    components = _landmarks(situation) | {"n_components": situation.number}
    return {"n_clusters": situation.number, "components": components}


def _nodes(**more: Any) -> Parameters:
    neighbors = {"graph": "ring", "kernel": {"type": "rbf", "width": "mean"}}
    return lambda situation: {"n_components": _components(situation), **neighbors, **more}


def _merge(**more: Any) -> Parameters:
    return lambda situation: {"n_components": _components(situation), "graph": "ring", **more}


CANDIDATES: tuple[Candidate, ...] = (
    # columns are divided
    Candidate(
        "DKPCA, inner products",
        "DKPCA",
        ("components", "clusters"),
        _inner_products,
        "one round, exact for an RBF kernel of any width, and less to send than as good eigenpairs of kernel matrices",
        "compared_vertical",
        when=f"parts have {NARROW} columns or fewer, and a kernel matrix of all rows fits into memory",
        holds=lambda situation, forecast: situation.widest <= NARROW and situation.kernel_matrix_fits,
    ),
    Candidate(
        "DKPCA",
        "DKPCA",
        ("components", "clusters"),
        _local(NARROW),
        "one round, and by more eigenpairs nearer to kernel PCA of all columns than VFedAKPCA ever comes",
        "compared_vertical",
        when="parts are wider, and a kernel matrix of all rows fits into memory",
        holds=lambda situation, forecast: situation.kernel_matrix_fits,
    ),
    Candidate(
        "DKPCA, linear",
        "DKPCA",
        ("components", "clusters"),
        _linear,
        "one round, exact, and nobody holds a matrix of rows by rows; where linear components will do",
        "compared_vertical",
        when="a kernel matrix of all rows does not fit into memory",
        holds=_always,
    ),
    Candidate(
        "VFedPCA, exact",
        "VFedPCA",
        ("components",),
        lambda situation: {"n_components": _components(situation)},
        "where linear components will do and parts are much wider than long: k vectors a round, exact by 16 rounds",
        "compared_vertical",
    ),
    Candidate(
        "VFedPCA",
        "VFedPCA",
        ("components",),
        lambda situation: {"n_components": _components(situation), **PAPER},
        "to reproduce its paper: no number of rounds brings it as near as one round of DKPCA",
        "compared_vertical",
    ),
    Candidate(
        "VFedAKPCA",
        "VFedAKPCA",
        ("components",),
        lambda situation: {"n_components": _components(situation), "kernel": RBF, **PAPER},
        "to reproduce its paper: its local kernels are others than that of all columns",
        "compared_vertical",
    ),
    # rows are divided
    Candidate(
        "disKPCA",
        "DisKPCA",
        ("components",),
        _landmarks,
        "7 rounds for any number of rows, and a stated multiple of the least error",
        "compared_horizontal",
        when="rows may leave",
        holds=_always,
    ),
    Candidate(
        "uniform landmarks",
        "UniformKPCA",
        ("components",),
        lambda situation: {"n_components": _components(situation), "kernel": RBF, "share_rows": True},
        "3 rounds, and on these data as near as disKPCA for as many floats: its rival",
        "compared_horizontal",
    ),
    Candidate(
        "FK k-means",
        "FKKMeans",
        ("clusters",),
        _clusters(),
        "no row leaves, and it comes nearer to the best coordinates of their rank than random features drawn once",
        "compared_horizontal",
        when=f"its rounds are waited for no longer than {PATIENT:g} s",
        holds=lambda situation, forecast: forecast.rounds * situation.wait <= PATIENT,
    ),
    Candidate(
        "RFK k-means",
        "RFKKMeans",
        ("clusters",),
        _clusters(n_features=200),
        "6 rounds, no row leaves; at equal floats clusters agree with the classes as well as FK k-means', or better",
        "compared_horizontal",
        when="rounds are slow",
        holds=_always,
    ),
    Candidate(
        "k-means of disKPCA",
        "SpectralKMeans",
        ("clusters",),
        _spectral,
        "where rows may leave: nearest to the best coordinates of their rank, for clusters that agree no better",
        "compared_horizontal",
    ),
    # no coordinator is trusted with anything; letters are sealed, and forwarded by one that cannot read them
    Candidate(
        "peers, exact merge",
        "PeerVFedPCA",
        ("components",),
        _merge(),
        "the subspace of all columns on any connected graph, by sums along a tree",
        "compared_peers",
        when="columns are divided among peers",
        holds=lambda situation, forecast: situation.peers,
        peers=True,
    ),
    Candidate(
        "peers, forwarded",
        "PeerVFedPCA",
        ("components",),
        _merge(relay=True, merge="eigenvalue"),
        "the paper's merge of all clients' vectors on any graph",
        "compared_peers",
        peers=True,
    ),
    Candidate(
        "peers, neighbours",
        "PeerVFedPCA",
        ("components",),
        _merge(merge="eigenvalue"),
        "to reproduce its paper: stays farther from the leading component than merging all",
        "compared_peers",
        peers=True,
    ),
    Candidate(
        "ADMM, rows",
        "ADMMKPCA",
        ("components",),
        _nodes(share_rows=True),
        "nearer to the direction of all rows than features, for less to send where those are more than columns",
        "compared_peers_rows",
        when="rows are divided among peers, and may go to neighbours",
        holds=lambda situation, forecast: situation.peers,
        peers=True,
    ),
    Candidate(
        "ADMM, features",
        "ADMMKPCA",
        ("components",),
        _nodes(exchange="features", n_features=2000),
        "no row leaves as it is, though a neighbour can invert its features",
        "compared_peers_rows",
        when="rows are divided, and may not leave",
        holds=_always,
        peers=True,
    ),
)
"""In the order in which they are recommended; the first that fits a situation and whose rule holds."""

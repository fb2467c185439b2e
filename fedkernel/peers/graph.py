"""Communication graphs: connected, undirected, of nodes 0 to n - 1, from networkx or a file.

| kind | edges | parameters |
|---|---|---|
| `ring` | each node and its `neighbors` nearest on a circle, half of them on each side | `neighbors`: even; None: 2 |
| `star` | node 0 and each other node | |
| `full` | every pair of nodes | |
| `grid` | beside and below each other, row by row | `rows`, `columns`; None: as close to a square as n allows |
| `random-geometric` | points at random in the unit square, no farther apart than `radius` | `radius`, `seed` |
| `edges` | as listed | `edges`: pairs of nodes |
| `file` | as `path` says: .graphml, or an edge list: a line per edge, its nodes' numbers, # before comments | `path` |

As a strategy's field, declared as `Graph`, a kind alone stands for the topology with its defaults: ``graph = "ring"``,
or ``graph = {kind = "grid", rows = 4}``. A list of edges stands for itself, ``graph = [[0, 1], [0, 2]]``, and so does a
graph of networkx.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from xml.etree.ElementTree import ParseError

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt

from fedkernel.ground import InputError, check_at_most, value_object

Neighbours: TypeAlias = Sequence[Sequence[int]]
"""Neighbours of each node, in order, without the node itself."""

# a parameter ignored by its kind is refused: recorded with the run, it would mislead readers
_PARAMETERS = {
    "ring": ("neighbors",),
    "grid": ("rows", "columns"),
    "random-geometric": ("radius", "seed"),
    "edges": ("edges",),
    "file": ("path",),
}
_NEEDED = {"random-geometric": "radius", "edges": "edges", "file": "path"}


@value_object()
class Topology:
    """Specification of a communication graph, from a ``graph`` table.

    This module's docstring has the kinds and their parameters. `neighbors` is less than the number of nodes, `rows`
    times `columns` is that number, with None computed, and `radius` is a distance in the unit square. `radius`,
    `edges` and `path` are required by their kinds; `seed` is 0 by default.
    """

    kind: Literal["ring", "star", "full", "grid", "random-geometric", "edges", "file"] = "ring"
    neighbors: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    rows: PositiveInt | None = None
    columns: PositiveInt | None = None
    radius: PositiveFloat | None = None
    seed: NonNegativeInt | None = None
    edges: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        """Refuse parameters of other kinds, and kinds without the parameter that they need."""
        for kind, names in _PARAMETERS.items():
            if kind != self.kind and (others := [name for name in names if getattr(self, name) is not None]):
                raise InputError(f"{others[0]} belongs to kind = {kind!r}, but kind = {self.kind!r}")
        needed = _NEEDED.get(self.kind)
        if needed and getattr(self, needed) is None:
            raise InputError(f"kind = {self.kind!r} needs {needed}")


def _table_of(value: Any) -> Any:
    """Convert a kind, a list of edges or a networkx graph to a table. Tables and topologies are returned unchanged."""
    if isinstance(value, Topology | Mapping):
        return value
    if isinstance(value, str):
        return {"kind": value}
    edges = getattr(value, "edges", value)
    if not isinstance(edges, Iterable):
        raise ValueError(f"{value!r} is no graph; allowed: a kind such as 'ring', a table, or a list of edges")
    if hasattr(value, "is_directed") and value.is_directed():
        raise ValueError(f"a {type(value).__name__} is directed; allowed: undirected ones, as letters go both ways")
    return {"kind": "edges", "edges": list(edges)}


Graph: TypeAlias = Annotated[Topology, BeforeValidator(_table_of)]
"""Type of a strategy's field that takes a `Topology`, its table, its kind alone, or its edges."""


def neighbours(spec: Topology, n: int) -> list[tuple[int, ...]]:
    """Return the sorted neighbours of each of n nodes. InputError: the graph does not fit n, or is not connected."""
    if n < 1:
        raise InputError(f"n = {n}, but a graph must have at least 1 node")
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    if spec.kind in ("edges", "file"):
        given = nx.Graph(spec.edges) if spec.edges is not None else _read(str(spec.path))
        graph = _checked(given, n, _graph_name(spec))
    else:
        graph = _make(spec, n)
    if not nx.is_connected(graph):
        parts = nx.number_connected_components(graph)
        raise InputError(f"{_graph_name(spec)} with {n} nodes is not connected but falls into {parts} parts")
    return [tuple(sorted(graph.neighbors(node))) for node in range(n)]


def spanning_tree(
    adjacent: Neighbours, weights: Mapping[tuple[int, int], float] | None = None, root: int = 0
) -> list[list[tuple[int, int]]]:
    """Return the edges (parent, child) of a spanning tree from its root, a list per depth.

    Without weights it is the breadth-first tree; with a weight for every edge (j, l), j < l, the maximum spanning tree,
    whose smallest weight is no smaller than any other tree's.
    """
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    graph = _graph(adjacent)
    if weights is not None:
        nx.set_edge_attributes(graph, dict(weights), "weight")
        graph = nx.maximum_spanning_tree(graph)
    levels: list[list[tuple[int, int]]] = []
    depth = {root: 0}
    for parent, child in nx.bfs_edges(graph, root, sort_neighbors=sorted):
        depth[child] = depth[parent] + 1
        if depth[child] > len(levels):
            levels.append([])
        levels[-1].append((parent, child))
    return levels


def distances(adjacent: Neighbours) -> npt.NDArray[np.int64]:
    """Return the distances (n, n) between all pairs of n nodes, as numbers of edges on shortest paths."""
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    lengths = dict(nx.all_pairs_shortest_path_length(_graph(adjacent)))
    return np.array([[lengths[node][other] for other in range(len(adjacent))] for node in range(len(adjacent))])


def central_node(adjacent: Neighbours) -> int:
    """Return the first node of least eccentricity, the distance to the farthest other node."""
    return int(distances(adjacent).max(axis=1).argmin())


def _graph(adjacent: Neighbours) -> Any:
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    return nx.Graph({node: list(others) for node, others in enumerate(adjacent)})


def _graph_name(spec: Topology) -> str:
    names = {
        "file": f"the graph in {spec.path}",
        "edges": "the graph of edges",
        "random-geometric": f"the graph of radius {spec.radius}",
    }
    return names.get(spec.kind, f"the graph {spec.kind!r}")


def _make(spec: Topology, n: int) -> Any:
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    if spec.kind == "star":
        return nx.star_graph(n - 1)
    if spec.kind == "full":
        return nx.complete_graph(n)
    if spec.kind == "random-geometric":
        return nx.random_geometric_graph(n, spec.radius, seed=spec.seed or 0)
    if spec.kind == "grid":
        rows, columns = _sides(spec, n)
        return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    k = spec.neighbors or 2
    if n == 1:
        return nx.empty_graph(1)
    check_at_most("graph: neighbors", k, (n - 1) // 2 * 2, "", f" on a ring of {n} nodes")
    return nx.circulant_graph(n, range(1, k // 2 + 1))


def _sides(spec: Topology, n: int) -> tuple[int, int]:
    if spec.columns is not None:
        rows = spec.rows or n // spec.columns
    else:
        rows = spec.rows or max(side for side in range(1, math.isqrt(n) + 1) if n % side == 0)
    columns = spec.columns or n // rows
    if rows * columns != n:
        sides = ", ".join(f"{name} = {side}" for name in ("rows", "columns") if (side := getattr(spec, name)))
        raise InputError(f"graph: {sides}, but the grid must have {n} nodes")
    return rows, columns


def _read(path: str) -> Any:
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    try:
        return nx.read_graphml(path, node_type=int) if path.lower().endswith(".graphml") else _edge_list(path)
    except FileNotFoundError:
        raise InputError(f"there is no graph file {path}") from None
    except (nx.NetworkXException, ParseError, KeyError, OSError, TypeError, ValueError) as error:
        kind = f"graph of numbered nodes, .graphml or edge list ({type(error).__name__})"
        raise InputError(f"{path} is damaged or is no {kind}") from None


def _checked(graph: Any, n: int, name: str) -> Any:
    """Return a graph if its nodes are 0 to n - 1, without loops and directions. Else raise InputError with its name."""
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    if graph.is_directed():
        raise InputError(f"{name} is directed, but must be undirected: letters go both ways along an edge")
    if nx.number_of_selfloops(graph):
        node = min(node for node, _ in nx.selfloop_edges(graph))
        raise InputError(f"{name} has an edge from node {node} to itself")
    if n == 1 and not graph:
        graph.add_node(0)  # an edge list of one node is empty
    if len(graph) != n:
        raise InputError(f"{name} has {len(graph)} nodes, but must have {n}")
    if strangers := sorted(set(graph) - set(range(n))):
        raise InputError(f"{name} has a node {strangers[0]}, but its nodes must be 0 to {n - 1}")
    return nx.Graph(graph)


def _edge_list(path: str) -> Any:
    import networkx as nx  # noqa: PLC0415 - no other command waits for it

    lines = [line.split("#")[0] for line in Path(path).read_text().splitlines()]
    edges = [line for line in lines if line.strip()]
    # networkx skips invalid lines
    if any(len(line.split()) != 2 for line in edges):
        raise ValueError("a line of an edge list must have two numbers")
    return nx.parse_edgelist(edges, nodetype=int)

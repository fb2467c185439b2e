"""Graphs: who is a neighbour of whom in each kind, trees and diameters, and what is no graph for peers."""

import itertools
import math
from collections import deque

import networkx as nx
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusing

from fedkernel.ground import InputError, value_object
from fedkernel.peers import Graph, Topology, central_node, neighbours, spanning_tree
from fedkernel.peers import distances as all_distances


def edges(adjacent):
    return {(a, b) for a, others in enumerate(adjacent) for b in others}


def distances(adjacent, start):
    """Breadth-first search by hand."""
    distances, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for other in adjacent[node]:
            if other not in distances:
                distances[other] = distances[node] + 1
                queue.append(other)
    return distances


@st.composite
def topologies(draw):
    n = draw(st.integers(1, 30))
    specs = [Topology("star"), Topology("full"), Topology("grid")]
    specs += [Topology("ring", neighbors=k) for k in range(2, n, 2)]
    specs += [Topology("random-geometric", radius=1.5, seed=draw(st.integers(0, 9)))]
    return draw(st.sampled_from(specs)), n


@given(topologies())
def test_every_graph_is_symmetric_connected_sorted_and_without_loops_and_its_tree_holds_every_node_once(drawn):
    adjacent = neighbours(*drawn)
    assert len(adjacent) == drawn[1]
    assert all((b, a) in edges(adjacent) and a != b for a, b in edges(adjacent))
    assert all(list(others) == sorted(set(others)) for others in adjacent)
    assert len(distances(adjacent, 0)) == len(adjacent)
    root = central_node(adjacent)
    levels = spanning_tree(adjacent, root=root)
    far = distances(adjacent, root)
    assert len(levels) == min(max(distances(adjacent, node).values()) for node in range(len(adjacent)))
    reached = {root: 0}
    for depth, level in enumerate(levels, start=1):
        assert level
        for parent, child in level:
            assert (parent, child) in edges(adjacent)
            assert reached[parent] == depth - 1
            assert child not in reached
            reached[child] = depth
    assert reached == far
    for node, lengths in enumerate(all_distances(adjacent).tolist()):
        assert dict(enumerate(lengths)) == distances(adjacent, node)


@pytest.mark.parametrize(("n", "k"), [(3, 2), (5, 2), (5, 4), (8, 4), (8, 6), (20, 12)])
def test_ring_neighbours_are_the_nearest(n, k):
    for node, others in enumerate(neighbours(Topology("ring", neighbors=k), n)):
        steps = [step for step in range(-k // 2, k // 2 + 1) if step]
        assert others == tuple(sorted((node + step) % n for step in steps))


def test_star_full_and_grid_by_hand():
    assert neighbours(Topology("star"), 4) == [(1, 2, 3), (0,), (0,), (0,)]
    assert neighbours(Topology("full"), 3) == [(1, 2), (0, 2), (0, 1)]
    by_hand = [(1, 3), (0, 2, 4), (1, 5), (0, 4), (1, 3, 5), (2, 4)]
    assert neighbours(Topology("grid", rows=2), 6) == by_hand
    assert neighbours(Topology("grid", columns=3), 6) == by_hand
    assert neighbours(Topology("grid", rows=2, columns=3), 6) == by_hand
    assert neighbours(Topology("grid"), 6) == by_hand, "as close to a square as it can be"
    assert neighbours(Topology("ring"), 4) == [(1, 3), (0, 2), (1, 3), (0, 2)]
    assert spanning_tree(neighbours(Topology("ring"), 4)) == [[(0, 1), (0, 3)], [(1, 2)]]


def test_a_random_geometric_graph_follows_its_radius_and_seed():
    spec = Topology("random-geometric", radius=0.4, seed=3)
    points = nx.get_node_attributes(nx.random_geometric_graph(20, 0.4, seed=3), "pos")
    near = {pair for pair in itertools.permutations(range(20), 2) if math.dist(*map(points.get, pair)) <= 0.4}
    assert edges(neighbours(spec, 20)) == near
    assert neighbours(spec, 20) != neighbours(Topology("random-geometric", radius=0.4, seed=4), 20)
    default = Topology("random-geometric", radius=0.5)
    assert neighbours(default, 20) == neighbours(Topology("random-geometric", radius=0.5, seed=0), 20)


def written(tmp_path, text, name="graph.txt"):
    (tmp_path / name).write_text(text)
    return Topology("file", path=str(tmp_path / name))


def test_edge_lists_in_any_order_with_comments_and_graphml_are_read(tmp_path):
    spec = written(tmp_path, "# a path\n2 1\n\n0 2  # and so on\n1 2\n3 1\n")
    assert neighbours(spec, 4) == [(2,), (2, 3), (0, 1), (1,)]
    path = tmp_path / "graph.graphml"
    nx.write_graphml(nx.cycle_graph(5), path)
    assert neighbours(Topology("file", path=str(path)), 5) == neighbours(Topology("ring"), 5)
    nx.write_graphml(nx.empty_graph(1), path)
    assert neighbours(Topology("file", path=str(path)), 1) == [()]
    assert neighbours(written(tmp_path, ""), 1) == neighbours(Topology("ring"), 1) == [()]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0 1\n2 3\n", "is not connected but falls into 2 parts"),
        ("0 1\n1 2\n2 3\n3 3\n", "has an edge from node 3 to itself"),
        ("0 1\n1 2\n", "has 3 nodes, but must have 4"),
        ("0 1\n1 2\n2 3\n3 4\n", "has 5 nodes, but must have 4"),
        ("1 2\n2 3\n3 4\n", "has a node 4, but its nodes must be 0 to 3"),
        ("0 1\n1 2\n2 -1\n", "has a node -1, but its nodes must be 0 to 3"),
        ("a b\nb c\nc d\n", "is damaged or is no graph of numbered nodes"),
        ("0 1\n1 2\n2 3\n0\n", "is damaged or is no graph of numbered nodes"),
        ("0 1 2\n2 3 4\n", "is damaged or is no graph of numbered nodes"),
        ("<graphml>", "is damaged or is no graph of numbered nodes"),
        ("", "has 0 nodes, but must have 4"),
    ],
)
def test_an_edge_list_that_is_no_graph_of_the_nodes_is_refused(tmp_path, text, sentence):
    with refusing("graph", sentence):
        neighbours(written(tmp_path, text), 4)


def test_graphml_that_is_no_graph_of_the_nodes_is_refused(tmp_path):
    path = tmp_path / "graph.graphml"

    def refused(text, path=path):
        with pytest.raises(InputError, match=text):
            neighbours(Topology("file", path=str(path)), 3)

    refused("there is no graph file")
    nx.write_graphml(nx.cycle_graph(3, nx.DiGraph), path)
    refused("is directed, but must be undirected")
    nx.write_graphml(nx.relabel_nodes(nx.cycle_graph(3), {0: "a"}), path)
    refused(r"is damaged or is no graph of numbered nodes, .* \(ValueError\)")
    nx.write_graphml(nx.cycle_graph(3), path)
    for content in (path.read_bytes()[:-30], b"\xff\x00\xfe"):
        path.write_bytes(content)
        refused("is damaged")
    refused("is damaged", tmp_path)


@pytest.mark.parametrize(
    ("table", "n", "sentence"),
    [
        ({"kind": "ring", "neighbors": 3}, 6, "neighbors = 3: input should be a multiple of 2"),
        ({"kind": "ring", "neighbors": 0}, 6, "neighbors = 0"),
        ({"kind": "torus"}, 6, "kind = 'torus'"),
        ({"kind": "star", "neighbors": 2}, 6, "neighbors belongs to kind = 'ring', but kind = 'star'"),
        ({"kind": "ring", "seed": 0}, 6, "seed belongs to kind = 'random-geometric'"),
        ({"kind": "file"}, 6, "kind = 'file' needs path"),
        ({"kind": "random-geometric"}, 6, "kind = 'random-geometric' needs radius"),
        ({"kind": "grid", "rows": 0}, 6, "rows = 0"),
        ({"kind": "ring", "colour": 0}, 6, "colour is not a known name here"),
        ({"kind": "ring"}, 2, "neighbors = 2, but must be at most 0 on a ring of 2 nodes"),
        ({"kind": "ring", "neighbors": 6}, 6, "neighbors = 6, but must be at most 4 on a ring of 6 nodes"),
        ({"kind": "grid", "rows": 4}, 6, "rows = 4, but the grid must have 6 nodes"),
        ({"kind": "grid", "columns": 9}, 6, "columns = 9, but the grid must have 6 nodes"),
        ({"kind": "grid", "rows": 2, "columns": 2}, 6, "rows = 2, columns = 2, but the grid must have 6 nodes"),
        ({"kind": "random-geometric", "radius": 0.01}, 6, "of radius 0.01 with 6 nodes is not connected"),
        ({"kind": "full"}, 0, "must have at least 1"),
        ({"kind": "edges"}, 6, "kind = 'edges' needs edges"),
        ({"kind": "edges", "edges": [[0, 1], [1, 2, 3]]}, 6, "edges.1 = [1, 2, 3]: input should"),
        ({"kind": "edges", "edges": [[0, -1]]}, 6, "edges.0.1 = -1: input should be greater than or equal to 0"),
        ({"kind": "edges", "edges": [[0, 1], [2, 3]]}, 4, "the graph of edges with 4 nodes is not connected"),
        ({"kind": "edges", "edges": [[0, 1]]}, 3, "the graph of edges has 2 nodes, but must have 3"),
        ({"kind": "edges", "edges": [[0, 1], [1, 1]]}, 2, "the graph of edges has an edge from node 1 to itself"),
    ],
)
def test_a_table_that_makes_no_sense_or_no_graph_of_n_nodes_is_refused(table, n, sentence):
    with refusing(sentence):
        neighbours(Topology(**table), n)


def test_a_strategy_takes_a_kind_a_table_a_topology_or_edges():
    @value_object()
    class Uses:
        graph: Graph = Topology("ring")

    assert Uses().graph == Topology("ring")
    assert Uses(graph="star").graph == Topology("star")
    assert Uses(graph={"kind": "grid", "rows": 2}).graph == Topology("grid", rows=2)
    for star in ([[0, 1], [0, 2], [0, 3]], nx.star_graph(3)):
        assert neighbours(Uses(graph=star).graph, 4) == neighbours(Topology("star"), 4)
    with pytest.raises(InputError, match="graph: 3 is no graph; allowed: a kind such as 'ring', a table, or a list of"):
        Uses(graph=3)
    with pytest.raises(InputError, match=r"^Uses: graph: kind = 'file' needs path$"):
        Uses(graph="file")
    with pytest.raises(InputError, match="graph: a DiGraph is directed; allowed: undirected ones"):
        Uses(graph=nx.DiGraph([(0, 1)]))
    plain = pydantic.TypeAdapter(Topology).dump_python(Topology("ring", neighbors=4), mode="json")
    assert Uses(graph=plain).graph == Uses(graph=Topology("ring", neighbors=4)).graph
    with pytest.raises(InputError, match="graph = 'torus': input should be 'ring', 'star'"):
        Uses(graph="torus")


def test_a_spanning_tree_of_the_largest_weights():
    """On a circle it leaves out the lightest edge; without weights it is the breadth-first tree."""
    circle = neighbours(Topology("ring"), 6)
    weights = {(j, q): 1.0 + j for j in range(6) for q in circle[j] if j < q} | {(1, 2): 0.5}
    assert spanning_tree(circle, weights) == [[(0, 1), (0, 5)], [(5, 4)], [(4, 3)], [(3, 2)]]
    assert spanning_tree(circle) == [[(0, 1), (0, 5)], [(1, 2), (5, 4)], [(2, 3)]]
    for weights in ({}, None):
        assert spanning_tree([()], weights) == []

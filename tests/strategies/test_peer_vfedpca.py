"""VFedPCA and VFedAKPCA without a server: against those with one, and against each client's own computation."""

import naive
import numpy as np
import pytest
from grids import in_turn
from refusals import refusing
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, InputError, PeerVFedPCA, ProtocolError, Topology, VFedAKPCA, VFedPCA
from fedkernel.clients.peer_vfedpca import NextBlock, RelayedVectors, SubtreeProduct
from fedkernel.numerics import sin_theta_error
from fedkernel.peers import Mailbox, distances, neighbours

WINE = StandardScaler().fit_transform(load_wine().data[::2])
N = len(WINE)
SHARDS = np.array_split(WINE, 5, axis=1)
PAPER = {"merge": "eigenvalue", "update": "inplace"}
FEW = {"merge": "eigenvalue", "rounds": 3}
SETTINGS = [
    {"merge": "eigenvalue"},
    {"merge": "eigenvalue", "n_components": 2, "weight_scaling": True},
    {"merge": "average", "n_components": 2, "warm_start": True},
]


@pytest.mark.parametrize(("fields", "update"), in_turn(SETTINGS, ["inplace", "original"], every=2))
def test_on_a_full_graph_it_is_the_server_s(fields, update):
    server = VFedPCA(update=update, rounds=4, **fields).fit(SHARDS, seed=5)
    peers = PeerVFedPCA(update=update, rounds=4, **fields).fit(SHARDS, seed=5)
    for client in range(5):
        outputs = peers.outputs[client]
        np.testing.assert_allclose(outputs["eigenvectors"], server.model.eigenvectors_, rtol=0, atol=1e-12)
        np.testing.assert_allclose(outputs["iterates"], server.model.iterates_, rtol=0, atol=1e-12)
        np.testing.assert_allclose(outputs["features"], server.outputs[client]["features"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("center", ["columns", "rows", "none"])
def test_with_a_kernel_it_is_vfedakpca(center):
    server = VFedAKPCA(2, kernel=RBF(gamma=0.1), center=center, rounds=4, **PAPER).fit(SHARDS)
    strategy = PeerVFedPCA(2, kernel=RBF(gamma=0.1), center=center, rounds=4, **PAPER)
    peers = strategy.fit(SHARDS)
    for client in range(5):
        eigenvectors = peers.outputs[client]["eigenvectors"]
        np.testing.assert_allclose(eigenvectors, server.model.eigenvectors_, rtol=0, atol=1e-12)
        features = peers.outputs[client]["features"]
        np.testing.assert_allclose(features, server.outputs[client]["features"], rtol=0, atol=1e-12)
        # of the table as it is, but where its rows are centred
        table = SHARDS[client] - (SHARDS[client].mean(axis=1, keepdims=True) if center == "rows" else 0)
        np.testing.assert_allclose(features, eigenvectors.T @ table, rtol=0, atol=1e-12)
    expected = VFedAKPCA(2, kernel=RBF(gamma=0.1), center=center).central(SHARDS)
    np.testing.assert_array_equal(strategy.central(SHARDS).eigenvectors_, expected.eigenvectors_)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("graph", ["ring", "star", "grid"])
def test_each_client_merges_what_its_neighbours_sent(graph, rounds):
    topology = Topology(graph)
    result = PeerVFedPCA(graph=topology, rounds=rounds, local_iterations=500, **PAPER).fit(SHARDS)
    cells = [sorted([client, *others]) for client, others in enumerate(neighbours(topology, 5))]
    for client, u in enumerate(naive.peer_vfedpca(SHARDS, cells, rounds)):
        mine = result.outputs[client]["eigenvectors"][:, 0]
        assert min(abs(mine - u).max(), abs(mine + u).max()) < 1e-8
        features = mine @ (SHARDS[client] - SHARDS[client].mean(axis=0))
        np.testing.assert_allclose(result.outputs[client]["features"][0], features, atol=1e-12)


SEVERAL = {"n_components": 2, "merge": "average", "kernel": RBF(gamma=0.1)}
GRAPHS = ["ring", "star", Topology("grid", rows=1), "full"]


@pytest.mark.parametrize(("graph", "fields"), in_turn(GRAPHS, [PAPER, SEVERAL], every=2), ids=str)
def test_with_relays_it_is_the_full_graph_s_bit_by_bit(graph, fields):
    full = PeerVFedPCA(rounds=2, **fields).fit(SHARDS, seed=5)
    strategy = PeerVFedPCA(graph=graph, relay=True, rounds=2, **fields)
    relayed = strategy.fit(SHARDS, seed=5)
    for client in range(5):
        for name in ("eigenvectors", "iterates", "features"):
            np.testing.assert_array_equal(relayed.outputs[client][name], full.outputs[client][name])
    # by another implementation: whose vectors come, in how many rounds
    adjacent = strategy.peers(5)
    cells = [[client, *others] for client, others in enumerate(adjacent)]
    reached, rounds = naive.forwarded(cells)
    assert relayed.ledger.rounds == 2 + 2 * rounds + 1
    assert set(relayed.ledger.edges) == {(client, other) for client, others in enumerate(adjacent) for other in others}
    if fields is PAPER:
        long = PeerVFedPCA(graph=graph, relay=True, rounds=2, local_iterations=500, **PAPER).fit(SHARDS)
        for client, u in enumerate(naive.peer_vfedpca(SHARDS, reached, 2)):
            assert naive.up_to_sign(long.outputs[client]["eigenvectors"][:, 0], u) < 1e-8


def test_vectors_that_were_changed_on_the_way_or_do_not_come_are_refused(monkeypatch):
    """On a ring of four the vectors of the client opposite come on two ways."""
    write = Mailbox.write

    def altered(self, peer, letter):
        if self.client == 1 and isinstance(letter, RelayedVectors) and 1.0 not in letter.clients:
            letter = letter.model_copy(update={"values": 2 * letter.values})
        write(self, peer, letter)

    with monkeypatch.context() as patch:
        patch.setattr(Mailbox, "write", altered)
        with pytest.raises(ProtocolError, match="client 3 sent vectors of client 2 that differ from those before"):
            PeerVFedPCA(graph="ring", relay=True, **PAPER).fit(np.array_split(WINE, 4, axis=1))
    monkeypatch.setattr(PeerVFedPCA, "_hops", lambda self, graph: 1)
    with pytest.raises(ProtocolError, match="those of client 2 are missing: vectors of the clients 0, 1, 4 came"):
        PeerVFedPCA(graph="ring", relay=True, **PAPER).fit(SHARDS)


def tree_of(kind, n, folder):
    """A ring, star, path or random tree."""
    if kind != "tree":
        return Topology("grid", rows=1) if kind == "path" else Topology(kind)
    rng = np.random.default_rng(n)
    (folder / "tree.txt").write_text("".join(f"{node} {rng.integers(node)}\n" for node in range(1, n)))
    return Topology("file", path=str(folder / "tree.txt"))


@pytest.mark.parametrize("n", [5, 12, pytest.param(40, marks=pytest.mark.drill)])
@pytest.mark.parametrize("kind", ["star", "ring", "path", "tree"])
def test_with_nothing_set_all_find_the_subspace_of_all_columns_to_the_last_bit(kind, n, tmp_path):
    """By k N floats up and down each edge of the shallowest tree for every product."""
    k, shards = 3, np.array_split(load_digits().data[:100], n, axis=1)
    strategy = PeerVFedPCA(k, graph=tree_of(kind, n, tmp_path))
    result, reference = strategy.fit(shards, evaluate=True), strategy.central(shards)
    assert strategy.judge(result, shards, reference)["worst_error"] < 1e-12
    assert len({result.outputs[client]["eigenvectors"].tobytes() for client in range(n)}) == 1
    for client, X in enumerate(shards):
        features = reference.eigenvectors_.T @ (X - X.mean(axis=0))
        np.testing.assert_allclose(abs(result.outputs[client]["features"]), abs(features), atol=1e-5)
    assert result.metrics["explained_variance"] == pytest.approx(reference.eigenvalues_.sum() / 100, rel=1e-12)
    assert all("floats were sent" in text or "per table entry" in text for text in result.findings)
    adjacent, loads = strategy.peers(n), result.ledger.edges
    products = next(iter(loads.values())).messages
    assert products <= 20
    assert len(loads) == 2 * (n - 1)
    assert all(b in adjacent[a] for a, b in loads)
    assert {(load.messages, load.floats) for load in loads.values()} == {(products, products * 100 * k)}
    assert result.ledger.floats_down == 2 * (n - 1) * products * 100 * k
    # the last round measures
    assert result.ledger.rounds == 2 + 2 * distances(adjacent).max(axis=1).min() * products + 1 + 1


def test_with_a_kernel_the_exact_merge_is_exact_for_the_sum_of_the_clients_kernels():
    server = VFedAKPCA(2, kernel=RBF(gamma=0.1), merge="exact", tol=1e-12).fit(SHARDS)
    peers = PeerVFedPCA(2, kernel=RBF(gamma=0.1), graph="ring", tol=1e-12).fit(SHARDS)
    for client in range(5):
        assert sin_theta_error(server.model.eigenvectors_, peers.outputs[client]["eigenvectors"]) < 1e-16


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_where_the_rank_is_used_up_the_search_ends(rank, scale):
    """Also that of a table without variance: what is left of vectors is rounding, and no direction."""
    rng = np.random.default_rng(rank)
    X = scale * (rng.standard_normal((30, rank)) @ rng.standard_normal((rank, 8)) + 1.0)
    shards = np.array_split(X, 4, axis=1)
    result = PeerVFedPCA(3, graph="star").fit(shards, evaluate=True)
    V = result.outputs[2]["eigenvectors"]
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-12)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(V @ (V.T @ centred), centred, rtol=0, atol=1e-12 * scale)
    assert all("floats were sent" in text or "per table entry" in text for text in result.findings)
    assert result.ledger.rounds <= 2 + 2 * 3 + 1 + 1


MEASURED = [{}, {"rounds": 1}, FEW, FEW | {"merge": "average"}, FEW | {"relay": True}]


@pytest.mark.parametrize(("fields", "graph"), in_turn(MEASURED, ["ring", "star", "full"], every=2))
def test_what_is_measured_is_of_one_set_of_vectors_and_never_above_the_best(graph, fields):
    """Each client's share of its own columns, kept by its own vectors, would add up to more on rings and stars."""
    result = PeerVFedPCA(2, graph=graph, local_iterations=100, **fields).fit(SHARDS, evaluate=True)
    best = PeerVFedPCA(2).central(SHARDS).eigenvalues_.sum() / N
    differ = fields.get("merge") in ("eigenvalue", "average") and "relay" not in fields and graph != "full"
    assert ("explained_variance" in result.metrics) is not differ
    assert any("the variance is not measured" in text for text in result.findings) is differ
    if not differ:
        V = result.outputs[3]["eigenvectors"]
        kept = sum(np.sum((V.T @ (X - X.mean(axis=0))) ** 2) for X in SHARDS) / N
        assert result.metrics["explained_variance"] == pytest.approx(kept, rel=1e-10)
        assert kept <= best * (1 + 1e-12)


def test_a_search_that_rounds_end_says_so():
    texts = [PeerVFedPCA(2, graph="star", rounds=rounds).fit(SHARDS).findings for rounds in (2, 60)]
    assert not any("converged" in text for text in texts[1])
    assert texts[0][0] == (
        "rounds = 2 ended the search before it converged to tol = 1e-08: the components may be far from the leading "
        "ones; allow more rounds, or a larger tol"
    )


LIES = [
    (0, NextBlock, lambda block: 2 * block, 1, "must have orthonormal columns"),
    (0, NextBlock, lambda block: np.eye(N)[:, :3], 1, "its block has 3 columns; allowed: at most 2"),
    (0, NextBlock, lambda block: np.linalg.qr(block[1:])[0], 1, "block has 88 entries along axis 0, but N = 89"),
    (1, SubtreeProduct, lambda product: -product, 0, "must have no eigenvalue below 0"),
    (1, SubtreeProduct, lambda product: product[:, ::-1], 0, "must be symmetric"),
    (1, SubtreeProduct, lambda product: product[:, :1], 0, "product has 1 entries along axis 1, but b = 2"),
    (1, SubtreeProduct, lambda product: np.full_like(product, np.nan), 0, "must be a finite float64 array"),
]
"""Who lies, in which letter, how, who refuses it, and why."""


@pytest.mark.parametrize(("liar", "kind", "lie", "refuses", "why"), LIES)
def test_what_no_honest_neighbour_writes_is_refused(liar, kind, lie, refuses, why, monkeypatch):
    write = Mailbox.write

    def lying(self, peer, letter):
        if self.client == liar and isinstance(letter, kind):
            ((name, array),) = letter.arrays().items()
            letter = letter.model_copy(update={name: lie(array)})
        write(self, peer, letter)

    monkeypatch.setattr(Mailbox, "write", lying)
    with refusing(f"client {refuses}: the letter of client {liar} is refused: ", why, error=ProtocolError):
        PeerVFedPCA(2, graph="star").fit(SHARDS)


def test_more_edges_do_not_come_out_worse_and_all_are_better_than_none():
    metrics, central = {}, VFedPCA().central
    alone = np.mean([sin_theta_error(central(SHARDS).eigenvectors_, central([X]).eigenvectors_) for X in SHARDS])
    for graph in ("full", "ring", "star"):
        strategy = PeerVFedPCA(graph=Topology(graph), rounds=5, **PAPER)
        reference = strategy.central(SHARDS)
        result = strategy.fit(SHARDS)
        metrics[graph] = strategy.judge(result, SHARDS, reference)
        steps = strategy.judge_steps(result, SHARDS, reference)["distance"]
        of_merges = [row["values"]["t"] for row in result.history if "t" in row.get("values", {})]
        assert of_merges == [*range(len(steps))] == [*range(5)]
        assert steps[-1] == pytest.approx(metrics[graph]["distance"], abs=1e-12)
        eigenvectors = [result.outputs[client]["eigenvectors"] for client in range(5)]
        errors = [sin_theta_error(reference.eigenvectors_, V) for V in eigenvectors]
        assert metrics[graph]["error"] == pytest.approx(np.mean(errors), rel=1e-9)
        assert metrics[graph]["worst_error"] == pytest.approx(max(errors), rel=1e-9)
    assert max(metrics[graph]["error"] for graph in metrics) < alone
    assert metrics["full"]["worst_error"] < min(metrics["ring"]["worst_error"], metrics["star"]["worst_error"])


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: PeerVFedPCA(merge="best"), "merge = 'best': input should be 'exact', 'eigenvalue' or 'average'"),
        (lambda: PeerVFedPCA(relay=True), 'relay = true has no meaning with merge = "exact"'),
        (lambda: PeerVFedPCA(90).fit(SHARDS), "n_components = 90, but must be at most the number of rows, 89"),
        (lambda: PeerVFedPCA(graph=Topology("ring", neighbors=6)).fit(SHARDS), "neighbors = 6, but must be at most 4"),
        (lambda: PeerVFedPCA(graph="line"), "graph"),
        (lambda: PeerVFedPCA().fit([*SHARDS, WINE[1:]]), "all must have the same rows"),
    ],
)
def test_bad_input_is_one_sentence(build, text):
    with refusing(text, error=(InputError, ProtocolError)):
        build()

"""What a site's numbers must obey: a reply that no table can give ends the run, with the site and the rule named."""

from contextlib import nullcontext

import numpy as np
import pytest
import reply_rules
from raw_tables import CATEGORIES, frames

from fedkernel import RBF, Prepare, ProtocolError
from fedkernel.clients.admm_kpca import ADMMKPCAClient
from fedkernel.clients.diskpca import DisKPCAClient
from fedkernel.clients.dkpca import DKPCAClient
from fedkernel.clients.fk_kmeans import FKKMeansClient
from fedkernel.clients.kmeans_base import KMeansClient
from fedkernel.clients.peer_vfedpca import PeerVFedPCAClient
from fedkernel.clients.vfedpca import VFedPCAClient
from fedkernel.preparing import PrepareClient
from fedkernel.protocol import Eigenvalues, check_share
from fedkernel.strategies import ADMMKPCA, DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, RFKKMeans, UniformKPCA, VFedPCA

rng = np.random.default_rng(0)
ROWS = rng.standard_normal((60, 8))
COLUMNS = [ROWS[:, :4], ROWS[:, 4:]]
PARTS = [ROWS[:25], ROWS[25:]]
RAW = frames()
PREPARE = Prepare(categories=CATEGORIES, scale="minmax", missing="median")

GRAM = FKKMeans(3, n_features=10, iterations=2, kernel=RBF(gamma=0.1), solver="gram")
LANCZOS = FKKMeans(3, n_features=10, iterations=2, kernel=RBF(gamma=0.1), solver="lanczos")
RANDOM = RFKKMeans(3, n_features=10, kernel=RBF(gamma=0.1))
ONE_SHOT = DKPCA(2, RBF(gamma=0.1))
CERTIFIED = DKPCA(2, RBF(gamma=0.1), certificate=True)
NETWORK = ADMMKPCA(1, RBF(gamma=0.1), iterations=2, share_rows=True)
CHOSEN = UniformKPCA("auto", RBF(gamma=0.1), n_samples=12, share_rows=True)
LEVERAGE = DisKPCA(2, n_adaptive=10, n_random_features=100, share_rows=True)


def times(factor, field):
    """Return the lie that a field of a reply is so many times what it is."""
    return lambda reply: {field: getattr(reply, field) * factor}


def moved(field):
    """Return the lie that a field of a reply is larger by a million."""
    return lambda reply: {field: getattr(reply, field) + 1e6}


def paired(reply):
    """Return the lie that a feature is longer than any cosine and sine of so many angles are."""
    return {"upper": reply.upper + np.eye(1, reply.upper.size)[0]}


def coupled(reply):
    """Return the lie that two features' product is larger than their lengths allow."""
    return {"upper": np.r_[reply.upper[0], 2.0 * reply.upper.max(), reply.upper[2:]]}


def without_first(reply):
    return {"cosines": reply.cosines[1:]}


def left_out(reply):
    """Return the lie that an eigenvalue is left out that the rows' trace has no more room for."""
    return {"values": np.array([39.0, 20.0]), "omitted": 2.0}


PAIRS = "find_local_eigenpairs"
LIES = [
    (ONE_SHOT, COLUMNS, DKPCAClient, PAIRS, times(1000, "vectors"), "must have orthonormal columns"),
    (ONE_SHOT, COLUMNS, DKPCAClient, PAIRS, times(-1, "values"), "values must be"),
    (ONE_SHOT, COLUMNS, DKPCAClient, PAIRS, times(1000, "values"), "but must sum to at most 60, the number"),
    (CERTIFIED, COLUMNS, DKPCAClient, PAIRS, left_out, "values sum to 61, but must sum to at"),
    (VFedPCA(2), COLUMNS, VFedPCAClient, "iterate_locally", times(1000, "vectors"), "must have orthonormal columns"),
    (VFedPCA(2), COLUMNS, VFedPCAClient, "iterate_locally", times(-1, "values"), "values must be at least 0"),
    (VFedPCA(2, merge="exact"), COLUMNS, VFedPCAClient, "multiply", times(-1, "product"), "no eigenvalue below 0"),
    (VFedPCA(2), COLUMNS, VFedPCAClient, "measure_variance", times(1e6, "captured"), "captured must be from 0 to"),
    (GRAM, PARTS, FKKMeansClient, "multiply_columns", times(-1, "upper"), "has eigenvalues below 0"),
    (GRAM, PARTS, FKKMeansClient, "multiply_columns", coupled, "has eigenvalues below 0"),
    (GRAM, PARTS, FKKMeansClient, "multiply_columns", times(2, "upper"), "must sum to 50 for 25 rows"),
    (GRAM, PARTS, FKKMeansClient, "multiply_columns", paired, "must sum to 50 for 25 rows"),
    (LANCZOS, PARTS, FKKMeansClient, "multiply_gram", times(-1, "product"), "vector^T product must be at least 0"),
    (RANDOM, PARTS, KMeansClient, "solve_locally", times(-1, "cost"), "cost must be at least 0"),
    (RANDOM, PARTS, KMeansClient, "sample_coreset", times(1e300, "points"), "with entries of up to 1e+150"),
    (RANDOM, PARTS, KMeansClient, "measure_clusters", times(1e300, "sum"), "with entries of up to 1e+150"),
    (RANDOM, PARTS, KMeansClient, "sample_coreset", times(-1, "weights"), "weights must be at least 0"),
    (RANDOM, PARTS, KMeansClient, "sample_coreset", times(1e12, "weights"), "must sum to 25, the number"),
    (RANDOM, PARTS, KMeansClient, "measure_clusters", times(1000, "sum"), "too long for 25 rows"),
    (RANDOM, PARTS, KMeansClient, "measure_clusters", times(1000, "silhouette"), "at most 1 for each of 25 rows"),
    (RANDOM, PARTS, KMeansClient, "count_clusters", times(1e12, "sizes"), "to 25"),
    (LEVERAGE, PARTS, DisKPCAClient, "multiply_points", times(-1, "upper"), "has eigenvalues below 0"),
    (LEVERAGE, PARTS, DisKPCAClient, "score_rows", times(-1, "total"), "total must be at least 0"),
    (LEVERAGE, PARTS, DisKPCAClient, "measure_captured", lambda reply: {"sums": reply.sums[::-1]}, "captured must be"),
    (CHOSEN, PARTS, DisKPCAClient, "multiply_kernel", times(1000, "sums"), "too large for 25 values with these"),
    (NETWORK, PARTS, ADMMKPCAClient, "start_locally", times(-1, "bound"), "bound must be at least"),
    (NETWORK, PARTS, ADMMKPCAClient, "start_locally", times(1e140, "bound"), "must be at most 100 for 25 rows"),
    (NETWORK, PARTS, ADMMKPCAClient, "compare_starts", without_first, "sent 0 cosines; allowed: 1, its neighbours"),
    (
        NETWORK,
        PARTS,
        ADMMKPCAClient,
        "measure_node_variance",
        times(100, "captured"),
        "captured must be from 0 to total",
    ),
    (NETWORK, PARTS, ADMMKPCAClient, "measure_node_variance", times(2, "total"), "but must be at most the 25 rows"),
    (PeerVFedPCA(2), COLUMNS, PeerVFedPCAClient, "measure_own", times(100, "captured"), "captured must be from 0 to"),
    (RANDOM, RAW, PrepareClient, "sum_squares", moved("deviations"), "but must be at most"),
    (RANDOM, RAW, PrepareClient, "count_below", lambda reply: {"counts": reply.counts[:, ::-1]}, "must not fall"),
    (RANDOM, RAW, PrepareClient, "find_extremes", lambda reply: {"least": reply.greatest + 1}, "at most greatest"),
]


@pytest.mark.parametrize(("strategy", "shards", "client", "method", "lie", "sentence"), LIES)
def test_a_reply_of_no_table_ends_the_run_and_names_the_site(
    strategy, shards, client, method, lie, sentence, monkeypatch
):
    honest = getattr(client, method)

    def lying(self, ask):
        reply = honest(self, ask)
        # who lies does not check what it sends
        return reply.model_copy(update=lie(reply)) if self.client == 0 else reply

    lying.__annotations__ = honest.__annotations__
    monkeypatch.setattr(client, method, lying)
    with pytest.raises(ProtocolError, match=r"client 0") as caught:
        strategy.fit(shards, evaluate=True, prepare=PREPARE if shards is RAW else None)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([3.0, 1.0, 2.0], "must be in non-increasing order"),
        ([3.0, 2.0, -3.1e-9], "must be at least 0 but for rounding, not -3.1e-09"),
        ([3.0, 3.0, -2.9e-9], None),
        ([-1.0], "must be at least 0 but for rounding, not -1"),
    ],
)
def test_every_eigenvalue_is_held_to_the_one_before_and_to_0(values, sentence):
    with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
        Eigenvalues().check(np.array(values))


def test_of_nothing_nothing_is_captured():
    check_share(np.zeros(2), 0.0)
    with pytest.raises(ValueError, match="captured must be from 0 to total = 0"):
        check_share(np.array([0.1, 0.0]), 0.0)


def test_the_page_has_the_rules_that_there_are():
    assert reply_rules.PAGE.read_text() == reply_rules.page(), "cd tests && python -m reply_rules"

"""What every registered pair brings: a case, an oracle, a forecast, a row in the README, what its replies reveal."""

import inspect
import itertools
import re
from pathlib import Path

import naive
import numpy as np
import pytest
import test_admm_steps
import test_dkpca
import test_fk_kmeans
import test_peer_vfedpca
import test_vfedpca
from cases import CASES, CLIENTS_OF_OURS, PAIRS, WINE
from sites import pooled

from fedkernel import RBF, CarriesLetters, Letter, strategies
from fedkernel.experiments.baselines import cohort

TABLE = (Path(__file__).parents[2] / "README.md").read_text().split("\n## Methods\n")[1].split("\n## ")[0]

each = pytest.mark.parametrize("name", PAIRS)


def sent_by(client):
    """Return the classes of replies that a client sends and, if they carry letters, of the letters it declares."""
    replies = {request.reply_type for request, _ in client.handlers.values()}
    modules = [inspect.getmodule(base) for base in client.__mro__]
    named = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    letters = {kind for kind in named if issubclass(kind, Letter) and kind is not Letter}
    return replies | letters if any(issubclass(reply, CarriesLetters) for reply in replies) else replies


@each
def test_it_has_a_case_which_is_forecast_a_client_that_sites_know_and_a_row_in_the_readme(name):
    of_pair = [case for case in CASES if type(case.strategy) is PAIRS[name]]
    assert of_pair, "it has no case in tests/cases.py"
    for case in of_pair:
        assert case.strategy.forecast(cohort(case.shards())) is not None  # test_pairs.py holds it against the run
    client = PAIRS[name].client
    assert CLIENTS_OF_OURS[client.__name__] is client
    assert re.search(rf"^\| \[`{name}`\]\(", TABLE, flags=re.MULTILINE), f"no row of README.md's pairs is {name}"


@each
def test_its_plan_asks_what_its_client_answers_and_all_that_sends_says_what_it_reveals(name):
    for strategy in (case.strategy for case in CASES if type(case.strategy) is PAIRS[name]):
        plan = strategy.plan(4, 0)
        assert plan is not None  # test_pairs.py holds the runs to it
        requests = {planned.request for step in (*plan, *strategy.evaluation_plan()) for planned in step.requests}
        assert requests <= strategy.client.handlers.keys()
    sent = sent_by(PAIRS[name].client)
    assert [kind for kind in sent if "reveal" not in (vars(kind)["__doc__"] or "").lower()] == []


def test_pairs_import_from_rooms_and_not_from_the_files_in_them():
    root = Path(__file__).parents[2]
    inner = re.compile(r"^\s*(?:from|import) (fedkernel\.(?!clients|strategies)\w+\.\S+)", re.MULTILINE)
    for path in [*root.glob("clients/*.py"), *root.glob("strategies/*.py")]:
        assert inner.findall(path.read_text()) == [], path


# Every pair against its oracle in tests/naive.py, at a small size, where no test of its own does so.


def clumps(clients=3, rows=8):
    """Rows around three points, each client with some of all; so that there is one best division into three."""
    rng = np.random.default_rng(5)
    centers = np.array([[4.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, 4.0, 0]])
    return [centers[np.arange(rows) % 3] + 0.5 * rng.standard_normal((rows, 4)) for _ in range(clients)]


COLUMNS, CLUMPS = np.array_split(WINE[:30], 3, axis=1), clumps()
GAMMA, EVERY = 0.05, 10_000  # of a coreset, as many points as there are


def together(result):
    labels = pooled(result, "labels")
    return labels[:, None] == labels[None, :]


def against_vfedakpca():
    result = strategies.VFedAKPCA(1, "eigenvalue", 4, 3, "inplace", kernel=RBF(gamma=GAMMA)).fit(COLUMNS, seed=2)
    merged = naive.vfedakpca(COLUMNS, {"type": "rbf", "gamma": GAMMA}, 2, 3, 4)
    assert naive.up_to_sign(result.model.eigenvectors_[:, 0], merged) < 1e-10


def against_rfk_kmeans():
    result = strategies.RFKKMeans(3, n_features=16, coreset_size=EVERY).fit(CLUMPS, seed=4)
    X = np.vstack(CLUMPS)
    H = naive.cosines(X, naive.paper_width(X), 16, 4, pairs=True) / np.sqrt(16)
    np.testing.assert_allclose(pooled(result), H, atol=1e-12)
    assert np.array_equal(together(result), naive.best_clusters(H, 3))


OF_ROWS = {"kernel": RBF(gamma=GAMMA), "projection_size": "exact", "share_rows": True}
SKETCHED = {"embedding_size": 6, "n_random_features": 60, "point_sketch_size": "exact"}
LANDMARKS = strategies.DisKPCA(3, n_adaptive=5, n_leverage=4, **SKETCHED, **OF_ROWS)
UNIFORM = strategies.UniformKPCA(3, n_samples=9, **OF_ROWS)


def against_drawn_rows(strategy, oracle, *settings):
    for seed in range(5):
        result, (landmarks, H) = strategy.fit(CLUMPS, seed=seed), oracle(CLUMPS, GAMMA, 3, *settings, seed)
        np.testing.assert_array_equal(result.model.landmarks_, np.vstack(CLUMPS)[landmarks])
        np.testing.assert_allclose(np.abs(pooled(result)), np.abs(H), atol=1e-7)


def against_centroid_kpca():
    for number, seed in itertools.product((4, 9), range(3)):
        strategy = strategies.CentroidKPCA(3, RBF(gamma=GAMMA), number, rounds=3, least=1)
        result = strategy.fit(CLUMPS, seed=seed)
        centers, H = naive.centroid_kpca(CLUMPS, GAMMA, 3, number, 3, seed)
        np.testing.assert_allclose(result.model.landmarks_, centers, atol=1e-12)
        np.testing.assert_allclose(np.abs(pooled(result)), np.abs(H), atol=1e-7)


def against_centroid_kmeans():
    for seed in range(3):
        result = strategies.CentroidKMeans(3, RBF(gamma=GAMMA), 8, rounds=3, least=1).fit(CLUMPS, seed=seed)
        rows, expected = naive.centroid_kmeans(CLUMPS, GAMMA, 3, 8, 3, seed)
        np.testing.assert_allclose(np.abs(pooled(result)), np.abs(rows), atol=1e-7)
        assert np.array_equal(together(result), expected)


def against_spectral_kmeans():
    result = strategies.SpectralKMeans(3, LANDMARKS, coreset_size=EVERY).fit(CLUMPS, seed=1)
    _, H = naive.diskpca(CLUMPS, GAMMA, 3, (4, 5), (6, 60), 1)
    np.testing.assert_allclose(np.abs(pooled(result)), np.abs(H), atol=1e-7)
    assert np.array_equal(together(result), naive.best_clusters(H, 3))


ORACLES = {
    "ADMMKPCA": test_admm_steps.test_all_iterations_equal_explicit_vectors,
    "CentroidKMeans": against_centroid_kmeans,
    "CentroidKPCA": against_centroid_kpca,
    "DKPCA": test_dkpca.test_equals_the_naive_implementation,
    "DisKPCA": lambda: against_drawn_rows(LANDMARKS, naive.diskpca, (4, 5), (6, 60)),
    "FKKMeans": test_fk_kmeans.test_every_version_finds_what_the_naive_one_finds,
    "PeerVFedPCA": test_peer_vfedpca.test_each_client_merges_what_its_neighbours_sent,
    "RFKKMeans": against_rfk_kmeans,
    "SpectralKMeans": against_spectral_kmeans,
    "UniformKPCA": lambda: against_drawn_rows(UNIFORM, naive.uniform_kpca, 9),
    "VFedAKPCA": against_vfedakpca,
    "VFedPCA": test_vfedpca.test_every_round_equals_the_naive_implementation,
}


@each
def test_it_finds_what_its_oracle_finds(name):
    assert name in ORACLES, "no function of ORACLES, in this file, holds it against a slow version in naive.py"
    if ORACLES[name].__module__ == __name__:  # the others are tests of their own, at many settings
        ORACLES[name]()

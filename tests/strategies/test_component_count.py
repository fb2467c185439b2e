"""A number of components that a run chooses by eigenvalues."""

import numpy as np
import pytest
from grids import in_turn

from fedkernel import ADMMKPCA, RBF, InputError, Laplacian, Linear
from fedkernel.experiments.baselines import Baseline, counterpart
from fedkernel.numerics import align_signs
from fedkernel.strategies import DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, SpectralKMeans, UniformKPCA, VFedAKPCA, VFedPCA
from fedkernel.testing import Pair, a_run_takes_what_was_forecast


def planted(spreads=(16.0, 14.0, 7.0, 0.02, 0.019, 0.018, 0.015, 0.014, 0.013), rows=60):
    """Return a table X of whose eigenvalues of X X^T three are more than noise; its columns have the mean 0."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((rows, len(spreads)))
    U, V = (np.linalg.qr(part)[0] for part in (table - table.mean(axis=0), rng.standard_normal((len(spreads),) * 2)))
    return U * np.sqrt(spreads) @ V.T


def rows(pair, *fields, **more):
    return lambda number, **auto: pair(number, *fields, share_rows=True, **more, **auto)


def columns(pair, **fields):
    return lambda number, **auto: pair(number, **fields, **auto)


PAIRS = {
    "disKPCA": rows(DisKPCA, Linear(), n_leverage=20, n_adaptive=10),
    "disKPCA, sketched": rows(DisKPCA, Linear(), n_leverage=20, n_adaptive=10, point_sketch_size=5, projection_size=12),
    "disKPCA, all rows": rows(DisKPCA, Linear(), n_leverage=20, n_adaptive=40),
    "uniform + disLR": rows(UniformKPCA, Linear(), n_samples=40),
    "uniform + batch": rows(UniformKPCA, Linear(), n_samples=40, solver="batch"),
    "DKPCA": columns(DKPCA, local_components=3),
    "VFedPCA": columns(VFedPCA, merge="exact", rounds=9),
    "VFedAKPCA": columns(VFedAKPCA, merge="exact", rounds=9, kernel=Linear()),
}
"""Whose other settings leave nothing to the number: n_leverage and local_components follow from it by default."""


def directions(model):
    return model.coefficients_ if hasattr(model, "coefficients_") else model.eigenvectors_


def floats(run, way):
    """Return how many went one way, by the requests; of those that may come more than once, of the last."""
    return {line["phase"]: line[f"floats_{way}"] for line in run.history}


@pytest.mark.parametrize("most", [6, 2])
@pytest.mark.parametrize("name", PAIRS)
def test_chosen_components_are_those_of_a_run_that_is_given_their_number(name, most):
    make, D = PAIRS[name], min(most, 3)
    strategy = make("auto", max_components=most)
    axis = 1 if strategy.partition == "vertical" else 0
    shards = np.array_split(planted(), 3, axis=axis)
    result = strategy.fit(shards, evaluate=True, reference=strategy.central(shards))
    numbered = make(D).fit(shards, evaluate=True, reference=make(D).central(shards))
    assert result.findings[0].startswith(f"n_components = {D}: the eigenvalues fall the most after number")
    assert result.model.n_components == result.metrics["n_components"] == D
    # VFedPCA's search ends within tol = 1e-8 of the same vectors, from other starts
    close = {"rtol": 1e-7, "atol": 1e-7} if "VFed" in name else {"rtol": 1e-9, "atol": 1e-9}
    expected = directions(numbered.model)
    np.testing.assert_allclose(align_signs(directions(result.model), expected), expected, **close)
    np.testing.assert_allclose(result.model.eigenvalues_, numbered.model.eigenvalues_, rtol=1e-9)
    assert numbered.metrics.keys() == result.metrics.keys() - {"n_components"}
    for metric, value in numbered.metrics.items():
        assert result.metrics[metric] == pytest.approx(value, rel=1e-6, abs=1e-7), metric

    # What comes up is that of the most, as is forecast; what is handed over at the end, that of the number
    pair = Pair(strategy, shards)
    a_run_takes_what_was_forecast(pair)
    run = pair.recording.result
    if name.startswith("VFed"):
        assert floats(run, "up")["IterateLocally"] == len(shards) * most * (len(planted()) + 1)
    if name != "DKPCA":  # which hands nothing over
        assert floats(run, "down")[run.history[-1]["phase"]] == len(shards) * directions(run.model).size
        assert directions(run.model).shape[1] == D


SHOWN = {"share_rows": True}
CHOOSING = {
    "DKPCA": lambda kernel: DKPCA("auto", kernel),
    "DKPCA, adaptive": lambda kernel: DKPCA("auto", kernel, local_components="adaptive", epsilon=1e-4),
    "DKPCA, certified": lambda kernel: DKPCA("auto", kernel, local_components=15, certificate=True),
    "disKPCA": lambda kernel: DisKPCA("auto", kernel, n_adaptive=20, **SHOWN),
    "disKPCA, sketched": lambda kernel: DisKPCA("auto", kernel, n_adaptive=20, projection_size="landmarks", **SHOWN),
    "disKPCA, float32": lambda kernel: DisKPCA("auto", kernel, n_adaptive=20, dtype="float32", **SHOWN),
    "uniform + disLR": lambda kernel: UniformKPCA("auto", kernel, n_samples=60, **SHOWN),
    "uniform + batch": lambda kernel: UniformKPCA("auto", kernel, n_samples=60, solver="batch", **SHOWN),
    "VFedAKPCA": lambda kernel: VFedAKPCA("auto", kernel=kernel, center="none"),
}
"""Whose components are not centred."""


@pytest.mark.parametrize(("name", "kernel"), in_turn(CHOOSING, [Linear(), RBF(), Laplacian()], every=3), ids=str)
def test_the_mean_of_the_rows_is_not_taken_for_all_there_is(name, kernel):
    """Around k points, far from 0: k components, of which the centred ones are one less."""
    for points in (3, 4):
        centres = 6 * np.eye(points, 6)[np.arange(120) % points] + 5
        X = centres + 0.4 * np.random.default_rng(3).standard_normal((120, 6))
        strategy = CHOOSING[name](kernel)
        result = strategy.fit(np.array_split(X, 3, axis=1 if strategy.partition == "vertical" else 0))
        assert result.model.n_components == points
        assert f"the eigenvalues fall the most after number {points - 1} of the centred matrix" in result.findings[0]
        assert "and the mean has a direction of its own" in result.findings[0]


@pytest.mark.parametrize(("name", "case"), in_turn([*CHOOSING, "VFedPCA", "VFedPCA, rows"], [(3, 0), (4, 5)], every=2))
def test_the_directions_in_which_rows_differ_are_counted(name, case):
    """Beside the mean, where that is not 0 and its direction is none of them; VFedPCA's search is the exact one's."""
    D, offset = case
    rng = np.random.default_rng(2)
    W = np.linalg.qr(rng.standard_normal((24, D)))[0]
    Z = np.linalg.qr(np.hstack([np.ones((120, 1)), rng.standard_normal((120, D))]))[0][:, 1:]
    X = 12 * Z @ W.T + 0.1 * rng.standard_normal((120, 24)) + offset * rng.standard_normal(24)
    own = {"VFedPCA": VFedPCA("auto", center="none"), "VFedPCA, rows": VFedPCA("auto", center="rows")}
    strategy = own[name] if name in own else CHOOSING[name](Linear())
    shards = np.array_split(X, 3, axis=1 if strategy.partition == "vertical" else 0)
    result = strategy.fit(shards, reference="central")
    assert result.model.n_components == D + (offset > 0)
    assert f"the eigenvalues fall the most after number {D} of the centred matrix (falls" in result.findings[0]
    assert ("the mean has a direction of its own" in result.findings[0]) == (offset > 0)
    if name in own:
        assert result.metrics["error"] < 1e-12


@pytest.mark.parametrize("center", [False, True])
def test_that_clients_sent_no_more_is_no_gap(center):
    """One site's columns are twenty times the others', so that its tenth eigenvalue is the last that counts."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)) @ rng.standard_normal((4, 60)) + 0.5 * rng.standard_normal((200, 60))
    shards = np.array_split(X * np.repeat([20.0, 1.0, 1.0], 20), 3, axis=1)
    for strategy in (DKPCA("auto", center=center), DKPCA("auto", center=center, certificate=True)):
        result = strategy.fit(shards)
        assert result.model.n_components == 4
        assert "10: 0." in result.findings[0] or "10: 1." in result.findings[0]


def test_a_number_that_is_the_limit_or_stands_out_by_nothing_says_so():
    X = planted((16.0, 14.0, 13.0, 12.0, 11.0, 0.02, 0.019, 0.018, 0.015))
    finding = DKPCA("auto", max_components=5).fit(np.array_split(X, 3, axis=1)).findings[0]
    assert finding.startswith("n_components = 5: the eigenvalues fall the most after number 5")
    assert finding.endswith("; that is the limit (max_components)")
    finding = DKPCA("auto", max_components=4).fit(np.array_split(X, 3, axis=1)).findings[0]
    assert "; no fall is clear, by a factor of 1.5 or more" in finding


def test_as_many_rows_as_there_may_be_components_are_enough():
    drawn = {"kernel": Linear(), "n_samples": 10, "share_rows": True}
    uniform = (UniformKPCA("auto", **drawn), UniformKPCA("auto", solver="batch", **drawn))
    for strategy in (VFedPCA("auto", merge="exact"), DKPCA("auto"), *uniform):
        axis = 1 if strategy.partition == "vertical" else 0
        result = strategy.fit(np.array_split(planted(rows=10), 2, axis=axis))
        assert result.model.n_components == 3
        assert result.findings[0].endswith("; only 9 eigenvalues differ from 0 by more than rounding")
        with pytest.raises(InputError, match="max_components = 10, but must be at most the number of rows, 9"):
            strategy.fit(np.array_split(planted(rows=9)[:9], 2, axis=axis))


def test_a_fall_below_what_the_landmarks_span_is_told_by_is_not_seen_but_said():
    """Of eigenvalues 16, 14, 7 and 1e-4 float32, whose tol is 3e-4, finds three, so that the last is beside nothing."""
    shards = np.array_split(planted((16.0, 14.0, 7.0, *[1e-4] * 6)), 3)
    strategy = rows(DisKPCA, Linear(), n_leverage=20, n_adaptive=10)
    assert strategy("auto").fit(shards).model.n_components == 3
    result = strategy("auto", dtype="float32").fit(shards)
    assert result.model.n_components == 2
    assert result.findings[0].startswith("n_components = 2: the eigenvalues fall the most after number 2")
    assert result.findings[0].endswith("; only 3 eigenvalues differ from 0 by more than rounding")


@pytest.mark.parametrize("method", ["batch KPCA", "KPCA", "PCA", "AKPCA"])
def test_baselines_have_as_many_components_as_may_be_chosen(method):
    parameters = {"n_components": "auto", "max_components": 5}
    kind = counterpart(f"central {method}")
    shards = np.array_split(planted(rows=12), 3, axis=1 if kind.partition == "vertical" else 0)
    central = Baseline(f"central {method}", parameters).run(shards, None)
    assert (central.models[0].n_components, central.metrics["error"]) == (5, 0.0)
    alone = Baseline(f"isolated {method}", parameters).run(shards, central.models[0])
    assert alone.models[0].n_components == (4 if kind.partition == "horizontal" else 5), "of four rows each"
    assert alone.metrics["worst_error"] > 0.1


def test_the_paper_s_merges_have_no_eigenvalues_to_choose_by():
    """Two sites, each with one strong direction of its own: two of all. Chosen by default, with no other setting."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 6)))[0] * 1.0
    shards = [Q[:, :3] * [4.0, 0.1, 0.08], Q[:, 3:] * [3.5, 0.1, 0.08]]
    assert VFedPCA("auto", center="none", max_components=5).fit(shards).model.n_components == 2
    for merge in ("eigenvalue", "average"):
        with pytest.raises(InputError, match=rf'"auto" is not for merge = "{merge}", which knows no eigenvalues of'):
            VFedPCA("auto", merge=merge)
    with pytest.raises(InputError, match="rounds = 1, but must be at least 2"):
        VFedPCA("auto", rounds=1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: DisKPCA(3, max_components=5), 'max_components = 5 has a meaning only with n_components = "auto"'),
        (lambda: VFedPCA(3, max_components=5), 'max_components = 5 has a meaning only with n_components = "auto"'),
        (lambda: UniformKPCA("auto", n_samples=8), "max_components = 10, but must be at most the number of landmarks"),
        (
            lambda: SpectralKMeans(3, DisKPCA("auto")),
            'components.n_components = "auto" is not available for SpectralKMeans, .*; give a number',
        ),
        (lambda: PeerVFedPCA("auto"), "^PeerVFedPCA: n_components: .auto. is not available among peers, .*; give"),
        (lambda: ADMMKPCA("auto"), "^ADMMKPCA: n_components: .auto. is not available among peers, .*; give"),
        (lambda: FKKMeans(3, "auto"), "FKKMeans: n_components: .auto. is not available; set eigengap = true"),
        (lambda: PeerVFedPCA("many"), "^PeerVFedPCA: n_components = 'many': input should be a valid integer"),
    ],
)
def test_what_has_no_eigenvalues_to_choose_by_says_so_in_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


@pytest.mark.parametrize("strategy", [DKPCA(4), VFedPCA(4)], ids=lambda own: type(own).__name__)
def test_components_beyond_the_rank_are_told(strategy):
    X = np.random.default_rng(0).standard_normal((50, 3))
    few = "only 3 of 4 components have an eigenvalue above rounding; the others have any direction"
    assert few in strategy.fit([X[:, :1], X[:, 1:]]).findings
    assert few not in strategy.fit([X[:, :1], np.hstack([X[:, 1:], X[::-1, 1:]])]).findings

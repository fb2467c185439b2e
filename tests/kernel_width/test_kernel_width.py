"""Kernel widths by rule where sites hold the rows: the pooled rule's number, or one within the error that is stated."""

import dataclasses
import math
import re

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from grids import in_turn
from named_sites import LENIENT, NAMES, refused, run_on, spec, vertical
from networks import admm
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn import datasets
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fedkernel import RBF, InputError, Laplacian, Linear, Polynomial, ProtocolError, Sigmoid, numerics, strategies
from fedkernel.data import SparseTable
from fedkernel.kernel_width import WidthClient, client, ruled_kernels, width_forecast
from fedkernel.kernel_width.client import DescribeGroups, MeasurePairs, MeasureSquares, SumEntries
from fedkernel.kernel_width.width_rounds import median_of_groups
from fedkernel.models import same_kernel
from fedkernel.models.comparing import is_informative
from fedkernel.protocol import Guards, Member, encode
from fedkernel.site import read_outbox, reply_bounds
from fedkernel.strategy import check_tables, simulated_sites
from fedkernel.testing import check_pair

TABLE = np.random.default_rng(0).standard_normal((88, 8)) * [1, 2, 3, 1, 1, 1, 1, 5] + [0, 100, 0, 0, 1, 0, 0, -3]
SHOWN = {"share_rows": True}
PAIRS = {
    "ADMMKPCA": lambda kernel: admm(n_components=1, kernel=kernel, iterations=1),
    "DKPCA": lambda kernel: strategies.DKPCA(2, kernel),
    "DisKPCA": lambda kernel: strategies.DisKPCA(2, kernel, n_adaptive=5, **SHOWN),
    "FKKMeans": lambda kernel: strategies.FKKMeans(2, kernel=kernel, n_features=6, iterations=1),
    "PeerVFedPCA": lambda kernel: strategies.PeerVFedPCA(2, kernel=kernel, rounds=2),
    "RFKKMeans": lambda kernel: strategies.RFKKMeans(2, kernel=kernel, n_features=10),
    "SpectralKMeans": lambda kernel: strategies.SpectralKMeans(2, strategies.DisKPCA(2, kernel, n_adaptive=5, **SHOWN)),
    "UniformKPCA": lambda kernel: strategies.UniformKPCA(2, kernel, n_samples=10, **SHOWN),
    "VFedAKPCA": lambda kernel: strategies.VFedAKPCA(2, kernel=kernel),
}
"""All that have a kernel."""


def divided(strategy, table=TABLE):
    return np.array_split(table, 4, axis=1 if strategy.partition == "vertical" else 0)


def width_of(result):
    return next(row["values"]["gamma"] for row in result.history if "gamma" in row.get("values", {}))


def share_below(X, gamma):
    """Return the share of all distances between rows that are below the sigma of a gamma."""
    return float((pdist(X) < math.sqrt(0.5 / gamma)).mean())


def dkw(pairs, p=0.05):
    """The error that the module states."""
    return math.sqrt(math.log(2 / p) / (2 * pairs))


@pytest.mark.parametrize(("name", "rule"), in_turn(PAIRS, ["median", "mean", "scale", "dimension"], every=4))
def test_every_pair_settles_every_rule_on_the_sites_rows_and_then_runs_as_with_that_number(name, rule):
    kernel = (Laplacian if name == "RFKKMeans" and rule != "median" else RBF)(width=rule, factor=0.5)
    strategy = PAIRS[name](kernel)
    assert ruled_kernels(strategy) == (kernel,)
    shards = divided(strategy)
    result = strategy.fit(shards)
    gamma, pooled = width_of(result), numerics.with_width(kernel, TABLE).gamma
    if rule == "median":
        error = dkw(len(TABLE) // 2) if strategy.partition == "vertical" else 0.08
        assert abs(share_below(TABLE, gamma * kernel.factor**2) - 0.5) < error
    else:
        assert gamma == pytest.approx(pooled, rel=1e-12)
    settled = strategy.as_run(result)
    assert settled == PAIRS[name](kernel.with_gamma(gamma))
    expected = settled.fit(shards)
    for field, array in vars(expected.model).items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(getattr(result.model, field), array)
    cohort = [Member(number, number, *shard.shape) for number, shard in enumerate(shards)]
    took = width_forecast([kernel], strategy.partition, cohort)
    for total in ("rounds", "floats_up", "floats_down"):
        before = getattr(result.ledger, total) - getattr(expected.ledger, total)
        assert before == getattr(took, total)
    alone = width_forecast([kernel], strategy.partition, cohort[:1])
    assert alone.floats_up * len(cohort) >= took.floats_up


@pytest.mark.parametrize(("name", "rule"), in_turn(PAIRS, ["mean", "median"], every=2))
def test_a_reference_is_at_the_width_that_the_run_settled_and_one_of_another_kernel_is_refused(name, rule):
    """Whether it was found before, at the number that the rule gives on all rows in one place, or is left to `fit`."""
    strategy = PAIRS[name](RBF(width=rule))
    if isinstance(strategy, strategies.FKKMeans | strategies.RFKKMeans):
        strategy = dataclasses.replace(strategy, n_features=60)
    shards = divided(strategy)
    exact = strategy.central(shards)
    result = strategy.fit(shards, reference=exact)
    settled = strategy.as_run(result)
    expected = settled.judge(result, shards, at_settled := settled.central(shards))
    assert expected
    assert result.metrics == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert strategy.fit(shards, reference="central").metrics == expected
    assert at_settled.own_kernel.gamma == pytest.approx(width_of(result), rel=1e-12)
    assert same_kernel(result.model, exact) == (rule == "mean")
    with pytest.raises(InputError, match=r"^the model has the kernel RBF.*, but the reference RBF"):
        settled.judge(result, shards, PAIRS[name](RBF(gamma=1.0)).central(shards))
    with pytest.raises(InputError, match="reference = 'exact', but must be a model, as of `central`, or \"central\""):
        strategy.fit(shards, reference="exact")


RAW = datasets.load_wine().data[np.random.default_rng(0).permutation(178)]
SKEWED = np.random.default_rng(1).lognormal(sigma=1.5, size=(178, 13)) * 10.0 ** np.arange(-3, 10)
TABLES = {"skewed": SKEWED, "Laplacian": SKEWED, "wine": RAW, "scaled": StandardScaler().fit_transform(RAW)}


@pytest.mark.parametrize(("name", "table"), in_turn(PAIRS, TABLES, every=4))
def test_every_pair_takes_the_data_s_own_width_and_says_where_one_that_is_given_fits_nothing(name, table):
    """By the mean of the kernel's values between different rows, which the coordinator knows about."""
    kind, X = Laplacian if table == "Laplacian" else RBF, TABLES[table]
    own = numerics.with_width(kind(), X)
    power = 1 if kind is Laplacian else 2
    for factor in (1.0, 1e-4, 1e4):
        strategy = PAIRS[name](kernel := kind() if factor == 1 else own.with_gamma(own.gamma / factor**power))
        if isinstance(strategy, strategies.FKKMeans | strategies.RFKKMeans):
            strategy = dataclasses.replace(strategy, n_features=300)
        result = strategy.fit(divided(strategy, X))
        mean = float(pairs_of(numerics.with_width(kernel, X).gram(X)).mean())
        assert result.model.kernel_mean_ == pytest.approx(mean, abs=0.2 if factor == 1 else 0.02)
        said = [finding for finding in result.findings if "its values between different rows" in finding]
        if factor == 1:
            assert 0.1 < mean < 0.9
            assert not said
        else:
            narrow = "too narrow, and results mean little; take a smaller"
            wide = "too wide, and results are a linear kernel's at best; take a larger"
            assert re.search(f"it is {narrow if factor < 1 else wide} gamma, or width", *said)


def pairs_of(K):
    return K[np.triu_indices(len(K), 1)]


def test_where_a_kernel_s_mean_counts_as_too_small_or_large_and_rows_without_lengths_tell_nothing():
    assert not is_informative(0.0, 0.0, 1, 5)
    assert is_informative(3.0, 4.0, 1, 5)
    warnings = [numerics.width_warning(RBF(1.0), mean) for mean in (None, -1e-3, 0.0099, 0.01, 0.99, 0.9901)]
    assert [text is not None for text in warnings] == [False, True, True, False, False, True]
    for kernel, mean in ((Sigmoid(), 0.0), (Polynomial(), 1e6), (Linear(), 0.0)):
        assert numerics.width_warning(kernel, mean) is None, "values of either sign, or no width"
    assert "rows hardly differ" in numerics.width_warning(Sigmoid(gamma=1.0), 1.0)
    wide = strategies.DKPCA(2, Sigmoid(width="scale", factor=1e-3)).fit(np.array_split(RAW, 3, axis=1))
    assert any("it is too wide" in text for text in wide.findings)


def test_landmarks_stand_for_as_many_rows_as_are_like_them():
    """Most rows lie together, and most landmarks do not: their own mean is 0.08, that of all rows 0.66."""
    rng = np.random.default_rng(0)
    X = np.vstack([0.1 * rng.standard_normal((400, 3)), 9 * rng.standard_normal((90, 3))])
    landmarks, kernel = np.vstack([X[:10], X[400:]]), RBF(1.0)
    K, squares = kernel.gram(landmarks), np.square(kernel.gram(landmarks, X)).sum(axis=1)
    assert pairs_of(K).mean() < 0.1
    assert numerics.mean_of_landmarks(K, squares) == pytest.approx(pairs_of(kernel.gram(X)).mean(), abs=0.02)


def test_what_holds_for_every_pair_holds_where_the_width_is_a_rule():
    wine = StandardScaler().fit_transform(datasets.load_wine().data)[::3]
    check_pair(strategies.DKPCA(2, RBF(width="mean"), local_components=60), np.array_split(wine, 3, axis=1))
    assert strategies.DKPCA(2, RBF(width="median")).plan_of_run(3, 0)[1].requests[0].fields["kernel"] == {"type": "rbf"}


SETS = ("iris", "wine", "breast_cancer", "digits", "diabetes")


@pytest.mark.parametrize("scale", [False, True], ids=["as it is", "standardised"])
@pytest.mark.parametrize("name", SETS)
def test_the_median_of_rows_at_several_sites_is_as_near_as_is_stated(name, scale):
    """Also where each site has a class of its own."""
    data = getattr(datasets, f"load_{name}")()
    X = StandardScaler().fit_transform(data.data) if scale else data.data
    distances = np.sort(pdist(X))
    for order in (np.random.default_rng(1).permutation(len(X)), np.argsort(data.target, kind="stable")):
        replies = [WidthClient(part).describe_groups(DescribeGroups()) for part in np.array_split(X[order], 4)]
        assert min(reply.sizes.min() for reply in replies) >= 10
        means, variances, sizes = (
            np.concatenate([getattr(reply, field) for reply in replies]) for field in ("means", "variances", "sizes")
        )
        assert sizes.sum() == len(X)
        sigma = median_of_groups(means, variances, sizes.astype(float))
        assert 0.42 < np.searchsorted(distances, sigma) / len(distances) < 0.58
        assert 0.9 < sigma / np.median(distances) < 1.1


@pytest.mark.parametrize("name", SETS)
def test_the_median_of_divided_columns_is_that_of_pairs_of_all_rows(name):
    X = StandardScaler().fit_transform(getattr(datasets, f"load_{name}")().data)
    pairs = len(X) // 2
    parts = [WidthClient(part) for part in np.array_split(X, 3, axis=1)]
    total = sum(part.measure_pairs(MeasurePairs(pairs=pairs)).squares for part in parts)
    whole = WidthClient(X).measure_pairs(MeasurePairs(pairs=pairs)).squares
    np.testing.assert_allclose(total, whole, rtol=1e-12)
    assert abs(share_below(X, 0.5 / np.median(total)) - 0.5) < dkw(pairs)


def test_no_row_is_in_two_pairs_and_groups_are_of_ten_to_nineteen_rows_that_lie_together():
    X = 2.0 ** np.arange(40)[:, None]  # whose differences tell the pair
    roots = np.sqrt(WidthClient(X).measure_pairs(MeasurePairs(pairs=20)).squares)
    rows = [(i, j) for i in range(40) for j in range(i) if X[i, 0] - X[j, 0] in roots]
    assert sorted(row for pair in rows for row in pair) == list(range(40))
    heaps = np.repeat(np.eye(4) * 1000, 10, axis=0) + np.random.default_rng(0).standard_normal((40, 4))
    groups = numerics.row_groups(heaps, 10)
    assert not WidthClient(np.full((30, 2), 0.1)).describe_groups(DescribeGroups()).variances.any(), "rounding is none"
    for scale in (1e-150, 1e150):
        np.testing.assert_array_equal(np.concatenate(numerics.row_groups(scale * heaps, 10)), np.concatenate(groups))
    assert sorted(np.concatenate(groups)) == list(range(40))
    assert {frozenset(row // 10 for row in group) for group in groups} == {frozenset([heap]) for heap in range(4)}
    assert max(map(client.count_groups, range(1, client.MOST_GROUPED_ROWS + 1))) == DescribeGroups().groups
    sizes = {len(group) for n in range(10, 200) for group in numerics.row_groups(np.ones((n, 2)), 10)}
    assert sizes <= set(range(10, 20))


def test_scale_is_scikit_learns_and_sparse_rows_count_as_dense_ones():
    X = datasets.load_wine().data
    svc = SVC(gamma="scale").fit(X, datasets.load_wine().target)
    assert numerics.with_width(RBF(width="scale"), X).gamma == pytest.approx(svc._gamma, rel=1e-12)
    rows = sparse.random_array((60, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    for rule in ("mean", "scale", "median"):
        strategy = strategies.UniformKPCA(2, RBF(width=rule), n_samples=10, **SHOWN)
        widths = [width_of(strategy.fit(shards)) for shards in ([rows[:25], rows[25:]], np.split(rows.toarray(), [25]))]
        assert widths[0] == pytest.approx(widths[1], rel=1e-9)
        expected = numerics.with_width(RBF(width=rule), rows).gamma
        assert widths[0] == pytest.approx(expected, rel=0.3 if rule == "median" else 1e-12)
    assert isinstance(check_tables([rows], "rows", WidthClient.table)[0], SparseTable)


def test_a_rule_without_a_number_computes_nothing_and_leaves_no_trace_once_it_has_one():
    kernel = RBF(width="median", factor=0.2)
    for use in (kernel.gram, kernel.diag, kernel.part, kernel.against, lambda X: kernel.settled(3)):
        with pytest.raises(InputError, match=r"RBF\(width='median', factor=0.2\) has no width yet: a strategy"):
            use(np.eye(3))
    result = strategies.UniformKPCA(2, kernel, n_samples=10, **SHOWN).fit(np.array_split(TABLE, 2))
    assert result.model.kernel == RBF(gamma=width_of(result))
    for table in ({"type": "rbf", "gamma": 0.5}, {"type": "laplacian", "width": "mean", "gamma": None}):
        strategy = strategies.DKPCA(2, numerics.kernel_from(table))
        assert strategy.hyperparameters["kernel"] == table
        assert strategies.DKPCA(**strategy.hyperparameters) == strategy
    strategy = strategies.DKPCA(2, RBF(width="mean"))
    shards = divided(strategy)
    central = strategy.central(shards)
    assert central.eigenvalues_ == pytest.approx(
        strategies.DKPCA(2, numerics.with_width(RBF(width="mean"), TABLE)).central(shards).eigenvalues_
    )
    settled = strategy.as_run(result := strategy.fit(shards, reference=central))
    assert result.metrics == settled.judge(result, shards, central)
    new = divided(strategy, TABLE[:5] + 1)
    placed, expected = (own.transform(result.model, shards, new) for own in (strategy, settled))
    np.testing.assert_array_equal(placed, expected)


def test_flowers_own_loop_settles_the_width_as_the_clients_join():
    strategy = strategies.RFKKMeans(2, n_features=10, kernel=RBF(width="scale"))
    shards = divided(strategy)
    expected = strategy.fit(shards)
    with simulated_sites(strategy.client, shards, share_rows=False) as (grid, _):
        for number in range(1, expected.ledger.rounds - 1):  # two of which are the width's
            messages = strategy.configure_train(number, ArrayRecord(), ConfigRecord({"seed": 0}), grid)
            arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert list(strategy.configure_train(number + 1, ArrayRecord(), ConfigRecord(), grid)) == []
    np.testing.assert_array_equal(arrays["centers_"].numpy(), expected.model.centers_)
    with simulated_sites(strategy.client, shards, share_rows=False) as (grid, _):
        outcome = strategy.start(grid, train_config=ConfigRecord({"seed": 0}))
    np.testing.assert_array_equal(outcome.arrays["centers_"].numpy(), expected.model.centers_)


@pytest.mark.parametrize("rule", ["mean", "scale", "median"])
@pytest.mark.parametrize("name", ["DKPCA", "UniformKPCA"])
def test_rows_that_do_not_differ_give_no_width(name, rule):
    strategy = PAIRS[name](RBF(width=rule))
    with pytest.raises(InputError, match=r"(which gives no|cannot be a) width"):
        strategy.fit(divided(strategy, np.full((88, 8), 1e6 / 3)))
    if (name, rule) == ("DKPCA", "median"):
        with pytest.raises(InputError, match="rows = 1, but a median distance needs at least 2"):
            strategies.DKPCA(1, RBF(width=rule)).fit([np.ones((1, 4)), np.zeros((1, 4))])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"factor": 2.0, "gamma": 1.0}, "factor is for a width by rule, not for a given gamma"),
        ({"width": "mean", "gamma": 1.0}, "width and gamma are the same thing"),
        ({"width": "mean", "sigma": 1.0}, "width and sigma are the same thing"),
        ({"width": "middle"}, "width = 'middle'"),
        ({"width": "mean", "factor": 0.0}, "factor = 0.0: input should be greater than 0"),
    ],
)
def test_kernels_that_cannot_be(fields, text):
    with pytest.raises(InputError, match=text):
        numerics.KERNELS["rbf"](**fields)


def test_a_site_with_guards_answers_each_question_once_and_shows_no_group_of_few_rows():
    site = WidthClient(TABLE, guards=Guards())
    for request in (SumEntries(), MeasureSquares(), DescribeGroups(), MeasurePairs(pairs=44)):
        site.fit(*encode(request))
        with pytest.raises(InputError, match=r"was answered before in this run; allowed: once \(guard: repetition\)"):
            site.fit(*encode(request))
    with pytest.raises(InputError, match=r"client 0 has 9 rows, but groups have at least 10 \(guard: groups\)"):
        WidthClient(TABLE[:9], guards=Guards()).describe_groups(DescribeGroups())
    with pytest.raises(InputError, match="pairs = 45, but must be at most 44 for 88 rows"):
        WidthClient(TABLE).measure_pairs(MeasurePairs(pairs=45))
    with pytest.raises(ProtocolError, match="pairs = 5001"):
        site.fit(*encode(MeasurePairs.model_construct(pairs=5001)))


def test_named_sites_settle_the_width_under_their_policies(tmp_path):
    """Their gates hold the requests to the plan; without one in it, they are no more answered than another pair's."""
    nodes = vertical(tmp_path, **{"min-rows": "10"})
    strategy = strategies.DKPCA(2, RBF(width="median", factor=2.0), local_components=5)
    result, grid = run_on(nodes, strategy)
    assert [row["phase"] for row in result.history if row["round"]] == ["MeasurePairs", "FindLocalEigenpairs"]
    assert b"MeasurePairs" in grid.wire
    plan = strategy.plan(3, 0)
    text = refused(vertical(tmp_path, **{"min-rows": "10"}), strategy, ProtocolError, id="other", plan=plan)
    assert "MeasurePairs is not in the plan" in text
    without = [node | {"policy": str(tmp_path / "any.toml")} for node in vertical(tmp_path, policy="")]
    (tmp_path / "any.toml").write_text('[study]\napprove="any"\nplan=false\njoint_seed="never"\n[table]\nmin_rows=10\n')
    without = [{name: value for name, value in node.items() if name not in LENIENT} for node in without]
    text = refused(without, strategy, ProtocolError, id="third", plan=None, joint_seed=False)
    assert "was asked for 'WidthClient'" in text


def test_named_sites_with_rows_of_their_own_show_groups_of_them_and_then_cluster_them(tmp_path):
    wine = StandardScaler().fit_transform(datasets.load_wine().data)
    shards = np.array_split(np.random.default_rng(0).permutation(wine), 3)
    nodes = []
    for name, shard in zip(NAMES, shards, strict=True):
        np.save(tmp_path / f"{name}.npy", shard)
        own = {"name": name, "data": str(tmp_path / f"{name}.npy"), "out": str(tmp_path / name), "approve": "any"}
        nodes.append(own | LENIENT)
    strategy = strategies.RFKKMeans(3, n_features=20, kernel=RBF(width="median"))
    result, _ = run_on(nodes, strategy)
    assert [row["phase"] for row in result.history if row["round"]][:2] == ["DescribeGroups", "EmbedRows"]
    np.testing.assert_array_equal(result.model.centers_, strategy.fit(shards).model.centers_)
    (line, *_) = [line for line in read_outbox(tmp_path / NAMES[0]).departures if line.request == "DescribeGroups"]
    assert line.floats == 2 * 13 * client.count_groups(len(shards[0]))
    run = spec("RFKKMeans", plan=strategy.plan_of_run(3, 0))
    assert reply_bounds(run, WidthClient.answers, shards[0].shape)["RowGroups"].floats == 2 * 13 * 128


def test_widths_over_a_grid_have_the_same_random_draws():
    """Frequencies but for their factor, and the rows that are drawn."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    for kind, times in ((RBF, math.sqrt(7.0)), (Laplacian, 7.0)):
        narrow, wide = (numerics.RandomFeatures(kind(gamma), 12, seed=3).map(3) for gamma in (7.0, 1.0))
        np.testing.assert_allclose(narrow(X), wide(times * X), rtol=0, atol=1e-12)
    shards = np.array_split(TABLE, 4)
    models = [
        strategies.UniformKPCA(2, RBF(width="median", factor=factor), n_samples=10, **SHOWN).fit(shards, seed=1).model
        for factor in (0.5, 2.0)
    ]
    np.testing.assert_array_equal(models[0].landmarks_, models[1].landmarks_)
    assert models[0].kernel.gamma == pytest.approx(16 * models[1].kernel.gamma, rel=1e-12)

"""Raw tables are prepared across sites as scikit-learn prepares the pooled table, by sums."""

import functools
import logging
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cases import CASES
from grids import in_turn
from hypothesis import given
from hypothesis import strategies as st
from raw_tables import CATEGORIES, CLUSTERS, PCA, frames
from scipy.optimize import brentq
from scipy.stats import norm, ttest_ind
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from fedkernel import DKPCA, RBF, InputError, Linear, Prepare, ProtocolError
from fedkernel.data import RawTable
from fedkernel.experiments.commands.logging_setup import site_log
from fedkernel.preparing import PrepareClient, TableToPrepare, fitted, from_text, prepare_centrally, tables_to_prepare
from fedkernel.preparing import forecast as forecast_of
from fedkernel.preparing import plan as plan_of
from fedkernel.preparing.messages import CompareColumns
from fedkernel.preparing.site_differences import FALSE_ALARM_LEVEL, KURTOSIS, differences, findings
from fedkernel.protocol import Guards, Member, PlanPosition, advance
from fedkernel.run import RunSettings
from fedkernel.strategy.simulation import run_through_files

LOADERS = (load_iris, load_wine, load_breast_cancer, load_diabetes, load_digits)


@functools.cache
def awkward(loader):
    """A table with columns that are constant, large with a tiny spread, tied, heavy-tailed, and empty at one site."""
    rng = np.random.default_rng(0)
    X = loader().data[:, :10].astype(float)
    X = np.column_stack([X, np.full(len(X), 7.5), 1e6 + rng.standard_normal(len(X)), rng.integers(0, 3, len(X))])
    X = np.column_stack([X, rng.standard_cauchy(len(X)), np.exp(2 * rng.standard_normal(len(X)))])
    X[rng.random(X.shape) < 0.05] = np.nan
    X[: len(X) // 3, 1] = np.nan
    return X


def tables_of(parts, prepare):
    return [TableToPrepare(RawTable.of_array(part), prepare) for part in parts]


def pooled(X, prepare):
    scaler = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}[prepare.scale]()
    return scaler.fit_transform(SimpleImputer(strategy=prepare.missing).fit_transform(X))


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_tables_come_out_as_scikit_learn_prepares_the_pooled_table(loader, scale):
    """A mean is a float: of a column at 1e6 it is off by 1e-10 for that alone, and scikit-learn's too."""
    X, prepare = awkward(loader), Prepare(scale=scale, missing="mean")
    tables, theirs = tables_of(np.array_split(X, 3), prepare), pooled(X, prepare)
    ours = np.vstack(prepare_centrally(tables, prepare, "horizontal"))
    ordinary = np.arange(X.shape[1]) != X.shape[1] - 4
    np.testing.assert_allclose(ours[:, ordinary], theirs[:, ordinary], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=len(X) * 1e6 * np.finfo(float).eps)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("missing", ["mean", "median"])
def test_quantiles_are_off_by_half_a_percent_of_rank_at_most(loader, missing):
    X = awkward(loader)
    preparation = fitted_over(X, scale="robust", missing=missing)
    if missing == "median":
        assert_ranks(X, np.column_stack([preparation.fill]), [0.5])
    filled = np.where(np.isnan(X), preparation.fill, X)
    exact = np.quantile(filled, [0.25, 0.75], axis=0)
    assert_ranks(filled, preparation.center[:, None], [0.5])
    # the distance of the quartiles lies between those of ranks half a percent off, either way
    slack = 1e-12 * filled.std(axis=0) + 1e-12 * np.abs(exact).max(axis=0)
    near, far = (np.quantile(filled, ranks, axis=0, method=how) for ranks, how in RANKS)
    constant = (preparation.scale == 1.0) & (exact[1] - exact[0] != 1.0)
    assert ((preparation.scale >= near[1] - near[0] - slack) | constant).all()
    assert ((preparation.scale <= far[1] - far[0] + slack) | constant).all()
    assert (np.abs(exact[1] - exact[0])[constant] <= slack[constant]).all()
    assert np.isfinite(preparation.center + preparation.scale).all()


def test_the_median_of_values_that_repeat_is_the_value_itself():
    """Of whole numbers, of cents, of large ones close together, of 0 beside large ones."""
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 5, 301), rng.integers(-9, 9, 301) / 100, 1e6 + rng.integers(0, 3, 301)]
    X = np.column_stack([*columns, rng.choice([0.0, 1e9], 301, p=[0.6, 0.4])])
    X[::7, :3] = np.nan
    fill = fitted_over(X, missing="median").fill
    np.testing.assert_array_equal(fill, np.nanquantile(X, 0.5, axis=0, method="inverted_cdf"))


RANKS = (([0.2551, 0.7449], "higher"), ([0.2449, 0.7551], "lower"))


def fitted_over(X, **fields):
    """Return what three sites' sums come to."""
    return PCA.fit(np.array_split(X, 3), prepare=Prepare(drift="ignore", **fields)).preparation


def assert_ranks(X, values, levels):
    """Each value of a column (d, q) is a quantile of it up to half a percent of rank, or to rounding."""
    for column, own in zip(X.T, values, strict=True):
        present = column[~np.isnan(column)]
        slack = 1e-12 * (present.std() + np.abs(present).max())
        for value, level in zip(own, levels, strict=True):
            below, upto = (present < value - slack).mean(), (present <= value + slack).mean()
            assert below - 0.005 <= level <= upto + 0.005


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    holes=st.floats(0, 0.9),
    scale=st.sampled_from(["standard", "minmax"]),
    spread=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_however_rows_are_divided_and_cells_are_missing_the_pooled_answer_comes_out(seed, sizes, holes, scale, spread):
    """Columns that vary by a thousandth of their mean, or by a million times that, and sites of one row."""
    rng = np.random.default_rng(seed)
    X = 1 + spread * rng.standard_normal((sum(sizes), 3))
    X[1:][rng.random((len(X) - 1, 3)) < holes] = np.nan
    prepare = Prepare(scale=scale, missing="mean")
    tables = tables_of(np.split(X, np.cumsum(sizes)[:-1]), prepare)
    expected = pooled(X, prepare)
    varies = np.where(np.isnan(X), np.nanmean(X, axis=0), X).std(axis=0)
    # a mean is rounded, by which a column moves that is divided by how much it varies, if it does
    rounding = 10 * np.finfo(float).eps * np.nanmax(np.abs(X)) / np.where(varies > 0, np.minimum(varies, 1), 1)
    prepared = np.vstack(prepare_centrally(tables, prepare, "horizontal"))
    assert (np.abs(prepared - expected) <= 1e-10 + 1e-10 * np.abs(expected) + rounding).all()


def test_a_table_alone_is_prepared_as_scikit_learn_does():
    X = awkward(load_breast_cancer)
    for scale in ("standard", "minmax", "robust"):
        for missing in ("mean", "median"):
            prepare = Prepare(scale=scale, missing=missing)
            raw = RawTable.of_array(np.delete(X, 11, axis=1))
            ours = fitted(prepare, raw).apply(raw)[0]
            np.testing.assert_allclose(ours, pooled(np.delete(X, 11, axis=1), prepare), rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", {type(case.strategy): case for case in CASES}.values(), ids=str)
def test_every_pair_takes_raw_tables_and_finds_what_it_finds_in_prepared_ones(case):
    strategy, prepare = case.strategy, Prepare(drift="ignore")
    shards = [3 * np.asarray(shard) + 1 for shard in case.shards()]
    expected = strategy.fit(prepare_centrally(tables_of(shards, prepare), prepare, strategy.partition))
    result = strategy.fit(shards, prepare=prepare)
    for name, array in vars(expected.model).items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(getattr(result.model, name), array)
    before = plan_of(prepare, strategy.partition, len(shards))
    assert result.ledger.rounds == expected.ledger.rounds + len(before)


def test_frames_are_put_in_order_filled_scaled_and_known_by_their_columns():
    prepare = Prepare(missing="median", indicator=True, categories=CATEGORIES)
    sites = frames()
    result = PCA.fit(sites, prepare=prepare)
    names = tuple(sites[0].columns)
    assert result.columns == (*names[:5], f"{names[1]} missing", "region = north", "region = south")
    assert result.preparation.names == names
    whole = pd.concat([site[list(names)] for site in sites])
    fill, ranks = result.preparation.fill, whole.iloc[:, :5].median().to_numpy()
    assert_ranks(whole.iloc[:, :5].to_numpy(), fill[:, None], [0.5])
    assert np.abs(fill - ranks).max() < 0.1
    dropped = PCA.fit(sites, prepare=Prepare(missing="drop", categories=CATEGORIES))
    complete = whole.dropna()
    expected = StandardScaler().fit(complete.iloc[:, :5])
    np.testing.assert_allclose(dropped.preparation.center, expected.mean_, rtol=1e-12)
    np.testing.assert_allclose(dropped.preparation.scale, expected.scale_, rtol=1e-12)
    positions = [output["rows"] for output in dropped.outputs.values() if "rows" in output]
    assert sum(len(site) for site in sites) - len(complete) == 2
    assert all(len(rows) < 60 for rows in positions)


def test_tables_that_go_through_files_are_the_same():
    prepare = Prepare(missing="mean", categories=CATEGORIES)
    tables = tables_to_prepare(frames(), prepare, "horizontal")
    mine = RunSettings(clients=3, prepare=prepare)
    here = PCA.fit(frames(), prepare=prepare)
    there = run_through_files(type(PCA), PCA.hyperparameters, tables, "local", mine)
    np.testing.assert_array_equal(here.model.eigenvalues_, there.model.eigenvalues_)
    assert [row["phase"] for row in here.history] == [row["phase"] for row in there.history]


def test_columns_that_are_divided_are_prepared_where_they_are_and_nothing_crosses():
    X = load_wine().data
    parts = np.array_split(X, 3, axis=1)
    parts[1][4, 0] = np.nan
    result = DKPCA(2, Linear()).fit(parts, prepare=Prepare(missing="mean", scale="robust"))
    assert [entry.floats_up for entry in result.ledger.entries if entry.phase == "PrepareOwn"] == [0, 0, 0]
    for part, outputs in zip(parts, result.outputs.values(), strict=True):
        own = from_text(str(outputs["preparation"]))
        np.testing.assert_allclose(own.apply(RawTable.of_array(part))[0], pooled(part, own.prepare), atol=1e-12)
    with pytest.raises(InputError, match=r"prepare.log names 'crp', but no site has this column"):
        DKPCA(2, Linear()).fit(parts, prepare=Prepare(missing="mean", log=["crp"]))
    with pytest.raises(InputError, match=r'missing = "drop", but client 0 has no row ids'):
        DKPCA(2, Linear()).fit(parts, prepare=Prepare(missing="drop"))
    with pytest.raises(InputError, match=r"shards\[1\]: row 4 \(counted from 0\), column '0' holds no value"):
        DKPCA(2, Linear()).fit(parts, prepare=Prepare())


def with_ids(how):
    """Return frames of the same patients, in orders of their own, whose ids are a column or the index."""
    wine = load_wine(as_frame=True).data
    wine.iloc[3, 1] = np.nan
    wine["patient"] = [f"p{row:03}" for row in range(len(wine))]
    names = np.array_split(wine.columns[:-1], 3)
    sites = [wine[[*own, "patient"]].sample(frac=1, random_state=site) for site, own in enumerate(names)]
    if how == "index":
        return [site.set_index("patient") for site in sites]
    if how == "pyarrow":
        return [pa.Table.from_pandas(site, preserve_index=False) for site in sites]
    return [site.reset_index(drop=True) for site in sites]


@pytest.mark.parametrize("how", ["column", "pyarrow"])
def test_rows_are_known_by_a_column_of_ids_as_by_an_index(how):
    strategy, prepare = DKPCA(2, RBF(gamma=0.05), local_components=20), Prepare(missing="mean")
    expected = strategy.fit(with_ids("index"), prepare=prepare)
    result = strategy.fit(with_ids(how), prepare=prepare, id="patient")
    np.testing.assert_array_equal(result.model.eigenvectors_, expected.model.eigenvectors_)
    own = from_text(str(result.outputs[0]["preparation"]))
    assert own.names == tuple(with_ids("index")[0].columns)
    indexed = strategy.fit(with_ids("index"), prepare=prepare, id="patient")
    np.testing.assert_array_equal(indexed.model.eigenvectors_, expected.model.eigenvectors_)
    for wrong, text in ((None, "both have a column 'patient' with unique"), ("id", "no such column; there")):
        with pytest.raises(InputError, match=text):
            strategy.fit(with_ids(how), prepare=prepare, id=wrong)


def test_a_column_of_ids_is_none_of_the_table_where_rows_are_divided():
    sites = frames()
    named = [site.assign(patient=[f"{number}-{row}" for row in site.index]) for number, site in enumerate(sites)]
    prepare = Prepare(missing="mean", categories=CATEGORIES)
    result, expected = PCA.fit(named, prepare=prepare, id="patient"), PCA.fit(sites, prepare=prepare)
    assert result.columns == expected.columns
    np.testing.assert_array_equal(result.model.eigenvalues_, expected.model.eigenvalues_)


UNITS = {str(place): (3.0, 1.5) for place in range(4)}
SCALES, MISSING = ["standard", "minmax", "robust", "none", UNITS], ["refuse", "drop", "mean", "median"]
CENTERED = [(UNITS, "center", drift) for drift in ("warn", "ignore")]


@pytest.mark.parametrize(
    ("scale", "missing", "drift"), [*in_turn(SCALES, MISSING, ["warn", "ignore"], every=2), *CENTERED]
)
def test_what_is_asked_is_planned_and_forecast(scale, missing, drift):
    prepare = Prepare(scale=scale, missing=missing, drift=drift)
    X = load_iris().data.copy()
    X[::40, 1] = np.nan if missing != "refuse" else 5.0
    shards = np.array_split(X, 3)
    result, place, steps = PCA.fit(shards, prepare=prepare), PlanPosition(), plan_of(prepare, "horizontal", 3)
    rounds = [row["phase"] for row in result.history if row["round"]]
    for phase in rounds[: rounds.index("TakePreparation") + 1]:
        place = advance(steps, place, phase, {"sites": 3}, {})
    assert place.step == len(steps) - 1
    foreseen, members = forecast_of(prepare, "horizontal", [Member(n, n, *X.shape) for n, X in enumerate(shards)])
    spent = [entry for entry in result.ledger.entries if 0 < entry.round <= rounds.index("TakePreparation") + 1]
    floats = [sum(getattr(entry, name) for entry in spent) for name in ("floats_up", "floats_down")]
    took = rounds.index("TakePreparation") + 1, *floats
    expected = foreseen.rounds, foreseen.floats_up, foreseen.floats_down
    assert took == expected if foreseen.meaning == "exact" else all(np.array(took) <= expected)
    if missing != "median" and scale != "robust":  # whose rounds end as soon as all quantiles are found
        assert took[0] == foreseen.rounds
    assert [member.columns for member in members] == [len(result.columns)] * 3


def messy(factor=18.0):
    frame = load_breast_cancer(as_frame=True).data.iloc[:, :4].sample(frac=1, random_state=0)
    frame = frame.rename(columns={frame.columns[1]: "glucose"})
    sites = [frame.iloc[part].copy() for part in np.array_split(np.arange(len(frame)), 3)]
    sites[2]["glucose"] *= factor
    return sites


def test_a_sites_log_file_has_what_is_found_of_its_columns(tmp_path):
    with site_log(tmp_path / "own.log", "a", False):
        PCA.fit(messy(), prepare=Prepare())
    text = "WARNING glucose differs between this site (shards[2]) and the others: mean 18 times, standard deviation "
    assert text in (tmp_path / "own.log").read_text()


def test_a_column_in_another_unit_is_named_and_stops_the_run_where_that_is_wanted(caplog):
    text = "glucose: client 2's mean is 18 times the others'; a different unit?"
    with pytest.raises(InputError) as caught:
        PCA.fit(messy(), prepare=Prepare(drift="refuse"))
    assert str(caught.value) == f'{text} (prepare.drift = "refuse")'
    with caplog.at_level(logging.WARNING):
        result = PCA.fit(messy(), prepare=Prepare())
    assert text in caplog.text
    own = {record.message for record in caplog.records if record.name == "fedkernel.preparing.client"}
    for client in range(3):  # those that are right differ from sums with the wrong one's, and no site knows who is off
        (line,) = (line for line in own if line.startswith(f"glucose differs between this site (shards[{client}]) and"))
        assert line.endswith("; one of them may have a different unit")
    assert "shards[2]" not in "".join(own).replace("this site (shards[2])", "")
    assert "a different unit?" not in "".join(own)
    (values,) = (row["values"] for row in result.history if row["phase"] == "TakePreparation")
    assert values == {"glucose at client 2": 18.0}
    caplog.clear()
    for sites, drift in ((messy(1.0), "warn"), (messy(), "ignore")):
        PCA.fit(sites, prepare=Prepare(drift=drift))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_column_that_is_empty_at_one_site_is_told_there_and_compared_with_nothing(caplog):
    sites = messy(1.0)
    sites[1]["glucose"] = np.nan
    with warnings.catch_warnings(action="error"):
        result = PCA.fit(sites, prepare=Prepare(missing="mean"))
    assert result.findings == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "glucose: this site (shards[1]) has no value; all cells are filled from the other sites' values"
    ]


def drawn(rng, rows, factor=1.0):
    """Three sites with columns that are normal, exponential, counts, lognormal and uniform."""
    columns = [rng.normal(5, 1, rows), rng.exponential(size=rows), rng.poisson(3.0, rows)]
    columns += [np.exp(rng.standard_normal(rows) / 2), rng.uniform(size=rows)]
    first, second, third = np.split(np.column_stack(columns), 3)
    return [first, second, factor * third]


def found_in(sites):
    """What sites find, with what the coordinator would have told them."""
    whole = np.vstack(sites)
    center = whole.mean(axis=0)
    apart = whole - center
    sums = {"deviations": apart.sum(axis=0), "squares": (apart**2).sum(axis=0)}
    counts = np.full(5, float(len(whole)))
    ask = CompareColumns(names=tuple("abcde"), sites=3, center=center, counts=counts, **sums)
    members = [Member(number, number, len(X), 5) for number, X in enumerate(sites)]
    return findings(ask.names, members, [differences(X, ask) for X in sites])


@pytest.mark.parametrize("rows", [60, 300])
def test_sites_that_are_alike_give_no_alarm_and_another_unit_always_does(rows):
    """1000 runs have a false alarm with probability 1000 FALSE_ALARM_LEVEL = 0.001 at most."""
    rng = np.random.default_rng(rows)
    assert not [finding for _ in range(200) for finding in found_in(drawn(rng, rows))]
    for factor in (18.0, 1 / 18):
        for _ in range(20):
            differences = found_in(drawn(rng, rows, factor))
            # what varies by as much as its mean takes more than 20 rows at each site
            sure = "ace" if rows == 60 else "abcde"
            named = {(finding.column, finding.site) for finding in differences if finding.column in sure}
            assert named == {(column, "client 2") for column in sure}
            assert all("a different unit?" in finding.text for finding in differences if finding.column in "ace")


@pytest.mark.parametrize("rows", [8, 40])
@pytest.mark.parametrize(("sites", "columns"), [(2, 1), (3, 4), (40, 20)])
def test_a_difference_is_one_where_its_test_says_so_at_the_level_shared_out(rows, sites, columns):
    """Means by Welch's t-test as SciPy has it, spreads by the variances' ratio; just above the level and below."""
    rng = np.random.default_rng(rows)
    level = FALSE_ALARM_LEVEL / (2 * sites * columns)
    own, others = rng.uniform(-1, 1, (rows, columns)), rng.uniform(-1, 1, (3 * rows, columns))

    def p_of_means(shift):
        return ttest_ind(own[:, 0] + shift, others[:, 0], equal_var=False).pvalue

    def p_of_spreads(factor):
        ratio = np.var(own[:, 0], ddof=1) * factor**2 / np.var(others[:, 0], ddof=1)
        return 2 * norm.sf(np.log(ratio) / np.sqrt((KURTOSIS - 1) * (1 / rows + 1 / (3 * rows))))

    for p_of, changed, last in ((p_of_means, np.add, 20.0), (p_of_spreads, np.multiply, 100.0)):
        for times, found in ((1.02, False), (0.98, True)):
            change = brentq(lambda change: np.log(p_of(change) / (times * level)), 0.5, last)  # noqa: B023
            here = own.copy()
            here[:, 0] = changed(own[:, 0], change)
            whole = np.vstack([here, others])
            names, counts = tuple(map(str, range(columns))), np.full(columns, float(len(whole)))
            sums = {"deviations": whole.sum(axis=0), "squares": (whole**2).sum(axis=0)}
            ask = CompareColumns(names=names, sites=sites, center=np.zeros(columns), counts=counts, **sums)
            reply = differences(here, ask)
            assert (0 in reply.columns) is found
            parts = ((whole, 1), (here, -1), (others, -1))
            gain = sum(sign * len(X) * np.log(np.var(X[:, 0], ddof=1)) for X, sign in parts) / (2 * len(whole))
            assert list(reply.gains[:found]) == [float(f"{gain:.2g}")] * found


def test_new_rows_are_prepared_as_those_before():
    """By the sites themselves; by hand, with what the sites have kept, it is the same."""
    X = load_wine().data
    shards, new = np.array_split(X[:120], 3, axis=1), np.array_split(X[120:], 3, axis=1)
    strategy, prepare = DKPCA(2, RBF(gamma=0.05)), Prepare(missing="median")
    new[1][3, 2] = np.nan
    result = strategy.fit(shards, prepare=prepare)
    own = [from_text(str(outputs["preparation"])) for outputs in result.outputs.values()]
    by_hand = [
        [preparation.apply(RawTable.of_array(part))[0] for preparation, part in zip(own, parts, strict=True)]
        for parts in (shards, new)
    ]
    projected = strategy.transform(result.model, shards, new, prepare=prepare)
    np.testing.assert_array_equal(projected, strategy.transform(result.model, *by_hand))
    halves, hollow = [X[:60], X[60:120]], np.where(np.arange(9 * 13).reshape(9, 13) == 0, np.nan, X[:9])
    with pytest.raises(ProtocolError, match="1 rows with empty cells; allowed: none"):
        CLUSTERS.predict(CLUSTERS.fit(halves).model, halves, [hollow, X[:9]], prepare=Prepare(missing="drop"))


class GuardedClient(PrepareClient):
    answers = PrepareClient.answers

    def __init__(self, X, **more):
        super().__init__(X, guards=Guards(cell_rows=1), memory={}, **more)


@pytest.mark.parametrize("loader", LOADERS)
def test_guards_let_every_quantile_be_found(loader, monkeypatch):
    X, prepare = awkward(loader), Prepare(scale="robust", missing="median")
    tables = tables_of(np.array_split(X, 3), prepare)
    expected = prepare_centrally(tables, prepare, "horizontal")
    monkeypatch.setattr("fedkernel.preparing.preparation_rounds.PrepareClient", GuardedClient)
    np.testing.assert_array_equal(np.vstack(prepare_centrally(tables, prepare, "horizontal")), np.vstack(expected))

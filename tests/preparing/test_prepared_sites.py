"""Sites with files and policies of their own prepare them as simulated sites do; experiments and studies have it."""

from dataclasses import replace

import numpy as np
import pytest
from named_sites import COLUMNS, COMMON, IDS, NAMES, TABLE, Sites, drawn_seed, settings_of, spec, vertical
from raw_tables import CATEGORIES, CLUSTERS, frames
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, InputError, Linear, Prepare, ProtocolError
from fedkernel.data import RawTable
from fedkernel.experiments.commands.forecast_table import lines_of
from fedkernel.experiments.config import read_config
from fedkernel.experiments.running import plan, run_experiment
from fedkernel.ground import OwnFileError
from fedkernel.preparing import PrepareClient, fitted, from_text
from fedkernel.preparing import plan as plan_of
from fedkernel.preparing.messages import EDGES, CountBelow, CountCells, SumSquares, TakePreparation
from fedkernel.protocol import Guards, encode, is_seeded
from fedkernel.site import read_outbox, reply_bounds, simulated_partition
from fedkernel.wire import flower_internals


def horizontal_nodes(folder, policy="", sites=None):
    """Three sites with 59 or 60 rows, whose columns stand in another order at the second."""
    (folder / "site.toml").write_text(policy)
    for number, (name, frame) in enumerate(zip(NAMES, sites or frames(), strict=True)):
        ids = [f"{number}-{row}" for row in range(len(frame))]
        frame.assign(patient=ids).to_csv(folder / f"{name}.csv", index=False)
        node = {"name": name, "data": str(folder / f"{name}.csv"), "id": "patient", "out": str(folder / name)}
        yield node | {"approve": "any", "policy": str(folder / "site.toml")}


def run_prepared(nodes, strategy, prepare, **more):
    kind, sites = type(strategy), [node["name"] for node in nodes]
    steps = (*plan_of(prepare, kind.partition, len(sites)), *strategy.plan(len(sites), 0))
    common = {"parameters": strategy.hyperparameters, "plan": steps, "prepare": prepare, "align": False}
    run = spec(kind.__name__, sites, **common | {"joint_seed": is_seeded(steps)} | more)
    with Sites(run, nodes) as grid:
        return strategy.run(grid, replace(settings_of(run), prepare=prepare)), grid, run


def policy_for(prepare, strategy, rows=0, without=""):
    """A policy that names the replies of preparing and of a method, but one."""
    steps = (*plan_of(prepare, strategy.partition, 3), *strategy.plan(3, 0))
    replies = dict.fromkeys(planned.reply for step in steps for planned in step.requests)
    tables = "".join(f"[messages.{reply}]\ntimes = 99\n" for reply in replies if reply != without)
    return f"[limits.total]\nrows = {rows}\n{tables}[guards]\ntable_share = 1000\n"


EVERYTHING = Prepare(scale="minmax", missing="median", indicator=True, categories=CATEGORIES)


def test_sites_with_a_policy_prepare_their_files_as_simulated_ones_do(tmp_path):
    nodes = list(horizontal_nodes(tmp_path, policy_for(EVERYTHING, CLUSTERS)))
    result, grid, run = run_prepared(nodes, CLUSTERS, EVERYTHING)
    expected = CLUSTERS.fit(frames(), prepare=EVERYTHING, seed=drawn_seed(result))
    np.testing.assert_array_equal(result.model.centers_, expected.model.centers_)
    assert result.columns == expected.columns
    assert result.preparation.to_table() == expected.preparation.to_table()
    for number, name in enumerate(NAMES):
        lines = read_outbox(tmp_path / name).departures
        assert lines[-1].standing.total.floats == result.ledger.of_client(number).floats_up
        assert [line.reply for line in lines if line.reply == "Extremes"] == ["Extremes"]
        with np.load(tmp_path / name / "trial.npz") as outputs:
            assert from_text(str(outputs["preparation"])).to_table() == result.preparation.to_table()
    # what is foreseen of the replies is enough
    sizes = reply_bounds(run, [*PrepareClient.answers, *CLUSTERS.client.answers], (60, 6))
    for message in grid.seen:
        if message.metadata.message_type == "train" and message.metadata.reply_to_message_id:
            reply = message.content.config_records["config"]["message"]
            floats = sum(array.size for array in flower_internals.read_arrays(message.content.array_records["arrays"]))
            assert sizes[reply].floats is None or floats <= sizes[reply].floats


def test_extremes_leave_only_where_a_policy_names_them_and_sums_of_no_fewer_values_than_it_answers_from_rows(tmp_path):
    for policy in ("", policy_for(EVERYTHING, CLUSTERS, without="Extremes") + '[messages."*"]\ntimes = 9\n'):
        with pytest.raises(ProtocolError, match=r"Extremes: the least and the greatest value .* \[messages.Extremes\]"):
            run_prepared(list(horizontal_nodes(tmp_path, policy)), CLUSTERS, EVERYTHING)
    # Twenty, without a word in its policy.
    sites = [frame.copy() for frame in frames()]
    numbers = [name for name in sites[1].columns if name not in CATEGORIES]
    sites[1].loc[sites[1].index[19:], numbers[0]] = np.nan
    with pytest.raises(ProtocolError, match=rf"fewer than 20 values in column '{numbers[0]}'.*\(guard: cells\)"):
        run_prepared([*horizontal_nodes(tmp_path, "", sites)], CLUSTERS, Prepare(missing="mean", categories=CATEGORIES))


def test_a_site_answers_no_method_before_its_table_is_prepared_and_prepares_it_once(tmp_path):
    prepare = Prepare(missing="mean", categories=CATEGORIES)
    ordered = [frame[sorted(frame.columns)] for frame in frames()]
    nodes = list(horizontal_nodes(tmp_path, "[study]\nplan = false\n", ordered))
    run = spec("RFKKMeans", plan=None, prepare=prepare, parameters=CLUSTERS.hyperparameters, joint_seed=True)
    with Sites(run, nodes) as grid, pytest.raises(ProtocolError, match="is not prepared yet"):
        CLUSTERS.run(grid, settings_of(run))
    take = TakePreparation(names=("a",), fill=np.zeros(1), center=np.zeros(1), scale=np.ones(1))
    site = guarded_site(np.arange(30.0))
    site.fit(*encode(take))
    with pytest.raises(InputError, match="answered before in this run"):
        site.fit(*encode(take))
    with pytest.raises(InputError, match="the request names 1 columns that differ from the 1"):
        site.fit(*encode(CountCells(names=("b",))))


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_rows_that_a_site_cannot_use_are_none_that_it_offers_for_alignment(tmp_path, missing):
    """A row with an empty cell is dropped at all sites, by its id."""
    nodes = vertical(tmp_path)
    lines = (tmp_path / "east.csv").read_text().splitlines()
    lost = lines[5].split(",")[-1]
    lines[5] = ",".join(["", *lines[5].split(",")[1:]])
    (tmp_path / "east.csv").write_text("\n".join(lines) + "\n")
    strategy, prepare = DKPCA(2, Linear()), Prepare(missing=missing)
    result, _, _ = run_prepared(nodes, strategy, prepare, align=True)
    with np.load(tmp_path / "east" / "trial.npz") as outputs:
        assert set(outputs["ids"]) == COMMON - ({lost} if missing == "drop" else set())
        preparation = from_text(str(outputs["preparation"]))
        rows = [IDS.index(id_) for id_ in outputs["ids"].tolist()]
    if missing == "drop":
        assert lost in COMMON, "or this shows nothing"
        np.testing.assert_allclose(preparation.center, TABLE[rows, COLUMNS[1]].mean(axis=0), atol=1e-12)
    parts = [StandardScaler().fit_transform(TABLE[rows, columns]) for columns in COLUMNS]
    if missing == "drop":
        np.testing.assert_allclose(result.model.eigenvalues_, strategy.fit(parts).model.eigenvalues_, rtol=1e-10)


EXPERIMENT = """
name = "prepared"
data.name = "wine"
partition = { kind = "horizontal", clients = 3, shuffle = true }
prepare = { scale = "robust", drift = "refuse" }
[[strategy]]
name = "all rows"
method = "UniformKPCA"
n_components = 2
n_samples = 178
share_rows = true
kernel = { type = "rbf", width = "median" }
[[baseline]]
name = "central"
method = "central UniformKPCA"
n_components = 2
share_rows = true
kernel = { type = "rbf", width = "median" }
"""


def test_an_experiment_is_compared_with_the_central_answer_about_the_same_tables(tmp_path):
    """With all rows as landmarks the method is exact; the median's width is that of the prepared rows."""
    (tmp_path / "run.toml").write_text(EXPERIMENT)
    experiment = read_config(tmp_path / "run.toml")
    planned = plan(experiment)
    X, prepare = load_wine().data, experiment.prepare
    tables = np.vstack(planned[0].shards)
    order = np.concatenate(simulated_partition(experiment.data, experiment.partition, 3, 0).indices)
    fits = fitted(prepare, RawTable.of_array(X))
    assert np.abs(tables - fits.apply(RawTable.of_array(X))[0][order]).max() < 0.1, "quantiles are off by 0.5 % of rank"
    rows = {row.name: row for row in run_experiment(experiment, tmp_path / "out").rows}
    assert rows["all rows"].metrics["error"] < 1e-12
    assert rows["all rows"].phases.keys() >= {"CountCells", "SumSquares", "CompareColumns", "TakePreparation"}
    assert planned[0].spec.prepare == prepare
    line = lines_of(planned)[0]
    assert line.forecasts[0].floats_up >= rows["all rows"].floats_up
    assert line.forecasts[0].rounds >= rows["all rows"].rounds


def guarded_site(values, min_rows=1, **prepare):
    more = {"min_rows": min_rows, "guards": Guards(table_share=1000), "memory": {}}
    return PrepareClient(RawTable({"a": values}), prepare=Prepare(**prepare), **more)


def test_thresholds_of_a_coordinator_s_choice_tell_no_more_of_a_column_than_its_quantiles():
    values = np.random.default_rng(0).normal(size=40)

    def counted(site, low, high):
        edges = np.linspace(low, high, EDGES)
        arrays, _, _ = site.fit(*encode(CountBelow(names=("a",), thresholds=edges[None])))
        return edges, arrays[0].ravel()

    site = guarded_site(values, missing="median")
    edges, counts = counted(site, -8.0, 8.0)
    for _ in range(6):  # what a median's histogram does: it follows one bin down
        place = int(np.argmax(counts >= 20))
        edges, counts = counted(site, edges[place - 1], edges[place])
    for low, high in ((-8.0, 8.0), (edges[0], edges[2]), (edges[5], edges[4]), (edges[-1], edges[-1] + 1e-3)):
        with pytest.raises(InputError, match=r"do not divide a bin of the previous ones; .* quantiles"):
            counted(site, low, high)
    counted(site, edges[4], edges[5])  # what is refused has used nothing up
    for unneeded in (guarded_site(values), guarded_site(values, scale="robust")):
        with pytest.raises(InputError, match="33 thresholds per column, which no quantile of the run needs"):
            counted(unneeded, -8.0, 8.0)


def test_thresholds_go_with_their_columns_in_any_order_and_divide_a_bin_evenly():
    raw = RawTable({name: np.arange(40.0) for name in "ab"})

    def ask(site, names, *ends):
        edges = np.linspace(*np.transpose(ends), EDGES, axis=1)
        return site.fit(*encode(CountBelow(names=tuple(names), thresholds=edges)))

    def new_site():
        return PrepareClient(raw, prepare=Prepare(missing="median"), guards=Guards(table_share=1000), memory={})

    site = new_site()
    ask(site, "ab", (0.0, 40.0), (-1e6, 1e6))
    with pytest.raises(InputError, match="do not divide a bin of the previous ones"):
        ask(site, "ba", (0.0, 1.0), (20.0, 30.0))
    ask(site, "ba", (0.0, 1.0), (20.0, 20.5))
    wide_last = np.append(np.linspace(0.0, 1.0, EDGES - 1), 40.0)
    with pytest.raises(InputError, match=r"do not divide a bin of the previous ones; allowed: one bin .* evenly"):
        new_site().fit(*encode(CountBelow(names=("a", "b"), thresholds=np.tile(wide_last, (2, 1)))))


def test_no_more_counts_leave_than_there_are_columns():
    """The counts of others would be what lay in the site's memory, such as sorted columns."""
    with pytest.raises(ValueError, match="thresholds has 2 rows, but there are 1 names"):
        CountBelow(names=("a",), thresholds=np.zeros((2, EDGES)))


@pytest.mark.parametrize(("fill", "leaves"), [(39.0, True), (-300.0, True), (1e9, False), (-500.0, False)])
def test_no_fill_makes_rows_without_a_value_stand_out(fill, leaves):
    """In sums of products such a row would be all that is seen."""
    site = guarded_site(np.where(np.arange(40) == 7, np.nan, np.arange(40.0)), missing="mean")
    take = TakePreparation(names=("a",), fill=np.full(1, fill), center=np.zeros(1), scale=np.ones(1))
    if leaves:
        assert site.fit(*encode(take))[1] == 40
    else:
        with pytest.raises(InputError, match=r"the fill of column 'a' is over 10 times .* \(guard: cells\)"):
            site.fit(*encode(take))


@pytest.mark.parametrize(("min_rows", "fewest"), [(1, 5), (4, 5), (20, 20)])
@pytest.mark.parametrize(("values", "leaves"), [("none", True), ("one", False), ("too few", False), ("enough", True)])
def test_no_sum_leaves_that_is_about_a_few_cells(values, leaves, min_rows, fewest):
    """About fewer than a guard says, or than the rows that a site answers from: the larger of both holds."""
    count = {"none": 0, "one": 1, "too few": fewest - 1, "enough": fewest}[values]
    site = guarded_site(np.where(np.arange(40) < count, 7.0, np.nan), missing="mean", min_rows=min_rows)
    for request in (CountCells(names=("a",)), SumSquares(names=("a",), center=np.zeros(1))):
        if leaves:
            assert site.fit(*encode(request))[1] == 40
        else:
            with pytest.raises(InputError, match=rf"fewer than {fewest} values in column 'a'.*\(guard: cells\)"):
                site.fit(*encode(request))


@pytest.mark.parametrize(
    ("prepare", "take", "text"),
    [
        ({"log": ("a",)}, {}, r"row 3 \(counted from 0\) of column 'a' has no logarithm"),
        ({}, {"scale": np.full(1, 5e-324)}, "too large after centring and scaling"),
        ({"categories": {"sex": ("f", "m")}}, {}, r"row 7 \(counted from 0\) of column 'sex' has a level"),
    ],
)
def test_which_row_cannot_be_prepared_is_for_the_site_s_log(prepare, take, text):
    columns = {"a": np.where(np.arange(30) == 3, -1.0, 1.0), "sex": np.array([*"fm" * 3, *"fx" * 12], dtype=object)}
    raw = RawTable(columns).select(["a", *prepare.get("categories", [])])
    request = TakePreparation(names=raw.names, **{name: np.ones(1) for name in ("fill", "center", "scale")} | take)
    with pytest.raises(OwnFileError, match=text) as caught:
        PrepareClient(raw, prepare=Prepare(**prepare), guards=Guards(), memory={}).fit(*encode(request))
    assert caught.value.outline == "client 0 cannot prepare its table"

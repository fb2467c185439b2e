"""Preparation by stated numbers: as by hand, without a question about cells, so that noise takes raw tables."""

import numpy as np
import pandas as pd
import pytest
from command_line import call
from counting import Died
from hypothesis import given
from hypothesis import strategies as st
from raw_tables import STATED, STATED_OPTIONS, UNITS, patients
from refusals import refusing

from fedkernel import DKPCA, RBF, CentroidKMeans, Linear, Prepare, Privacy
from fedkernel.data import raw_table
from fedkernel.engines.local import LocalGrid, run_job
from fedkernel.experiments.commands.forecast_table import lines_of
from fedkernel.experiments.config import read_config
from fedkernel.experiments.report.about import data_lines
from fedkernel.experiments.running import plan
from fedkernel.flower_apps import APPS
from fedkernel.ground import ShareableError
from fedkernel.preparing import PrepareClient, TableToPrepare, from_text, prepare_centrally, tables_to_prepare
from fedkernel.preparing import plan as plan_of
from fedkernel.preparing.messages import TakePreparation
from fedkernel.protocol import Guards, encode, once
from fedkernel.run import Journal, Result
from fedkernel.strategy import settled_privacy
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

BOUND = Privacy(epsilon=2.0, radius=3.0)
NOISE = {"sums": "masked", "privacy": BOUND}
KMEANS = CentroidKMeans(2, RBF(width="columns"))
ONLY = (once(TakePreparation),)


def by_hand(frame, names, prepare):
    """Return a site's table (n, d) as its owner would prepare it, column by column."""
    if prepare.missing == "drop":
        frame = frame.dropna()
    columns = []
    for name in (name for name in names if name not in prepare.categories):
        numbers = frame[name].to_numpy(dtype=float)
        if name in prepare.clip:
            numbers = np.minimum(np.maximum(numbers, prepare.clip[name][0]), prepare.clip[name][1])
        if name in prepare.log:
            numbers = np.log(numbers)
        center, unit = (0.0, 1.0) if prepare.scale == "none" else prepare.scale[name]
        columns.append((np.where(np.isnan(numbers), center, numbers) - center) / unit)
    for name, levels in prepare.categories.items():
        cells = [None if pd.isna(cell) else cell if cell in levels else "*" for cell in frame[name]]
        columns += [np.array([cell == level for cell in cells], dtype=float) for level in levels]
    return np.column_stack(columns)


@given(
    seed=st.integers(0, 2**32 - 1),
    treated=st.sampled_from(
        [("none", "refuse"), ("none", "drop"), *((UNITS, it) for it in ("refuse", "drop", "center"))]
    ),
    log=st.booleans(),
    levels=st.sampled_from([("f", "m", "x"), ("f", "*"), ("*", "x", "m")]),
)
def test_tables_come_out_as_each_site_would_prepare_its_own_by_hand(seed, treated, log, levels):
    scale, missing = treated
    fields = {"log": ("crp",), "clip": {"crp": (0.1, 500.0)}} if log else {}
    prepare = Prepare(scale=scale, missing=missing, categories={"sex": levels}, drift="ignore", **fields)
    sites = patients(seed, 20, 0.0 if missing == "refuse" else 0.1)
    tables = prepare_centrally(tables_to_prepare(sites, prepare, "horizontal"), prepare, "horizontal")
    for frame, table in zip(sites, tables, strict=True):
        np.testing.assert_array_equal(table, by_hand(frame, sites[0].columns, prepare))
    assert plan_of(prepare, "horizontal", 3) == ONLY
    assert Prepare(**prepare.table) == prepare


def test_a_run_asks_nothing_about_cells_and_new_rows_are_prepared_alike():
    sites = patients()
    names, (new, *_) = sites[0].columns, patients(1)
    result = KMEANS.fit(sites, prepare=STATED)
    expected = KMEANS.fit([by_hand(frame, names, STATED) for frame in sites])
    np.testing.assert_array_equal(result.model.centers_, expected.model.centers_)
    before = [entry for entry in result.ledger.entries if entry.round == 1]
    assert [(entry.phase, entry.floats_up) for entry in before] == [("TakePreparation", 0)] * 3
    assert result.ledger.rounds == 1 + expected.ledger.rounds
    assert result.columns == (*(name for name in names if name != "sex"), "sex = f", "sex = *")
    np.testing.assert_array_equal(result.preparation.apply(raw_table(new, "new"))[0], by_hand(new, names, STATED))
    labels = expected.model.predict(by_hand(new, names, STATED))
    np.testing.assert_array_equal(result.fitted.predict(new).values, labels)


def test_stated_units_go_with_numbers_from_the_rows():
    sites = patients()
    result = KMEANS.fit(sites, prepare=Prepare(**STATED_OPTIONS | {"missing": "median", "drift": "warn"}))
    assert result.preparation.center.tolist() == [UNITS[name][0] for name in result.preparation.names if name != "sex"]
    (place,) = [place for place, name in enumerate(sites[0].columns.drop("sex")) if name == "age"]
    assert result.preparation.fill[place] == pytest.approx(pd.concat(sites)["age"].median(), abs=0.5)
    asked = {entry.phase for entry in result.ledger.entries}
    assert {"CountCells", "SumSquares", "CompareColumns", "CountBelow"} <= asked


def test_a_site_with_columns_of_its_own_takes_the_units_of_these():
    (frame, *_) = patients(holes=0.0)
    result = DKPCA(2, Linear()).fit([frame[["age"]], frame[["crp"]]], prepare=Prepare(scale=UNITS))
    for name, outputs in zip(("age", "crp"), result.outputs.values(), strict=True):
        own = from_text(str(outputs["preparation"]))
        assert own.prepare.scale == {name: UNITS[name]}
        assert (own.center.item(), own.scale.item()) == UNITS[name]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scale": {"age": 60}}, "Prepare: scale.age: 60 is no pair of numbers, such as [60, 12]"),
        ({"scale": {"age": (60, 12)}}, "prepare.scale has no column 'crp'; allowed: centre and unit of each column of"),
        ({"scale": UNITS | {"bmi": (27, 5)}}, "prepare.scale names 'bmi', but no site has this column"),
        ({"log": ("bmi",)}, "prepare.log names 'bmi', but no site has this column"),
    ],
)
def test_columns_without_a_unit_and_units_without_a_column_are_named(change, text):
    with refusing(text):
        KMEANS.fit(patients(), prepare=Prepare(**STATED_OPTIONS | change))


# --- with noise


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"scale": "standard", "missing": "drop"}, 'scale = "standard"'),
        ({"scale": "minmax", "missing": "drop", "drift": "warn"}, 'scale = "minmax", drift = "warn"'),
        ({"missing": "median"}, 'missing = "median"'),
        ({"drift": "refuse"}, 'drift = "refuse"'),
        ({"clip": {}}, "log of 'crp'"),
        ({"clip": {"crp": (0.0, 500.0)}}, "log of 'crp'"),
        ({"categories": {"sex": ("f", "m", "x")}}, "categories of 'sex'"),
    ],
)
def test_a_preparation_that_may_tell_of_cells_is_refused_with_noise(change, fault):
    with refusing(
        f'privacy: prepare with {fault} tells of cells; allowed: scale = "none", or a table of centre and unit'
    ):
        KMEANS.fit(patients(), prepare=Prepare(**STATED_OPTIONS | change), **NOISE)


@pytest.mark.xdist_group("grpc")
def test_with_noise_a_run_on_raw_tables_has_the_same_bits_on_every_engine():
    here, there = (KMEANS.fit(patients(), prepare=STATED, engine=engine, **NOISE) for engine in ("local", "grpc"))
    np.testing.assert_array_equal(here.model.centers_, there.model.centers_)
    assert [entry.floats_up for entry in here.ledger.entries if entry.round == 1] == [0, 0, 0]
    assert any("epsilon = 2" in finding for finding in here.findings)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_a_run_that_was_stopped_once_its_tables_were_prepared_goes_on_there(exchanges, tmp_path, monkeypatch):
    tables = tables_to_prepare(patients(), STATED, "horizontal")
    files = [as_file(table, tmp_path / f"{number}") for number, table in enumerate(tables)]
    common = {"strategy": "CentroidKMeans", "parameters": KMEANS.hyperparameters, "shards": files, "clients": 3}
    run = RunSpec(id="run", **common, prepare=STATED, sums="masked", privacy=settled_privacy(KMEANS, BOUND))
    job, add = Job(runs=[run], apps=APPS, out=str(tmp_path / "out"), journals=True), Journal.add

    def stops(journal, *exchange):
        add(journal, *exchange)
        if len(journal) > exchanges:
            raise Died

    monkeypatch.setattr(LocalGrid, "write_every", 0.0)
    monkeypatch.setattr(Journal, "add", stops)
    with pytest.raises(Died):
        list(run_job(job))
    monkeypatch.setattr(Journal, "add", add)
    list(run_job(job))
    resumed = Result.load(f"{job.out}/run")
    assert any("resumed at" in finding for finding in resumed.findings)
    np.testing.assert_array_equal(
        resumed.model.centers_, KMEANS.fit(patients(), prepare=STATED, **NOISE).model.centers_
    )
    assert resumed.preparation.prepare == STATED


EXTREMES = {
    "age": (1e100, -1e100, 0.0, 60.0, np.nan),
    "crp": (-1.0, 0.0, 1e-300, 1e100, np.nan),
    "sex": ("f", "*", "unlisted", None),
}


@given(row=st.fixed_dictionaries({name: st.sampled_from(cells) for name, cells in EXTREMES.items()}), at=st.booleans())
@pytest.mark.parametrize("missing", ["drop", "center"])
def test_one_row_more_changes_neither_an_answer_but_for_the_number_of_rows_nor_what_becomes_of_another_row(
    missing, row, at
):
    """A refusal would tell of the row: whatever its cells hold, also with units that make one column decide."""
    units = {"age": (60.0, 1e-100), "crp": (-1e100, 1e100)}
    prepare = Prepare(**STATED_OPTIONS | {"missing": missing, "scale": units})
    (frame, *_) = patients(rows=30)
    more = pd.DataFrame([row], columns=frame.columns).astype(frame.dtypes.to_dict())
    answers = []
    for rows in (frame, pd.concat([more, frame] if at else [frame, more], ignore_index=True)):
        table = TableToPrepare(raw_table(rows, "the table"), prepare)
        site = PrepareClient(table.raw, prepare=prepare, guards=Guards(), memory={}, privacy=BOUND)
        numeric = [name for name in frame.columns if name != "sex"]
        center, scale = np.array([units[name] for name in numeric]).T
        fill = center if missing == "center" else np.zeros(2)
        site.fit(*encode(TakePreparation(names=tuple(frame.columns), fill=fill, center=center, scale=scale)))
        answers.append((site.reply, site.preparation.apply(table.raw)[0]))
    (before, own), (after, changed) = answers
    kept = missing == "center" or not pd.isna(list(row.values())).any()
    assert (after.rows, after.columns) == (before.rows + kept, before.columns)
    assert np.isfinite(changed).all()
    np.testing.assert_array_equal(changed[1:] if kept and at else changed[: len(own)], own)


@pytest.mark.parametrize("more", [{}, {"drift": "warn"}, {"missing": "median"}], ids=str)
def test_a_site_takes_no_numbers_but_the_stated_ones_also_where_others_are_measured(more):
    raw, prepare = raw_table(patients()[0], "the table"), Prepare(**STATED_OPTIONS | more)
    numeric = STATED.numeric_names(raw.names)
    center, scale = np.array([UNITS[name] for name in numeric]).T
    for change in ({"center": center + 1}, {"scale": 2 * scale}, *([{"fill": 0 * center}] * ("missing" not in more))):
        site = PrepareClient(raw, prepare=prepare, guards=Guards(), memory={})
        request = TakePreparation(names=raw.names, **{"fill": center, "center": center, "scale": scale} | change)
        with pytest.raises(ShareableError, match="in the request differ from those that prepare states"):
            site.fit(*encode(request))


def test_with_noise_a_site_answers_nothing_about_cells():
    site = PrepareClient(raw_table(patients()[0], "the table"), prepare=STATED, privacy=BOUND)
    for request in PrepareClient.answers:
        if request is not TakePreparation:
            with pytest.raises(ShareableError, match="has no noise"):
                site.fit([], {"message": request.__name__})


EXPERIMENT = """
name = "raw"
sums = "masked"
data.shards = ["0.csv", "1.csv", "2.csv"]
privacy = { epsilon = 2.0, radius = 3.0 }

[prepare]
scale = { age = [60, 12], crp = [1.1, 1.3] }
missing = "center"
log = ["crp"]
clip = { crp = [0.1, 500] }
categories = { sex = ["f", "m", "x", "*"] }
drift = "ignore"

[[strategy]]
name = "groups"
method = "CentroidKMeans"
n_clusters = 2
kernel = { type = "rbf", width = "columns" }
"""


def test_an_experiment_forecasts_noise_on_the_prepared_columns_and_its_report_says_what_is_stated(tmp_path):
    for number, frame in enumerate(patients(rows=400)):
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
    (tmp_path / "raw.toml").write_text(EXPERIMENT)
    planned = plan(experiment := read_config(tmp_path / "raw.toml"))
    (line,) = lines_of(planned)
    assert planned[0].shapes == ((400, 6),) * 3
    call("run", tmp_path / "raw.toml", "--out", tmp_path / "out", "--set", "report.plots=false")
    result = Result.load(tmp_path / "out" / "results" / "groups__seed=0")
    assert line.noise in result.findings
    assert (line.forecasts[0].rounds, line.forecasts[0].floats_up) >= (result.ledger.rounds, result.ledger.floats_up)
    assert dict(data_lines(experiment, []))["prepared"] == (
        "clipped: crp to 0.1 to 500; logarithms of crp; empty cells get the column's stated centre; centred and "
        "divided by stated numbers: age (60, 12), crp (1.1, 1.3); levels as columns of 0 and 1: sex (f, m, x, *); "
        "without numbers from the rows"
    )

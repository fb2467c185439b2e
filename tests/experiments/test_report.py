"""The report's page shows what was asked, the data, the tables and what runs chose."""

import html
import re

import numpy as np
import pytest
from report_runs import a_round, a_run, an_experiment, experiment, tables

from fedkernel.data import PartitionSpec
from fedkernel.experiments import results
from fedkernel.experiments.claims import Claim, Verdict
from fedkernel.experiments.config import Experiment, ReportOptions, Sites
from fedkernel.experiments.report import write_report
from fedkernel.experiments.report.about import data_lines
from fedkernel.experiments.report.page_tables import size_rows
from fedkernel.experiments.results import write_shapes
from fedkernel.experiments.running import run_experiment
from fedkernel.ground import InputError, write_atomic
from fedkernel.models import metric_of
from fedkernel.site import RECEIPTS
from fedkernel.site.privacy_receipt import PrivacyReceipt


def test_the_page_shows_everything(tmp_path):
    claims = [
        Claim("one round is enough", Verdict.HOLDS, "1 = 1"),
        Claim("it is exact", Verdict.FAILS, "0.1 > 0"),
        Claim("it is best", Verdict.NOISE, "0.1 ~ 0.1"),
        Claim("it is fast", Verdict.UNTESTABLE, "2 of 3 runs are missing"),
    ]
    runs = an_experiment(sweep=True)
    path = write_report(tmp_path, experiment("A title", 'name = "x"'), runs, claims=claims, environment={"numpy": "2"})
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "report.html"
    shown = ("A title", "name = &#34;x&#34;", "DKPCA-5", "VFedPCA", "central", "FindLocalEigenpairs", "numpy", "2.0")
    assert [text for text in shown if text not in page] == []
    verdicts = ("enough.*?✓ holds", "exact.*?✗ does not hold", "best.*?≈ holds within noise", "fast.*?not testable")
    assert re.search("<.*?".join(verdicts), page, re.DOTALL)
    # but for what a figure is shown large in
    assert page.count('src="data:image/svg+xml;base64,') == page.count("<img") - 1 == 5
    # shares of phases that overlap are of their sum, more than the seconds on the clock
    run = a_run(seconds=1.0, phases={"Draw": 0.9, "Solve": 0.6})
    left = tables(write_report(tmp_path / "one", experiment("A title"), [run]))["What left the sites"]
    assert left[1:] == [["DKPCA-5", "Draw", *"––––", "0.900", "60%"], ["DKPCA-5", "Solve", *"––––", "0.600", "40%"]]
    with pytest.raises(InputError, match="no finished runs"):
        write_report(tmp_path, experiment("A title"), [])


def test_the_page_begins_with_what_was_asked_and_then_says_what_it_took(tmp_path):
    """Of each what few rows have comes last; tables can be scrolled by the keyboard too, with a bar that shows."""
    common = {"error": 0.1, "parallel_seconds": 0.2, "nmi": 0.5, "local_components": 25.0}
    runs = [
        a_run("DKPCA", metrics={"bound": 1.0, **common}, point={"partition.clients": 2}),
        a_run("isolated", kind="baseline", metrics={"worst_error": 0.3, **common}, point={"partition.clients": 2}),
    ]
    for wanted, first, second in ((None, "error against central", "nmi"), ("nmi", "nmi", "error against central")):
        path = write_report(tmp_path, experiment(options=ReportOptions(plots=False, metric=wanted)), runs)
        assert [*tables(path)][:2] == ["Answer", "What it took"]
        answer, took = (tables(path)[label] for label in ("Answer", "What it took"))
        assert answer[0] == ["method", "partition.clients", first, second, "worst_error", "bound", "seeds"]
        costs = ["floats up", "floats down", "rounds", "seconds", "parallel_seconds", "local_components"]
        assert took[0] == ["method", "partition.clients", *costs, "bytes up", "bytes down", "seeds"]
    assert answer[1] == ["DKPCA", "2", "0.5000", "1.00e-01", "–", "1.00e+00", "1"]
    assert took[1] == ["DKPCA", "2", "14,250", "0", "1", "0.120", "0.200", "25", "114.9 kB", "2.5 kB", "1"]
    page = path.read_text(encoding="utf-8")
    assert re.search(r'<div class="scroll" tabindex="0" [^>]*>\s*<table', page)
    assert "::-webkit-scrollbar " in page


def test_whatever_is_named_is_escaped(tmp_path):
    bad = "<b>&\"'"
    runs = [a_run(bad, seed, point={bad: seed}, group=bad, phases={bad: 0.1}, engine=bad) for seed in (1, 2)]
    more = {"claims": [Claim(bad, Verdict.HOLDS, bad)], "environment": {bad: bad}}
    page = write_report(tmp_path, experiment(bad, bad), runs, **more).read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;&#34;&#39;" in page


def test_the_page_says_which_replies_left_the_sites_how_often_and_in_which_form(tmp_path):
    """By the means over seeds; a phase of a method that cannot be imported is told without its reply."""
    masked = experiment().model_copy(update={"sums": "masked"})
    names = ("join", "MeasureSquares", "FindLocalEigenpairs", "FindLocalEigenpairs", "DrawUniformly")
    history = [a_round(number, 0.1) | {"phase": name} for number, name in enumerate(names)]
    history[0]["floats_up"], history[4]["rows_up"] = 0, 3
    changed = {"phases": dict.fromkeys(names, 0.02), "seconds": 0.08}
    runs = [a_run(seed=0, history=history, **changed), a_run(seed=1, history=history[:3], **changed)]
    runs.append(a_run("lost", method="nobody.pairs:Lost", history=history[1:2], phases={"MeasureSquares": 0.1}))
    left = tables(write_report(tmp_path, masked, runs))["What left the sites"]
    assert [row[1:6] for row in left] == [
        ["phase", "reply", "replies", "floats", "as"],
        ["join", *"––––"],
        ["MeasureSquares", "RowSquares", "5", "10", "summed, masked"],
        ["FindLocalEigenpairs", "LocalSpectrum", "7.5", "15", "each site&#39;s own"],
        ["DrawUniformly", "–", "2.5", "5", "with 1.5 raw rows"],
        ["MeasureSquares", "–", "5", "10", "–"],
    ]


def test_the_options_decide_what_is_drawn_and_what_could_not_be_is_said(tmp_path):
    history = [a_round(1, None, t=1, rank=3)]
    runs = [a_run(name, metrics={"error": 0.1, "nmi": 0.5}, history=history) for name in ("a", "b")]
    options = ReportOptions(metric="nmi", by_iteration=["rank", "rnak"])
    page = write_report(tmp_path, experiment("A title", options=options), runs).read_text(encoding="utf-8")
    drawn = re.findall(r'<figure id="(\w+)">', page)
    assert drawn == ["nmi_by_method", "nmi_by_floats_up", "seconds_by_phase", "rank_by_iteration"]
    assert "No figure by iteration of rnak:" in page
    bare = ReportOptions(plots=False, by_iteration=["rnak"])
    assert "by iteration" not in write_report(tmp_path, experiment(options=bare), runs).read_text(encoding="utf-8")


def test_each_group_has_a_table_of_its_own_where_the_best_strategy_is_bold(tmp_path):
    """Not a baseline, nor where the digits that are shown tell none apart; where a setting has few, within it."""
    metrics = {"a": (1e-3, 0.4), "b": (1e-20, 0.4), "c": (0.0, 0.4), "d": (2e-3, 0.9)}
    groups = {"a": "5 components", "b": "5 components", "c": "5 components", "d": "1 component"}
    runs = [a_run(name, group=groups[name], metrics={"error": e, "nmi": n}) for name, (e, n) in metrics.items()]
    runs.append(a_run("central", kind="baseline", method="central", group="1 component", metrics={"error": 0.0}))
    runs.append(a_run("e", group="1 component", metrics={"error": 1e-3, "nmi": 0.8}, floats_up=99))
    pages = tables(write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs))
    heading, *cells = [row[1:3] for row in pages["Answer: 5 components"]]
    assert heading == ["error against central", "nmi"]
    assert cells == [["1.00e-03", "0.4000"], ["*≤ 1e-16*", "0.4000"], ["*0*", "0.4000"]]
    cells = [row[1:3] for row in pages["Answer: 1 component"][1:]]
    assert cells == [["2.00e-03", "*0.9000*"], ["0 (reference)", "–"], ["*1.00e-03*", "0.8000"]]
    assert [row[1] for row in pages["What it took: 1 component"]] == ["floats up", "14,250", "14,250", "*99*"]
    swept = [a_run(name, error=e, point={"n": n}) for name, n, e in (("a", 1, 0.1), ("b", 1, 0.2), ("a", 2, 0.4))]
    answer = tables(write_report(tmp_path, experiment(options=ReportOptions(plots=False)), swept))["Answer"]
    assert [row[2] for row in answer[1:]] == ["*1.00e-01*", "2.00e-01", "4.00e-01"]


def test_the_page_says_what_the_data_are_how_they_are_divided_and_what_each_metric_means(tmp_path):
    write_shapes(tmp_path, [(150, 3), (150, 1)])
    page = write_report(tmp_path, experiment(), an_experiment()).read_text(encoding="utf-8")
    lines = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert lines["data"] == "iris"
    assert lines["divided"] == "by columns (vertical), even, among 2 clients"
    sizes = "150 rows and 4 columns; 3, 1 columns at the clients; of floats, the whole table is N d = 600"
    assert lines["sizes"] == sizes
    named = {metric_of("error").heading, "floats up", "seconds"}
    assert named <= lines.keys()
    assert lines["error against central"].endswith("lower is better, 0 at best, below 1e-16 only rounding.")
    assert lines["floats up"] == "floats that all clients upload; in floats, lower is better."
    sites = experiment().model_copy(update={"data": Sites(sites=["north", "east"])})
    assert data_lines(sites, []) == [("data", "held by the sites north, east, each its own; none of it is here")]
    own = {"left": {}, "refused": 0, "table_share": 0.5, "share_in_all": 0.5, "privacy": None, "versions": {}}
    receipt = PrivacyReceipt(site="north", run="a", study="1" * 64, sha256="2" * 64, **own)
    write_atomic(tmp_path / RECEIPTS / "a.json", lambda file: file.write(receipt.model_dump_json().encode()))
    page = write_report(tmp_path, sites, an_experiment()).read_text(encoding="utf-8")
    text = "north: only masked sums, 0.50 numbers for each entry of the table (0.50 in all its runs), no noise"
    assert f"<dt>receipts</dt><dd>of study {'1' * 12}, signers unknown; {text}</dd>" in page
    divided = PartitionSpec(kind="horizontal", method="dirichlet", alpha=0.5, shuffle=True, clients=13)
    rows = experiment().model_copy(update={"partition": divided})
    sizes = [(10 + number, 4) for number in range(13)]
    assert data_lines(rows, sizes)[1:] == [
        ("divided", "by rows (horizontal), dirichlet, alpha = 0.5, shuffled anew with every seed, among 13 clients"),
        ("sizes", "208 rows and 4 columns; 10 to 22 rows at the clients; of floats, the whole table is N d = 832"),
    ]


def test_the_page_says_which_columns_there_are_and_what_was_done_to_them_before(tmp_path):
    """Rows that files here have lost are counted; sites that hold their own drop them before they say how many."""
    rng = np.random.default_rng(0)
    for name, cells in (("a", ["", "f", "f"]), ("b", ["1.5", "", "m"]), ("c", ["2.5", "f", "m"])):
        rows = [f"{a:.3f},{b:.3f},{'fm'[place % 2]}" for place, (a, b) in enumerate(rng.random((20, 2)))]
        rows += [f"{cells[0]},1.0,{kind}" for kind in cells[1:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,glucose,sex", *rows]), encoding="utf-8")
    prepare = {"missing": "drop", "log": ["glucose"], "categories": {"sex": ["f", "m"]}, "drift": "ignore"}
    table = {
        "name": "x",
        "data": {"shards": [str(tmp_path / f"{name}.csv") for name in "abc"]},
        "prepare": prepare | {"clip": {"age": [0, 90]}},
        "strategy": [{"name": "a", "method": "RFKKMeans", "n_clusters": 2, "n_features": 10}],
        "report": {"plots": False},
    }
    run_experiment(Experiment.from_table(table, "x.toml"), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    lines = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert lines["sizes"].startswith("63 rows and 4 columns; 20, 21, 22 rows")
    assert lines["columns"] == "3: age, glucose, sex; 4 once prepared"
    assert lines["prepared"] == (
        "clipped: age to 0 to 90; logarithms of glucose; rows with an empty cell are left out; so left out: 2 at "
        "a.csv, 1 at b.csv; scaled to mean 0 and standard deviation 1; levels as columns of 0 and 1: sex (f, m); "
        "over the rows of all clients together"
    )
    columns = results.Columns(tuple(f"c{place}" for place in range(32)), 32)
    named = dict(data_lines(experiment(), [], columns))["columns"]
    assert (named.startswith("32: c0, c1, "), named.endswith(", c29 and 2 more")) == (True, True)
    assert "prepared" not in dict(data_lines(experiment(), []))


def test_the_page_says_what_runs_chose_and_warn_of(tmp_path):
    findings = ["k = 3 is chosen.", "clusters < sites: another unit?"]
    runs = [a_run(seed=seed, findings=[findings[0].replace("3", f"{3 + seed}"), findings[1]]) for seed in (0, 1)]
    path = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs)
    (items,) = re.findall(r"Findings of the runs</h3>\n<ul>(.*?)</ul>", path.read_text(encoding="utf-8"), re.DOTALL)
    others = " and 1 more runs with other values", " and 1 more runs"
    sentences = [f"{runs[0].id}{more}: {sentence}" for sentence, more in zip(findings, others, strict=True)]
    assert re.findall(r"<li>(.*?)</li>", items) == [html.escape(sentence, quote=False) for sentence in sentences]
    many = [f"column {place}: drift" for place in range(20)]
    runs = [a_run(name, findings=[f"{name} is unlike sites.", *many]) for name in ("a", "b")]
    page = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs).read_text(encoding="utf-8")
    listed = re.findall(r"<li>.*?: (.*?)</li>", page)
    assert listed[:3] == ["a is unlike sites.", "b is unlike sites.", many[0]], "the first of each run come first"
    assert "and 10 more" in page
    for swept in (2, 3):
        runs.append(a_run(metrics={"simplified_silhouette": swept / 10}, point={"k": swept}))
    page = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs).read_text(encoding="utf-8")
    assert "k = 3 is recommended" in page


def test_sizes_that_sites_told_stand_by_cluster_and_site():
    values = {"cluster 0 at client 0 (site 'north')": 40.0, "cluster 1 at client 0 (site 'north')": 95.0}
    values |= {"cluster 0 at client 1": 0.0, "cluster 1 at client 1": 1000.0}
    runs = [a_run(seed=seed, history=[a_round(1, None, **values)]) for seed in (0, 1)]
    assert size_rows(runs, {}) == [("DKPCA-5", "", "1,095 (north 95, client 1 1,000); 40 (north 40, client 1 0)")]
    assert size_rows([a_run()], {}) == []

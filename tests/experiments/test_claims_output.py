"""Claims are told on the console and on the page, those of an unfinished experiment too."""

import re
from pathlib import Path

from command_line import call

TINY = """
name = "tiny"
seeds = [0, 1]
data.name = "iris"
partition.clients = 2
strategy = [{ name = "one round", method = "DKPCA", n_components = 2 }]
baseline = [{ name = "central", method = "central PCA", n_components = 2 }]
report = { plots = false, metric = "distance" }
claim = [
  { text = "One round is [red] enough.", check = "value", metric = "rounds", of = "one round", at_most = 1 },
  { text = "Twice the floats", check = "ratio", metric = "floats_up", of = "one round", to = "central", at_least = 2 },
  { text = "It falls", check = "rate", value = "recover_error", of = ["one round"], from = 2, at_most = -0.8 },
]
"""


def test_claims_are_told_below_the_table_and_on_the_page_and_wait_for_all_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY, encoding="utf-8")
    ran = call("run", "tiny.toml")
    assert ran.stderr == ""  # a claim that does not hold is no error
    # 2 clients with 150 rows, 2 eigenpairs each at most: 604 floats against 4 columns of 150
    lines = [
        "holds               One round is [red] enough: 1 against at most 1 (2 seeds)",
        "does not hold       Twice the floats: 1.01 against at least 2 (2 seeds)",
        "not testable here   It falls: no round of 'one round' has recover_error and an iteration t",
    ]
    assert "distance" in ran.stdout.splitlines()[1]
    assert ran.stdout.splitlines()[-4:-1] == lines
    page, rows = Path("runs/tiny/report.html"), Path("runs/tiny/runs.jsonl")
    written = page.read_text(encoding="utf-8")
    assert re.search(r"✓ holds.*1 against.*✗ does not hold.*1.01 against.*>not testable here<", written, re.DOTALL)
    page.unlink()
    assert call("report", "runs/tiny").stdout == ran.stdout
    assert page.read_text(encoding="utf-8") == written

    finished = rows.read_text(encoding="utf-8").splitlines(keepends=True)
    rows.write_text("".join(line for line in finished if '"seed":1' not in line), encoding="utf-8")
    unfinished = call("report", "runs/tiny")
    assert unfinished.stdout.count("\nnot testable here ") == 3
    assert "One round is [red] enough: 1 of 2 runs of 'one round' are missing" in unfinished.stdout

"""Three sites' messy files end in the known answer, or with the cause: never in a wrong one without a word."""

import csv

from command_line import call
from messy_files import FACTOR, ID, LABEL, NOTE, OTHER_UNIT, write_messy_files

from fedkernel.experiments.results import read_runs

STUDY = """
name = "cultivars"
evaluate = true

[data]
shards = ["a.csv", "b.csv", "c.csv"]
id = "{ID}"
label = "{LABEL}"
drop = ["{NOTE}"]
encoding = "latin-1" # of all: what is not English stands in the column that is dropped

[prepare]
missing = "mean"
drift = "{drift}"

[[strategy]]
name = "clusters"
method = "FKKMeans"
n_clusters = {clusters}
n_components = 6
coreset_size = {coreset}
n_features = 50
solver = "gram"
kernel = {{ type = "rbf", width = "median", factor = 1.5 }}
"""


def study(folder, drift="refuse", clusters=2, coreset=100):
    path = folder / "study.toml"
    path.write_text(STUDY.format(drift=drift, clusters=clusters, coreset=coreset, ID=ID, LABEL=LABEL, NOTE=NOTE))
    return path


def mend(path):
    """Divide the column that is in another unit, as its owner would."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    place = header.index(OTHER_UNIT)
    for row in rows:
        row[place] = row[place] and str(float(row[place]) / FACTOR)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_the_other_unit_stops_the_study_with_the_cause_and_mended_it_finds_the_cultivars(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = write_messy_files(tmp_path)
    refused = call("run", study(tmp_path), "--out", "out", code=2)
    assert f"{OTHER_UNIT}: c.csv's mean is" in " ".join(refused.output.split())
    assert not (tmp_path / "out" / "runs.jsonl").exists()

    call("run", study(tmp_path, drift="warn"), "--out", "warned")
    (row,) = read_runs("warned/runs.jsonl")
    assert row.metrics["ari"] < 0.95
    (sentence,) = (text for text in row.findings if text.startswith(f"{OTHER_UNIT}: c.csv's mean is "))
    assert "a different unit?" in sentence
    assert not any("client " in text for text in row.findings)

    mend(paths["c"])
    call("run", study(tmp_path), "--out", "found")
    (row,) = read_runs("found/runs.jsonl")
    assert row.metrics["ari"] > 0.95

"""Noise on the sums of sites with raw files and policies of their own, which prepare them by stated numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import call
from named_sites import NAMES, settings_of
from raw_tables import STATED, STATED_OPTIONS, patients
from test_gate import Approved, masked

from fedkernel import RBF, CentroidKMeans, InputError, Prepare, Privacy, ProtocolError, once
from fedkernel.preparing import prepare_tables
from fedkernel.preparing.messages import CountCells
from fedkernel.site import described, read_outbox, read_receipts, write_receipts
from fedkernel.strategy import phases, settled_privacy
from fedkernel.wire import Study

KMEANS = CentroidKMeans(2, RBF(width="columns"))
PRIVACY = settled_privacy(KMEANS, Privacy(epsilon=2.0, radius=3.0))
POLICY = '[study]\nsums = "masked"\n[limits.total]\nrows = 0\nepsilon = 2.0\n'


def raw_nodes(folder, *before):
    """Nodes that have approved a study with noise over their raw files, and the study; `before`: further steps."""
    plan = (*before, *KMEANS.plan_of_run(3, 0, STATED))
    nodes, study = masked(folder, KMEANS, POLICY, plan=plan, prepare=STATED, privacy=PRIVACY)
    for node, frame in zip(nodes, patients(), strict=True):
        node["data"] = str(folder / f"{node['name']}.csv")
        frame.to_csv(node["data"], index=False)
    return nodes, study


def test_sites_with_policies_of_their_own_add_noise_to_raw_files(tmp_path):
    nodes, study = raw_nodes(tmp_path)
    with Approved(study, nodes) as grid:
        result = KMEANS.run(grid, replace(settings_of(study.runs[0]), prepare=STATED))
    assert np.isfinite(result.model.centers_).all()
    assert result.preparation.prepare == STATED
    for name in NAMES:
        lines = read_outbox(tmp_path / name).departures
        assert [line.reply for line in lines if not line.masked and line.reply != "Done"] == [
            "Introduction",
            "Prepared",
        ]
        (receipt,) = read_receipts(write_receipts(tmp_path / name, name, None))
        assert described([receipt]).startswith("only masked sums, ")
    (tmp_path / "study.json").write_text(study.text)
    shown = call("study", "show", tmp_path / "study.json", "--shape", "150x3", COLUMNS="400").output
    assert "scale = {age = [60.0, 12.0], crp = [1.1, 1.3]}, missing = 'center'" in shown
    assert "CountCells" not in shown


def test_a_site_of_a_run_with_noise_counts_no_cells_whatever_its_plan_says(tmp_path, monkeypatch):
    nodes, study = raw_nodes(tmp_path, once(CountCells))
    measured = Prepare(**STATED_OPTIONS | {"drift": "warn"})  # as a coordinator has it that breaks the protocol
    monkeypatch.setattr(
        phases, "prepare_tables", lambda run, prepare, partition: prepare_tables(run, measured, partition)
    )
    with Approved(study, nodes) as grid, pytest.raises(ProtocolError, match="Cells has no noise"):
        KMEANS.run(grid, replace(settings_of(study.runs[0]), prepare=STATED))


def test_a_site_approves_no_run_with_noise_whose_preparation_may_tell_of_cells(tmp_path):
    study = json.loads(masked(tmp_path, KMEANS, privacy=PRIVACY)[1].text)
    for change, fault in (({"drift": "warn"}, 'drift = "warn"'), ({"clip": {}}, "log of 'crp'")):
        study["runs"][0]["prepare"] = Prepare(**STATED_OPTIONS | change).table
        with pytest.raises(InputError, match=f"run trial: privacy: prepare with {fault} tells of cells"):
            Study.from_json(json.dumps(study))

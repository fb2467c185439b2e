"""Where a site finds its data, and what it remembers of a run."""

from pathlib import Path

import named_sites
import numpy as np
import pytest
from flwr.app import RecordDict
from named_sites import NAMES, TABLE, Sites, find, run_on, settings_of, spec, vertical
from refusals import refusing

from fedkernel import InputError, PeerVFedPCA, ProtocolError, VFedPCA
from fedkernel.run import Journal, RunSettings
from fedkernel.run.journal import RecordMismatchError
from fedkernel.run.run_resumption import ResumingGrid
from fedkernel.site import simulated_sites
from fedkernel.site.context_state import Memory
from fedkernel.site.result_files import write_results
from fedkernel.wire import RunSpec, flower_internals


def test_a_site_is_known_by_its_name_or_its_number(tmp_path):
    north, east, _ = vertical(tmp_path)
    assert [(site.number, site.name) for site in (find(north), find(east))] == [(0, "north"), (1, "east")]
    del east["name"]
    third = find(east | {"partition-id": 2, "num-partitions": 3})
    assert (third.number, third.name, third.display_name) == (2, "south", "client 2 (site 'south')")
    assert find(east | {"partition-id": 3, "num-partitions": 5}).X is None, "more nodes than sites"


def test_a_site_with_data_of_its_own_reads_and_writes_nothing_that_a_job_names(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_sites, "open_tables", lambda path: pytest.fail("it read a job's path"))
    run = RunSpec(id="trial", strategy="DKPCA", shards=["/etc/passwd"] * 3, clients=3, plan=())
    node = vertical(tmp_path)[1] | {"partition-id": 1, "num-partitions": 3}
    with pytest.raises(InputError, match=r"run 'trial' has 0 sites, but must have at least 3 \(study.min_sites\)"):
        find(node, run)
    place = find(node, spec())
    np.testing.assert_array_equal(place.X, TABLE[named_sites.HELD[1], named_sites.COLUMNS[1]])
    there = set(tmp_path.rglob("*"))
    place.keep({"secret": np.ones(3)})
    assert set(tmp_path.rglob("*")) - there == {tmp_path / "east" / "trial.npz"}
    del node["out"]
    with pytest.raises(InputError, match="no folder for its outbox and results: out = PATH"):
        find(node, run)


def test_a_file_is_read_again_only_when_it_has_changed_with_what_clients_make_of_it(tmp_path, monkeypatch):
    node = vertical(tmp_path)[0]
    first = find(node)
    assert find(node).X is first.X
    assert find(node | {"columns": "c1"}).X.shape == (36, 1)
    named_sites.write_csv(tmp_path / "north.csv", named_sites.IDS[:5], TABLE[:5, :2])
    assert len(find(node).X) == 5
    np.save(tmp_path / "0.npy", TABLE)
    run = RunSpec(id="trial", strategy="DKPCA", shards=[str(tmp_path / "0.npy")] * 2, clients=2)
    node = {"partition-id": 0, "num-partitions": 2}
    first = find(node, run)
    assert find(node, run).X is first.X
    assert find(node, run).derived is first.derived is not None
    np.save(tmp_path / "0.npy", TABLE[:5])
    assert find(node, run).X.shape[0] == 5
    assert find(node, run).derived is not first.derived


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"name": "west"}, "this node's name = 'west', but the sites of run 'trial' are north, east, south"),
        ({"name": None}, "this node has no partition-id; without one it needs a name, and a run of named sites"),
        ({"partition-id": 1}, "this node's partition-id = 1, but site 'north' is client 0"),
        ({"data": None}, "client 0 (site 'north') has no data of its own for run 'trial': its node needs data = PATH"),
        ({"min-sites": 4}, "client 0 (site 'north'): run 'trial' has 3 sites, but must have at least 4"),
        ({"data": "none.csv"}, "client 0 (site 'north'): there is no file none.csv"),
        ({"columns": "c0, c7"}, "client 0 (site 'north'): columns = 'c7' is no column of "),
        ({"label": "y"}, "client 0 (site 'north'): label = 'y' is no column of "),
        ({"id-key": "none"}, "client 0 (site 'north'): there is no file none"),
    ],
)
def test_a_node_that_does_not_fit_the_run_says_why(tmp_path, changed, sentence):
    node = vertical(tmp_path)[0] | changed
    with refusing(start=sentence):
        find({key: value for key, value in node.items() if value is not None})


def test_what_a_site_kept_of_another_run_of_that_name_is_set_aside_and_the_same_run_s_is_replaced(tmp_path, caplog):
    for k in (1, 2):
        run_on(vertical(tmp_path), VFedPCA(merge="eigenvalue", n_components=k, rounds=2))
    for place, k in ((tmp_path / "north", 2), (tmp_path / "north" / "earlier", 1)):
        with np.load(place / "trial.npz") as kept:
            assert kept["eigenvectors"].shape[1] == k

    path, sheet, earlier = tmp_path / "trial.npz", tmp_path / "trial.csv", tmp_path / "earlier"
    sheet.write_text("of whatever", encoding="utf-8")
    for label, key in enumerate(("a", "a", "b", "c", "c")):
        write_results(path, {"labels": np.array([label])}, sheet, key)
        with np.load(path) as kept:
            assert kept["labels"].tolist() == [label]
        assert sheet.read_text(encoding="utf-8") == f"row,label\n0,{label}\n"
    assert {place.name: place.read_text(encoding="utf-8") for place in earlier.glob("*.csv")} == {
        "trial.csv": "of whatever",
        "trial-2.csv": "row,label\n0,1\n",
        "trial-3.csv": "row,label\n0,2\n",
    }
    assert {place.name for place in earlier.glob("*.npz")} == {"trial-2.npz", "trial-3.npz"}
    assert f"{path} is of a different run with this name, and was moved to {earlier / 'trial-2.npz'}" in caplog.text


class Meddling(Sites):
    """Sites of which one's file is touched in round 2; its process may be restarted then, as the hub brings it back."""

    def __init__(self, run, nodes, *, change, restart):
        super().__init__(run, nodes)
        self.path, self.change, self.restart, self.asked = Path(nodes[1]["data"]), change, restart, []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages[0].metadata.group_id == "2":
            text = self.path.read_text(encoding="utf-8")
            self.path.unlink()
            self.path.write_text(text.replace("-", "", 1) if self.change else text, encoding="utf-8")
            if self.restart:
                self._contexts[2].state = RecordDict()
                for message in self.asked:
                    self._app(message, self._contexts[2])
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.asked += [message for message in messages if message.metadata.dst_node_id == 2]
        return replies


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change", [False, True])
def test_a_table_that_changes_within_a_run_is_a_refusal(tmp_path, caplog, change, restart):
    """Also of a process that was restarted and is asked everything again; a file with the same content is the same."""
    strategy, nodes = VFedPCA(merge="eigenvalue", rounds=3), vertical(tmp_path)
    expected = run_on(nodes, strategy)[0].model
    run = spec("VFedPCA", plan=strategy.plan_of_run(3, 0), parameters=strategy.hyperparameters)
    caplog.set_level("INFO", "fedkernel")
    with Meddling(run, nodes, change=change, restart=restart) as grid:
        if not change:
            assert np.array_equal(strategy.run(grid, settings_of(run)).model.eigenvectors_, expected.eigenvectors_)
            return
        sentence = "the file of client 1 (site 'east') has changed since run 'trial' began; restore the file"
        start = f"VFedPCA, round 2 (IterateLocally), client 1 (site 'east'): \"{sentence}"
        with refusing(start=start, error=ProtocolError):
            strategy.run(grid, settings_of(run))
    assert f"refused: {sentence}" in caplog.text, "at the site"


class LostError(Exception):
    """The coordinator is killed."""


class Stopping(Journal):
    """A journal whose coordinator is killed after its fifth exchange."""

    def add(self, *exchange):
        super().add(*exchange)
        if len(self) == 5:
            raise LostError


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("strategy", [VFedPCA(merge="eigenvalue", rounds=3), PeerVFedPCA(rounds=3)])
def test_sites_of_flower_s_own_are_asked_again_where_a_run_was_stopped(tmp_path, caplog, strategy, change):
    """All remember only what is in their folders: keys for letters too. One whose table has changed meanwhile refuses.

    On an engine of our own as well, in which a site and the server were both restarted: sites know a run's beginning
    again by what the journal has of it.
    """
    kind = type(strategy).__name__
    pins = named_sites.pinned(tmp_path, NAMES)
    nodes = [node | pins[node["name"]] | {"keep-letter-keys": "true"} for node in vertical(tmp_path)]
    plan = strategy.plan_of_run(3, 0)
    run = spec(kind, plan=plan, parameters=strategy.hyperparameters)
    caplog.set_level("INFO", "fedkernel")

    def carried_out(journal):
        with Sites(run, nodes) as sites:
            try:
                return strategy.run(ResumingGrid(sites), settings_of(run), journal=journal)
            finally:
                journal.close()

    expected = carried_out(Journal(tmp_path / "whole", {"run": "trial"}))
    with pytest.raises(LostError):
        carried_out(Stopping(tmp_path / "run", {"run": "trial"}))
    if change:
        table = Path(nodes[1]["data"])
        table.write_text(table.read_text(encoding="utf-8").replace("-", "", 1), encoding="utf-8")
        with pytest.raises(RecordMismatchError, match="does not repeat its recorded answers"):
            carried_out(Journal(tmp_path / "run", {"run": "trial"}))
        assert "refused: the file of client 1 (site 'east') has changed since run 'trial' began" in caplog.text
        return
    result = carried_out(Journal(tmp_path / "run", {"run": "trial"}))
    assert "the run was stopped, and resumed at round" in result.findings[-1]
    assert all(np.array_equal(value, getattr(result.model, name)) for name, value in vars(expected.model).items())


def test_the_rows_of_a_run_are_forgotten_when_another_begins():
    context = flower_internals.new_context(1, {}, {})
    memory = Memory.begin(context, "first")
    assert memory.rows is None
    memory.rows = np.array([2, 0])
    np.testing.assert_array_equal(Memory(context, "first").rows, [2, 0])
    assert list(memory) == []
    memory.rows = None  # all, as they are
    assert Memory(context, "first").rows is None
    memory.rows = np.array([1])
    assert Memory.begin(context, "first").rows is None
    with pytest.raises(InputError, match="missing = 'ask', but must be one of drop, refuse"):
        RunSettings(missing="ask")

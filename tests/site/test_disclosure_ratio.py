"""No more numbers leave a site in a run, for each entry of its table, than its operator allows."""

import re
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from cases import CASES
from command_line import call
from named_sites import COLUMNS, COMMON_ROWS, NAMES, TABLE, settings_of, vertical
from test_consent import asked
from test_gate import Approved, study_of

from fedkernel import DKPCA, CentroidKMeans, FKKMeans, KernelClient, Linear, Prepare
from fedkernel.clients.diskpca import DisKPCAClient
from fedkernel.clients.dkpca import DKPCAClient, FindLocalEigenpairs
from fedkernel.data import RawTable
from fedkernel.experiments.commands import policy_for_study
from fedkernel.ground import InputError, OwnFileError, ProtocolError
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import TABLE_SHARE, Guards, Member, allowed_numbers, forecast_share, share_text
from fedkernel.protocol.forecast import table_share
from fedkernel.site import Policy, Site, approve, approved_policy
from fedkernel.site.site_call import own_table_entries
from fedkernel.strategy import simulation


def run_on_approved(nodes, study):
    with Approved(study, nodes) as grid:
        return DKPCA(2).run(grid, settings_of(study.runs[0]))


OF_EACH_PAIR = list({(type(case.strategy), getattr(case.strategy, "merge", "")): case for case in CASES}.values())


class OnlyTheShare(Guards):
    """Guards that count what leaves, and let any request pass."""

    def check(self, *_, **more):
        """Let it pass."""

    check_probes = most_sampled = check


@pytest.mark.parametrize("case", OF_EACH_PAIR, ids=str)
def test_as_many_numbers_leave_as_are_allowed_and_not_one_more(monkeypatch, case):
    """Of every pair; counted as the ledger has them, letters for the peer that they are written to."""
    shards = case.shards()
    simulated = case.strategy.fit(shards)
    floats = simulated.ledger.floats_by_reader()
    took = table_share(floats, [Member(client, client, *shard.shape) for client, shard in enumerate(shards)])
    assert sum(sum(readers.values()) for readers in floats.values()) == simulated.ledger.floats_up
    assert any("per table entry" in text for text in simulated.findings) == (took > TABLE_SHARE)

    def run(share):
        guards = OnlyTheShare(table_share=share, cell_rows=1, group_rows=1)
        monkeypatch.setattr(simulation, "Site", partial(Site, guards=guards))
        return case.strategy.fit(shards)

    assert run(took + 1e-9).ledger.floats_up == simulated.ledger.floats_up
    refusal = r"numbers would have left.* for each of the [\d,]+ entries of the table; .*\(guard: table\)"
    with pytest.raises((InputError, ProtocolError), match=refusal):
        run(took - 1e-9)


def test_the_entries_are_those_of_the_site_s_own_table():
    """Of a sparse table those that are stored; of a prepared one the raw ones; where rows are new, these."""
    assert DisKPCAClient(sp.csr_array(np.eye(30, 400))).own_entries() == 30
    site = DKPCAClient(TABLE[:, :4], guards=Guards(table_share=1))
    with pytest.raises(InputError, match=r"164 numbers would have left, 1\.1 for each of the 160 entries of the table"):
        asked(site, FindLocalEigenpairs(kernel=Linear(), n_components=4))
    asked(site, FindLocalEigenpairs(kernel=Linear(), n_components=3))  # what was refused has not left
    columns = {"a": np.arange(40.0), "b": np.array(["x", "y", "z", "w"] * 10, object)}
    raw = TableToPrepare(RawTable(columns), Prepare(categories={"b": ("w", "x", "y", "z")}))
    prepared, new = KernelClient(TABLE[:, :5]), KernelClient(TABLE, new=TABLE[:7])
    assert own_table_entries(Site(0, raw, None, print), prepared) == 80
    assert own_table_entries(Site(0, TABLE, TABLE[:7], print, projects=True), new) == 7 * TABLE.shape[1]
    assert own_table_entries(Site(0, TABLE, TABLE[:7], print), new) is None
    assert Member(0, 0, 40, 5, raw_columns=2).entries == 80


def test_an_operator_is_shown_the_figure_and_says_a_word_for_it(tmp_path, monkeypatch):
    """From the file to the answer: `check`, `study show`, `policy explain`, `study approve`, and what it allows."""
    monkeypatch.chdir(tmp_path)
    nodes = vertical(tmp_path, approve="by hash", **{"table-share": 0.5})
    study = study_of(DKPCA(2), NAMES)
    (tmp_path / "study.json").write_text(study.text)

    def told(*arguments, code=0):
        return " ".join(call(*arguments, code=code).output.split())

    rows, columns = 36, 2
    each = f"numbers per table entry ({rows * columns} entries): run 'trial' sends "
    takes = f"{each}{share_text(2 * (rows + 1) / (rows * columns))} at most by its plan"
    looked = told("check", "north.csv", "--id", "patient", "--study", "study.json")
    assert f"{takes}; allowed: 0.5, so --table-share 1.1 is needed (more by guards.table_share" in looked
    assert takes in told("study", "show", "study.json", "--shape", f"{rows}x{columns}")
    (tmp_path / "site.toml").write_text('[study]\njoint_seed = "never"\n')
    arguments = ("policy", "explain", "site.toml", "study.json", "--shape", f"{rows}x{columns}", "--out", "north")
    for name in NAMES:
        approve(tmp_path / name, study.sha256)
    with pytest.raises(ProtocolError, match="guard: table"):
        run_on_approved(nodes, study)
    assert "guards.table_share refused" in told(*arguments, code=2)
    approving = ("study", "approve", "study.json", "--out", "north", "--shape", f"{rows}x{columns}")
    assert "it with --table-share 1.1" in told(*approving, "--table-share", "0.9", code=2)
    assert f"{takes}; allowed: 1.5 (" in told(*approving, "--table-share", "1.5")
    assert "guards.table_share allowed" in told(*arguments)
    told("study", "approve", study.sha256, "--out", "north", "--table-share", "nan", code=2)
    for name in NAMES[1:]:
        approve(tmp_path / name, study.sha256, 1.5)
    result = run_on_approved(nodes, study)
    assert result.ledger.floats_up == DKPCA(2).fit([TABLE[COMMON_ROWS][:, own] for own in COLUMNS]).ledger.floats_up
    with (tmp_path / "north" / "approved").open("a") as file:
        file.write(f"{study.sha256} now table_share=much\n")
    with pytest.raises(OwnFileError, match="is no number above 0"):
        approved_policy(Policy(), tmp_path / "north", study.sha256)


def test_a_forecast_that_is_a_bound_is_called_one(tmp_path):
    (tmp_path / "study.json").write_text(study_of(CentroidKMeans(2), NAMES).text)
    text = " ".join(call("study", "show", tmp_path / "study.json", "--shape", "60x8").output.split())
    assert re.search(r"run 'trial' sends at most [\d.]+ by its forecast and [\d.]+ at most by its plan; allowed", text)


@pytest.mark.parametrize(("rows", "columns", "k"), [(60, 13, 10), (200, 16, 2), (1333, 16, 10), (400, 100, 2)])
def test_fk_k_means_with_nothing_set_keeps_to_what_sites_allow(rows, columns, k):
    """With the measurement of its clusters; what it takes is forecast, and where features are few it is said."""
    noise, clusters = np.random.default_rng(0).standard_normal((3 * rows, columns)), np.arange(3 * rows) % k
    table = noise + 3 * np.eye(k, columns)[clusters]
    members = [Member(client, client, rows, columns) for client in range(3)]
    strategy = FKKMeans(k)
    result = strategy.fit(np.array_split(table, 3), evaluate=True)
    took = table_share(result.ledger.floats_by_reader(), members)
    smallest = k * k + (k + 2) ** 2 / 2 + 4 * k * k  # of k + 2 features, k centres, and what measures them
    assert took <= TABLE_SHARE or smallest > allowed_numbers(rows * columns)
    assert forecast_share(strategy.forecast_of_run(members), members) <= max(TABLE_SHARE, took)
    chain = result.model.embedding
    few = chain.features.n_features * len(chain.maps) < 4 * strategy.dimensions
    assert any("random features in all" in text for text in result.findings) == few
    asked_for = FKKMeans(k, iterations=20).fit(np.array_split(table, 3))
    assert not any("random features in all" in text for text in asked_for.findings)


def test_forecasts_of_a_study_that_nobody_has_approved_end(monkeypatch):
    """Whatever its parameters are: a site computes them as it joins."""
    members = [Member(client, client, 300, 13) for client in range(3)]
    endless = FKKMeans(3, iterations=10**9, accuracy=0.0).forecast_of_run(members)
    assert endless.rounds > 10**9

    def never(run, cohort):
        questions.append(run.id)
        while True:
            pass

    questions = []
    monkeypatch.setattr(policy_for_study, "forecast_of", never)
    forecasts, run = policy_for_study.forecasts_within(0.2), study_of(DKPCA(2), NAMES).runs[0]
    assert forecasts(run, members) is forecasts(run, members) is None
    assert forecasts(run.model_copy(update={"id": "another"}), members) is None
    assert questions == [run.id]

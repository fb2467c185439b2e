"""Rows that are new at named sites, projected onto what an earlier run of theirs found: in this process."""

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from named_sites import COLUMNS, COMMON_ROWS, HELD, IDS, LENIENT, TABLE, Sites, settings_of, spec, vertical, write_csv
from refusals import refusing
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from fedkernel import DKPCA, RBF, InputError, Linear, Prepare, ProtocolError, VFedAKPCA, VFedPCA, to_all
from fedkernel.clients.dkpca import ComputeKernelRows
from fedkernel.experiments.cli import app
from fedkernel.experiments.commands.study_text import show_study
from fedkernel.models import save_model
from fedkernel.run.server_app import _earlier_model
from fedkernel.site import RunRows, read_outbox
from fedkernel.wire import Job, Projecting, Study

NEW = np.random.default_rng(7).standard_normal((6, 7))
NEW_IDS = [f"new-{row}" for row in range(6)]
EXACT = DKPCA(3, RBF(gamma=0.1), local_components=29, center=True)
SUM = VFedAKPCA(3, "exact", kernel=RBF(gamma=0.1), tol=1e-12)
FEW_ROWS = '[guards]\ntable_share=1000\nprobed_share=1.0\nleverage=1.0\n[study]\napprove="any"\njoint_seed="never"\n'
"""A policy that lets 29 rows be multiplied with all vectors that the exact merge of kernels takes."""


class Asking(DKPCA):
    """Asks for new rows in place of fitting."""

    def protocol(self, run):
        return (yield from to_all(ComputeKernelRows(kernel=self.kernel)))


def with_new_rows(folder, nodes):
    """Give each site new rows in an order of its own; the first lacks row 5, the last has columns in another order."""
    for site, (node, columns) in enumerate(zip(nodes, COLUMNS, strict=True)):
        rows = np.random.default_rng(site).permutation(5 if site == 0 else 6)
        names, X = [f"c{place}" for place in range(columns.stop - columns.start)], NEW[rows, columns]
        if site == 2:
            names, X = names[::-1], X[:, ::-1]
        node["new"] = str(write_csv(folder / f"{node['name']}-new.csv", [NEW_IDS[row] for row in rows], X, names))
    return nodes


def fitted(nodes, strategy, prepare=None):
    own = {"parameters": strategy.hyperparameters, "plan": strategy.plan_of_run(3, 0, prepare), "prepare": prepare}
    run = spec(type(strategy).__name__, joint_seed=False, **own)
    with Sites(run, nodes) as grid:
        result = strategy.run(grid, replace(settings_of(run), prepare=prepare))
    return run, result, next(row["values"]["order"] for row in result.history if row["phase"] == "align")


def projected(nodes, strategy, run, model, order, *, to_sites=True, id="trial__new", **more):
    project = Projecting(of=run.id, order=order, model="0" * 64, coordinates="sites" if to_sites else "coordinator")
    update = {"id": id, "project": project, "plan": strategy.projection_plan(to_sites=to_sites)} | more
    again = run.model_copy(update=update)
    with Sites(again, nodes) as grid:
        return strategy.project(grid, settings_of(again), model, to_sites=to_sites)


def kernel_of(strategy, X):
    """Return the kernel between rows and the training rows that a method is exact for: of all columns, or summed."""
    kernel, Y = strategy.kernel or Linear(), TABLE[COMMON_ROWS]
    if isinstance(strategy, DKPCA) or kernel == Linear():
        return kernel.gram(X, Y)
    return sum(kernel.gram(X[:, columns], Y[:, columns]) for columns in COLUMNS)


@pytest.mark.parametrize(
    ("strategy", "phase", "floats"),
    [
        (EXACT, "ComputeKernelRows", 5 * 29),
        (replace(EXACT, kernel=Linear(), local_components=7), "ProjectNewRows", 5 * 3),
        (VFedPCA(3, "exact"), "ProjectOntoDirections", 6 * 3),
        (SUM, "ProjectOntoDirections", 6 * 3),
        (VFedPCA("auto", "exact", max_components=6), "ProjectOntoDirections", 6 * 5),
    ],
)
def test_new_rows_have_the_coordinates_of_kernel_pca(tmp_path, strategy, phase, floats):
    """Of scikit-learn's, up to a sign of each, since nothing is truncated; nothing but these leaves."""
    (tmp_path / "policy.toml").write_text(FEW_ROWS)
    more = {"policy": str(tmp_path / "policy.toml")} if strategy is SUM else {}
    nodes = with_new_rows(tmp_path, vertical(tmp_path, **more))
    run, result, order = fitted(nodes, strategy)
    new = projected(nodes, strategy, run, result.model, order)
    with np.load(tmp_path / "north" / "trial__new.npz") as outputs:
        rows = [NEW_IDS.index(id_) for id_ in outputs["ids"]]
        np.testing.assert_array_equal(outputs["embedding"], new.model)
    assert sorted(rows) == [0, 1, 2, 3, 4]
    assert sorted(RunRows.load(tmp_path / "east", "trial").ids) == sorted(IDS[row] for row in COMMON_ROWS)
    components = result.model.n_components
    exact = SklearnKernelPCA(components, kernel="precomputed").fit(kernel_of(strategy, TABLE[COMMON_ROWS]))
    reference = exact.transform(kernel_of(strategy, NEW[rows]))
    signs = np.sign(np.sum(reference * new.model, axis=0))
    np.testing.assert_allclose(new.model * signs, reference, rtol=0, atol=1e-9)
    assert [row["phase"] for row in new.history] == ["join", "align", phase, "TakeCoordinates"]
    assert new.ledger.floats_up == 3 * floats
    again = projected(nodes, strategy, run, result.model, order, to_sites=False, id="trial__alone")
    assert [row["phase"] for row in again.history] == ["join", "align", phase]
    assert not (tmp_path / "north" / "trial__alone.npz").exists()
    left = read_outbox(tmp_path / "south").departures
    assert sum(line.floats for line in left if line.run == "trial__new") == floats


LEVELS = ("f", "m")
HOLES = {0: 4, 3: 1, 17: 6, 30: 2}
"""Of the table: rows, and the column in which each has an empty cell."""

NEW_HOLES = {2: 3, 4: 0}
NEW50 = np.random.default_rng(11).standard_normal((50, 7))
IDS50 = [f"new-{row}" for row in range(50)]


def raw_files(folder, nodes, table=TABLE, ids=IDS, holes=HOLES, suffix="", rows_of=None):
    """Write sites' files with empty cells and, but for the last, a column of text; return all columns."""
    X = table.copy()
    for row, column in holes.items():
        X[row, column] = np.nan
    rng = np.random.default_rng(len(X))
    texts = rng.choice(np.array(LEVELS, dtype=object), (len(X), 3))
    for site, (node, columns) in enumerate(zip(nodes, COLUMNS, strict=True)):
        frame = pd.DataFrame(X[:, columns], columns=[f"c{place}" for place in range(columns.stop - columns.start)])
        frame = frame.assign(patient=ids) if site == 2 else frame.assign(sex=texts[:, site], patient=ids)
        rows = np.random.default_rng(site).permutation(len(X)) if rows_of is None else rows_of[site]
        frame.iloc[rows].to_csv(folder / f"{node['name']}{suffix}.csv", index=False)
    return X, texts


def indicators(texts):
    """Return columns of 0 and 1 for the levels at each site that has the column."""
    return np.hstack([(texts[:, [site]] == LEVELS).astype(float) for site in range(2)])


@pytest.mark.parametrize(("missing", "strategy"), [("mean", EXACT), ("drop", EXACT), ("drop", VFedPCA(2, "exact"))])
def test_new_rows_are_prepared_as_the_run_prepared_those_before(tmp_path, missing, strategy):
    """The coordinates are scikit-learn's of the pooled tables, imputed, scaled and encoded by the training rows."""
    prepare = Prepare(missing=missing, categories={"sex": LEVELS})
    train = [row for row in COMMON_ROWS if missing == "mean" or row not in HOLES]
    assert HOLES.keys() & set(COMMON_ROWS)
    if strategy is EXACT:
        strategy = replace(EXACT, local_components=len(train))
    nodes = vertical(tmp_path)
    X, texts = raw_files(tmp_path, nodes, rows_of=HELD)
    new, new_texts = raw_files(tmp_path, nodes, NEW50, IDS50, NEW_HOLES, "-new")
    for node in nodes:
        node["new"] = str(tmp_path / f"{node['name']}-new.csv")
    run, result, order = fitted(nodes, strategy, prepare)
    after = projected(nodes, strategy, run, result.model, order)
    with np.load(tmp_path / "east" / "trial__new.npz") as outputs:
        rows = [IDS50.index(id_) for id_ in outputs["ids"]]
    noted = {name: RunRows.load(tmp_path / name, "trial") for name in ("north", "east", "south")}
    for (name, own), held in zip(noted.items(), HELD, strict=True):
        assert own.ids.tolist() == noted["north"].ids.tolist(), name
        assert [IDS[held[place]] for place in own.positions] == own.ids.tolist(), "places in the file"
    assert sorted(noted["east"].ids) == sorted(IDS[row] for row in train)
    assert sorted(rows) == [row for row in range(50) if missing == "mean" or row not in NEW_HOLES]
    imputer, scaler = SimpleImputer(), StandardScaler()
    scaler.fit(imputer.fit_transform(X[train]))
    tables = [
        np.hstack([scaler.transform(imputer.transform(part)), indicators(part_texts)])
        for part, part_texts in ((X[train], texts[train]), (new[rows], new_texts[rows]))
    ]
    kernel = "rbf" if isinstance(strategy, DKPCA) else "linear"
    exact = SklearnKernelPCA(strategy.n_components, kernel=kernel, gamma=0.1).fit(tables[0])
    reference = exact.transform(tables[1])
    signs = np.sign(np.sum(reference * after.model, axis=0))
    np.testing.assert_allclose(after.model * signs, reference, rtol=0, atol=1e-9)
    phase = "ComputeKernelRows" if kernel == "rbf" else "ProjectOntoDirections"
    assert [row["phase"] for row in after.history] == ["join", "align", phase, "TakeCoordinates"]


def test_new_rows_that_cannot_be_prepared_stop_at_their_site_whose_log_says_why(tmp_path, caplog):
    prepare = Prepare(categories={"sex": LEVELS})
    nodes = vertical(tmp_path)
    raw_files(tmp_path, nodes, holes={}, rows_of=HELD)
    for node in nodes:
        node["new"] = str(tmp_path / f"{node['name']}-new.csv")
    run, result, order = fitted(nodes, EXACT, prepare)
    number = iter(range(9))

    def refused(spoil):
        raw_files(tmp_path, nodes, NEW50, IDS50, {}, "-new")
        path = tmp_path / "east-new.csv"
        frame = pd.read_csv(path)
        spoil(frame).to_csv(path, index=False)
        caplog.clear()
        with refusing("client 1 (site 'east') cannot read its new rows (its log has the details", error=ProtocolError):
            projected(nodes, EXACT, run, result.model, order, id=f"trial__{next(number)}")
        return caplog.text

    assert "'c1' is no column of" in refused(lambda frame: frame.drop(columns="c1"))
    empty = refused(lambda frame: frame.assign(c0=frame["c0"].where(frame.index != 7)))
    assert "row 9 (row 1 has the names), column 'c0' holds no value" in empty
    unknown = refused(lambda frame: frame.assign(sex=frame["sex"].where(frame.index != 9, "x")))
    assert "row 11 (row 1 has the names) of column 'sex' has a level that prepare.categories does not list" in unknown
    # nor is anything else done to the rows than the run did
    other = replace(prepare, scale="none")
    caplog.clear()
    with pytest.raises(ProtocolError, match="cannot read its new rows"):
        projected(nodes, EXACT, run, result.model, order, id="trial__other", prepare=other)
    assert "has a different preparation for run 'trial'" in caplog.text


def test_what_a_site_refuses_to_project(tmp_path):
    nodes = with_new_rows(tmp_path, vertical(tmp_path))
    run, result, order = fitted(nodes, EXACT)

    def refused(nodes, order=order, **more):
        with pytest.raises(ProtocolError) as caught:
            projected(nodes, EXACT, run, result.model, order, **more)
        return str(caught.value)

    # no other run sees the new rows, whatever it asks
    asks = run.model_copy(update={"id": "trial__0", "plan": EXACT.projection_plan(to_sites=False)})
    with Sites(asks, nodes) as grid, pytest.raises(ProtocolError, match="no new rows to project"):
        Asking(**vars(EXACT)).run(grid, settings_of(asks))
    # the coordinator hears neither files nor values
    cannot = "client 1 (site 'east') cannot read its new rows (its log has the details under E-"
    without = [{name: value for name, value in node.items() if name != "new"} for node in nodes]
    assert cannot in refused([nodes[0], without[1], nodes[2]])
    elsewhere = nodes[1] | {"out": str(tmp_path / "elsewhere")}
    assert cannot in refused([nodes[0], elsewhere, nodes[2]], id="trial__2")
    assert "cannot read its new rows" in refused(nodes, order=order - 1, id="trial__3")
    write_csv(tmp_path / "east-new.csv", ["a", "b"], NEW[:2, 2:4])
    assert cannot in refused(nodes, id="trial__4")
    (tmp_path / "east.csv").write_text((tmp_path / "east.csv").read_text() + "1,1,1,patient-new\n")
    with_new_rows(tmp_path, nodes)
    assert cannot in refused(nodes, id="trial__5")


def test_what_a_policy_says_of_new_rows(tmp_path):
    """A site that lets no row's similarities leave refuses them, and so the study, by its plan."""
    nodes = with_new_rows(tmp_path, vertical(tmp_path))
    run, result, order = fitted(nodes, EXACT)
    policy = tmp_path / "policy.toml"
    policy.write_text('[messages.KernelRows]\nnever = true\n[messages."*"]\n[study]\napprove = "any"\n')
    nodes[2] = {name: value for name, value in nodes[2].items() if name not in (*LENIENT, "approve")}
    nodes[2]["policy"] = str(policy)
    with pytest.raises(ProtocolError, match=r"KernelRows"):
        projected(nodes, EXACT, run, result.model, order)
    assert not list(tmp_path.glob("*/trial__new.npz"))


def test_the_study_says_who_gets_the_coordinates_of_what_run(tmp_path, capsys):
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--project", "--insecure", "--listen", "127.0.0.1:0"])
    assert done.exit_code == 2
    assert "holds no finished runs of an experiment" in done.output
    model = save_model(np.eye(2), tmp_path / "model.npz")
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    for who, says in (("sites", "get: the coordinator and every site"), ("coordinator", "get: the coordinator\n")):
        project = Projecting(of="trial", order=5, model=sha256, coordinates=who)
        run = spec(id="trial__new", project=project, plan=EXACT.projection_plan(to_sites=who == "sites"))
        show_study(Study(name="wine, new rows", runs=[run]))
        text = capsys.readouterr().out
        assert f"projects new rows onto what run trial found; their coordinates {says}" in text
        assert ("TakeCoordinates" in text) is (who == "sites")
        assert "Reveals the site's similarity of every new row to every training row, exactly." in text
    np.testing.assert_array_equal(_earlier_model(Job(runs=[run], models={run.id: str(model)}), run), np.eye(2))
    save_model(np.zeros(2), model)
    with pytest.raises(InputError, match=r"is not the model of run 'trial__new'"):
        _earlier_model(Job(runs=[run], models={run.id: str(model)}), run)
    again = run.model_copy(update={"prepare": Prepare(missing="mean")})
    show_study(Study(name="wine, new rows", runs=[again]))
    text = capsys.readouterr().out
    assert "tables are prepared as in run trial: scale = 'standard', missing = 'mean'" in text
    assert "PrepareOwn" not in text
    with pytest.raises(ValueError, match="project is for runs of named sites"):
        spec(align=False, project=project)
    assert VFedPCA().projection_plan(to_sites=True) is not None

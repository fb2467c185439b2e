"""Labels reach clients that need them, wherever the data come from, and leave by nothing but those clients' replies."""

from typing import Annotated

import numpy as np
import pandas as pd
import pytest
from named_sites import Sites, settings_of, write_csv
from refusals import refusing
from sklearn.datasets import load_iris

from fedkernel import FloatArray, InputError, KernelClient, KernelStrategy, Request, Shape, Summed, once, to_sum
from fedkernel.data import SiteFile, read_labels
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.running import run_experiment
from fedkernel.ground import ProtocolError, value_object
from fedkernel.models import load_model
from fedkernel.testing import check_pair
from fedkernel.wire import RunSpec

IRIS = load_iris()
PARTS = np.array_split(np.random.default_rng(0).permutation(150), 3)
X, Y = [IRIS.data[part] for part in PARTS], [IRIS.target[part] for part in PARTS]
MEANS = np.array([IRIS.data[IRIS.target == kind].mean(axis=0) for kind in range(3)])


class ClassSums(Summed):
    """Reveals the sums of the columns, and the number, of the rows of each class; only added up over the sites."""

    sums: Annotated[FloatArray, Shape("classes", "d")]
    counts: Annotated[FloatArray, Shape("classes")]


class SumClasses(Request[ClassSums]):
    """Asks for the sums by class."""

    classes: int


class ClassClient(KernelClient):
    answers = (SumClasses,)
    needs_labels = True

    def sum_classes(self, ask: SumClasses) -> ClassSums:
        members = np.equal.outer(np.arange(ask.classes), self.y).astype(float)
        return ClassSums(sums=members @ self.X, counts=members.sum(axis=1))


@value_object()
class ClassMeans(KernelStrategy[FloatArray]):
    """The mean row of each class."""

    client, partition = ClassClient, "horizontal"
    classes: int

    def protocol(self, run):
        total = yield from to_sum(SumClasses(classes=self.classes))
        return total.sums / total.counts[:, None]

    def plan(self, clients, seed):
        return (once(SumClasses, classes=self.classes),)


def test_a_supervised_pair_holds_what_every_pair_must():
    left_out = check_pair(ClassMeans(3), X, y=Y)
    assert "one_client_alone_is_central" in left_out, "which would need labels, too"
    result = ClassMeans(3).fit(X, y=Y)
    np.testing.assert_allclose(result.model, MEANS, rtol=1e-13)
    assert result.ledger.floats_up == 3 * 3 * (4 + 1)


def test_labels_follow_their_rows():
    """In frames, as series with an index in another order, and through the files of an engine."""
    frames = [pd.DataFrame(rows, columns=IRIS.feature_names, index=part) for rows, part in zip(X, PARTS, strict=True)]
    frames[1] = frames[1].iloc[:, ::-1]
    series = [pd.Series(labels, index=part)[::-1] for labels, part in zip(Y, PARTS, strict=True)]
    expected = ClassMeans(3).fit(X, y=Y).model
    np.testing.assert_array_equal(ClassMeans(3).fit(frames, y=series).model, expected)
    np.testing.assert_array_equal(ClassMeans(3).fit(frames, y=Y).model, expected)
    by_id = [frame.rename_axis("patient").reset_index() for frame in frames]
    np.testing.assert_array_equal(ClassMeans(3).fit(by_id, y=Y, id="patient").model, expected)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (None, "client 0 has no labels, which ClassClient needs; allowed: fit(y = [...]), data with labels"),
        ([Y[0], None, Y[2]], "client 1 has no labels"),
        (Y[:2], "y has 2 entries, but there are 3 shards"),
        ([Y[0], Y[1][:-1], Y[2]], "y[1] has shape (49,); allowed: one label for each row of shards[1]"),
        ([Y[0], np.where(Y[1] == 1, np.nan, Y[1]), Y[2]], "has no label; allowed: one for each row"),
    ],
)
def test_labels_that_do_not_fit_are_refused_in_one_sentence(y, sentence):
    with refusing(sentence, error=(InputError, ProtocolError)):
        ClassMeans(3).fit(X, y=y)


def test_data_sets_and_files_have_them_in_experiments(tmp_path):
    for number, (rows, labels) in enumerate(zip(X, Y, strict=True)):
        pd.DataFrame(rows, columns=[*"abcd"]).assign(kind=labels).to_csv(tmp_path / f"{number}.csv", index=False)
    method = {"name": "means", "method": "test_labels:ClassMeans", "classes": 3}
    common = {"name": "means", "strategy": [method], "report": {"plots": False}}
    named = {"data": {"name": "iris"}, "partition": {"kind": "horizontal", "method": "iid", "clients": 3}}
    files = {"data": {"shards": ["*.csv"], "label": "kind"}, "folder": str(tmp_path)}
    for table in (named, files):
        study = Experiment.from_table(common | table, "test")
        (row,) = run_experiment(study, tmp_path / "out", restart=True).rows
        np.testing.assert_allclose(load_model(tmp_path / "out" / row.model), MEANS, rtol=1e-13)


def own_sites(folder, **more):
    nodes = []
    for name, rows, labels in zip(("north", "east", "south"), X, Y, strict=True):
        path = write_csv(folder / f"{name}.csv", map(str, labels), rows)
        node = {"name": name, "data": str(path), "label": "patient", "out": str(folder / name), "approve": "any"}
        nodes.append({key: own for key, own in (node | {"allow": "test_labels:ClassClient"} | more).items() if own})
    return nodes


def at_sites(nodes):
    strategy, sites = ClassMeans(3), [node["name"] for node in nodes]
    names = {"strategy": "test_labels:ClassMeans", "pair": "test_labels:ClassClient"}
    run = RunSpec(id="trial", **names, parameters={"classes": 3}, sites=sites, plan=strategy.plan(3, 0))
    with Sites(run, nodes) as grid:
        return strategy.run(grid, settings_of(run)), grid


def test_a_site_gives_its_labels_to_a_client_that_its_operator_names(tmp_path):
    result, grid = at_sites(own_sites(tmp_path))
    np.testing.assert_allclose(result.model, MEANS, rtol=1e-13)
    assert not any(labels.tobytes() in grid.wire for labels in (Y[0], Y[0].astype(float)))
    with pytest.raises((InputError, ProtocolError), match="has no labels"):
        at_sites(own_sites(tmp_path, label=None, columns="c0,c1,c2,c3"))
    (tmp_path / "one.csv").write_text("x,kind\n1,a\n2,\n")
    with pytest.raises(InputError, match="has no label in column 'kind'; allowed: one for each row"):
        read_labels(SiteFile(tmp_path / "one.csv", label="kind"))
    (tmp_path / "policy.toml").write_text('[study]\npairs = ["test_labels:ClassClient"]\n[table]\nhidden = ["pat*"]\n')
    with pytest.raises((InputError, ProtocolError), match=r"hides its labels \(table.hidden\)"):
        at_sites(own_sites(tmp_path, allow=None, policy=str(tmp_path / "policy.toml")))

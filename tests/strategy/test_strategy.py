"""Strategies as Flower's: its own loop and ours, results, evaluation, reruns, and what is refused at the start."""

import copy
import dataclasses

import numpy as np
import pytest
from cases import CASES, PAIRS, WINE
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy
from refusals import refusing
from sklearn.base import clone

from fedkernel import RBF, KernelClient, KernelStrategy, Laplacian, Linear, Polynomial, Request, Sigmoid, State
from fedkernel.clients.dkpca import DKPCAClient
from fedkernel.clients.vfedpca import VFedPCAClient
from fedkernel.engines import ENGINES
from fedkernel.engines.local import LocalGrid
from fedkernel.ground import InputError, value_object
from fedkernel.run import RunSettings
from fedkernel.site import Site
from fedkernel.site.client_app import client_app
from fedkernel.strategies import DKPCA, PeerVFedPCA, VFedAKPCA, VFedPCA
from fedkernel.testing import arrays_of, bits_of

rng = np.random.default_rng(0)
SHARDS = [rng.standard_normal((12, d)) * scale for d, scale in ((3, 1), (2, 2), (4, 0.5))]

STRATEGIES = {
    DKPCA(3): 1,
    DKPCA(2, RBF(gamma=0.1), local_components="adaptive", center=True): 1,
    VFedPCA(merge="eigenvalue", rounds=2): 3,
    VFedPCA(n_components=2, local_iterations=1, rounds=1, merge="average"): 2,
    VFedPCA(n_components=2, merge="exact"): None,
    VFedAKPCA(merge="eigenvalue", rounds=2, kernel=Laplacian(gamma=0.2)): 3,
}
"""And how many rounds each takes."""
each = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)


def grid_of(strategy, shards=SHARDS):
    def find_site(context, config):
        number = int(context.node_config["partition-id"])
        return Site(number, shards[number], None, lambda outputs: None)

    return LocalGrid(client_app({strategy.client.__name__: strategy.client}, find_site), clients=len(shards))


def bits(arrays):
    """Arrays by name as bytes: of a model, or of a Flower record."""
    of_record = isinstance(arrays, ArrayRecord)
    return bits_of({name: array.numpy() for name, array in arrays.items()} if of_record else arrays_of(arrays))


@pytest.mark.parametrize(("strategy", "rounds"), STRATEGIES.items(), ids=repr)
def test_flowers_own_loop_finds_the_same_model(strategy, rounds):
    assert isinstance(strategy, Strategy)
    expected = strategy.fit(SHARDS)
    assert rounds is None or expected.ledger.rounds == rounds
    surplus = expected.ledger.rounds + 2
    with grid_of(strategy) as grid:
        outcome = Strategy.start(strategy, grid=grid, initial_arrays=ArrayRecord(), num_rounds=surplus)
    assert bits(outcome.arrays) == bits(expected.model)
    assert sorted(outcome.train_metrics_clientapp) == list(range(1, expected.ledger.rounds + 1))


@each
def test_start_returns_flowers_result_with_the_model_s_arrays(strategy):
    with grid_of(strategy) as grid:
        outcome = strategy.start(grid, ArrayRecord(), num_rounds=1, timeout=60, train_config=ConfigRecord({"seed": 4}))
    assert type(outcome) is FlowerResult
    fitted = strategy.fit(SHARDS, seed=4)
    assert bits(outcome.arrays) == bits(fitted.model)
    rows = [row for row in fitted.history if row["round"]]
    assert list(outcome.train_metrics_clientapp) == [row["round"] for row in rows]
    for row, metrics in zip(rows, outcome.train_metrics_clientapp.values(), strict=True):
        assert (row["floats_up"], row["floats_down"]) == (metrics["floats_up"], metrics["floats_down"])
    assert not outcome.evaluate_metrics_clientapp


@each
def test_scikit_learn_clones_it_and_sets_its_parameters(strategy):
    copy = clone(strategy)
    assert copy == strategy
    assert copy is not strategy
    assert copy.get_params() == {field.name: getattr(strategy, field.name) for field in dataclasses.fields(strategy)}
    assert copy.set_params(n_components=2) is copy
    assert copy == dataclasses.replace(strategy, n_components=2)
    for wrong, says in (({"n_components": -1}, "n_components = -1"), ({"n_component": 2}, "did you mean n_components")):
        with pytest.raises(InputError, match=says):
            copy.set_params(**wrong)
    assert copy.n_components == 2


NAMED = {"rbf": RBF(), "laplacian": Laplacian(), "linear": Linear(), "poly": Polynomial(), "sigmoid": Sigmoid()}


ALLOWED = {"DKPCA": 5, "VFedAKPCA": 5, "PeerVFedPCA": 5, "DisKPCA": 4, "UniformKPCA": 4, "ADMMKPCA": 4}


@pytest.mark.parametrize(("name", "allowed"), [*ALLOWED.items(), ("FKKMeans", 2), ("RFKKMeans", 2)])
def test_a_kernel_may_be_given_by_its_name(name, allowed):
    for short_name, kernel in [*NAMED.items()][:allowed]:
        assert PAIRS[name](2, kernel=short_name).kernel == kernel
    with pytest.raises(InputError, match=r"kernel.type = 'rbff' is not known \(allowed: .*rbf, laplacian"):
        PAIRS[name](2, kernel="rbff")
    if allowed < 5:
        with pytest.raises(InputError, match=r"no embedding|is not known"):
            PAIRS[name](2, kernel="sigmoid")


@pytest.mark.parametrize("center", ["columns", "rows", "none"])
def test_evaluation_is_the_explained_variance_of_the_pooled_table(center):
    strategy = VFedPCA(merge="eigenvalue", n_components=2, rounds=2, center=center)
    axis = {"columns": 0, "rows": 1}.get(center)
    pooled = np.hstack([X if axis is None else X - X.mean(axis=axis, keepdims=True) for X in SHARDS])
    result = strategy.fit(SHARDS, evaluate=True)
    kept, total = np.sum((pooled.T @ result.model.eigenvectors_) ** 2), np.sum(pooled**2)
    assert 0 < kept < total
    ratio, named = kept / total, ("explained_variance", "explained_variance_ratio", "reconstruction_error")
    expected = dict(zip(named, (kept / len(pooled), ratio, 1 - ratio), strict=True))
    assert result.metrics == pytest.approx(expected, rel=1e-12)
    plain, unmeasured = strategy.fit(SHARDS), DKPCA(2, Polynomial(gamma=0.1)).fit(SHARDS, evaluate=True)
    assert plain.metrics == unmeasured.metrics == {}
    assert (result.ledger.rounds, unmeasured.ledger.rounds) == (plain.ledger.rounds + 1, 1)
    with grid_of(strategy) as grid:
        outcome = strategy.start(grid, evaluate_config=ConfigRecord())
    assert {n: dict(m) for n, m in outcome.evaluate_metrics_clientapp.items()} == {3: result.metrics}
    with grid_of(strategy) as grid:
        theirs = Strategy.start(strategy, grid=grid, initial_arrays=ArrayRecord(), num_rounds=5)
    assert {n: dict(m) for n, m in theirs.evaluate_metrics_clientapp.items()} == {3: result.metrics}


def test_evaluate_fn_is_called_once_with_the_rounds_and_the_model():
    strategy, calls = VFedPCA(merge="eigenvalue", rounds=2), []

    def judge(number, arrays):
        calls.append((number, bits(arrays)))
        return MetricRecord({"score": 0.5})

    with grid_of(strategy) as grid:
        outcome = strategy.start(grid, evaluate_fn=judge)
    assert calls == [(3, bits(strategy.fit(SHARDS).model))]
    assert {n: dict(m) for n, m in outcome.evaluate_metrics_serverapp.items()} == {3: {"score": 0.5}}


@each
def test_two_fits_of_one_object_do_not_disturb_each_other_nor_do_runs_of_clients_that_live_on(strategy):
    described, fields = repr(strategy), dict(vars(strategy))
    first = strategy.fit(SHARDS)
    before = bits(first.model), first.ledger.to_table().copy(), str(first.history), first.metrics.copy()
    second = strategy.fit([X[:7] for X in SHARDS[:2]], seed=9, evaluate=True)
    assert second.model.eigenvectors_.shape[0] == 7
    assert before == (bits(first.model), first.ledger.to_table(), str(first.history), first.metrics)
    assert bits(strategy.fit(SHARDS).model) == bits(first.model)
    assert (repr(strategy), vars(strategy)) == (described, fields)
    assert dataclasses.replace(strategy) == strategy
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.n_components = -3
    # On one grid: the same run twice, also under the same name, and another kernel in between.
    expected = bits(strategy.fit(SHARDS).model)
    with grid_of(strategy) as grid:
        assert bits(strategy.run(grid, RunSettings(run="a")).model) == expected
        if isinstance(strategy, VFedAKPCA):
            VFedAKPCA(merge="eigenvalue", rounds=3, kernel=Linear()).run(grid, RunSettings(run="a"))
        assert bits(strategy.run(grid, RunSettings(run="a")).model) == expected
        assert bits(strategy.run(grid, RunSettings(run="b")).model) == expected


WITH_NAN = SHARDS[1].copy()
WITH_NAN[3, 1] = np.nan


@pytest.mark.parametrize(
    ("shards", "options", "sentence"),
    [
        ([], {}, "shards is empty, but at least one client is needed"),
        ([SHARDS[0], np.empty((0, 3))], {}, "shards[1] has shape (0, 3); allowed: (rows, columns)"),
        ([SHARDS[0], np.empty((12, 0))], {}, "shards[1] has shape (12, 0)"),
        ([SHARDS[0], SHARDS[1][:7]], {}, "client 1 has 7 rows, but client 0 has 12"),
        ([SHARDS[0], WITH_NAN], {}, "shards[1]: the value in row 3, column 1 (counted from 0) is nan"),
        ([SHARDS[0], np.full((12, 1), np.inf)], {}, "shards[1]: the value in row 0, column 0"),
        (SHARDS[0], {}, "shards is one table, but must be a list with one for each client, such as numpy."),
        ([SHARDS[0], np.ones((12, 2, 2))], {}, "shards[1] has shape (12, 2, 2)"),
        ([[[1.0, 2.0], [3.0]]], {}, "shards[0] has rows of different lengths"),
        ([[["a"], ["b"]]], {}, "shards[0] holds values of type <U1; allowed: real numbers only"),
        ([X[:2] for X in SHARDS], {}, "n_components = 3, but must be at most the number of rows, 2"),
        (SHARDS, {"engine": "carrier pigeon"}, "engine = 'carrier pigeon', but must be one of local, ray"),
        (SHARDS, {"seed": -1}, "seed = -1, but must be from 0 to 2^63 - 1"),
        (SHARDS, {"deadline": 0.0}, "deadline = 0, but must be greater than 0"),
    ],
)
@pytest.mark.parametrize("strategy", [DKPCA(3), VFedPCA(n_components=3)], ids=repr)
def test_what_does_not_fit_is_one_sentence_before_anything_ran(monkeypatch, strategy, shards, options, sentence):
    messages = []
    monkeypatch.setattr(KernelClient, "fit", lambda self, parameters, config: messages.append(config))
    with refusing(sentence):
        strategy.fit(shards, **options)
    assert messages == []


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"local"}))
def test_a_class_that_other_processes_cannot_import_is_refused_before_an_engine_starts(engine, monkeypatch):
    monkeypatch.setitem(ENGINES, engine, None)
    in_a_script = type("Own", (DKPCA,), {"__module__": "__main__"})
    inside = type("Inside", (DKPCA,), {"__module__": __name__})  # of this function
    # others would import the one there
    of_that_name = type("DKPCA", (DKPCA,), {"__module__": "fedkernel.strategies.dkpca"})
    client = type("OwnClient", (DKPCAClient,), {"__module__": "__main__", "answers": DKPCAClient.answers})
    its_client = type("Outside", (DKPCA,), {"__module__": __name__, "client": client})
    monkeypatch.setattr(f"{__name__}.Outside", its_client, raising=False)
    for strategy, sentence in (
        (in_a_script, "Own is in a script or notebook, which other processes cannot import; put it in"),
        (inside, "other processes cannot import test_strategy:Inside; put it in a module"),
        (of_that_name, "other processes cannot import fedkernel.strategies.dkpca:DKPCA"),
        (its_client, "OwnClient is in a script or notebook"),
    ):
        assert strategy(2).fit(SHARDS).model.n_components == 2
        with pytest.raises(InputError, match=rf"^{sentence}.*or use engine = 'local'$"):
            strategy(2).fit(SHARDS, engine=engine)
    kernel = value_object()(type("Own", (Linear,), {"__module__": "__main__"}))()
    monkeypatch.setattr("__main__.Own", type(kernel), raising=False)
    assert DKPCA(2, kernel=kernel).fit(SHARDS).model.n_components == 2
    with pytest.raises(InputError, match=r"Own.* is in a script or notebook, which cannot be"):
        DKPCA(2, kernel=kernel).fit(SHARDS, engine=engine)


def watched(strategy, read, prefix=""):
    """Return a copy of a strategy that notes which of its hyper-parameters are read, by dotted path."""
    copied = copy.copy(strategy)
    fields = {field.name for field in dataclasses.fields(strategy)}
    for name in fields:
        if isinstance(part := getattr(strategy, name), KernelStrategy):
            object.__setattr__(copied, name, watched(part, read, f"{prefix}{name}."))

    def noting(self, name):
        value = object.__getattribute__(self, name)
        if name in fields and not isinstance(value, KernelStrategy):
            read.add(prefix + name)
        return value

    watching = type(type(strategy).__name__, (type(strategy),), {"__getattribute__": noting})
    object.__setattr__(copied, "__class__", watching)
    return copied


@pytest.mark.parametrize(
    "strategy",
    [
        *{(type(case.strategy), str(vars(case.strategy).get("components"))): case.strategy for case in CASES}.values(),
        PeerVFedPCA(),  # without a kernel
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_the_key_of_the_central_answer_has_all_that_it_reads(strategy):
    shards = np.array_split(WINE, 4, axis=1 if strategy.partition == "vertical" else 0)
    by_answer, by_key = set(), set()
    watched(strategy.settled_on(shards), by_answer).central(shards)
    assert watched(strategy, by_key).central_key
    assert by_answer <= by_key


def test_a_central_answer_of_ones_own_depends_on_all_fields_unless_it_says_so():
    @value_object()
    class Own(DKPCA):
        factor: float = 1.0

        def central(self, shards):
            return super().central([self.factor * shard for shard in shards])

    @value_object()
    class Inherited(DKPCA):
        factor: float = 1.0

    assert Own(2, factor=2.0).central_key != Own(2, factor=3.0).central_key
    assert Own(2, local_components=1).central_key != Own(2, local_components=2).central_key
    assert Inherited(2, factor=2.0).central_key == DKPCA(2, local_components=1).central_key != DKPCA(3).central_key


def test_a_table_is_checked_once_in_a_run_however_many_rounds_and_anew_in_the_next(monkeypatch):
    checked, check = [], VFedPCAClient.table
    monkeypatch.setattr(VFedPCAClient, "table", staticmethod(lambda X, what: (checked.append(what), check(X, what))[1]))
    shards, strategy = [X.copy() for X in SHARDS], VFedPCA(merge="eigenvalue", rounds=5)
    before = strategy.fit(shards).model.eigenvectors_
    assert all(checked.count(what) == 1 for what in ("the data of client 0", "the data of client 2"))
    shards[0][:, 0] *= 3.0  # what was made of a table lasts no longer than its run
    after = strategy.fit(shards).model.eigenvectors_
    assert not np.allclose(before, after)
    assert np.array_equal(after, strategy.fit([X.copy() for X in shards]).model.eigenvectors_)
    shards[0][3, 1] = np.nan
    with pytest.raises(InputError, match="row 3, column 1"):
        strategy.fit(shards)


@pytest.mark.parametrize(
    ("base", "former", "present", "value"),
    [
        (KernelStrategy, "hands_out", "distribution_phases", ("send",)),
        (Request, "takes", "memory_floats", lambda self, rows, columns: rows),
        (State, "passing", "is_cache", True),
    ],
)
def test_what_a_pair_says_under_a_former_name_holds_and_is_warned_of(base, former, present, value):
    with pytest.warns(DeprecationWarning, match=f"^Own.{former} is now called {present}$"):
        own = type(base)("Own", (base,), {former: value, "__module__": __name__})
    assert getattr(own, present) == value

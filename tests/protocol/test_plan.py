"""A plan says what a run will ask; a request that it does not hold is refused."""

import dataclasses
import math
from typing import Annotated

import numpy as np
import pytest
import scipy.sparse
from cases import CASES, WINE
from networks import admm, spread
from pydantic import Field
from refusals import refusing

from fedkernel import RBF, AtMost, FloatArray, InputError, Laplacian, Linear, Member, Reply, Request, Shape, strategies
from fedkernel.clients.fk_kmeans import EmbedRows, MultiplyColumns
from fedkernel.clients.landmark_base import SketchKernel
from fedkernel.numerics import Kernel, RandomFeatures
from fedkernel.protocol import CarriesRows, PlanPosition, advance, any_width, ask, instead, once, repeated, reveals
from fedkernel.site import reply_bounds
from fedkernel.strategies import DKPCA, CentroidKPCA, DisKPCA, FKKMeans, PeerVFedPCA, RFKKMeans, VFedAKPCA, VFedPCA
from fedkernel.testing import Pair, a_run_takes_what_was_forecast, requests_are_those_of_the_plan
from fedkernel.wire import RunSpec


class Totals(Reply):
    """Sums over the rows: d floats. Reveals the mean row,
    and nothing else."""

    sums: Annotated[FloatArray, Shape("d", "b")]


class AddUp(Request[Totals]):
    """Asks for sums."""

    kernel: Kernel
    size: Annotated[int, Field(ge=1)]
    weights: Annotated[FloatArray | None, Shape("n", "b")] = None


class Finish(Request[Totals]):
    """Asks for the last."""


PLAN = (
    once(AddUp, kernel=any_width(RBF()), size=2),
    repeated(3, ask(AddUp, {"b": 4}, kernel=RBF(gamma=0.1), size=AtMost(5)), ask(Finish)),
    once(Finish),
)


def fields(gamma=0.1, size=2, type="rbf"):
    return {"kernel": {"type": type, "gamma": gamma}, "size": size}


def walk(*requests, shapes=None):
    place = PlanPosition()
    for request in requests:
        place = advance(PLAN, place, *request, shapes or {})
    return place


def test_a_plan_says_what_leaves_and_what_that_tells():
    planned = PLAN[1].requests[0]
    assert planned.fields == {"kernel": {"type": "rbf", "gamma": 0.1}, "size": {"at most": 5}}
    assert (planned.reply, planned.arrays) == ("Totals", {"sums": "d x b"})
    assert planned.reveals == "Reveals the mean row, and nothing else."
    assert PLAN[0].requests[0].fields["kernel"] == {"type": "rbf"}, "its width is left open"
    assert reveals(Request) == "Base class of requests to a site, generic in the class of the reply."
    with pytest.raises(TypeError, match="AddUp has no parameter weights"):
        ask(AddUp, weights=np.ones((1, 1)))
    with pytest.raises(TypeError, match="AddUp has no dimension c"):
        ask(AddUp, {"c": 1})


def test_requests_come_in_the_order_of_the_steps_each_so_often_at_most_or_it_is_said_why_not():
    second = ("AddUp", fields(size=5))
    assert walk(("AddUp", fields(gamma=7.0)), *[second] * 3, *[("Finish", {})] * 4) == PlanPosition(2, {"Finish": 1})
    assert walk(second) == PlanPosition(1, {"AddUp": 1}), "a step may be left out"
    with pytest.raises(InputError, match="AddUp came 3 times, as often as the plan allows"):
        walk(*[second] * 4)
    with pytest.raises(InputError, match="AddUp comes too late: the run has passed that step of the plan"):
        walk(*[("Finish", {})] * 4, second)
    with pytest.raises(InputError, match="Steal is not in the plan"):
        walk(("Steal", {}))
    with pytest.raises(InputError, match=r"^Finish came 3 times, as often as the plan allows$"):
        advance((PLAN[1],), PlanPosition(0, {"Finish": 3}), "Finish", {}, {})
    plan = (once(Finish), once(AddUp, size=1), once(AddUp, size=2), once(AddUp, size=3))
    with pytest.raises(InputError, match=r"^AddUp came 1 times, .*; then AddUp has size = 1, but the plan has 2$"):
        advance(plan, PlanPosition(1, {"AddUp": 1}), "AddUp", {"size": 1}, {})


@pytest.mark.parametrize(
    ("request_", "shapes", "sentence"),
    [
        (("AddUp", fields(size=6)), {}, "AddUp has size = 6, but the plan allows at most 5"),
        (("AddUp", fields(size=None)), {}, "AddUp has size = None, but the plan allows at most 5"),
        (("AddUp", fields(gamma=1e6, size=5)), {}, "AddUp has kernel.gamma = 1000000.0, but the plan has 0.1"),
        (("AddUp", fields(size=5, type="linear")), {}, "AddUp has kernel.type = 'linear', but the plan has 'rbf'"),
        (("AddUp", {"kernel": "rbf", "size": 5}), {}, "AddUp has kernel = 'rbf', but the plan"),
        (("AddUp", fields(size=5)), {"weights": (9, 40)}, "AddUp has weights of shape 9 x 40, but the plan allows at"),
    ],
)
def test_a_request_with_other_parameters_is_refused(request_, shapes, sentence):
    with refusing(start=sentence):
        advance(PLAN, PlanPosition(1), *request_, shapes)


def test_a_seed_that_was_drawn_since_stands_for_the_run_s_and_for_no_other():
    features, other = (RandomFeatures(RBF(gamma=0.1), 4, seed=seed) for seed in (0, 9))
    plan = (once(MultiplyColumns, features=features, t=1), once(EmbedRows, features=other, t=2))
    drawn = any_width(RBF(gamma=0.1), lambda kernel: RandomFeatures(kernel, 4, seed=77))
    unchanged = any_width(RBF(gamma=0.1), lambda kernel: RandomFeatures(kernel, 4, seed=9))
    place = advance(plan, PlanPosition(), "MultiplyColumns", {"features": drawn, "t": 1}, {}, seeds=(0, 77))
    assert advance(plan, place, "EmbedRows", {"features": unchanged, "t": 2}, {}, seeds=(0, 77)).step == 1
    with pytest.raises(InputError, match=r"EmbedRows has features.seed = 77, but the plan has 9"):
        advance(plan, place, "EmbedRows", {"features": drawn, "t": 2}, {}, seeds=(0, 77))
    with pytest.raises(InputError, match=r"MultiplyColumns has features.seed = 77, but the plan has 0"):
        advance(plan, PlanPosition(), "MultiplyColumns", {"features": drawn, "t": 1}, {})


def test_a_step_in_place_of_others_leaves_them_out():
    plan = (*instead(once(Finish), (once(AddUp, size=1), once(AddUp, size=2))), once(AddUp, size=3))
    start = advance(plan, PlanPosition(), "Finish", {}, {})
    assert advance(plan, start, "AddUp", {"size": 3}, {}) == PlanPosition(3, {"AddUp": 1})
    with pytest.raises(InputError, match="AddUp has size = 1, but the plan has 3"):
        advance(plan, start, "AddUp", {"size": 1}, {})
    others = advance(plan, advance(plan, PlanPosition(), "AddUp", {"size": 1}, {}), "AddUp", {"size": 2}, {})
    with pytest.raises(InputError, match="Finish comes too late"):
        advance(plan, others, "Finish", {}, {})


# The plans of our pairs: tests/strategies/test_pairs.py holds the runs of its cases to theirs.

ROWS, COLUMNS = np.array_split(WINE[:40], 4), np.array_split(WINE[:40], 4, axis=1)
FEW = {"n_features": 10, "iterations": 3, "coreset_size": 30}
SKETCHED = {"n_adaptive": 6, "n_leverage": 5, "embedding_size": 8, "n_random_features": 60, "share_rows": True}

VARIANTS = [
    (DKPCA(2, RBF(gamma=0.05)), COLUMNS),
    (DKPCA(2, RBF(gamma=0.05), upload="inner products"), COLUMNS),
    (VFedPCA(2, merge="eigenvalue", rounds=4), COLUMNS),
    (VFedPCA(2, merge="exact", rounds=2), COLUMNS),
    (VFedPCA("auto", merge="exact", max_components=4), COLUMNS),
    (VFedAKPCA(2, kernel=RBF(width="columns")), COLUMNS),  # each client has a width of its own
    (PeerVFedPCA(rounds=1, graph="ring", merge="eigenvalue"), COLUMNS),
    (PeerVFedPCA(rounds=2, graph="star", relay=True, merge="eigenvalue"), COLUMNS),
    (PeerVFedPCA(2, rounds=3, graph="star"), COLUMNS),
    (PeerVFedPCA(graph={"kind": "grid", "rows": 1}), COLUMNS),
    (FKKMeans(3, solver="lanczos", **FEW), ROWS),
    (FKKMeans(3, 2, kernel=Laplacian(), penalty=0.0, n_features=10, iterations=3, clusters="lloyd", n_centers=9), ROWS),
    (FKKMeans(3, penalty=0.0, tol=0.5, solver="lanczos", **FEW), ROWS),
    (FKKMeans(3, penalty=0.0, cem=False, **FEW), ROWS),
    (FKKMeans(1, cem=False, n_features=4, iterations=3, tol=1e-15), ROWS),
    (RFKKMeans(3, n_features=10, kernel=RBF(width="columns")), ROWS),
    (RFKKMeans("auto", n_features=10, max_clusters=3, clusters="lloyd"), ROWS),
    (DisKPCA(3, **SKETCHED), ROWS),
    (DisKPCA(3, Linear(), **SKETCHED | {"n_adaptive": 0}, dtype="float32", projection_size=4), ROWS),
    (DisKPCA(3, point_sketch_size=20, projection_size="landmarks", **SKETCHED), ROWS),
    (DisKPCA(3, n_adaptive=40, share_rows=True, tol=1e-3, embed=False), ROWS),
    (DisKPCA("auto", max_components=4, **SKETCHED), ROWS),
    (CentroidKPCA(3, n_landmarks=9), ROWS),
    (CentroidKPCA(3, Linear(), centroids="axes"), ROWS),
    (CentroidKPCA("auto", n_landmarks=9, centroids="local", max_components=8, embed=False), ROWS),
    (strategies.CentroidKMeans(3, n_landmarks=9), ROWS),
    (strategies.CentroidKMeans("auto", Linear(), n_landmarks=9, centroids="local", max_clusters=4), ROWS),
    (strategies.UniformKPCA(3, n_samples=9, share_rows=True), ROWS),
    (strategies.UniformKPCA("auto", n_samples=9, share_rows=True, solver="batch", max_components=8), ROWS),
    (strategies.UniformKPCA(3, n_samples=9, share_rows=True, solver="batch", embed=False), ROWS),
    (strategies.SpectralKMeans(3, strategies.UniformKPCA(3, n_samples=9, share_rows=True, embed=False)), ROWS),
    (admm(rho=40.0, center=False), spread(4)),
    (admm(schedule="paper", n_components=2, noise=0.1), spread(4)),
    (admm(exchange="features", n_features=50, tol=1.0), spread(3)),
]


@pytest.mark.parametrize(("strategy", "shards"), VARIANTS, ids=[repr(strategy) for strategy, _ in VARIANTS])
def test_a_run_asks_what_its_plan_has_and_needs_each_step_of_it(strategy, shards):
    strategy = strategy.settled_on(shards)
    pair = Pair(strategy, shards)
    requests_are_those_of_the_plan(pair)
    plan, needed = strategy.plan(len(shards), 0), []
    for number in range(len(plan)):
        fewer = [step.model_copy(update={"instead_of": 0}) for step in (*plan[:number], *plan[number + 1 :])]
        needed.append(bool(pair.recording.outside(tuple(fewer))))
    came = {type(each.request).__name__ for exchanges in pair.recording.exchanges.values() for each in exchanges}
    assert needed == [any(planned.request in came for planned in step.requests) for step in plan]
    assert all(needed) or any(step.instead_of for step in plan)
    replies_are_within_what_was_foreseen(pair.recording, strategy, shards)
    forecast_plan_and_ledger_agree(pair)


def forecast_plan_and_ledger_agree(pair):
    """A run takes what was forecast, as that is meant, and neither takes more than the plan has."""
    strategy, tables, ledger = pair.strategy, pair.tables, pair.recording.result.ledger
    members = [Member(number, number, *table.shape) for number, table in enumerate(tables)]
    forecast, plan = strategy.forecast(members), strategy.plan(len(tables), 0)
    if forecast.meaning != "about":
        a_run_takes_what_was_forecast(pair)
    if not any(strategy.peers(len(tables))):  # of whom some are asked after the others, in rounds of their own
        assert max(forecast.rounds, ledger.rounds) <= sum(step.times * len(step.requests) for step in plan)
    run, most = RunSpec(id="r", strategy="s", sites=["a"], plan=plan), []
    for table in tables:
        sizes = reply_bounds(run, strategy.client.answers, table.shape).values()
        most += [math.inf if size.floats is None else size.times * size.floats for size in sizes]
    assert max(forecast.floats_up, ledger.floats_up) <= sum(most)


def replies_are_within_what_was_foreseen(recording, strategy, shards):
    """How often each came, and its floats and columns where these are bounded."""
    run = RunSpec(id="r", strategy="s", sites=["a"], plan=strategy.plan(len(shards), 0))
    for client, shard in enumerate(shards):
        replies = {}
        sizes = reply_bounds(run, strategy.client.answers, shard.shape)
        for exchange in recording.exchanges[client]:
            replies.setdefault(type(exchange.reply).__name__, []).append(exchange.reply)
        assert replies.keys() <= sizes.keys()
        for name, of_kind in replies.items():
            assert len(of_kind) <= sizes[name].times
            assert sizes[name].floats is None or max(reply.floats for reply in of_kind) <= sizes[name].floats
            widths = [array.shape[-1] for reply in of_kind for array in reply.arrays().values()]
            assert sizes[name].columns is None or max(widths, default=0) <= sizes[name].columns


def test_an_iteration_of_fk_k_means_has_as_many_columns_as_features_and_those_it_moves():
    plan = FKKMeans(3, n_components=4, n_features=10, iterations=4, solver="gram").plan(3, 0)
    asked = [planned for step in plan for planned in step.requests if planned.request == "MultiplyColumns"]
    assert [planned.sizes["map"] for planned in asked] == [(0, 0), (10, 5), (15, 15), (25, 25)]
    assert [planned.fields["columns"]["at most"] for planned in asked] == [10, 15, 25, 35]


SPREAD = spread(3)
CHANGED = [
    (DKPCA(2, RBF(gamma=0.05)), {"kernel": RBF(gamma=5.0)}, COLUMNS, "has kernel.gamma = 0.05, but the plan has 5.0"),
    (DKPCA(2), {"n_components": 1}, COLUMNS, "FindLocalEigenpairs has n_components = 2, but the plan has 1"),
    (DKPCA(2, certificate=True), {"certificate": False}, COLUMNS, "has omitted = True, but the plan has False"),
    (VARIANTS[1][0], {"upload": "kernel"}, COLUMNS, "FindLocalProducts is not in the plan"),
    (VARIANTS[2][0], {"rounds": 3}, COLUMNS, "IterateLocally came 3 times, as often as the plan allows"),
    (VFedAKPCA(kernel=RBF(gamma=1e6)), {"kernel": RBF(gamma=1.0)}, COLUMNS, "gamma = 1000000.0, but the plan has 1"),
    (PeerVFedPCA(rounds=3), {"rounds": 2}, COLUMNS, "AddProducts has most = 3, but the plan has 2"),
    (FKKMeans(3, solver="gram", **FEW), {"iterations": 2}, ROWS, "MultiplyColumns came 1 times"),
    (FKKMeans(3, **FEW), {"n_features": 8}, ROWS, "features.n_features = 10, but the plan has 8"),
    (FKKMeans(3, **FEW), {"coreset_size": 4}, ROWS, "SampleCoreset has samples ="),
    (DisKPCA(3, **SKETCHED), {"n_components": 2}, ROWS, "of shape 11 x 3, but the plan allows at most 11 x 2"),
    (DisKPCA(3, **SKETCHED), {"n_adaptive": 0}, ROWS, "MeasureDistances is not in the plan"),
    (strategies.UniformKPCA(2, n_samples=20, share_rows=True), {"n_samples": 2}, ROWS, "DrawUniformly has samples ="),
    (admm(), {"exchange": "features"}, SPREAD, "ShareRows has features = None, but the plan has {"),
    (admm(graph="full"), {"iterations": 7}, SPREAD, "UpdateConsensus came 7 times"),
    (admm(rho=12.0), {"rho": 1.0}, SPREAD, "UpdateConsensus has rho_self = 12.0, but the plan has 1.0"),
    (RFKKMeans(3, n_features=10), {}, ROWS, "features.seed = 0, but the plan has 1"),  # seeds are settled, too
]


@pytest.mark.parametrize(("strategy", "change", "shards", "sentence"), CHANGED, ids=[case[3] for case in CHANGED])
def test_a_run_of_other_hyper_parameters_is_another_plan(strategy, change, shards, sentence):
    planned = dataclasses.replace(strategy, **change).plan_of_run(len(shards), seed=not change)
    assert sentence in Pair(strategy, shards).recording.outside(planned)


def test_sparse_landmarks_are_bounded_too():
    plan = DisKPCA(3, Linear(), projection_size="landmarks", **SKETCHED).plan(2, 0)
    for rows in (11, 12):
        carried = CarriesRows.of(scipy.sparse.csr_array(np.eye(rows)))
        request = SketchKernel(**carried, before=0, kernel=Linear(), precision="float64", tol=2.0**-26, columns=11)
        fields = request.model_dump(mode="json", exclude=set(request.shapes()))
        shapes = {name: array.shape for name, array in request.arrays().items()}
        if rows == 11:
            advance(plan, PlanPosition(), "SketchKernel", fields, shapes)
            continue
        with pytest.raises(InputError, match="SketchKernel has starts of shape 13, but the plan allows at most 12"):
            advance(plan, PlanPosition(), "SketchKernel", fields, shapes)


FOLLOWS = {"n_components", "epsilon", "rho_self", "rho_peers", "dual", "width", "directions"}
FOLLOWS |= {"parent", "children", "block"}
"""What may be open at the top of a request: of DKPCA's two rules the other one; what follows from the data."""


@pytest.mark.parametrize("strategy", [case.strategy for case in CASES], ids=[case.name for case in CASES])
def test_what_a_plan_leaves_open_follows_from_the_data(strategy):
    kinds = {kind.__name__: kind for kind, _ in strategy.client.handlers.values()}
    for planned in (planned for step in strategy.plan(6, 0) for planned in step.requests):
        kind = kinds[planned.request]
        assert kind.model_fields.keys() - kind.shapes().keys() - planned.fields.keys() <= FOLLOWS, planned

"""Frames as shards: columns are known by their names and rows by their index, whatever order they stand in."""

import dataclasses
import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cases import PAIRS
from sklearn.datasets import load_wine
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, Prepare
from fedkernel.errors import InputError
from fedkernel.run.result import Result
from strategies import (
    ADMMKPCA,
    DKPCA,
    DisKPCA,
    FKKMeans,
    PeerVFedPCA,
    RFKKMeans,
    SpectralKMeans,
    UniformKPCA,
    VFedAKPCA,
    VFedPCA,
)

X = StandardScaler().fit_transform(load_wine().data)
CLASSES = load_wine().target
WHOLE = pd.DataFrame(X, columns=load_wine().feature_names, index=[f"patient {row}" for row in range(len(X))])
rng = np.random.default_rng(0)
KERNEL, SHOWN = RBF(gamma=0.05), {"share_rows": True}


@pytest.fixture(autouse=True)
def each_test_draws_the_same():
    """Whatever other tests this process has run."""
    rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


STRATEGIES = [
    ADMMKPCA(kernel=KERNEL, iterations=3, **SHOWN),
    DKPCA(2, KERNEL, local_components=20),
    DisKPCA(3, KERNEL, n_adaptive=20, **SHOWN),
    FKKMeans(3, n_features=30, iterations=5, solver="gram"),
    PeerVFedPCA(2, rounds=2),
    RFKKMeans(3, n_features=30),
    SpectralKMeans(3, DisKPCA(3, KERNEL, n_adaptive=20, **SHOWN)),
    UniformKPCA(3, KERNEL, n_samples=30, **SHOWN),
    VFedAKPCA(2, merge="eigenvalue", kernel=KERNEL, rounds=2),
    VFedPCA(2, merge="eigenvalue", rounds=2),
]


def divided(frame, strategy):
    """The frame's parts at three clients."""
    if strategy.partition == "vertical":
        return [frame.iloc[:, part] for part in np.array_split(np.arange(frame.shape[1]), 3)]
    return [frame.iloc[part] for part in np.array_split(np.arange(len(frame)), 3)]


def mixed(frames, strategy):
    """The same frames, but for the first with what they are known by in another order."""
    if strategy.partition == "vertical":
        return [frames[0], *(frame.iloc[rng.permutation(len(frame))] for frame in frames[1:])]
    return [frames[0], frames[1].iloc[:, ::-1], frames[2].iloc[:, rng.permutation(frames[2].shape[1])]]


def bits(model):
    """All arrays of a model, those of its parts too."""
    parts = vars(model).values()
    arrays = [part.tobytes() for part in parts if isinstance(part, np.ndarray)]
    return arrays + [array for part in parts if dataclasses.is_dataclass(part) for array in bits(part)]


# what they are in another order


def test_every_strategy_is_tested():
    assert {type(strategy).__name__ for strategy in STRATEGIES} == set(PAIRS)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_the_order_of_names_changes_nothing(strategy):
    """Not the run, nor its reference, nor how they compare, nor what is measured, bit for bit."""
    plain, frames = divided(WHOLE, strategy), mixed(divided(WHOLE, strategy), strategy)
    arrays = [np.ascontiguousarray(frame) for frame in plain]
    reference, same = strategy.central(frames), strategy.central(arrays)
    assert bits(reference) == bits(same) != []
    result, expected = strategy.fit(frames, reference=reference), strategy.fit(arrays, reference=same)
    assert bits(result.model) == bits(expected.model)
    assert result.metrics == expected.metrics != {}
    for client, outputs in expected.outputs.items():
        for name, output in outputs.items():
            np.testing.assert_array_equal(result.outputs[client][name], output)
    assert strategy.judge(result, frames, reference) == strategy.judge(expected, arrays, same) != {}
    assert strategy.judge_steps(result, reference=reference, shards=frames) == strategy.judge_steps(
        expected, arrays, same
    )
    assert strategy.judge(result, frames) == strategy.judge(expected, arrays)
    models = [strategy.alone(shard) for shard in arrays]
    assert bits(strategy.alone(frames[0])) == bits(models[0])
    assert strategy.judge_alone(models, frames, reference) == strategy.judge_alone(models, arrays, same)


def test_a_reversed_frame_costs_no_agreement_and_a_shuffled_one_no_digit():
    """As arrays, which have no names, they do."""
    clusters = FKKMeans(3, n_features=100, iterations=10, solver="gram")
    frames = divided(WHOLE.iloc[order := rng.permutation(len(X))], clusters)
    turned = [frames[0], frames[1], frames[2].iloc[:, ::-1]]

    def agreement(shards):
        outputs = clusters.fit(shards).outputs
        return normalized_mutual_info_score(CLASSES[order], np.concatenate([outputs[n]["labels"] for n in range(3)]))

    # of 25 orders of the rows 0.80 and more, and as arrays 0.64 at most
    assert agreement(turned) == agreement(frames) > 0.72 > agreement([frame.to_numpy() for frame in turned])

    exact = DKPCA(2, local_components=13)
    columns = divided(WHOLE, exact)
    shuffled = [columns[0], columns[1], columns[2].iloc[rng.permutation(len(X))]]
    reference = exact.central(columns)
    assert exact.fit(shuffled, reference=reference).metrics["error"] < 1e-16
    lost = exact.fit([frame.to_numpy() for frame in shuffled], reference=reference).metrics["error"]
    assert lost > 0.1


def test_rows_of_results_are_in_the_order_of_the_first_index_and_the_log_says_what_was_put_in_order(caplog):
    strategy = VFedPCA(2, merge="eigenvalue", rounds=2)
    frames = mixed(divided(WHOLE, strategy)[::-1], strategy)
    frames[0] = frames[0].iloc[order := rng.permutation(len(X))]
    with caplog.at_level(logging.INFO, logger="fedkernel.data.frames"):
        model = strategy.fit(frames).model
    expected = strategy.fit([frame.to_numpy() for frame in divided(WHOLE.iloc[order], strategy)[::-1]]).model
    np.testing.assert_array_equal(model.eigenvectors_, expected.eigenvectors_)
    assert [record.getMessage() for record in caplog.records] == [
        f"the rows of shards[{n}] are put in the order of the index of shards[0], which results have too"
        for n in (1, 2)
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="fedkernel.data.frames"):
        FKKMeans(3, n_features=30, iterations=2).fit([WHOLE[:90], WHOLE[90:].iloc[:, ::-1]])
    assert [record.getMessage() for record in caplog.records] == [
        "the columns of shards[1] are put in the order of shards[0]"
    ]


def test_a_shuffled_index_of_numbers_is_an_index_too():
    """As pandas gives by itself, and leaves to each row when rows are drawn or sorted."""
    strategy = DKPCA(2, KERNEL, local_components=20)
    numbered = divided(WHOLE.reset_index(drop=True), strategy)
    assert bits(strategy.fit(mixed(numbered, strategy)).model) == bits(strategy.fit(numbered).model)


def test_new_rows_are_in_the_order_of_the_trained_ones():
    strategy = DKPCA(2, KERNEL, local_components=20)
    shards, new = divided(WHOLE[:150], strategy), divided(WHOLE[150:], strategy)
    model = strategy.fit(shards).model
    expected = strategy.transform(model, shards, new)
    turned = [frame.iloc[:, ::-1] for frame in mixed(new, strategy)]
    np.testing.assert_array_equal(strategy.transform(model, mixed(shards, strategy), turned), expected)
    assert np.abs(strategy.transform(model, shards, [frame.to_numpy() for frame in turned]) - expected).max() > 0.1

    clusters = FKKMeans(3, n_features=30, iterations=5, solver="gram")
    shards, new = divided(WHOLE[:150], clusters), divided(WHOLE[150:], clusters)
    model = clusters.fit(shards).model
    expected = clusters.predict(model, shards, new)
    reversed_ = [frame.iloc[:, ::-1] for frame in new]  # none of the new ones has the order of the trained ones
    for labels, same in zip(clusters.predict(model, mixed(shards, clusters), reversed_), expected, strict=True):
        np.testing.assert_array_equal(labels, same)


# what is refused

FEW = pd.DataFrame(rng.standard_normal((20, 4)), columns=[*"abcd"], index=[f"r{n}" for n in range(20)])
LEFT, RIGHT = FEW[["a", "b"]], FEW[["c", "d"]]
TOP, BOTTOM = FEW[:10], FEW[10:]
ROWS = "frame.reset_index(drop=True) where rows belong together by their position"


@pytest.mark.parametrize(
    ("strategy", "shards", "sentence"),
    [
        (
            FKKMeans(2),
            [TOP, BOTTOM.drop(columns="b")],
            "shards[1] has no column 'b', which shards[0] has; allowed: the",
        ),
        (
            FKKMeans(2),
            [TOP, BOTTOM.rename(columns={"b": "x", "c": "y"})],
            "shards[1] has no column 'b' (and 1 more), which shards[0] has; allowed: the same columns everywhere, each",
        ),
        (FKKMeans(2), [TOP, BOTTOM.assign(e=1.0)], "shards[1] has a column 'e', which shards[0] has not; allowed: the"),
        (
            FKKMeans(2),
            [TOP[["a", "a", "b"]], BOTTOM[["a", "b", "a"]]],
            "shards[0] has several columns 'a', so they cannot be put in order; allowed: the same columns everywhere",
        ),
        (
            FKKMeans(2),
            [TOP, BOTTOM.set_axis([3, 2, 1, 0], axis=1)],
            "shards[1] has no column 'a' (and 3 more), which shards[0] has; allowed: the same columns everywhere",
        ),
        (
            DKPCA(1),
            [LEFT, RIGHT.rename(index={"r3": "r33"})],
            "the index of shards[1] has 20 labels, that of shards[0] 20, and 19 are common to both; allowed: the same "
            f"labels in any order, or {ROWS}",
        ),
        (DKPCA(1), [LEFT, RIGHT[:19]], "the index of shards[1] has 19 labels, that of shards[0] 20, and 19 are common"),
        (
            DKPCA(1),
            [LEFT, RIGHT.reset_index(drop=True)],
            "the index of shards[1] has 20 labels, that of shards[0] 20, and 0 are common to both; allowed: the same",
        ),
        (
            DKPCA(1),
            [frame.rename(index={"r3": "r7"}) for frame in (LEFT, RIGHT)],
            "the index of shards[0] has the same label in rows 3 and 7 (counted from 0); allowed: each label once, or "
            f"{ROWS}",
        ),
        (
            DKPCA(1),
            [LEFT, RIGHT.to_numpy()],
            f"shards[1] has no index, but shards[0] has; allowed: an index of all tables, or {ROWS}",
        ),
        (DKPCA(1), [LEFT, RIGHT.assign(c="red")], "shards[1] holds values of type object; allowed: real numbers only"),
    ],
)
def test_what_does_not_belong_together_is_refused_in_one_sentence(strategy, shards, sentence):
    for use in (strategy.fit, strategy.central):
        if "object" in sentence and use == strategy.central:
            continue  # which checks no number
        with pytest.raises(InputError) as caught:
            use(shards)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_call_without_tables_says_so_as_any_call_does():
    strategy = DKPCA(1)
    model = strategy.fit([LEFT, RIGHT]).model
    for call in (strategy.central, lambda: strategy.judge(Result(model))):
        with pytest.raises(TypeError, match="missing a required argument: 'shards'"):
            call()


def test_new_rows_of_other_columns_are_refused():
    strategy = DKPCA(1, KERNEL)
    model = strategy.fit([LEFT, RIGHT]).model
    with pytest.raises(InputError, match=r"new_shards\[1\] has no column 'd', which shards\[1\] has"):
        strategy.transform(model, [LEFT, RIGHT], [LEFT, RIGHT.rename(columns={"d": "e"})])


# what has no names


def test_what_has_no_names_of_its_own_is_taken_by_position():
    numbered = [pd.DataFrame(frame.to_numpy()) for frame in (LEFT, RIGHT)]
    strategy = DKPCA(1, KERNEL)
    expected = bits(strategy.fit([LEFT, RIGHT]).model)
    for shards in (numbered, [numbered[0], RIGHT.to_numpy()], [LEFT.reset_index(drop=True), RIGHT.to_numpy()]):
        assert bits(strategy.fit(shards).model) == expected
    clusters = FKKMeans(2, n_features=10, iterations=2)
    expected = bits(clusters.fit([TOP, BOTTOM]).model)
    unnamed = pd.DataFrame(BOTTOM.to_numpy())
    for shards in ([TOP, BOTTOM.to_numpy()], [TOP, unnamed], [unnamed, TOP][::-1], [TOP.to_numpy(), BOTTOM]):
        assert bits(clusters.fit(shards).model) == expected
    # where those without come first, the others follow the first that has names
    named = [TOP[:3].to_numpy(), TOP[3:], BOTTOM.iloc[:, ::-1]]
    plain = [frame.to_numpy() for frame in (TOP[:3], TOP[3:], BOTTOM)]
    assert bits(clusters.fit(named).model) == bits(clusters.fit(plain).model)


def test_one_frame_alone_may_have_any_index():
    twice = FEW.rename(index={"r3": "r7"})
    assert bits(DKPCA(1, KERNEL).fit([twice]).model) == bits(DKPCA(1, KERNEL).fit([FEW.to_numpy()]).model)


class Bare:
    """A frame of another library, which has names of columns and no index."""

    def __init__(self, X, columns):
        self.X, self.columns = X, columns

    def to_numpy(self):
        return self.X


def test_a_frame_is_known_by_what_it_has():
    clusters = FKKMeans(2, n_features=10, iterations=2)
    bare = Bare(BOTTOM.to_numpy()[:, ::-1], ["d", "c", "b", "a"])
    assert bits(clusters.fit([TOP, bare]).model) == bits(clusters.fit([TOP, BOTTOM]).model)
    with pytest.raises(InputError, match=r"shards\[1\] has no index, but shards\[0\] has"):
        DKPCA(1).fit([LEFT, Bare(RIGHT.to_numpy(), ["c", "d"])])


# a column of ids


def with_ids(kind):
    """Frames of three clients' columns, by ids that stand in another order, or none, at each."""
    parts = divided(WHOLE, DKPCA(2))
    orders = [np.arange(len(X)), np.arange(len(X))[::-1], rng.permutation(len(X))]
    frames = [part.iloc[order].rename_axis("patient").reset_index() for part, order in zip(parts, orders, strict=True)]
    frames[1] = frames[1][[*frames[1].columns[1:], "patient"]]
    return [kind(frame) for frame in frames]


KINDS = [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas]


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "polars", "arrow"])
def test_rows_are_aligned_by_a_column_of_ids(kind):
    """Bit for bit as arrays in order; without a word about the ids, nothing is put in place of the other."""
    strategy = DKPCA(2, KERNEL, local_components=20)
    arrays = [np.ascontiguousarray(part) for part in divided(WHOLE, strategy)]
    expected = strategy.fit(arrays, reference=strategy.central(arrays))
    frames = with_ids(kind)
    result = strategy.fit(frames, id="patient", reference=strategy.central(strategy.tables(frames, id="patient")))
    assert bits(result.model) == bits(expected.model)
    assert result.metrics == expected.metrics
    with pytest.raises(InputError, match=r"shards\[0\] and shards\[1\] both have a column 'patient' of values that"):
        strategy.fit(frames)
    for number, column in enumerate(frames[1:], start=1):
        assert len(strategy.tables([column], id="patient")[0]) == 178, number


def test_an_index_of_that_name_will_do_and_rows_that_are_divided_only_lose_the_column():
    strategy = DKPCA(2, KERNEL, local_components=20)
    frames = with_ids(pd.DataFrame)
    expected = bits(strategy.fit(frames, id="patient").model)
    assert bits(strategy.fit([frames[0].set_index("patient"), *frames[1:]], id="patient").model) == expected
    assert bits(strategy.fit([frames[0], pl.from_pandas(frames[1]), frames[2]], id="patient").model) == expected
    clusters = FKKMeans(2, n_features=10, iterations=2)
    rows = [frame.rename_axis("patient").reset_index() for frame in (TOP, BOTTOM.iloc[:, ::-1])]
    assert bits(clusters.fit(rows, id="patient").model) == bits(clusters.fit([TOP, BOTTOM]).model)


def test_columns_of_arrow_tables_are_known_by_name():
    clusters = FKKMeans(2, n_features=10, iterations=2)
    turned = pa.Table.from_pandas(BOTTOM.iloc[:, ::-1], preserve_index=False)
    assert bits(clusters.fit([TOP, turned]).model) == bits(clusters.fit([TOP, BOTTOM]).model)
    arrow = [pa.Table.from_pandas(frame, preserve_index=False) for frame in (TOP, BOTTOM)]
    for prepare in (None, Prepare()):
        expected, result = (clusters.fit(frames, prepare=prepare) for frames in ([TOP, BOTTOM], arrow))
        assert bits(result.model) == bits(expected.model)
        assert result.columns == expected.columns == tuple(TOP.columns)


NUMBERED = [frame.reset_index(drop=True).rename_axis("row").reset_index() for frame in (LEFT, RIGHT)]


@pytest.mark.parametrize(
    ("shards", "id_", "sentence"),
    [
        ([LEFT, RIGHT], "patient", "id = 'patient', but shards[0] has no such column; there are: a, b"),
        ([NUMBERED[0], RIGHT.to_numpy()], "row", "id = 'row', but shards[1] is no frame; allowed: frames"),
        ([NUMBERED[0], NUMBERED[1][1:]], "row", "has 19 labels, that of shards[0] 20, and 19 are common to both"),
        ([NUMBERED[0], NUMBERED[1].replace({"row": {3: 7}})], "row", "has the same label in rows 3 and 7"),
        ([NUMBERED[0], NUMBERED[1].replace({"row": {3: np.nan}})], "row", "row 3 (counted from 0) has no id in 'row'"),
        ([NUMBERED[0], NUMBERED[1][::-1].reset_index(drop=True)], None, "both have a column 'row' of values that"),
    ],
)
def test_ids_that_do_not_fit_are_refused_in_one_sentence(shards, id_, sentence):
    with pytest.raises(InputError) as caught:
        DKPCA(1).fit(shards, id=id_)
    assert sentence in str(caught.value)

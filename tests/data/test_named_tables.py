"""Frames as shards: columns are known by their names and rows by their index, whatever order they stand in."""

import dataclasses
import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cases import CASES
from refusals import refusing
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, RBF, FKKMeans, InputError, Prepare, VFedPCA, strategies

X = StandardScaler().fit_transform(load_wine().data)
CLASSES = load_wine().target
WHOLE = pd.DataFrame(X, columns=load_wine().feature_names, index=[f"patient {row}" for row in range(len(X))])
rng = np.random.default_rng(0)
KERNEL = RBF(gamma=0.05)


@pytest.fixture(autouse=True)
def each_test_draws_the_same():
    """Whatever other tests this process has run."""
    rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


STRATEGIES = {type(case.strategy): case.strategy for case in CASES}
STRATEGIES |= {strategies.ADMMKPCA: strategies.ADMMKPCA(kernel=KERNEL, iterations=3, share_rows=True)}  # for three


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


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=lambda strategy: type(strategy).__name__)
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
    steps = strategy.judge_steps(result, reference=reference, shards=frames)
    assert steps == strategy.judge_steps(expected, arrays, same)
    assert strategy.judge(result, frames) == strategy.judge(expected, arrays)
    for call in (strategy.central, lambda: strategy.judge(result)):
        with pytest.raises(TypeError, match="missing a required argument: 'shards'"):
            call()
    models = [strategy.alone(shard) for shard in arrays]
    assert bits(strategy.alone(frames[0])) == bits(models[0])
    assert strategy.judge_alone(models, frames, reference) == strategy.judge_alone(models, arrays, same)


def test_rows_of_results_are_in_the_order_of_the_first_index_and_the_log_says_what_was_put_in_order(caplog):
    strategy = VFedPCA(2, merge="eigenvalue", rounds=2)
    frames = mixed(divided(WHOLE, strategy)[::-1], strategy)
    frames[0] = frames[0].iloc[order := rng.permutation(len(X))]
    with caplog.at_level(logging.INFO, logger="fedkernel.data.frame_alignment"):
        model = strategy.fit(frames).model
    expected = strategy.fit([frame.to_numpy() for frame in divided(WHOLE.iloc[order], strategy)[::-1]]).model
    np.testing.assert_array_equal(model.eigenvectors_, expected.eigenvectors_)
    assert caplog.messages == [
        f"the rows of shards[{n}] are put in the order of the index of shards[0], which results have too"
        for n in (1, 2)
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="fedkernel.data.frame_alignment"):
        FKKMeans(3, n_features=30, iterations=2).fit([WHOLE[:90], WHOLE[90:].iloc[:, ::-1]])
    assert caplog.messages == ["the columns of shards[1] are put in the order of shards[0]"]


def test_new_rows_are_in_the_order_of_the_trained_ones():
    strategy = DKPCA(2, KERNEL, local_components=20)
    shards, new = divided(WHOLE[:150], strategy), divided(WHOLE[150:], strategy)
    model = strategy.fit(shards).model
    expected = strategy.transform(model, shards, new)
    turned = [frame.iloc[:, ::-1] for frame in mixed(new, strategy)]
    np.testing.assert_array_equal(strategy.transform(model, mixed(shards, strategy), turned), expected)
    assert np.abs(strategy.transform(model, shards, [frame.to_numpy() for frame in turned]) - expected).max() > 0.1
    other = [*new[:2], new[2].rename(columns={"proline": "other"})]
    with pytest.raises(InputError, match=r"new_shards\[2\] has no column 'proline', which shards\[2\] has"):
        strategy.transform(model, shards, other)

    clusters = FKKMeans(3, n_features=30, iterations=5, solver="gram")
    shards, new = divided(WHOLE[:150], clusters), divided(WHOLE[150:], clusters)
    model = clusters.fit(shards).model
    expected = clusters.predict(model, shards, new)
    reversed_ = [frame.iloc[:, ::-1] for frame in new]  # none of the new ones has the order of the trained ones
    for labels, same in zip(clusters.predict(model, mixed(shards, clusters), reversed_), expected, strict=True):
        np.testing.assert_array_equal(labels, same)


FEW = pd.DataFrame(rng.standard_normal((20, 4)), columns=[*"abcd"], index=[f"r{n}" for n in range(20)])
LEFT, RIGHT = FEW[["a", "b"]], FEW[["c", "d"]]
TOP, BOTTOM = FEW[:10], FEW[10:]
ROWS = "frame.reset_index(drop=True) where rows belong together by their position"


@pytest.mark.parametrize(
    ("strategy", "shards", "sentence"),
    [
        (FKKMeans(2), [TOP, BOTTOM.drop(columns="b")], "shards[1] has no column 'b', which shards[0] has; allowed:"),
        (FKKMeans(2), [TOP, BOTTOM.rename(columns={"b": "x", "c": "y"})], "shards[1] has no column 'b' (and 1 more),"),
        (FKKMeans(2), [TOP, BOTTOM.assign(e=1.0)], "shards[1] has a column 'e', which shards[0] lacks; allowed: the"),
        (FKKMeans(2), [TOP[["a", "a", "b"]], BOTTOM[["a", "b", "a"]]], "shards[0] has several columns 'a' and"),
        (DKPCA(1), [LEFT, RIGHT.rename(index={"r3": "r33"})], f"labels in any order, or {ROWS}"),
        (DKPCA(1), [LEFT, RIGHT[:19]], "the index of shards[1] has 19 labels, that of shards[0] 20, and 19 are common"),
        (DKPCA(1), [LEFT, RIGHT.reset_index(drop=True)], "the index of shards[1] has 20 labels, that of shards[0] 20,"),
        (DKPCA(1), [frame.rename(index={"r3": "r7"}) for frame in (LEFT, RIGHT)], "a label twice, in rows 3 and 7 (c"),
        (DKPCA(1), [LEFT, RIGHT.to_numpy()], "shards[1] has no index, but shards[0] has; allowed: an index of all"),
        (DKPCA(1), [LEFT, RIGHT.assign(c="red")], "shards[1] holds values of type object; allowed: real numbers only"),
    ],
)
def test_what_does_not_belong_together_is_refused_in_one_sentence(strategy, shards, sentence):
    for use in (strategy.fit, strategy.central):
        if "object" in sentence and use == strategy.central:
            continue  # which checks no number
        with refusing(sentence):
            use(shards)


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
    # and one frame alone may have any index
    twice = FEW.rename(index={"r3": "r7"})
    assert bits(strategy.fit([twice]).model) == bits(strategy.fit([FEW.to_numpy()]).model)


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
    with pytest.raises(InputError, match=r"shards\[0\] and shards\[1\] both have a column 'patient' with unique"):
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
        ([NUMBERED[0], NUMBERED[1].replace({"row": {3: 7}})], "row", "has a label twice, in rows 3 and 7"),
        ([NUMBERED[0], NUMBERED[1].replace({"row": {3: np.nan}})], "row", "row 3 (counted from 0) has no id in 'row'"),
        ([NUMBERED[0], NUMBERED[1][::-1].reset_index(drop=True)], None, "both have a column 'row' with unique"),
    ],
)
def test_ids_that_do_not_fit_are_refused_in_one_sentence(shards, id_, sentence):
    with refusing(sentence):
        DKPCA(1).fit(shards, id=id_)

"""What is done to raw columns, once it is settled."""

import numpy as np
import pytest

from fedkernel import InputError, Prepare
from fedkernel.data import Preparation, RawTable


def raw() -> RawTable:
    sex = np.array(["f", None, "m"], dtype=object)
    return RawTable({"b": np.array([1.0, np.nan, 3.0]), "sex": sex, "a": np.array([1.0, 2.0, 4.0])}, "table")


def test_columns_are_found_by_name_filled_scaled_and_flagged_or_rows_with_an_empty_cell_dropped():
    prepare = Prepare(missing="mean", indicator=True, categories={"sex": ["f", "m"]}, log=["a"], clip={"b": [0, 2.5]})
    settled = Preparation(prepare, ("a", "sex", "b"), np.array([0.0, 2.0]), np.ones(2), np.array([2.0, 4.0]), ("b",))
    settled = Preparation.from_table(settled.to_table())
    X, kept = settled.apply(raw())
    assert settled.columns == ("a", "b", "b missing", "sex = f", "sex = m")
    a, b = (np.log([1.0, 2.0, 4.0]) - 1) / 2, (np.array([1.0, 2.0, 2.5]) - 1) / 4
    assert np.array_equal(X, np.column_stack([a, b, [0, 1, 0], [1, 0, 0], [0, 0, 1]]))
    assert np.array_equal(kept, [0, 1, 2])
    settled = Preparation(Prepare(missing="drop"), ("a", "b"), np.zeros(2), np.zeros(2), np.ones(2))
    X, kept = settled.apply(raw())
    assert np.array_equal(X, [[1, 1], [4, 3]])
    assert np.array_equal(kept, [0, 2])


@pytest.mark.parametrize(
    ("prepare", "names", "text"),
    [
        (Prepare(), ("a", "b"), r"row 1 \(counted from 0\), column 'b' holds no value"),
        (Prepare(missing="mean"), ("a", "sex"), "column 'sex' holds text"),
        (Prepare(missing="mean"), ("a", "age"), "no column 'age'; there are: b, sex, a"),
        (Prepare(missing="mean", categories={"sex": ["m", "w"]}), ("sex",), "row 0 .* has a level"),
        (Prepare(missing="mean", log=["c"]), ("a",), r"prepare.log names 'c', which is no column"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(prepare, names, text):
    zeros = np.zeros(len(prepare.numeric_names(names)))
    with pytest.raises(InputError, match=text):
        Preparation(prepare, names, zeros, zeros, zeros + 1).apply(raw())


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"scale": "z"}, "scale = 'z'"),
        ({"clip": {"a": [2, 1]}}, r"clip = \[2, 1\] of column 'a'"),
        ({"categories": {"sex": ["f", "f"]}}, "has a level twice"),
        ({"categories": {"sex": ["f", "m"]}, "log": ["sex"]}, "is a category"),
        ({"categories": {"sex": ["f", "m"]}, "scale": {"sex": [0, 1]}}, "is a category"),
        ({"scale": {"a": [1, 0]}}, r"scale = \[1, 0\] of column 'a'; allowed: a centre, and a unit above 0"),
        ({"scale": {"a": [-1e101, 1]}}, r"scale = \[-1e\+101, 1\] of column 'a'; allowed"),
        ({"scale": "sigma"}, "scale = 'sigma': input should be a table or input should be 'standard', 'minmax'"),
        ({"missing": "center"}, 'missing = "center", but scale = "standard"; allowed: a table'),
        ({"indicator": True}, "indicator = true is for"),
    ],
)
def test_contradictions_are_refused(table, text):
    with pytest.raises(InputError, match=text):
        Prepare(**table)

"""npz files as data sets: found by name or path, and refused in one sentence when they hold no table."""

import zipfile

import numpy as np
import pytest
from refusals import refusing

from fedkernel.data import DataSpec, available, load
from fedkernel.ground import InputError

pytestmark = pytest.mark.usefixtures("folder")


def test_npz_files_by_stem_and_by_path_beside_bundled_names_and_keys_that_cannot_be_used(folder):
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(folder / "mine.npz", X=X, y=np.array([1, 2, 1]), features=np.array(["a", "b"]), other=np.zeros(9))
    for name in ("mine", "npz:mine", f"npz:{folder / 'mine.npz'}"):
        data = load(name)
        np.testing.assert_array_equal(data.X, X)
        assert data.X.dtype == np.float64
        np.testing.assert_array_equal(data.y, [1, 2, 1])
        assert data.columns == ("a", "b")
        assert data.source == str(folder / "mine.npz")
    np.savez(folder / "iris.npz", X=np.eye(2))
    assert load("iris").X.shape == (150, 4)
    np.testing.assert_array_equal(load("npz:iris").X, np.eye(2))
    np.savez(folder / "odd.npz", X=np.eye(2), features=np.array([{}, {}], dtype=object), notes=np.array([None]))
    assert load("odd").columns == ("x0", "x1")
    np.savez(folder / "few.npz", X=np.eye(2), features=np.array(["only one"]))
    assert load("few").columns == ("x0", "x1")
    X = np.ones((40, 2))
    X[39, 1] = np.nan
    np.savez(folder / "late.npz", X=X)
    with pytest.raises(InputError, match="row 39, column 1"):
        load(DataSpec("late", rows=3))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"Z": np.eye(2)}, "bad.npz holds Z; allowed: an array X"),
        ({"X": np.zeros(3)}, "bad.npz has shape (3,); allowed: (rows, columns)"),
        ({"X": np.zeros((0, 3))}, "has shape (0, 3); allowed: (rows, columns) with at least 1 x 1"),
        ({"X": np.array([["a", "b"]])}, "holds values of type <U1; allowed: real numbers only"),
        ({"X": np.array([[1j]])}, "holds values of type complex128"),
        ({"X": np.array([[None]], dtype=object)}, "bad.npz announces object (1, 1); allowed: numbers or text"),
        ({"X": np.array([[1, 2], [3, np.nan]])}, "bad.npz: the value in row 1, column 1 (counted from 0) is nan"),
        ({"X": np.array([[1, -np.inf]])}, "row 0, column 1 (counted from 0) is -inf; allowed: finite"),
        ({"X": np.eye(2), "y": np.zeros(3)}, "bad.npz has shape (3,); allowed: one label per row, (2,)"),
        ({"X": np.eye(2), "y": np.zeros((2, 1))}, "bad.npz has shape (2, 1); allowed: one label per row"),
    ],
)
def test_npz_files_that_hold_no_table(folder, arrays, text):
    np.savez(folder / "bad.npz", **arrays)
    with refusing(text):
        load("bad")


def test_npz_files_that_are_none(folder, monkeypatch):
    (folder / "text.npz").write_text("hello")
    np.savez(folder / "cut.npz", X=np.random.default_rng(0).random((50, 50)))
    whole = (folder / "cut.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[:200] + b"\0" * 500 + whole[700:])
    np.savez(folder / "twice.npz", X=np.eye(2))
    with zipfile.ZipFile(folder / "twice.npz", "a") as archive:
        archive.writestr("X", whole)
    for name, text in {
        "twice": "twice.npz names an array twice",
        "text": "text.npz is not an npz file",
        "cut": "cut.npz is damaged or is no npz file (BadZipFile)",
        "npz:absent.npz": "absent.npz is not a file",
        "npz:absent": f"there is no npz:absent ({folder} holds cut, text, twice)",
    }.items():
        with refusing(text):
            load(name)
    monkeypatch.delenv("FEDKERNEL_DATA")
    with pytest.raises(InputError, match="FEDKERNEL_DATA is not set"):
        load("npz:absent")


def test_a_folder_that_is_missing_is_named(folder, monkeypatch):
    monkeypatch.setenv("FEDKERNEL_DATA", str(folder / "missing"))
    assert load("iris").X.shape == (150, 4)
    for act in (lambda: load("lung5"), lambda: load("npz:lung5"), available):
        with pytest.raises(InputError, match=r"FEDKERNEL_DATA = .*missing is not a folder"):
            act()

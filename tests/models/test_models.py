"""Models: what is saved is what is loaded, anything else is refused by name, and projection agrees with embedding."""

import dataclasses
import json
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
from allocation import peak_of
from model_files import KERNELS, contents, refused

from fedkernel import RBF, DisKPCA, FKKMeans, KernelPCA, Linear, Prepare
from fedkernel.ground import InputError, short_repr
from fedkernel.ground.storage import FORMAT, FORMAT_VERSION
from fedkernel.models import Embedding, Model
from fedkernel.numerics import center_gram, leading_eigenpairs

ARRAYS = ("eigenvalues_", "eigenvectors_", "column_means_", "iterates_", "coordinates_")


def model_of(kernel=KERNELS[0], *, n=6, k=3, centred=True, iterates=True):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n, k)))[0]
    means, mean = (rng.standard_normal(n), float(rng.standard_normal())) if centred else (None, 0.0)
    steps = rng.standard_normal((4, n, k)) if iterates else None
    more = {"certificate_": 1 / 3, "coordinates_": rng.standard_normal((n, 2))} if iterates else {}
    return KernelPCA(np.array([3.0, 1 / 3, -1e-17]), np.asfortranarray(vectors), kernel, means, mean, steps, **more)


@pytest.fixture
def saved(tmp_path):
    return model_of().save(tmp_path / "model.npz")


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("iterates", [False, True])
def test_a_saved_model_is_loaded_bit_for_bit(tmp_path, kernel, centred, iterates):
    """By its name: numpy would append .npz to one without."""
    model = model_of(kernel, centred=centred, iterates=iterates)
    path = model.save(tmp_path / "new" / "folder" / "model")
    assert [path] == list((tmp_path / "new" / "folder").iterdir())
    for again in (KernelPCA.load(path), KernelPCA.load(str(path))):
        assert again.kernel == kernel
        assert type(again.kernel) is type(kernel)
        assert (again.mean_, again.certificate_) == (model.mean_, model.certificate_)
        for name in ARRAYS:
            sent, got = getattr(model, name), getattr(again, name)
            if sent is None:
                assert got is None
            else:
                assert (got.dtype, got.shape, got.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())


def test_a_file_cut_short_is_refused_and_a_changed_byte_is_or_changes_no_number(saved):
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), 29), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        assert "damaged" in refused(saved)
    whole = saved.read_bytes()
    expected, rng, caught = model_of(), np.random.default_rng(0), 0
    for place in range(0, len(whole), 3):
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(broken))
        try:
            again = KernelPCA.load(saved)
        except InputError:
            caught += 1
            continue
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(again, name), getattr(expected, name))
    assert caught > len(whole) / 6


def test_a_foreign_file_random_bytes_and_none(tmp_path):
    assert "there is no model file" in refused(tmp_path / "nowhere.npz")
    refused(tmp_path)
    path, rng = tmp_path / "other.npz", np.random.default_rng(0)
    for magic in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"\x80\x04"):
        for length in (0, 1, 20, 300):
            path.write_bytes(magic + rng.bytes(length))
            assert "damaged" in refused(path)
    np.savez(path, X=np.ones(3))
    assert "holds no fedkernel model" in refused(path)
    for header in ("no json", "[1]", "3", json.dumps({"format": "another"}), json.dumps({"format": "fedkernel-model"})):
        np.savez(path, header=np.array(header))
        assert "model" in refused(path)
    unnamed = {"format": FORMAT, "model": "KernelPCA", "version": FORMAT_VERSION, "arrays": [["eigenvalues_"]]}
    np.savez(path, header=np.array(json.dumps(unnamed)), eigenvalues_=np.ones(3))
    assert "its arrays do not fit together" in refused(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    refused(path)
    path.write_text("eigenvalues: 1, 2, 3")
    refused(path)


def test_what_unpacks_or_announces_to_be_more_than_it_may_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("fedkernel.ground.archives.UNPACKED_BYTES", 2**20)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, header=np.array("{}"), eigenvalues_=np.zeros(2**19))
    peak, text = peak_of(lambda: refused(path))
    assert "bomb.npz unpacks to 4,19" in text
    assert ": 1,048,576" in text
    assert peak < 2**20
    path = tmp_path / "header.npz"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert "announces float64 (1000000000000,), but has 0 bytes" in refused(path)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["header", "eigenvalues_"])
def test_a_pickle_inside_is_not_executed(saved, tmp_path, name):
    trap = tmp_path / "trapped"
    np.savez(saved, **{**contents(saved), name: np.array([Trap(trap)], dtype=object)})
    assert f"{name} in {saved} announces object (1,); allowed: numbers or text" in refused(saved)
    assert not trap.exists()
    with np.load(saved, allow_pickle=True) as file:
        assert file[name].dtype == object
    assert trap.exists(), "the trap would have worked"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "has model format version 2, but this version reads 1"),
        ({"version": None}, "has model format version None"),
        ({"model": "KernelKMeans"}, "holds a KernelKMeans model, not a KernelPCA model"),
        ({"kernel": {"type": "wave"}}, "damaged"),
        ({"kernel": {"type": "rbf", "gamma": -1.0}}, "damaged"),
        ({"kernel": None}, "damaged"),
        ({"mean": "much"}, "damaged"),
        ({"mean": float("nan")}, "damaged"),
        ({"certificate": float("nan")}, "damaged"),
    ],
)
def test_a_header_that_is_wrong(saved, change, sentence):
    arrays = contents(saved)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(saved, **arrays)
    assert sentence in refused(saved)


UNFIT = {
    "eigenvalues_": [np.ones(2), np.ones((3, 1)), np.array([np.nan, 1, 1]), np.ones(3, np.float32), np.array([*"abc"])],
    "eigenvectors_": [np.ones((6, 2)), np.ones(6), np.full((6, 3), np.inf), None],
    "column_means_": [np.ones(5), None],
    "iterates_": [np.ones((4, 6, 2)), np.ones((6, 3)), None],
    "coordinates_": [np.ones((5, 2))],
    "surplus": [np.ones(3)],
    "header": [None],
}


def test_an_array_that_the_header_names_and_no_model_has(saved):
    arrays = contents(saved) | {"surplus": np.ones(3)}
    header = json.loads(str(arrays["header"]))
    header["arrays"].append("surplus")
    np.savez(saved, **arrays | {"header": np.array(json.dumps(header))})
    assert "damaged" in refused(saved)


@pytest.mark.parametrize("change", [{name: array} for name, arrays in UNFIT.items() for array in arrays], ids=list)
def test_arrays_that_do_not_fit(saved, change):
    arrays = {name: array for name, array in (contents(saved) | change).items() if array is not None}
    np.savez(saved, **arrays)
    assert "damaged" in refused(saved)


def test_a_failing_write_leaves_the_old_file_and_nothing_beside_it(saved, monkeypatch):
    before = saved.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space left"):
        model_of(RBF(gamma=1.0)).save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("centred", [False, True])
def test_projecting_the_training_rows_gives_their_embedding(kernel, centred):
    X = np.random.default_rng(3).standard_normal((12, 5))
    K = kernel.gram(X)
    centred_K = K.copy()
    means, mean = center_gram(centred_K) if centred else (None, 0.0)
    pairs = leading_eigenpairs(centred_K, 4)
    model = KernelPCA(pairs.values, pairs.vectors, kernel, means, mean)
    assert model.n_components == 4
    before = K.copy()
    np.testing.assert_allclose(model.project(K), model.embedding(), atol=1e-10 * np.sqrt(pairs.values[0]))
    np.testing.assert_array_equal(K, before, err_msg="the caller's kernel is not changed")
    np.testing.assert_allclose(model.project(K[3:5]), model.embedding()[3:5], atol=1e-10 * np.sqrt(pairs.values[0]))


def test_components_without_a_positive_eigenvalue_are_zero():
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3)))[0]
    model = KernelPCA(np.array([2.0, 1e-17, -1.0]), vectors, Linear())
    projected = model.project(np.ones((2, 6)))
    assert np.isfinite(projected).all()
    assert not projected[:, 1:].any()
    assert projected[:, 0].any()
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.mean_ = 1.0


@pytest.mark.parametrize("shape", [(6,), (2, 5), (2, 3, 6)])
def test_a_kernel_of_another_shape_is_refused(shape):
    with pytest.raises(InputError, match=r"K_new has shape .*, but must be \(new rows, 6 training rows\)"):
        model_of().project(np.ones(shape))


def test_a_repr_names_class_kernel_and_shapes_in_a_line_or_two():
    """Whatever the arrays hold; what is at its default is left out, as is what says that no repr has it."""
    frames = [pd.DataFrame(np.random.default_rng(0).normal(size=(400, 40)), columns=[f"c{j}" for j in range(40)])] * 3
    prepared = FKKMeans(3, 3, kernel=RBF(gamma=0.125)).fit(frames, prepare=Prepare())
    landmarks = DisKPCA(2, RBF(gamma=0.125), n_adaptive=9, share_rows=True).fit(frames)
    for result in (prepared, landmarks):
        for value in (result, result.model, result.ledger, result.preparation, result.fitted):
            assert len(repr(value)) < 2000
            assert "array([" not in repr(value)
    assert repr(model_of(RBF(gamma=0.5), centred=False, iterates=False)) == (
        "KernelPCA(eigenvalues_=<array 3>, eigenvectors_=<array 6 x 3>, kernel=RBF(gamma=0.5))"
    )
    kinds = [kind for base in (Model, Embedding) for kind in base.__subclasses__() if "fedkernel" in kind.__module__]
    assert len(kinds) >= 6
    assert [kind for kind in kinds if kind.__repr__ is not short_repr] == []

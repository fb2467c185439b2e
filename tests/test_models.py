"""Models: what is saved is what is loaded, anything else is refused by name, and projection agrees with embedding."""

import dataclasses
import json
import os

import numpy as np
import pytest
from model_files import contents, refused
from scipy import sparse

from fedkernel import RBF, ArcCosine, KernelPCA, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.errors import InputError
from fedkernel.linalg import center_gram, leading_eigenpairs
from fedkernel.models import KernelKMeans, LandmarkPCA, NodeComponents, PeerComponents, load_model
from fedkernel.sketch import SubspaceEmbedding
from fedkernel.storage import write_whole

KERNELS = [
    Linear(),
    RBF(),
    RBF(gamma=0.1),
    RBF(sigma=0.3),
    Laplacian(gamma=1 / 3),
    Polynomial(degree=2, gamma=0.7, coef0=0.1),
    Sigmoid(gamma=1e-3, coef0=-0.5),
    ArcCosine(2),
]
ARRAYS = ("eigenvalues_", "eigenvectors_", "column_means_", "iterates_")


def model_of(kernel=KERNELS[0], *, n=6, k=3, centred=True, iterates=True):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n, k)))[0]
    means, mean = (rng.standard_normal(n), float(rng.standard_normal())) if centred else (None, 0.0)
    steps = rng.standard_normal((4, n, k)) if iterates else None
    return KernelPCA(np.array([3.0, 1 / 3, -1e-17]), np.asfortranarray(vectors), kernel, means, mean, steps)


@pytest.fixture
def saved(tmp_path):
    return model_of().save(tmp_path / "model.npz")


# Round trip


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("iterates", [False, True])
def test_a_saved_model_is_loaded_bit_for_bit(tmp_path, kernel, centred, iterates):
    model = model_of(kernel, centred=centred, iterates=iterates)
    path = model.save(tmp_path / "new" / "folder" / "model.npz")
    assert path == tmp_path / "new" / "folder" / "model.npz"
    for again in (KernelPCA.load(path), KernelPCA.load(str(path))):
        assert again.kernel == kernel
        assert type(again.kernel) is type(kernel)
        assert again.mean_ == model.mean_
        for name in ARRAYS:
            sent, got = getattr(model, name), getattr(again, name)
            if sent is None:
                assert got is None
            else:
                assert (got.dtype, got.shape, got.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())


def test_a_name_without_the_ending_stays_as_it_is(tmp_path):
    """Unlike numpy, which would append .npz, so that what was saved could not be loaded by its name."""
    path = model_of().save(tmp_path / "model")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    KernelPCA.load(path)


# Files that are no such model


def test_a_missing_file_and_a_folder(tmp_path):
    assert "there is no model file" in refused(tmp_path / "nowhere.npz")
    refused(tmp_path)


def test_a_file_that_was_cut_short(saved):
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), 29), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        assert "damaged" in refused(saved)


def test_random_bytes_whatever_they_begin_with(tmp_path):
    path, rng = tmp_path / "model.npz", np.random.default_rng(0)
    for magic in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"\x80\x04"):
        for length in (0, 1, 20, 300):
            path.write_bytes(magic + rng.bytes(length))
            assert "damaged" in refused(path)


def test_a_changed_byte_is_refused_or_changes_no_number(saved):
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


def test_a_foreign_file(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, X=np.ones(3))
    assert "is no fedkernel model" in refused(path)
    for header in ("no json", "[1]", "3", json.dumps({"format": "another"}), json.dumps({"format": "fedkernel-model"})):
        np.savez(path, header=np.array(header))
        assert "model" in refused(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    refused(path)
    path.write_text("eigenvalues: 1, 2, 3")
    refused(path)


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
    assert "damaged" in refused(saved)
    assert not trap.exists()
    with np.load(saved, allow_pickle=True) as file:
        assert file[name].dtype == object
    assert trap.exists(), "the trap would have worked"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "has model format version 2, but this version reads 1"),
        ({"version": None}, "has model format version None"),
        ({"model": "KernelKMeans"}, "holds a KernelKMeans model, not a KernelPCA model"),
        ({"kernel": {"type": "wave"}}, "damaged"),
        ({"kernel": {"type": "rbf", "gamma": -1.0}}, "damaged"),
        ({"kernel": None}, "damaged"),
        ({"mean": "much"}, "damaged"),
        ({"mean": float("nan")}, "damaged"),
    ],
)
def test_a_header_that_is_wrong(saved, change, told):
    arrays = contents(saved)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(saved, **arrays)
    assert told in refused(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"eigenvalues_": np.ones(2)},
        {"eigenvalues_": np.ones((3, 1))},
        {"eigenvalues_": np.array([np.nan, 1, 1])},
        {"eigenvalues_": np.ones(3, dtype=np.float32)},
        {"eigenvalues_": np.array(["a", "b", "c"])},
        {"eigenvectors_": np.ones((6, 2))},
        {"eigenvectors_": np.ones(6)},
        {"eigenvectors_": np.full((6, 3), np.inf)},
        {"column_means_": np.ones(5)},
        {"iterates_": np.ones((4, 6, 2))},
        {"iterates_": np.ones((6, 3))},
        {"surplus": np.ones(3)},
        {"eigenvectors_": None},
        {"column_means_": None},
        {"iterates_": None},
        {"header": None},
    ],
    ids=lambda change: f"{next(iter(change))}-{getattr(next(iter(change.values())), 'shape', None)}",
)
def test_arrays_that_do_not_fit(saved, change):
    arrays = {name: array for name, array in (contents(saved) | change).items() if array is not None}
    np.savez(saved, **arrays)
    assert "damaged" in refused(saved)


# Saving


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


def test_a_reader_never_meets_half_a_file(tmp_path):
    path, seen = tmp_path / "result.json", []

    def write(file):
        file.write(b"whole")
        file.flush()
        seen.append(path.exists())

    assert write_whole(path, write) == path
    assert seen == [False]
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


# Projection


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


@pytest.mark.parametrize("shape", [(6,), (2, 5), (2, 3, 6)])
def test_a_kernel_of_another_shape_is_refused(shape):
    with pytest.raises(InputError, match=r"K_new has shape .*, but must be \(new rows, 6 training rows\)"):
        model_of().project(np.ones(shape))


def test_a_model_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        model_of().mean_ = 1.0


# Components over landmarks


def landmark_model(kernel=KERNELS[2], form=np.asarray):
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((7, 5)) < 0.5, rng.standard_normal((7, 5)), 0.0)
    return LandmarkPCA(kernel, form(rows), rng.standard_normal((7, 3)), np.array([3.0, 1 / 3, 0.0]))


FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


@FORMS
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_saved_components_are_loaded_bit_for_bit(tmp_path, kernel, form):
    model = landmark_model(kernel, form)
    path = model.save(tmp_path / "model.npz")
    X = np.random.default_rng(2).standard_normal((4, 5))
    for again in (LandmarkPCA.load(path), load_model(path)):
        assert isinstance(again, LandmarkPCA)
        assert again.kernel == kernel
        assert type(again.landmarks_) is type(model.landmarks_)
        assert abs(again.landmarks_ - model.landmarks_).sum() == 0
        for name in ("coefficients_", "eigenvalues_"):
            assert getattr(again, name).tobytes() == getattr(model, name).tobytes()
        assert again.transform(X).tobytes() == model.transform(X).tobytes()


@FORMS
def test_damaged_components_are_refused(tmp_path, form):
    path = landmark_model(form=form).save(tmp_path / "model.npz")
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert "damaged" in refused(path, LandmarkPCA.load)
    expected, rng, caught = landmark_model(form=form), np.random.default_rng(0), 0
    for place in range(0, len(whole), 5):
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(broken))
        try:
            again = LandmarkPCA.load(path)
        except InputError:
            caught += 1
            continue
        assert abs(again.landmarks_ - expected.landmarks_).sum() == 0
        np.testing.assert_array_equal(again.coefficients_, expected.coefficients_)
    assert caught > len(whole) / 10


CSR_STARTS = "landmarks.starts"


@pytest.mark.parametrize(
    ("form", "change"),
    [
        (np.asarray, {"coefficients": np.ones((6, 3))}),
        (np.asarray, {"coefficients": np.ones(7)}),
        (np.asarray, {"coefficients": np.full((7, 3), np.nan)}),
        (np.asarray, {"coefficients": None}),
        (np.asarray, {"eigenvalues_": np.ones(2)}),
        (np.asarray, {"eigenvalues_": np.ones((3, 1))}),
        (np.asarray, {"eigenvalues_": None}),
        (np.asarray, {"landmarks.dense": np.ones((7, 4))}),
        (np.asarray, {"landmarks.dense": np.ones((6, 5))}),
        (np.asarray, {"landmarks.dense": np.ones((7, 5), np.float32)}),
        (np.asarray, {"landmarks.dense": None}),
        (np.asarray, {"landmarks.values": np.ones(3)}),
        (np.asarray, {"surplus": np.ones(3)}),
        (sparse.csr_array, {"landmarks.dense": np.ones((7, 5))}),
        (sparse.csr_array, {"landmarks.values": np.ones(3)}),
        (sparse.csr_array, {"landmarks.values": None}),
        (sparse.csr_array, {"landmarks.indices": np.full(15, 5, np.int32)}),
        (sparse.csr_array, {CSR_STARTS: np.arange(7, dtype=np.int32)}),
        (sparse.csr_array, {CSR_STARTS: np.arange(8, dtype=np.float64)}),
        (sparse.csr_array, {CSR_STARTS: np.empty(0, np.int32)}),
        (sparse.csr_array, {CSR_STARTS: None}),
    ],
    ids=lambda one: "-".join(map(str, one)) if isinstance(one, dict) else one.__name__,
)
def test_components_that_do_not_fit(tmp_path, form, change):
    path = landmark_model(form=form).save(tmp_path / "model.npz")
    arrays = {name: array for name, array in (contents(path) | change).items() if array is not None}
    header = json.loads(str(arrays["header"]))
    header["arrays"] = [name for name in arrays if name != "header"]  # what the names alone would tell
    np.savez(path, **arrays | {"header": np.array(json.dumps(header))})
    assert "damaged" in refused(path, LandmarkPCA.load)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kernel": {"type": "wave"}}, "damaged"),
        ({"kernel": None}, "damaged"),
        ({"columns": 4}, "damaged"),
        ({"columns": "5"}, "damaged"),
        ({"columns": 0}, "damaged"),
        ({"model": "KernelPCA"}, "holds a KernelPCA model, not a LandmarkPCA model"),
    ],
)
def test_a_header_of_components_that_is_wrong(tmp_path, change, told):
    path = landmark_model().save(tmp_path / "model.npz")
    arrays = contents(path)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(path, **arrays)
    assert told in refused(path, LandmarkPCA.load)


@FORMS
def test_clusters_over_landmarks_are_loaded(tmp_path, form):
    model = KernelKMeans(np.eye(2, 3), landmark_model(form=form).embedding, np.ones(3))
    again = load_model(model.save(tmp_path / "model.npz"))
    X = np.random.default_rng(2).standard_normal((20, 5))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.transform(X).tobytes() == model.transform(X).tobytes()


@FORMS
def test_components_take_tables_of_all_kinds(tmp_path, form):
    """Coordinates are k(X, Y) C, and what is captured their squares."""
    model = landmark_model(form=form)
    X = np.random.default_rng(2).standard_normal((9, 5))
    H = model.kernel.gram(X, model.landmarks_) @ model.coefficients_
    np.save(tmp_path / "X.npy", X)
    for table in (X, X.tolist(), sparse.csr_array(X), tmp_path / "X.npy"):
        np.testing.assert_allclose(model.transform(table), H, atol=1e-12)
        np.testing.assert_allclose(model.captured(table), (9, np.square(H).sum()), rtol=1e-12)
    expected = model.coefficients_.T @ model.kernel.gram(model.landmarks_) @ model.coefficients_
    np.testing.assert_allclose(model.inner_products(model), expected, atol=1e-12)
    for take in (model.transform, model.captured):
        with pytest.raises(InputError, match="X has 4 columns, but the model was made for 5"):
            take(X[:, 1:])


def test_landmarks_and_coefficients_must_have_the_same_rows():
    with pytest.raises(InputError, match=r"landmarks of shape \(7, 5\) and coefficients of shape \(6, 3\)"):
        _ = dataclasses.replace(landmark_model(), coefficients_=np.ones((6, 3))).embedding


# Components of peers: what the coordinator knows of them, and what a node keeps


def peer_model(kernel=KERNELS[2]):
    return PeerComponents(kernel, 2, 1 / 3, np.array([[2.0, 1 / 3, -1.0], [1.0, 0.5, 0.5]]), np.array([0.0, 7.0]))


def node_model(kernel=KERNELS[2], **fields):
    rng = np.random.default_rng(1)
    return NodeComponents(kernel, rng.standard_normal((7, 5)), rng.standard_normal((7, 2)), **fields)


FEATURES = SubspaceEmbedding(RBF(gamma=0.3), None, 20, 5)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_saved_components_of_peers_are_loaded_bit_for_bit(tmp_path, kernel):
    model = peer_model(kernel)
    again = load_model(model.save(tmp_path / "model.npz"))
    assert (again.kernel, again.n_components, again.rho_) == (kernel, 2, 1 / 3)
    assert again.lagrangian_.tobytes() == model.lagrangian_.tobytes()
    assert again.without_multipliers_.tobytes() == model.without_multipliers_.tobytes()
    bare = PeerComponents(kernel, 3)
    assert PeerComponents.load(bare.save(tmp_path / "bare.npz")) == bare


@pytest.mark.parametrize("fields", [{}, {"center": False}, {"kernel": RBF(gamma=0.3), "features": FEATURES}])
def test_saved_components_of_a_node_are_loaded_bit_for_bit(tmp_path, fields):
    model, X = node_model(**fields), np.random.default_rng(2).standard_normal((4, 5))
    again = load_model(model.save(tmp_path / "model.npz"))
    assert (again.kernel, again.center, again.features) == (model.kernel, model.center, model.features)
    assert again.transform(X).tobytes() == model.transform(X).tobytes()


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (peer_model, {"lagrangian_": np.ones((3, 3))}),
        (peer_model, {"without_multipliers_": np.ones(3)}),
        (peer_model, {"without_multipliers_": np.ones((2, 1))}),
        (peer_model, {"surplus": np.ones(3)}),
        (node_model, {"alpha_": np.ones((6, 2))}),
        (node_model, {"alpha_": np.ones(7)}),
        (node_model, {"rows_": np.ones((6, 5))}),
        (node_model, {"rows_": np.ones(7)}),
        (node_model, {"rows_": None}),
        (node_model, {"surplus": np.ones(3)}),
    ],
)
def test_arrays_of_peers_that_do_not_fit(tmp_path, model, change):
    path = model().save(tmp_path / "model.npz")
    arrays = {name: array for name, array in (contents(path) | change).items() if array is not None}
    header = json.loads(str(arrays["header"]))
    header["arrays"] = [name for name in arrays if name != "header"]
    np.savez(path, **arrays | {"header": np.array(json.dumps(header))})
    assert "damaged" in refused(path, type(model()).load)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (peer_model, {"kernel": {"type": "wave"}}),
        (peer_model, {"components": 0}),
        (peer_model, {"components": "many"}),
        (peer_model, {"rho": "large"}),
        (node_model, {"center": "no"}),
        (node_model, {"features": {"kernel": {"type": "rbf"}}}),
        (node_model, {"kernel": None}),
    ],
)
def test_a_header_of_peers_that_is_wrong(tmp_path, model, change):
    path = model().save(tmp_path / "model.npz")
    arrays = contents(path)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(path, **arrays)
    assert "damaged" in refused(path, type(model()).load)

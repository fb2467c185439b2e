"""Models: what is saved is what is loaded, anything else is refused by name, and projection agrees with embedding."""

import dataclasses
import json
import os

import numpy as np
import pytest

from fedkernel import RBF, KernelPCA, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.embeddings import FeatureChain, Landmarks
from fedkernel.errors import InputError
from fedkernel.linalg import center_gram, leading_eigenpairs
from fedkernel.models import MODELS, KernelKMeans, load_model
from fedkernel.sketch import RandomFeatures
from fedkernel.storage import write_whole

KERNELS = [
    Linear(),
    RBF(),
    RBF(gamma=0.1),
    RBF(sigma=0.3),
    Laplacian(gamma=1 / 3),
    Polynomial(degree=2, gamma=0.7, coef0=0.1),
    Sigmoid(gamma=1e-3, coef0=-0.5),
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


def contents(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def refused(path, load=KernelPCA.load):
    """The text of the InputError: one line that names the path."""
    with pytest.raises(InputError) as caught:
        load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


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


# Kernel k-means


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def chain_of(steps, form="pairs", kernel=KERNELS[2]):
    features, before = RandomFeatures(kernel, 8, form, seed=3), [0, *[5] * steps]
    # Arrays of all layouts: what an iteration leaves is often a part of a larger one.
    maps = [
        rows(8 + before[t], 7, seed=t)[:, :5] if t % 2 else np.asfortranarray(rows(8 + before[t], 5, seed=t))
        for t in range(steps)
    ]
    return FeatureChain(features, 3, tuple(maps), tuple(rows(9, 1, seed=t)[:4, 0] for t in range(steps)))


EMBEDDINGS = {
    "features": chain_of(3),
    "cosines": chain_of(1, "cosine", Laplacian(gamma=1 / 3)),
    "no steps": chain_of(0),
    "landmarks": Landmarks(RBF(gamma=0.3), rows(11, 3), np.asfortranarray(rows(11, 4, seed=1))),
    "landmarks, no gamma": Landmarks(Laplacian(), rows(5, 6)[:, ::2], rows(5, 1, seed=1)),
    "landmarks, polynomial": Landmarks(Polynomial(degree=2, gamma=0.7, coef0=0.1), rows(5, 3), rows(5, 2, seed=1)),
}
every_embedding = pytest.mark.parametrize("embedding", EMBEDDINGS.values(), ids=EMBEDDINGS)


def clusters_of(embedding, *, values=True, training=True):
    s = embedding.width
    return KernelKMeans(
        rows(4, s, seed=2),
        embedding,
        -np.sort(-np.abs(rows(s, 1, seed=3)[:, 0])) if values else None,
        rows(20, s, seed=4) if training else None,
    )


@pytest.fixture(params=["features", "landmarks"])
def clusters(request, tmp_path):
    """A saved model and its path."""
    model = clusters_of(EMBEDDINGS[request.param])
    return model, model.save(tmp_path / "clusters.npz")


def bits(array):
    return None if array is None else (array.dtype, array.shape, array.tobytes())


@every_embedding
@pytest.mark.parametrize(("values", "training"), [(False, False), (True, False), (True, True)])
def test_saved_clusters_are_loaded_bit_for_bit(tmp_path, embedding, values, training):
    model = clusters_of(embedding, values=values, training=training)
    path = model.save(tmp_path / "model.npz")
    X = rows(30, 3, seed=5)
    for again in (KernelKMeans.load(path), KernelKMeans.load(str(path)), load_model(path)):
        assert type(again) is KernelKMeans
        assert type(again.embedding) is type(embedding)
        for name in ("centers_", "eigenvalues_", "training_"):
            assert bits(getattr(again, name)) == bits(getattr(model, name))
        (fields, arrays), (sent, sent_arrays) = again.embedding.parts(), embedding.parts()
        assert fields == sent
        assert {name: bits(array) for name, array in arrays.items()} == {
            name: bits(array) for name, array in sent_arrays.items()
        }
        assert bits(again.transform(X)) == bits(model.transform(X))
        assert bits(again.predict(X)) == bits(model.predict(X))


@every_embedding
def test_labels_are_the_nearest_centres(embedding):
    model, X = clusters_of(embedding), rows(50, 3, seed=5)
    H = model.transform(X)
    distances = np.array([[sum((h - c) ** 2) for c in model.centers_] for h in H])
    assert np.array_equal(model.predict(X), distances.argmin(axis=1))
    assert model.predict(X).dtype == np.int64
    with pytest.raises(InputError, match="X has 2 columns, but the model was made for 3"):
        model.predict(X[:, :2])


def test_a_file_becomes_the_model_that_it_names(tmp_path, saved):
    assert list(MODELS) == ["KernelPCA", "KernelKMeans"]
    assert type(load_model(saved)) is KernelPCA
    assert bits(load_model(str(saved)).eigenvectors_) == bits(model_of().eigenvectors_)
    clusters = clusters_of(EMBEDDINGS["features"]).save(tmp_path / "clusters.npz")
    assert type(load_model(clusters)) is KernelKMeans
    assert refused(clusters) == f"{clusters} holds a KernelKMeans model, not a KernelPCA model"
    told = refused(saved, KernelKMeans.load)
    assert told == f"{saved} holds a KernelPCA model, not a KernelKMeans model"


def test_a_model_of_another_name_is_refused(saved):
    arrays = contents(saved)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | {"model": "KernelSVM"}))
    np.savez(saved, **arrays)
    told = refused(saved, load_model)
    assert told == f"{saved} holds a KernelSVM model, but this version knows KernelPCA, KernelKMeans"
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | {"model": ["KernelPCA"]}))
    np.savez(saved, **arrays)
    assert "holds no fedkernel model" in refused(saved, load_model)


def test_no_file_is_no_model_of_any_kind(tmp_path):
    path = tmp_path / "nowhere.npz"
    for load in (load_model, KernelKMeans.load):
        assert refused(path, load) == f"there is no model file {path}"
    path.write_bytes(b"PK\x03\x04" + np.random.default_rng(0).bytes(200))
    for load in (load_model, KernelKMeans.load):
        assert "damaged" in refused(path, load)


def test_clusters_of_which_an_array_is_missing_or_not_finite_are_refused(clusters):
    _, path = clusters
    whole = contents(path)
    assert len(whole) >= 6
    for name in whole:
        np.savez(path, **{key: array for key, array in whole.items() if key != name})
        assert "damaged" in refused(path, KernelKMeans.load)
        assert "damaged" in refused(path, load_model)
        if name != "header":
            for bad in (np.nan, np.inf):
                broken = whole[name].copy()
                broken.flat[-1] = bad
                np.savez(path, **{**whole, name: broken})
                assert "damaged" in refused(path, KernelKMeans.load)
            np.savez(path, **{**whole, name: whole[name].astype(np.float32)})
            assert "damaged" in refused(path, KernelKMeans.load)
    np.savez(path, **whole)
    KernelKMeans.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"centers_": np.ones((4, 3))},
        {"centers_": np.ones(4)},
        {"centers_": np.ones((0, 4))},
        {"eigenvalues_": np.ones(3)},
        {"eigenvalues_": np.ones((4, 1))},
        {"training_": np.ones((20, 5))},
        {"training_": np.ones(4)},
        {"training_": np.ones((20, 4, 1))},
        {"embedding.map_1": np.ones((8, 6)), "embedding.landmarks": np.ones((10, 3))},
        {"embedding.map_1": np.ones((8, 3)), "embedding.landmarks": np.ones(11)},
        {"embedding.map_3": np.ones((12, 5)), "embedding.coefficients": np.ones((10, 4))},
        {"embedding.map_3": np.ones(13), "embedding.coefficients": np.ones(11)},
        {"embedding.finish_3": np.ones(3), "embedding.coefficients": np.ones((11, 5))},
        {"embedding.finish_3": np.ones((4, 1)), "embedding.coefficients": np.ones((11, 4, 1))},
    ],
    ids=lambda change: "-".join(f"{name} {array.shape}" for name, array in change.items()),
)
def test_arrays_of_clusters_that_do_not_fit_are_refused(clusters, change):
    _, path = clusters
    whole = contents(path)
    np.savez(path, **whole | {name: array for name, array in change.items() if name in whole})
    assert "damaged" in refused(path, KernelKMeans.load)
    assert "damaged" in refused(path, load_model)


def test_clusters_with_an_array_too_many_are_refused(clusters):
    _, path = clusters
    whole = contents(path)
    for name in ("surplus", "embedding.surplus", "embedding.map_4", "iterates_"):
        np.savez(path, **whole, **{name: np.ones(3)})
        assert "damaged" in refused(path, KernelKMeans.load)


GOOD_FEATURES = {"kernel": {"type": "rbf", "gamma": 0.1}, "n_features": 8, "form": "pairs", "seed": 3}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("features", None),
        ("features", "features"),
        ("features", ["features"]),
        ("features", {"kind": "nystroem"}),
        ("features", {"kind": ["features"]}),
        ("features", {"kind": None}),
        ("features", {"kind": "landmarks"}),
        ("features", {"features": None}),
        ("features", {"features": GOOD_FEATURES | {"n_features": 6}}),
        ("features", {"features": GOOD_FEATURES | {"n_features": "eight"}}),
        ("features", {"features": GOOD_FEATURES | {"form": "sines"}}),
        ("features", {"features": GOOD_FEATURES | {"kernel": {"type": "linear"}}}),
        ("features", {"features": GOOD_FEATURES | {"kernel": {"type": "rbf", "gamma": None}}}),
        ("features", {"features": GOOD_FEATURES | {"draws": 2}}),
        ("features", {"columns": "three"}),
        ("features", {"columns": None}),
        ("features", {"columns": [3]}),
        ("features", {"columns": 2.5}),
        ("features", {"columns": 0}),
        ("features", {"columns": -3}),
        ("features", {"steps": None}),
        ("features", {"steps": "all"}),
        ("features", {"steps": 4}),
        ("features", {"steps": 2}),  # the third map would be forgotten
        ("features", {"steps": 3.5}),
        ("features", {"steps": 0}),
        ("features", {"steps": -1}),
        ("landmarks", {"kind": "features"}),
        ("landmarks", {"kernel": None}),
        ("landmarks", {"kernel": "rbf"}),
        ("landmarks", {"kernel": {"type": "wave"}}),
        ("landmarks", {"kernel": {"type": "rbf", "gamma": -1.0}}),
        ("landmarks", {"kernel": {"type": "rbf", "gamma": "wide"}}),
    ],
    ids=str,
)
def test_a_header_of_clusters_that_is_wrong_is_refused(tmp_path, kind, change):
    path = clusters_of(EMBEDDINGS[kind]).save(tmp_path / "model.npz")
    arrays = contents(path)
    header = json.loads(str(arrays["header"]))
    assert header["embedding"]["kind"] == kind
    for name in header["embedding"]:
        less = {key: value for key, value in header["embedding"].items() if key != name}
        np.savez(path, **{**arrays, "header": np.array(json.dumps(header | {"embedding": less}))})
        assert "damaged" in refused(path, KernelKMeans.load)
    told = header["embedding"] | change if isinstance(change, dict) else change
    np.savez(path, **{**arrays, "header": np.array(json.dumps(header | {"embedding": told}))})
    assert "damaged" in refused(path, KernelKMeans.load)
    assert "damaged" in refused(path, load_model)


def test_a_changed_byte_of_clusters_is_refused_or_changes_nothing(clusters):
    model, path = clusters
    whole, X = path.read_bytes(), rows(10, 3, seed=5)
    expected, rng, caught, tried = bits(model.transform(X)), np.random.default_rng(0), 0, 0
    for place in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(broken))
        tried += 1
        try:
            again = load_model(path)
        except InputError:
            caught += 1
            continue
        for name in ("centers_", "eigenvalues_", "training_"):
            assert bits(getattr(again, name)) == bits(getattr(model, name))
        assert bits(again.transform(X)) == expected
    assert caught > tried / 2

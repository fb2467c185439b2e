"""Components over landmarks and of peers: saved and loaded bit for bit, and refused by name when damaged."""

import dataclasses
import json

import numpy as np
import pytest
from model_files import KERNELS, contents, refused
from scipy import sparse

from fedkernel import RBF
from fedkernel.errors import InputError
from fedkernel.models.clusters import KernelKMeans
from fedkernel.models.components import LandmarkPCA, NodeComponents, PeerComponents
from fedkernel.models.files import load_model
from fedkernel.numerics.sketch import SubspaceEmbedding

# Components over landmarks


def landmark_model(kernel=KERNELS[2], form=np.asarray):
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((7, 5)) < 0.5, rng.standard_normal((7, 5)), 0.0)
    return LandmarkPCA(kernel, form(rows), rng.standard_normal((7, 3)), np.array([3.0, 1 / 3, 0.0]))


def csr_model():
    return landmark_model(form=sparse.csr_array)


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
    with pytest.raises(InputError, match=r"landmarks of shape \(7, 5\) and coefficients of shape \(6, 3\)"):
        _ = dataclasses.replace(model, coefficients_=np.ones((6, 3))).embedding
    for take in (model.transform, model.captured):
        with pytest.raises(InputError, match="X has 4 columns, but the model was made for 5"):
            take(X[:, 1:])


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


# Files that were damaged


@pytest.mark.parametrize(
    ("model", "change"),
    [
        *(
            (landmark_model, change)
            for change in (
                {"coefficients": np.ones((6, 3))},
                {"coefficients": np.ones(7)},
                {"coefficients": np.full((7, 3), np.nan)},
                {"coefficients": None},
                {"eigenvalues_": np.ones(2)},
                {"eigenvalues_": np.ones((3, 1))},
                {"eigenvalues_": None},
                {"landmarks.dense": np.ones((7, 4))},
                {"landmarks.dense": np.ones((6, 5))},
                {"landmarks.dense": np.ones((7, 5), np.float32)},
                {"landmarks.dense": None},
                {"landmarks.values": np.ones(3)},
                {"surplus": np.ones(3)},
            )
        ),
        *(
            (csr_model, change)
            for change in (
                {"landmarks.dense": np.ones((7, 5))},
                {"landmarks.values": np.ones(3)},
                {"landmarks.values": None},
                {"landmarks.indices": np.full(15, 5, np.int32)},
                {"landmarks.starts": np.arange(7, dtype=np.int32)},
                {"landmarks.starts": np.arange(8, dtype=np.float64)},
                {"landmarks.starts": np.empty(0, np.int32)},
                {"landmarks.starts": None},
            )
        ),
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
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else value.__name__,
)
def test_arrays_that_do_not_fit(tmp_path, model, change):
    path = model().save(tmp_path / "model.npz")
    arrays = {name: array for name, array in (contents(path) | change).items() if array is not None}
    header = json.loads(str(arrays["header"]))
    header["arrays"] = [name for name in arrays if name != "header"]  # what the names alone would tell
    np.savez(path, **arrays | {"header": np.array(json.dumps(header))})
    assert "damaged" in refused(path, type(model()).load)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (landmark_model, {"kernel": {"type": "wave"}}),
        (landmark_model, {"kernel": None}),
        (landmark_model, {"columns": 4}),
        (landmark_model, {"columns": "5"}),
        (landmark_model, {"columns": 0}),
        (landmark_model, {"model": "KernelPCA"}),
        (peer_model, {"kernel": {"type": "wave"}}),
        (peer_model, {"components": 0}),
        (peer_model, {"components": "many"}),
        (peer_model, {"rho": "large"}),
        (node_model, {"center": "no"}),
        (node_model, {"features": {"kernel": {"type": "rbf"}}}),
        (node_model, {"kernel": None}),
    ],
)
def test_a_header_that_is_wrong(tmp_path, model, change):
    path = model().save(tmp_path / "model.npz")
    arrays = contents(path)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(path, **arrays)
    sentence = "holds a KernelPCA model, not a LandmarkPCA model" if "model" in change else "damaged"
    assert sentence in refused(path, type(model()).load)

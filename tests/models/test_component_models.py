"""Components over landmarks and of peers, saved and loaded bit for bit; these and clusters refused when damaged."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from model_files import KERNELS, contents, refused
from scipy import sparse
from test_cluster_models import EMBEDDINGS, clusters_of

from fedkernel import RBF, InputError
from fedkernel.models import KernelKMeans, LandmarkPCA, NodeComponents, PeerComponents, load_model
from fedkernel.numerics import SubspaceEmbedding


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
    clusters = KernelKMeans(np.eye(2, 3), model.embedding, np.ones(3))
    again = load_model(clusters.save(tmp_path / "clusters.npz"))
    np.testing.assert_array_equal(again.predict(X), clusters.predict(X))
    assert again.transform(X).tobytes() == clusters.transform(X).tobytes()


def test_components_that_depend_on_each_other_are_made_orthonormal_and_others_left():
    """Or what they capture would be counted twice."""
    model = landmark_model()
    twice = dataclasses.replace(model, coefficients_=np.hstack([model.coefficients_, 2 * model.coefficients_]))
    once = twice.orthonormal()
    np.testing.assert_allclose(once.inner_products(once), np.eye(3), rtol=0, atol=1e-9)
    assert once.orthonormal() is once
    X = np.random.default_rng(2).standard_normal((20, 5))
    assert once.captured(X)[1] == pytest.approx(model.orthonormal().captured(X)[1], rel=1e-9)


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


DAMAGES = {
    "it is missing": lambda array: None,
    "another axis": lambda array: array[..., None],
    "a row fewer": lambda array: array[:-1],
    "a row more": lambda array: np.concatenate([array, array[-1:]]),
    "no rows": lambda array: array[:0],
    "single precision": lambda array: array.astype(np.float32),
    "text": lambda array: array.astype(str),
    "not finite": lambda array: np.full(array.shape, np.nan),
}
UNREAD = {"surplus": np.ones(3), "landmarks.values": np.ones(3), "landmarks.dense": np.ones((7, 5))}
UNREAD |= {"embedding.surplus": np.ones(3), "embedding.map_4": np.ones((13, 5))}
"""Arrays that a model of the other form may have, or none."""


MODELS = {
    "landmarks": landmark_model,
    "csr": lambda: landmark_model(form=sparse.csr_array),
    "peers": peer_model,
    "node": node_model,
    "node with features": lambda: node_model(RBF(gamma=0.3), features=FEATURES),
    "clusters of features": lambda: clusters_of(EMBEDDINGS["features"]),
    "clusters of landmarks": lambda: clusters_of(EMBEDDINGS["landmarks"]),
}
every_model = pytest.mark.parametrize("kind", MODELS)
OTHER_ROWS = ("a row fewer", "a row more", "no rows")
OF_PEERS = {(name, "it is missing") for name in ("lagrangian_", "without_multipliers_")}  # of no recorded run
OF_CLUSTERS = {
    *((name, "it is missing") for name in ("eigenvalues_", "training_")),
    *itertools.product(("training_", "embedding.finish_1", "embedding.finish_2"), OTHER_ROWS),
    *itertools.product(("centers_",), OTHER_ROWS[:2]),
}
UNSEEN = {"peers": OF_PEERS} | dict.fromkeys(("clusters of features", "clusters of landmarks"), OF_CLUSTERS)
"""Damages that leave what might be another model."""


@every_model
def test_arrays_that_do_not_fit(tmp_path, kind):
    model, unseen = MODELS[kind](), UNSEEN.get(kind, ())
    path = model.save(tmp_path / "model.npz")
    whole = contents(path)
    header, own = json.loads(str(whole["header"])), whole.keys() - {"header"}
    changes = [(name, how, damage(whole[name])) for name in own for how, damage in DAMAGES.items()]
    changes += [(name, "it is not read", array) for name, array in UNREAD.items() if name not in own]
    for name, how, damaged in changes:
        arrays = {key: array for key, array in (whole | {name: damaged}).items() if array is not None}
        header["arrays"] = [key for key in arrays if key != "header"]  # what the names alone would tell
        np.savez(path, **arrays | {"header": np.array(json.dumps(header))})
        if (name, how) in unseen:
            type(model).load(path)
        else:
            assert "damaged" in refused(path, type(model).load), (how, name)
            assert "damaged" in refused(path, load_model)


ALLOWED = {"rho": (None, 2.5, 4), "components": (4,), "features": (None,), "columns": (4,), "seed": ("missing", 0, 4)}
ALLOWED |= dict.fromkeys(("form", "frequencies"), ("missing",))
WRONG = ("missing", None, "x", -1, 0, 2.5, 4, [], {"type": "wave"})


@every_model
def test_a_header_that_is_wrong(tmp_path, kind):
    """In a field of its own; those of all models: test_models.py."""
    model = MODELS[kind]()
    path, load = model.save(tmp_path / "model.npz"), type(model).load
    whole = contents(path)
    header = json.loads(str(whole["header"]))

    def refusal():
        np.savez(path, **whole | {"header": np.array(json.dumps(header))})
        return refused(path, load)

    embedding = header.get("embedding", {})
    for table in (header, embedding, embedding.get("features", {})):
        for field, value in itertools.product(table.keys() - {"format", "version", "model", "arrays"}, WRONG):
            if value not in ALLOWED.get(field, ()):
                right = table.pop(field)
                if value != "missing":
                    table[field] = value
                assert "damaged" in refusal(), (field, value)
                table[field] = right
    header["model"] = "KernelPCA"
    assert f"holds a KernelPCA model, not a {type(model).__name__} model" in refusal()

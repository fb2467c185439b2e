"""Models of clusters: what is saved is what is loaded, anything else is refused by name, whatever the embedding."""

import json

import numpy as np
import pytest
from kernel_cases import rows
from model_files import contents, refused

from fedkernel import RBF, InputError, KernelPCA, Laplacian, Linear, Polynomial
from fedkernel.models import FeatureChain, KernelKMeans, load_model
from fedkernel.models.embedding_maps import Landmarks
from fedkernel.models.files import MODELS
from fedkernel.numerics import RandomFeatures

NARROW = RBF(gamma=0.1)
PCA = KernelPCA(np.array([2.0, 1.0]), np.eye(4, 2), Linear())


def chain_of(steps, form="pairs", kernel=NARROW):
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
    "landmarks, no gamma": Landmarks(Laplacian(width="columns"), rows(5, 6)[:, ::2], rows(5, 1, seed=1)),
    "landmarks, polynomial": Landmarks(Polynomial(degree=2, gamma=0.7, coef0=0.1), rows(5, 3), rows(5, 2, seed=1)),
}
every_embedding = pytest.mark.parametrize("embedding", EMBEDDINGS.values(), ids=EMBEDDINGS)


def clusters_of(embedding, *, values=True, training=True):
    s = embedding.width
    eigenvalues = -np.sort(-np.abs(rows(s, 1, seed=3)[:, 0])) if values else None
    return KernelKMeans(rows(4, s, seed=2), embedding, eigenvalues, rows(20, s, seed=4) if training else None)


def bits(array):
    return None if array is None else (array.dtype, array.shape, array.tobytes())


@every_embedding
@pytest.mark.parametrize(("values", "training"), [(False, False), (True, False), (True, True)])
def test_saved_clusters_are_loaded_bit_for_bit(tmp_path, embedding, values, training):
    model = clusters_of(embedding, values=values, training=training)
    path = model.save(tmp_path / "model.npz")
    X = rows(30, 3, seed=5)
    for again in (KernelKMeans.load(path), KernelKMeans.load(str(path)), load_model(tmp_path)):
        assert type(again) is KernelKMeans
        assert type(again.embedding) is type(embedding)
        for name in ("centers_", "eigenvalues_", "training_"):
            assert bits(getattr(again, name)) == bits(getattr(model, name))
        (fields, arrays), (sent, sent_arrays) = again.embedding.parts(), embedding.parts()
        assert fields == sent
        assert {key: bits(one) for key, one in arrays.items()} == {key: bits(one) for key, one in sent_arrays.items()}
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


def test_a_file_becomes_the_model_that_it_names_and_no_other(tmp_path):
    saved = PCA.save(tmp_path / "model.npz")
    assert {"KernelPCA", "LandmarkPCA", "KernelKMeans"} <= set(MODELS)
    assert type(load_model(saved)) is KernelPCA
    assert bits(load_model(str(saved)).eigenvectors_) == bits(PCA.eigenvectors_)
    clusters = clusters_of(EMBEDDINGS["features"]).save(tmp_path / "clusters.npz")
    assert type(load_model(clusters)) is KernelKMeans
    assert refused(clusters) == f"{clusters} holds a KernelKMeans model, not a KernelPCA model"
    assert refused(saved, KernelKMeans.load) == f"{saved} holds a KernelPCA model, not a KernelKMeans model"
    arrays = contents(saved)
    knows = f"{saved} holds a KernelSVM model, but this version knows {', '.join(MODELS)}"
    for model, text in (("KernelSVM", knows), (["KernelPCA"], "holds no fedkernel model")):
        header = json.loads(str(arrays["header"])) | {"model": model}
        np.savez(saved, **arrays | {"header": np.array(json.dumps(header))})
        assert text in refused(saved, load_model)

"""Model files, looked into and refused: what the tests of all models share."""

import numpy as np
import pytest

from fedkernel import RBF, ArcCosine, InputError, KernelPCA, Laplacian, Linear, Polynomial, Sigmoid

KERNELS = [
    Linear(),
    RBF(width="columns"),
    RBF(gamma=0.1),
    RBF(sigma=0.3),
    Laplacian(gamma=1 / 3),
    Polynomial(degree=2, gamma=0.7, coef0=0.1),
    Sigmoid(gamma=1e-3, coef0=-0.5),
    ArcCosine(2),
]


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

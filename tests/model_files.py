"""Model files, looked into and refused: what the tests of all models share."""

import numpy as np
import pytest

from fedkernel import KernelPCA
from fedkernel.errors import InputError


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

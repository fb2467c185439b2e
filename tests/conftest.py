"""What all tests share."""

import os

import pytest

# Two test processes on two cores: a second BLAS thread in each would only spin.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# Shared by several files, and they assert.
pytest.register_assert_rewrite("cases", "configs", "counting", "federation", "gossip", "model_files", "spectra")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Neither the real folder nor scikit-learn's cache has a say, except where a test asks for it."""
    monkeypatch.setenv("FEDKERNEL_DATA", str(tmp_path))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A folder with certificates for a server on this machine and three sites."""
    from federation import NAMES  # noqa: PLC0415 - after the environment is set

    from fedkernel.certificates import make_certificates  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder, ["127.0.0.1"], NAMES)
    return folder


@pytest.fixture
def place(tmp_path):
    """A folder with a configuration and three sites' files."""
    from federation import furnish  # noqa: PLC0415

    return furnish(tmp_path)

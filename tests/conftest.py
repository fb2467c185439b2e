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

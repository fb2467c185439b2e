"""What all tests share."""

import os

import pytest

# Two test processes on two cores: a second BLAS thread in each would only spin.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

pytest.register_assert_rewrite("cases", "model_files", "spectra")  # shared by several files, and they assert

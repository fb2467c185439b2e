"""Fit the pair of `my_lab`, in this folder, and hold it against NumPy. Run with ``python fit.py``."""

import numpy as np
from my_lab import ColumnMeans

ENGINES = ["local", "grpc"]

if __name__ == "__main__":  # engine grpc starts processes of its own
    rows = np.random.default_rng(0).standard_normal((60, 4))
    for engine in ENGINES:
        result = ColumnMeans().fit(np.split(rows, [10, 30]), engine=engine, seed=0)
        np.testing.assert_allclose(result.model, rows.mean(axis=0), rtol=1e-12)
        assert result.ledger.totals()["rounds"] == 1
        print(f"my_lab.ColumnMeans on {engine}: {result.model.round(3)}")

"""The small table that the tests of tables keep in every form."""

import numpy as np
import pyarrow as pa
from pyarrow import parquet

N, D, CHUNK = 23, 4, 5
X = np.random.default_rng(0).integers(-2, 3, size=(N, D)) / 4  # exact in float32; many zeros, for the sparse ones


def write_parquet(path, X, rows=CHUNK, **columns):
    columns = columns or {f"c{j}": X[:, j] for j in range(X.shape[1])}
    parquet.write_table(pa.table(columns), path, row_group_size=rows)
    return path


def chunk_of(number, X=X):
    return X[number * CHUNK : (number + 1) * CHUNK]


def spoilt(value, row, column):
    bad = X.copy()
    bad[row, column] = value
    return bad

"""Conversion of rows, dense or sparse, to plain arrays for messages, client memory and model files."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from fedkernel.ground import Rows

_TYPES: dict[str, npt.DTypeLike] = {"dense": np.float64, "values": np.float64, "indices": np.int32, "starts": np.int32}
ROW_ARRAYS = tuple(_TYPES)
"""Names of the arrays: the first for dense rows, the others for the parts of a CSR matrix."""


def rows_to_arrays(rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Return rows (n, d) as named arrays."""
    if not scipy.sparse.issparse(rows):
        return {"dense": np.ascontiguousarray(rows, dtype=np.float64)}
    return {
        "values": np.asarray(rows.data, dtype=np.float64),
        "indices": np.asarray(rows.indices, dtype=np.int32),
        "starts": np.asarray(rows.indptr, dtype=np.int32),
    }


def rows_from_arrays(arrays: Mapping[str, npt.NDArray[Any]], columns: int) -> Rows:
    """Rebuild rows from the arrays of `rows_to_arrays`. Raises ValueError unless these are all and fit `columns`."""
    if wrong_types := [name for name, array in arrays.items() if name in _TYPES and array.dtype != _TYPES[name]]:
        raise ValueError(f"{wrong_types[0]} must not be of type {arrays[wrong_types[0]].dtype}")
    if set(arrays) == {"dense"}:
        dense = arrays["dense"]
        if dense.ndim != 2 or dense.shape[1] != columns:
            raise ValueError(f"rows of shape {dense.shape} are not {columns} columns wide")
        return dense
    if set(arrays) != set(sparse := ROW_ARRAYS[1:]):
        raise ValueError(f"rows are either dense or have {', '.join(sparse)}, not {', '.join(arrays) or 'nothing'}")
    values, indices, starts = (arrays[name] for name in sparse)
    if starts.size == 0:
        raise ValueError("starts must have an entry more than there are rows")
    rows = scipy.sparse.csr_array((values, indices, starts), shape=(starts.size - 1, columns))
    rows.check_format(full_check=True)
    return rows

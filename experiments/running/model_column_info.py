"""Column names and scaling of named data sets, stored with a model so that it applies to files."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.running.planning import Planned
from fedkernel.data import GENERATED, DataSpec, Prepare, RawTable, load
from fedkernel.preparing import fitted
from fedkernel.run import Result

PER_COLUMN = {"standard": Prepare(scale="standard"), "minmax": Prepare(scale="minmax"), "center": Prepare(scale="none")}
"""`Prepare` equivalents of a data set's ``scale``, all rows being in one place."""


def with_column_info(result: Result[Any], run: Planned) -> Result[Any]:
    """Return a result with the data set's column names and scaling, where rows are divided.

    Unchanged if the run knows its columns, the set has no names for them, or each row is scaled by itself.
    """
    data = run.point.experiment.data
    if not isinstance(data, DataSpec) or run.strategy.partition != "horizontal" or result.columns:
        return result
    column_info = _column_info(data.drawn(run.seed))
    return replace(result, **column_info) if column_info else result


@lru_cache(maxsize=1)
def _column_info(data: DataSpec) -> dict[str, Any]:
    """Return the columns and, if it is known, the preparation of a data set; empty without names."""
    if data.name in GENERATED or data.scale == "unit-norm" or data.transposed:
        return {}
    table = load(replace(data, scale="none"))
    if table.columns == tuple(f"x{place}" for place in range(table.X.shape[1])):
        return {}
    if data.scale not in PER_COLUMN or not isinstance(table.X, np.ndarray):
        return {"columns": table.columns}
    preparation = fitted(PER_COLUMN[data.scale], RawTable.of_array(table.X, table.columns))
    if data.scale == "center":
        preparation = replace(preparation, center=table.X.mean(axis=0))
    return {"columns": table.columns, "preparation": preparation}

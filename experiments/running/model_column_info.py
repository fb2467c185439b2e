"""Column names and scaling of named data sets, stored with a model so that it applies to files."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from experiments.running.planning import Planned
from fedkernel.data import GENERATED, DataSpec, Preparation, Prepare, RawTable, load
from fedkernel.preparing import fitted
from fedkernel.run import Result

PER_COLUMN = {"standard": Prepare(scale="standard"), "minmax": Prepare(scale="minmax"), "center": Prepare(scale="none")}
"""`Prepare` equivalents of a data set's ``scale``, all rows being in one place."""


class _ColumnInfo(NamedTuple):
    columns: tuple[str, ...] = ()
    preparation: Preparation | None = None


def with_column_info(result: Result[Any], run: Planned) -> Result[Any]:
    """Return a result with the data set's column names and scaling, where rows are divided.

    Unchanged if the run knows its columns, the set has no names for them, or each row is scaled by itself.
    """
    data = run.point.experiment.data
    if not isinstance(data, DataSpec) or run.strategy.partition != "horizontal" or result.columns:
        return result
    column_info = _column_info(data.drawn(run.seed))
    return replace(result, **column_info._asdict()) if column_info.columns else result


@lru_cache(maxsize=1)
def _column_info(data: DataSpec) -> _ColumnInfo:
    if data.name in GENERATED or data.scale == "unit-norm" or data.transposed:
        return _ColumnInfo()
    table = load(replace(data, scale="none"))
    if table.columns == tuple(f"x{place}" for place in range(table.X.shape[1])):
        return _ColumnInfo()
    if data.scale not in PER_COLUMN or not isinstance(table.X, np.ndarray):
        return _ColumnInfo(table.columns)
    prepare = PER_COLUMN[data.scale]
    preparation = fitted(prepare, RawTable.of_array(table.X, table.columns))
    if data.scale == "center":
        preparation = replace(preparation, center=table.X.mean(axis=0))
    return _ColumnInfo(table.columns, preparation)

"""Additions to a finished run: a named data set's columns and scaling for the model, and a row picture."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedkernel.data import GENERATED, NO_LABEL, DataSpec, Prepare, RawTable, has_label, load
from fedkernel.experiments.results import RowPicture
from fedkernel.experiments.running.planning import Planned
from fedkernel.ground import AnyArray, stack_rows
from fedkernel.models import KernelKMeans, KernelPCA, LandmarkPCA
from fedkernel.preparing import fitted
from fedkernel.run import Result, rows_to_draw, two_coordinates

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
    """Return the column names and, if known, the preparation of a data set, or nothing if it has no names."""
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


def row_picture(run: Planned, model: Any, outputs: Mapping[int, Mapping[str, AnyArray]]) -> RowPicture | None:
    """Return a model's row coordinates for the report's picture, with the first seed, or None if none is drawn.

    An isolated baseline's `model` is client 0's, here with the rows of all clients; `outputs` are the simulated sites'.
    """
    experiment = run.point.experiment
    wanted = not run.point.values if experiment.report.rows is None else experiment.report.rows
    if not wanted or not run.shards or run.seed != experiment.seeds[0]:
        return None
    labels: AnyArray | None = None
    classes = run.all_classes
    if isinstance(model, KernelPCA):
        rows = len(coordinates := model.embedding())
        drawn = rows_to_draw(rows)
        coordinates = coordinates[drawn]
    elif isinstance(model, KernelKMeans | LandmarkPCA):
        rows = sum(shard.shape[0] for shard in run.shards)
        drawn = rows_to_draw(rows)
        coordinates = model.transform(stack_rows(list(run.shards))[drawn])
        if isinstance(model, KernelKMeans):
            labels = np.concatenate([model.predict(shard) for shard in run.shards])
    else:
        return None
    if (points := two_coordinates(coordinates, turn=isinstance(model, KernelKMeans))) is None:
        return None
    site_labels = [outputs[client]["labels"] for client in sorted(outputs) if "labels" in outputs[client]]
    if sum(map(len, site_labels)) == rows:
        labels = np.concatenate(site_labels)
    if labels is None and experiment.report.rows is None and classes is None:
        return None  # by default no picture of points in one colour
    picture = RowPicture(points)
    if classes is not None and len(classes) == rows:
        picture = replace(picture, classes=np.where(has_label(classes), classes.astype(str), NO_LABEL)[drawn])
    return picture if labels is None else replace(picture, clusters=labels[drawn], sizes=np.bincount(labels))

"""Two-dimensional row coordinates for the report's pictures, for runs whose tables are all on this machine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.results import RowPicture, rows_to_draw, two_coordinates
from experiments.running.planning import Planned
from fedkernel.data import NO_LABEL, has_label
from fedkernel.ground import AnyArray, stack_rows
from fedkernel.models import KernelKMeans, KernelPCA, LandmarkPCA


def row_picture(run: Planned, model: Any, outputs: Mapping[int, Mapping[str, AnyArray]]) -> RowPicture | None:
    """Return a model's row coordinates for the report, with the first seed; None if it draws none.

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

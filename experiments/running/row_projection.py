"""Where a run puts the rows, for the report's pictures: of runs whose rows are all here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.results import RowPicture, along_two, chosen_rows
from experiments.running.planning import Planned
from fedkernel.data import NO_LABEL, labelled
from fedkernel.ground import AnyArray, stack_rows
from fedkernel.models import KernelKMeans, KernelPCA, LandmarkPCA


def is_pictured(run: Planned) -> bool:
    """Tell whether a run's rows are to be drawn: as the report's options say, and of the first seed only."""
    experiment = run.point.experiment
    wanted = not run.point.values if experiment.report.rows is None else experiment.report.rows
    return wanted and bool(run.shards) and run.seed == experiment.seeds[0]


def row_picture(run: Planned, model: Any, outputs: Mapping[int, Mapping[str, AnyArray]]) -> RowPicture | None:
    """Return where a model puts the rows; None where it gives them fewer than two coordinates, or has none of them.

    Parameters
    ----------
    run : Planned
    model : Model
        Of an isolated baseline client 0's, which here gets all rows to place.
    outputs : mapping of int to mapping of str to ndarray
        What the simulated sites kept: their labels.
    """
    labels: AnyArray | None = None
    classes = run.all_classes
    if isinstance(model, KernelPCA):
        coordinates = model.embedding()
        rows = len(coordinates)
        drawn = chosen_rows(rows)
        coordinates = coordinates[drawn]
    elif isinstance(model, KernelKMeans | LandmarkPCA):
        rows = sum(shard.shape[0] for shard in run.shards)
        drawn = chosen_rows(rows)
        coordinates = model.transform(stack_rows(list(run.shards))[drawn])
        if isinstance(model, KernelKMeans):
            labels = np.concatenate([model.predict(shard) for shard in run.shards])
    else:
        return None
    if (points := along_two(coordinates, turn=isinstance(model, KernelKMeans))) is None:
        return None
    kept = [outputs[client]["labels"] for client in sorted(outputs) if "labels" in outputs[client]]
    if sum(map(len, kept)) == rows:
        labels = np.concatenate(kept)
    if labels is None and run.point.experiment.report.rows is None and classes is None:
        return None  # points of one colour say little that nobody asked for
    picture = RowPicture(points)
    if classes is not None and len(classes) == rows:
        picture = replace(picture, classes=np.where(labelled(classes), classes.astype(str), NO_LABEL)[drawn])
    return picture if labels is None else replace(picture, clusters=labels[drawn], sizes=np.bincount(labels))

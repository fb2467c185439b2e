"""Where a run puts the rows, for the report's pictures: of runs whose rows are all here."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.results import RowPicture, along_two, chosen_rows
from experiments.running.planning import Planned
from fedkernel.arrays import AnyArray, FloatArray, Rows, stack_rows
from fedkernel.data.labels import NO_LABEL, labelled
from fedkernel.models import KernelKMeans, KernelPCA, LandmarkPCA


def is_pictured(run: Planned) -> bool:
    """Tell whether a run's rows are to be drawn: as the report's options say, and of the first seed only."""
    experiment = run.point.experiment
    drawn = experiment.report.rows
    if drawn is None:
        drawn = not run.point.values
    return drawn and bool(run.shards) and run.seed == experiment.seeds[0]


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
    labels_of = [outputs[client]["labels"] for client in sorted(outputs) if "labels" in outputs[client]]
    labels = np.concatenate(labels_of) if labels_of else None
    placed = _placed(model, run.shards)
    if placed is None:
        return None
    points, rows, nearest = placed
    labels = nearest if labels is None or len(labels) != rows else labels
    classes, drawn = run.all_classes, chosen_rows(rows)
    if labels is None and run.point.experiment.report.rows is None and classes is None:
        return None  # points of one colour say little that nobody asked for
    return RowPicture(
        points,
        None
        if classes is None or len(classes) != rows
        else np.where(labelled(classes), classes.astype(str), NO_LABEL)[drawn],
        None if labels is None else labels[drawn],
        None if labels is None else np.bincount(labels),
    )


def _placed(model: Any, shards: Sequence[Rows]) -> tuple[FloatArray, int, AnyArray | None] | None:
    """Return the points of the rows that are drawn, how many rows there are, and the clusters of all, if any."""
    labels = None
    if isinstance(model, KernelPCA):
        coordinates = model.embedding()
        rows = len(coordinates)
        coordinates = coordinates[chosen_rows(rows)]
    elif isinstance(model, KernelKMeans | LandmarkPCA):
        rows = sum(shard.shape[0] for shard in shards)
        coordinates = model.transform(_taken(shards, chosen_rows(rows)))
        if isinstance(model, KernelKMeans):
            labels = np.concatenate([model.predict(shard) for shard in shards])
    else:
        return None
    points = along_two(coordinates, turn=isinstance(model, KernelKMeans))
    return None if points is None else (points, rows, labels)


def _taken(shards: Sequence[Rows], positions: AnyArray) -> Rows:
    """Return rows of the shards one after the other, by their places among all."""
    parts, first = [], 0
    for shard in shards:
        last = first + shard.shape[0]
        parts.append(shard[positions[(positions >= first) & (positions < last)] - first])
        first = last
    return stack_rows(parts)

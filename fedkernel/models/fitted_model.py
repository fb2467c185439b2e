"""Fitted models: models with column names and preparation, applicable to raw tables."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation, Prepare, RawTable, is_frame, raw_table
from fedkernel.ground import AnyArray, FloatArray, InputError, and_more, listed, load_parts, short_repr
from fedkernel.models.base import rebuild_errors
from fedkernel.models.components import KernelPCA, PeerComponents
from fedkernel.models.files import model_of, save_model

log = logging.getLogger(__name__)

UNPREPARED = Prepare(scale="none")


class ModelOutput(NamedTuple):
    """Labels (n_kept,) or coordinates (n_kept, k) that a model gives a raw table's rows.

    `kept` (n_kept,): positions of their rows in the raw table: all, unless rows with empty cells are dropped.
    """

    values: AnyArray
    kept: npt.NDArray[np.intp]


@dataclass(frozen=True)
class FittedModel:
    """Model with its column names and preparation, which finds a raw table's columns by name.

    - `model`: result of a run.
    - `columns`: names of the training columns, in order; empty: unnamed, matched by position.
    - `preparation`: preparation of raw columns before training; it names them.
    - `strategy`: address of the strategy; empty if unknown.
    - `classes`: names of the clusters; empty: they are numbered.
    """

    model: Any
    columns: tuple[str, ...] = ()
    preparation: Preparation | None = None
    strategy: str = ""
    classes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the raw columns that the model needs, in order."""
        return self.columns if self.preparation is None else self.preparation.names

    def predict(self, raw: Any) -> ModelOutput:
        """Label the rows of a raw table by cluster. Table and errors are those of `transform`."""
        return self._apply("predict", raw)

    def transform(self, raw: Any) -> ModelOutput:
        """Compute the coordinates of a raw table's rows (n, d), whose columns are found by name.

        Raises InputError for a column that is missing or not numeric, an empty cell that may not be, and a model that
        cannot be applied to rows alone.
        """
        return self._apply("transform", raw)

    def _apply(self, method: str, raw: Any) -> ModelOutput:
        act = getattr(self.model, method, None)
        if act is None:
            raise InputError(_reason_not_applicable(self.model, method))
        X, positions = self.prepared(raw_table(raw, "the frame" if is_frame(raw) else "the table", self.names))
        return ModelOutput(np.asarray(act(X)), positions)

    def prepared(self, raw: RawTable) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """Return the model's input from a raw table, (n_kept, d), and the positions of these rows."""
        names = self.names
        if names:
            if missing := [name for name in names if name not in raw.columns]:
                lacks = f"{raw.title} has no column {missing[0]!r}{and_more(len(missing) - 1)}"
                raise InputError(f"{lacks}, which the model was fitted on; there are: {listed(raw.names)}")
            if surplus := [name for name in raw.names if name not in names]:
                log.info("%s: left out, since the model has no such columns: %s", raw.title, listed(surplus))
            if tuple(name for name in raw.names if name in names) != names:
                log.info("%s: its columns are put in the model's order, by name", raw.title)
            raw = raw.select(names)
        if self.preparation is not None:
            X, positions = self.preparation.apply(raw)
            if len(positions) < raw.rows:
                dropped = raw.rows - len(positions)
                log.info("%s: %d of its %d rows have an empty cell and are left out", raw.title, dropped, raw.rows)
            return X, positions
        UNPREPARED.usable_rows(raw)
        return UNPREPARED.numeric_columns(raw), np.arange(raw.rows)

    @property
    def about(self) -> dict[str, Any]:
        """Metadata for the model's file, as plain data: columns, strategy, classes, preparation."""
        about = {"columns": list(self.columns), "strategy": self.strategy, "classes": list(self.classes)}
        preparation = None if self.preparation is None else self.preparation.to_table()
        return {name: value for name, value in {**about, "preparation": preparation}.items() if value}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model with its metadata as npz, readable by `load_model`; errors are as in `save_model`."""
        return save_model(self.model, path, self.about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read any model's file, with or without metadata; errors are as in `load_model`."""
        parts = load_parts(path)
        model, about = model_of(parts, path), parts.about
        with rebuild_errors(path):
            columns, classes = (_texts(about.get(name, [])) for name in ("columns", "classes"))
            table = about.get("preparation")
            preparation = None if table is None else Preparation.from_table(table)
            return cls(model, columns, preparation, str(about.get("strategy", "")), classes)


def class_names(labels: npt.NDArray[Any], classes: Sequence[str | None], clusters: int) -> tuple[str, ...]:
    """Name each cluster by its rows' most frequent class. A cluster without classes gets its number, from 0."""
    counts: list[Counter[str]] = [Counter() for _ in range(clusters)]
    for label, name in zip(labels, classes, strict=True):
        if name is not None:
            counts[label][name] += 1
    return tuple(
        min(count, key=lambda name, count=count: (-count[name], name)) if count else str(number)  # type: ignore[misc]
        for number, count in enumerate(counts)
    )


def _reason_not_applicable(model: Any, method: str) -> str:
    kind = type(model).__name__
    if isinstance(model, KernelPCA):
        return (
            f"a {kind} model has its training rows at the sites, which project new rows together: run fedkernel "
            "serve FOLDER --project, and at each site join --data FILE --new NEW --id COLUMN"
        )
    if isinstance(model, PeerComponents):
        return f"a {kind} model only records how peers found components; each peer keeps its own"
    does = "has no clusters; allowed: transform" if hasattr(model, "transform") else "cannot be applied to rows"
    return f"a model of type {kind} {does if method == 'predict' else 'cannot be applied to rows'}"


def _texts(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("names")
    return tuple(names)

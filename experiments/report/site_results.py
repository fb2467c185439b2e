"""Results of a run at a site or in a simulation: row coordinates, clusters, loadings and column importance."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data import NO_LABEL, RawTable, missing_cells
from fedkernel.experiments.results import by_setting, read_runs
from fedkernel.ground import AnyArray, FloatArray, InputError, generator, open_npz
from fedkernel.models import FittedModel, KernelKMeans, KernelPCA, LandmarkPCA
from fedkernel.numerics import Linear
from fedkernel.preparing import from_text
from fedkernel.site import OUTBOX, departures_of

NO_MODEL = FittedModel(None)

RESULT_ARRAYS = {"labels", "embedding", "eigenvectors", "features", "alpha"}  # mark a file as a site's stored results
PERMUTATIONS, MOST_PERMUTED_ROWS = 5, 2000
COORDINATE_TOLERANCE = 1e-6  # relative: coordinates that differ by less are the same


@dataclass(frozen=True)
class SiteRun:
    """Stored results of a run at a site, with the run's model and the site's table.

    - `arrays`: stored arrays; of a simulation, one client's after the other's.
    - `fitted`: with model None where the site has none; with the site's own preparation where it stored one.
    - `own`: text about each row: the site's labels, or `NO_LABEL`; in a simulation, the client.
    - `table`: the site's own columns of these rows, in their order.
    - `linear`: whether the kernel is known to be linear.
    """

    name: str
    arrays: Mapping[str, AnyArray]
    fitted: FittedModel = NO_MODEL
    own: Mapping[str, AnyArray] = field(default_factory=dict)
    table: RawTable | None = None
    linear: bool = False

    @property
    def model(self) -> Any:
        """Model of the run, or None if the site has none."""
        return self.fitted.model

    @cached_property
    def numbers(self) -> FloatArray | None:
        """Prepared table (n, d) of the run, or None if there is no table or it is not numeric."""
        return None if self.table is None else self._prepared(self.table)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `numbers`."""
        if self.fitted.preparation is not None:
            return self.fitted.preparation.columns
        return self.fitted.names or (() if self.table is None else self.table.names)

    def _prepared(self, table: RawTable) -> FloatArray | None:
        with suppress(InputError):
            X, positions = self.fitted.prepared(table)
            return X if len(positions) == table.rows else None
        return None

    @property
    def coordinates(self) -> FloatArray | None:
        """Coordinates (n, s) of the rows, stored or from the model, or None if there are neither."""
        vectors = self.arrays.get("eigenvectors")
        if "embedding" in self.arrays:
            return self.arrays["embedding"]
        if isinstance(self.model, KernelPCA) and (vectors is None or len(vectors) == len(self.model.eigenvectors_)):
            return self.model.embedding()
        if vectors is not None:  # of unit length, since the eigenvalues are not here
            return vectors
        return self._model_coordinates(self.numbers)

    @property
    def labels(self) -> AnyArray | None:
        """Cluster of each row (n,), stored or from the model, or None if there are no clusters."""
        if "labels" in self.arrays:
            return self.arrays["labels"]
        Z = self._model_coordinates(self.numbers) if isinstance(self.model, KernelKMeans) else None
        return None if Z is None else self._clusters(Z)

    def _model_coordinates(self, X: FloatArray | None) -> FloatArray | None:
        if X is None or not isinstance(self.model, KernelKMeans | LandmarkPCA):
            return None
        with suppress(InputError):
            return np.asarray(self.model.transform(X))
        return None

    def _clusters(self, Z: FloatArray) -> AnyArray:
        return np.asarray(np.square(Z[:, None] - self.model.centers_).sum(axis=2).argmin(axis=1))

    def loadings(self) -> dict[str, tuple[float, ...]] | str:
        """Return the first two components' unit directions by column, or the reason for their absence.

        Where columns are divided, X^T u of the unit vectors u over the rows (VFedPCA paper, equation 10), with the
        length of the site's part; where rows are, the W with coordinates (X - mean) W, which is exact as they are
        linear in the columns.
        """
        if not self.linear:
            return "Component loadings are those of a linear kernel, and this run's is not known to be one"
        if (X := self.numbers) is None or self.table is None:
            return "Component loadings need the columns that the run had: --data FILE --id COLUMN"
        vectors = self.arrays.get("eigenvectors")
        if vectors is None and isinstance(self.model, KernelPCA):
            vectors = self.model.eigenvectors_
        if vectors is not None and len(vectors) == len(X):
            W = X.T @ vectors
        else:
            if (Z := self.coordinates) is None or len(Z) != len(X):
                return "Component loadings need the rows' coordinates, which the site has not kept"
            centred, about = X - X.mean(axis=0), Z - Z.mean(axis=0)
            W = np.linalg.lstsq(centred, about, rcond=None)[0]
            if np.abs(centred @ W - about).max() > COORDINATE_TOLERANCE * np.abs(about).max():
                return "The coordinates are not linear in the columns of the file, which were prepared before the run"
        lengths = np.linalg.norm(W, axis=0)
        W = W / np.where(lengths > 0, lengths, 1.0)
        return {name: tuple(map(float, row[:2])) for name, row in zip(self.columns, W, strict=True)}

    def importance(self) -> dict[str, float] | str:
        """Return the effect of permuting each column, or the reason for its absence.

        For clusters, the share of rows that change cluster; for coordinates, the sum of squared moves over twice the
        sum of squared distances from the mean: 1 where nothing of them is left. Each column is permuted five times,
        with fixed draws, in 2000 rows at most.
        """
        if not isinstance(self.model, KernelKMeans | LandmarkPCA):
            return (
                "Importance of columns needs a model that gives rows coordinates: --model FILE, or share_model = true"
            )
        if (X := self.numbers) is None or self.table is None:
            return "Importance of columns needs the columns that the run had: --data FILE --id COLUMN"
        if (Z := self._model_coordinates(X)) is None:
            return f"The model takes other columns than the {X.shape[1]} of the file"
        stored = self.arrays.get("embedding", Z)
        if stored.shape == Z.shape and np.abs(stored - Z).max() > COORDINATE_TOLERANCE * np.abs(stored).max():
            return "The model gives these rows other coordinates than the site kept: its columns were prepared before"
        rng = generator("permuted columns")
        drawn = np.sort(rng.permutation(len(X))[:MOST_PERMUTED_ROWS])
        table, Z = self.table.take(drawn), Z[drawn]
        total = 2 * np.square(Z - Z.mean(axis=0)).sum()
        changes: dict[str, float] = {}
        for name in self.fitted.names or table.names:
            moved = []
            for _ in range(PERMUTATIONS):
                shuffled = {**table.columns, name: rng.permutation(table.columns[name])}
                new = self._model_coordinates(self._prepared(replace(table, columns=shuffled)))
                if new is None:
                    return f"Importance of columns: {name!r} cannot be permuted, since its rows would not be prepared"
                if isinstance(self.model, KernelKMeans):
                    moved.append(np.mean(self._clusters(new) != self._clusters(Z)))
                else:
                    moved.append(np.square(new - Z).sum() / total if total else 0.0)
            changes[name] = float(np.mean(moved))
        return changes


def runs_of(out: Path, *, model: Path | None = None, table: RawTable | None = None) -> Iterator[SiteRun]:
    """Read every run in the folder of a site, of a simulated run, or of an experiment.

    `model`: in place of the folder's own. Raises InputError without a run, or for rows that the site's `table` lacks.
    """
    if not out.is_dir():
        raise InputError(
            f"there is no folder {out}; allowed: the --out of a join, or the folder of a run or experiment"
        )
    chosen = None if model is None else FittedModel.load(model)
    if (out / "result.json").exists():
        yield _simulated(out, chosen, table)
        return
    if (out / "runs.jsonl").exists():
        for same in by_setting(read_runs(out / "runs.jsonl")).values():
            if ((folder := out / "results" / same[0].id) / "result.json").exists():  # of the first seed
                yield _simulated(folder, chosen, table)
        return
    linear, models = _linear_runs(out), sorted((out / "received").glob("*.npz"), key=lambda path: path.stat().st_mtime)
    received = {path.name.partition(".model")[0]: path for path in models}  # the latest of each run
    paths = sorted(out.glob("*.npz"))
    stored = {path.stem: arrays for path in paths if RESULT_ARRAYS & (arrays := _arrays(path)).keys()}
    if not stored and not received and chosen is None:
        raise InputError(f"{out} has nothing of a run: neither what a site keeps (RUN.npz) nor a model (--model)")
    names = list(dict.fromkeys([*stored, *received])) or ["model"]
    for name in names:
        arrays, fitted = stored.get(name, {}), chosen or NO_MODEL
        if chosen is None and name in received:
            fitted = FittedModel.load(received[name])
        if "preparation" in arrays:
            fitted = replace(fitted, preparation=from_text(str(arrays["preparation"])))
        yield _described(name, arrays, fitted, table, name in linear or _is_linear(fitted.model))


def _simulated(folder: Path, chosen: FittedModel | None, table: RawTable | None) -> SiteRun:
    """Return a simulated run with all clients' stored arrays, concatenated where clients hold rows."""
    paths = {int(path.stem.removeprefix("client-")): path for path in folder.glob("client-*.npz")}
    clients = {number: _arrays(paths[number]) for number in sorted(paths)}
    fitted = FittedModel.load(folder / "model.npz") if chosen is None else chosen
    if not clients or any("eigenvectors" in arrays for arrays in clients.values()):
        shared = next(iter(clients.values()), {})
        arrays = {name: array for name, array in shared.items() if name == "eigenvectors"}
        return _described(folder.name, arrays, fitted, table, _is_linear(fitted.model))
    names = set.intersection(*(set(arrays) for arrays in clients.values())) & {"labels", "embedding", "ids"}
    joined = {name: np.concatenate([arrays[name] for arrays in clients.values()]) for name in sorted(names)}
    run = _described(folder.name, joined, fitted, table, _is_linear(fitted.model))
    if not joined:
        return run
    counts = [len(next(arrays[name] for name in joined)) for arrays in clients.values()]
    client = np.repeat([str(number) for number in clients], counts)
    return replace(run, own={"client": client, **run.own})


def _described(
    name: str, arrays: Mapping[str, AnyArray], fitted: FittedModel, table: RawTable | None, linear: bool
) -> SiteRun:
    """Return a run with its rows of the site's table."""
    run = SiteRun(name, arrays, fitted, linear=linear)
    if table is None:
        return run
    if (ids := arrays.get("ids")) is not None:
        if table.ids is None:
            raise InputError(f"run {name!r} knows its rows by ids; allowed: --id COLUMN of {table.title}")
        places = {id_: place for place, id_ in enumerate(table.ids)}
        missing = [id_ for id_ in ids.tolist() if id_ not in places]
        if missing:
            raise InputError(f"{table.title} lacks {len(missing)} of the {len(ids)} rows of run {name!r}, by their ids")
        rows = table.take(np.array([places[id_] for id_ in ids.tolist()]))
    else:
        rows = table.take(arrays["rows"]) if "rows" in arrays else table
        known = run.coordinates
        if known is not None and len(known) != rows.rows:
            raise InputError(f"run {name!r} has {len(known)} rows, but {table.title} {rows.rows}")
    texts = {name: np.where(missing_cells(cells), NO_LABEL, cells.astype(str)) for name, cells in rows.labels.items()}
    return replace(run, own=texts, table=rows)


def _arrays(path: Path) -> dict[str, AnyArray]:
    """Return the arrays of an npz file, or none if the file is a model."""
    with open_npz(path) as file:
        arrays = {} if "header" in file else dict(file)
    of_rows = {name: array for name, array in arrays.items() if name in ROW_ARRAYS}
    fit = len({len(array) for array in of_rows.values() if array.ndim}) <= 1
    for name, array in of_rows.items():
        kinds, dimensions = ROW_ARRAYS[name]
        fit &= array.dtype.kind in kinds and array.ndim == dimensions
    try:
        if not fit or (arrays.get("labels", np.zeros(1)) < 0).any():
            raise ValueError("its arrays do not fit together")
        if "preparation" in arrays:
            from_text(str(arrays["preparation"]))
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    return arrays


ROW_ARRAYS = {"labels": ("iu", 1), "rows": ("iu", 1), "ids": ("U", 1)} | dict.fromkeys(
    RESULT_ARRAYS - {"labels", "features"}, ("f", 2)
)
"""Arrays with an entry for each row: their dtype kinds and number of dimensions."""


def _is_linear(model: Any) -> bool:
    return isinstance(getattr(model, "kernel", getattr(getattr(model, "embedding", None), "kernel", None)), Linear)


def _linear_runs(out: Path) -> set[str]:
    """Return the runs whose requests to the site had a linear kernel, or an empty kernel field."""
    kernels: dict[str, Any] = {}
    if (out / OUTBOX).exists():
        with suppress(InputError):
            for line, _ in departures_of(out):
                if "kernel" in line.parameters:
                    kernels[line.run] = line.parameters["kernel"]
    return {name for name, kernel in kernels.items() if kernel is None or "linear" in json.dumps(kernel)}

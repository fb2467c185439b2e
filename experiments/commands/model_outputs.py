"""Application of models to raw rows, by `predict`, `transform`, or at a site that received a model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from fedkernel.data import NO_LABEL, RawTable, SiteFile, contingency, read_raw
from fedkernel.experiments.commands.console import messages, output, print_status
from fedkernel.ground import AnyArray, InputError, rows_as_csv, write_atomic, write_new, write_rows
from fedkernel.models import FittedModel, KernelKMeans, KernelPCA, ModelOutput, class_names
from fedkernel.site import MOST_CSV_COLUMNS, RunRows


def predict_rows(
    model: Path, rows: SiteFile, label: str | None, out: Path | None, *, name_classes: bool
) -> FittedModel:
    """Label a file's rows by a model's clusters, and write or print the labels. `label`: column to compare with.

    With `name_classes` the returned model calls its clusters by that column.
    """
    fitted, raw = FittedModel.load(find_model(model)), read_raw(rows)
    applied = fitted.predict(raw)
    if label is not None:
        classes = raw.labels[label][applied.kept].tolist()
        if name_classes:
            fitted = replace(fitted, classes=class_names(applied.values, classes, _clusters(fitted, applied)))
        _print_contingency(applied.values, classes, fitted)
    arrays = {"labels": applied.values}
    if fitted.classes:
        arrays["classes"] = np.array([fitted.classes[cluster] for cluster in applied.values])
    _write_or_print(arrays, raw, applied, out)
    return fitted


def transform_rows(model: Path, rows: SiteFile, label: str | None, out: Path | None) -> None:
    """Compute the coordinates of a file's rows along a model's components, and write or print them."""
    fitted, raw = FittedModel.load(find_model(model)), read_raw(rows)
    applied = fitted.transform(raw)
    arrays = {"embedding": applied.values}
    if label is not None:
        arrays["classes"] = np.array([name or "" for name in raw.labels[label][applied.kept]])
    _write_or_print(arrays, raw, applied, out)


def apply_received(
    model: Path, run: str, out: Path, new: SiteFile | None = None, *, handed_out: bool = False
) -> str | None:
    """Apply a received model to the site's rows, and return a sentence on the file written in `out`.

    New rows get labels and coordinates, in a new file of their own. A model of components over the rows themselves, in
    the sites' common order, gives each row of the site's latest run its coordinates. `handed_out`: whether the site
    took part in no run, and received the model for the new rows alone; `run` then has their name, else their file.
    """
    fitted = FittedModel.load(model)
    if isinstance(fitted.model, KernelPCA) and not handed_out:
        try:
            ids = RunRows.load(out, run).ids
        except InputError:  # the run's rows had no ids, and are in the file's order
            return None
        coordinates = fitted.model.embedding()
        if len(coordinates) != len(ids):
            raise InputError(f"it has coordinates of {len(coordinates)} rows, but run {run!r} worked on {len(ids)}")
        return f"wrote {write_rows(out / f'{run}.csv', {'ids': ids, 'embedding': coordinates}, 0o600)}"
    if new is None or not hasattr(fitted.model, "transform"):
        return None
    raw = read_raw(new)
    applied = fitted.transform(raw)
    arrays = {"embedding": applied.values[:, :MOST_CSV_COLUMNS]}
    if hasattr(fitted.model, "predict"):
        arrays["labels"] = fitted.predict(raw).values
    name = run if handed_out else f"{run}__{Path(new.path).stem}"
    return f"wrote {write_new(out / f'{name}.csv', rows_as_csv(_row_names(raw, applied) | arrays).encode(), 0o600)}"


def find_model(where: Path) -> Path:
    """Return a model's file, or the only one in a folder of a run, experiment or site. Raise InputError otherwise."""
    if not where.is_dir():
        return where
    if (own := where / "model.npz").exists():
        return own
    models = sorted([*where.glob("results/*/model.npz"), *where.glob("*/model.npz"), *where.glob("received/*.npz")])
    if not models:
        raise InputError(f"{where} holds no model; allowed: a model's file, a run's folder, an output folder")
    if len(models) > 1:
        raise InputError(f"{where} holds {len(models)} models; choose one: {', '.join(map(str, models))}")
    return models[0]


def _clusters(fitted: FittedModel, applied: ModelOutput) -> int:
    centers = fitted.model.centers_ if isinstance(fitted.model, KernelKMeans) else ()
    return max(len(centers), int(applied.values.max(initial=-1)) + 1)


def _write_or_print(arrays: dict[str, AnyArray], raw: RawTable, applied: ModelOutput, out: Path | None) -> None:
    arrays = _row_names(raw, applied) | arrays
    if out is None:
        output.file.write(rows_as_csv(arrays))
        return
    if out.suffix.lower() == ".csv":
        write_rows(out, arrays)
    else:
        write_atomic(out, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    print_status(f"wrote {out}: {len(applied.kept):,} rows")


def _row_names(raw: RawTable, applied: ModelOutput) -> dict[str, AnyArray]:
    return {"row": applied.kept} if raw.ids is None else {"ids": np.array(raw.ids)[applied.kept]}


def _print_contingency(labels: AnyArray, classes: list[str | None], fitted: FittedModel) -> None:
    """Print the counts by cluster and class on standard error, since the output may be piped."""
    kinds = np.array([NO_LABEL if name is None else name for name in classes])
    names, counts = contingency(labels, kinds, _clusters(fitted, ModelOutput(labels, labels)))
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("cluster")
    for name in names:
        table.add_column(Text(name), justify="right")
    for cluster, row in enumerate(counts.tolist()):
        called = f"{cluster} {fitted.classes[cluster]}" if fitted.classes else str(cluster)
        table.add_row(Text(called), *map(str, row))
    messages.print(table)

"""Models applied to raw rows: by the commands `predict` and `transform`, and at a site that is sent one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from experiments.commands.console import messages, output, say
from fedkernel.data import NO_LABEL, RawTable, SiteFile, contingency, read_raw
from fedkernel.ground import AnyArray, InputError, rows_as_csv, write_new, write_rows, write_whole
from fedkernel.models import Applied, FittedModel, KernelKMeans, KernelPCA, class_names
from fedkernel.site import SHEET, RunRows


def predict_rows(
    model: Path, rows: SiteFile, label: str | None, out: Path | None, *, name_classes: bool
) -> FittedModel:
    """Label a file's rows by the clusters of a model, compare them with a column of classes, and write or print them.

    Returns
    -------
    FittedModel
        It, or with `name_classes` one that calls its clusters by that column.
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
    _hand_over(arrays, raw, applied, out)
    return fitted


def transform_rows(model: Path, rows: SiteFile, label: str | None, out: Path | None) -> None:
    """Compute the coordinates of a file's rows along a model's components, and write or print them."""
    fitted, raw = FittedModel.load(find_model(model)), read_raw(rows)
    applied = fitted.transform(raw)
    arrays = {"embedding": applied.values}
    if label is not None:
        arrays["classes"] = np.array([name or "" for name in raw.labels[label][applied.kept]])
    _hand_over(arrays, raw, applied, out)


def apply_received(
    model: Path, run: str, out: Path, new: SiteFile | None = None, *, handed_out: bool = False
) -> str | None:
    """Apply a model that the site was sent, in its own folder, and say so.

    Rows that came since get labels and coordinates, in a file of their own, which takes the place of none. Of
    components over the rows themselves, which all sites have in one order, each of the rows of the run that the site
    has just taken part in gets its own.

    Parameters
    ----------
    model : Path
        Its file, of the run of this id.
    run : str
    out : Path
        The site's folder.
    new : SiteFile, optional
        Rows that came since.
    handed_out : bool
        Whether the site was sent the model for these alone, under an id that says what they are called, and took part
        in no run of it. Else they are called as their file.
    """
    fitted = FittedModel.load(model)
    if isinstance(fitted.model, KernelPCA) and not handed_out:
        try:
            ids = RunRows.load(out, run).ids
        except InputError:  # its rows had no ids, and stand in the file's order
            return None
        coordinates = fitted.model.embedding()
        if len(coordinates) != len(ids):
            raise InputError(f"it has coordinates of {len(coordinates)} rows, but run {run!r} worked on {len(ids)}")
        return f"wrote {write_rows(out / f'{run}.csv', {'ids': ids, 'embedding': coordinates}, 0o600)}"
    if new is None or not hasattr(fitted.model, "transform"):
        return None
    raw = read_raw(new)
    applied = fitted.transform(raw)
    arrays = {"embedding": applied.values[:, :SHEET]}
    if hasattr(fitted.model, "predict"):
        arrays["labels"] = fitted.predict(raw).values
    name = run if handed_out else f"{run}__{Path(new.path).stem}"
    return f"wrote {write_new(out / f'{name}.csv', rows_as_csv(_named(raw, applied) | arrays).encode(), 0o600)}"


def find_model(where: Path) -> Path:
    """Return the model's file that a path means: itself, or the one in the folder of a run, experiment or site.

    Raises
    ------
    InputError
        If there is none, or more than one: the text lists them.
    """
    if not where.is_dir():
        return where
    own = where / "model.npz"
    if own.exists():
        return own
    models = sorted([*where.glob("results/*/model.npz"), *where.glob("*/model.npz"), *where.glob("received/*.npz")])
    if len(models) == 1:
        return models[0]
    if not models:
        raise InputError(f"{where} holds no model; allowed: a model's file, a run's folder, an output folder")
    raise InputError(f"{where} holds {len(models)} models; choose one: {', '.join(map(str, models))}")


def _clusters(fitted: FittedModel, applied: Applied) -> int:
    centers = fitted.model.centers_ if isinstance(fitted.model, KernelKMeans) else ()
    return max(len(centers), int(applied.values.max(initial=-1)) + 1)


def _hand_over(arrays: dict[str, AnyArray], raw: RawTable, applied: Applied, out: Path | None) -> None:
    """Write the rows' arrays beside ids or row numbers, whole or not at all, or print them."""
    arrays = _named(raw, applied) | arrays
    if out is None:
        output.file.write(rows_as_csv(arrays))
        return
    if out.suffix.lower() == ".csv":
        write_rows(out, arrays)
    else:
        write_whole(out, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    say(f"wrote {out}: {len(applied.kept):,} rows")


def _named(raw: RawTable, applied: Applied) -> dict[str, AnyArray]:
    """Return by what the rows are known: ids, or their places in the file."""
    return {"row": applied.kept} if raw.ids is None else {"ids": np.array(raw.ids)[applied.kept]}


def _print_contingency(labels: AnyArray, classes: list[str | None], fitted: FittedModel) -> None:
    """Print how many rows of each cluster have each class, beside the output, which may be somebody's input."""
    kinds = np.array([NO_LABEL if name is None else name for name in classes])
    names, counts = contingency(labels, kinds, _clusters(fitted, Applied(labels, labels)))
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("cluster")
    for name in names:
        table.add_column(Text(name), justify="right")
    for cluster, row in enumerate(counts.tolist()):
        called = f"{cluster} {fitted.classes[cluster]}" if fitted.classes else str(cluster)
        table.add_row(Text(called), *map(str, row))
    messages.print(table)

"""The commands `fedkernel predict` and `fedkernel transform`, which apply a model to raw rows."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedkernel import data
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import PrintLog, print_status
from fedkernel.experiments.commands.table_options import FormatOptions, Id
from fedkernel.ground import InputError

Where = Annotated[Path, Argument(metavar="MODEL", help="A model's file, or the folder of a run.")]
File = Annotated[Path, Argument(metavar="FILE", help="Rows with the model's columns.")]
Out = Annotated[Path | None, Option(help="New .csv or .npz file; by default results are printed.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace an existing file.")]


def predict(
    model: Where,
    file: File,
    *,
    id_: Id = None,
    label: Annotated[str | None, Option(help="Column of classes, to compare clusters with.")] = None,
    form: FormatOptions,
    out: Out = None,
    overwrite: Overwrite = False,
    name_classes: Annotated[
        bool, Option("--name-classes", help="Name each cluster by the class of most of its rows.")
    ] = False,
    save_model: Annotated[Path | None, Option(help="With --name-classes: new file for the named model.")] = None,
) -> None:
    """Label rows by the clusters of a model; nothing leaves this machine."""
    with PrintLog(print_status, "fedkernel.models.fitted_model"):
        if name_classes and label is None:
            raise InputError("--name-classes needs --label COLUMN, the column of classes")
        if save_model is not None and not name_classes:
            raise InputError("--save-model needs --name-classes")
        _check_free(out, overwrite)
        _check_free(save_model, overwrite)
        rows = data.SiteFile(file, label=label, id=id_, **vars(form))
        fitted = commands.predict_rows(model, rows, label, out, name_classes=name_classes)
        if save_model is not None:
            print_status(f"wrote {fitted.save(save_model)}")


def transform(
    model: Where,
    file: File,
    *,
    id_: Id = None,
    label: Annotated[str | None, Option(help="Column of classes, repeated in the output.")] = None,
    form: FormatOptions,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compute the coordinates of rows along a model's components; nothing leaves this machine."""
    with PrintLog(print_status, "fedkernel.models.fitted_model"):
        _check_free(out, overwrite)
        rows = data.SiteFile(file, label=label, id=id_, **vars(form))
        commands.transform_rows(model, rows, label, out)


def _check_free(out: Path | None, overwrite: bool) -> None:
    if out is None:
        return
    if out.suffix.lower() not in (".csv", ".npz"):
        raise InputError(f"{out} ends in {out.suffix!r}; allowed: .csv, .npz")
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError(f"{out} exists already; allowed: a new name, or --overwrite")

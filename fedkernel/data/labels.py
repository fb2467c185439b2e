"""Labels of rows (classes): conversion to numbers, counts per cluster, and reading from a site's file."""

import numpy as np
import numpy.typing as npt

from fedkernel.data.raw import RawTable, missing_cells, read_raw
from fedkernel.data.site_files import SiteFile
from fedkernel.ground import AnyArray, InputError

NO_LABEL = "(none)"
"""Displayed class of a row without a label."""


def has_label(classes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose class is not None."""
    return np.array([label is not None for label in np.asarray(classes).tolist()], dtype=bool)


def sorted_classes(kinds: AnyArray) -> list[str]:
    """Return the distinct classes as texts, whole numbers first and in numerical order."""
    names = {str(name) for name in kinds}
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))


def contingency(labels: AnyArray, kinds: AnyArray, clusters: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the sorted classes, and the numbers of rows by cluster and class (clusters, classes)."""
    names = sorted_classes(kinds)
    counts = [np.bincount(labels[kinds == name], minlength=clusters) for name in names]
    return names, np.array(counts, dtype=np.int64).reshape(len(names), clusters).T


def as_classes(texts: AnyArray) -> AnyArray:
    """Convert labels to integers or floats if all are numeric, else to texts. "01" counts as text.

    Missing labels (None) stay None in an array of objects, or become NaN among floats.
    """
    if not (known := has_label(texts)).all():
        classes = as_classes(texts[known])
        all_classes: AnyArray = np.full(len(texts), np.nan if classes.dtype.kind == "f" else None)
        all_classes[known] = classes
        return all_classes
    cut = any(len(text) > 1 and text[0] == "0" and text.isdecimal() for text in texts)
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        cut = True
    if cut or not np.isfinite(numbers).all():
        return np.array([str(text) for text in texts])
    return numbers.astype(np.int64) if np.array_equal(numbers, np.round(numbers)) else numbers


def label_texts(raw: RawTable) -> AnyArray | None:
    """Return a table's first label column as texts (n,), or None without one. Empty cells are None."""
    return next(iter(raw.labels.values()), None)


def read_labels(file: SiteFile) -> AnyArray | None:
    """Read a file's row labels, or None without a label column. Raises InputError for a row without a label."""
    raw = read_raw(file) if file.label else None
    if raw is None or (texts := label_texts(raw)) is None:
        return None
    if (empty := missing_cells(texts)).any():
        row, column = raw.row(int(np.argmax(empty))), next(iter(raw.labels))
        raise InputError(f"{raw.title}: {row} has no label in column {column!r}; allowed: one for each row")
    return as_classes(texts)

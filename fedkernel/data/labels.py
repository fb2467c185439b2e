"""Labels of rows: texts of a file that become numbers where all of them are, and what a site's file has of them."""

import numpy as np

from fedkernel.arrays import AnyArray
from fedkernel.data.raw import RawTable, missing_in
from fedkernel.data.raw_files import read_raw
from fedkernel.data.site_files import SiteFile
from fedkernel.errors import InputError


def as_classes(texts: AnyArray) -> AnyArray:
    """Return labels as whole numbers or numbers where all are such, or else as texts; "01" is text."""
    cut = any(len(text) > 1 and text[0] == "0" and text.isdecimal() for text in texts)
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        cut = True
    if cut or not np.isfinite(numbers).all():
        return np.array([str(text) for text in texts])
    return numbers.astype(np.int64) if np.array_equal(numbers, np.round(numbers)) else numbers


def label_texts(raw: RawTable) -> AnyArray | None:
    """Return the first label column of a table, as texts (n,); None where it has none; InputError for an empty cell."""
    for name, column in raw.labels.items():
        if (empty := missing_in(column)).any():
            raise InputError(
                f"{raw.what}: row {np.argmax(empty)} (counted from 0) has no label in column {name!r}; allowed: one "
                f"for each row, or {name!r} in drop in place of label"
            )
        return column
    return None


def read_labels(file: SiteFile) -> AnyArray | None:
    """Return the labels of a file's rows, as `as_classes` has them; None where the file names no label."""
    texts = None if not file.label else label_texts(read_raw(file))
    return None if texts is None else as_classes(texts)

"""Reading and atomic writing of model files, CSV tables and secret files."""

import csv
import fcntl
import io
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.ground.archives import open_npz
from fedkernel.ground.arrays import all_finite
from fedkernel.ground.errors import InputError

log = logging.getLogger(__name__)

FORMAT = "fedkernel-model"
FORMAT_VERSION = 1
NUMBER_KINDS = "biufc"
"""Array kinds that a model can have: no text, and no objects, whose pickles could run code."""


class ModelParts(NamedTuple):
    """Content of a model file: the model's name, plain fields, arrays and metadata."""

    model: str
    fields: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    about: Mapping[str, Any] = MappingProxyType({})


def save_parts(path: str | os.PathLike[str], parts: ModelParts) -> Path:
    """Write the parts of a model as an npz file, atomically."""
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "model": parts.model,
        **parts.fields,
        **({"about": dict(parts.about)} if parts.about else {}),
        # A damaged zip directory can lose an array; a model without its means would pass as uncentred.
        "arrays": list(parts.arrays),
    }
    text = np.array(json.dumps(header))
    arrays = {"header": text, **parts.arrays}
    return write_atomic(Path(path), lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def load_parts(path: str | os.PathLike[str]) -> ModelParts:
    """Read a model from its npz file, or from the one in a result's folder.

    Raises InputError if the file is missing, damaged, no model, or has other than finite numbers.
    """
    path = Path(path, "model.npz") if Path(path).is_dir() else path
    try:
        with open_npz(path, own=False) as file:
            arrays = dict(file) if "header" in file else {}
    except FileNotFoundError:
        raise InputError(f"there is no model file {path}") from None
    try:
        header = json.loads(str(arrays.pop("header", "null")))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged or is no fedkernel model ({type(error).__name__})") from None
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT or not isinstance(header.get("model"), str):
        raise InputError(f"{path} is damaged or holds no fedkernel model")
    if (file_version := header.pop("version", None)) != FORMAT_VERSION:
        raise InputError(f"{path} has model format version {file_version}, but this version reads {FORMAT_VERSION}")
    named = header.pop("arrays", None)
    whole = isinstance(named, list) and all(isinstance(name, str) for name in named) and set(named) == set(arrays)
    readable = all(array.dtype.kind in NUMBER_KINDS and all_finite(array) for array in arrays.values())
    if not whole or not readable:
        raise InputError(f"{path} is a damaged fedkernel model: its arrays do not fit together")
    if not isinstance(about := header.pop("about", {}), dict):
        raise InputError(f"{path} is a damaged fedkernel model: its metadata is no table")
    return ModelParts(header.pop("model"), header, arrays, about)


def write_atomic(path: Path, write: Callable[[Any], object], mode: int = 0o666) -> Path:
    """Write a file by `write` under a temporary name, and rename it to `path`. `mode`: permissions before the umask."""
    path.parent.mkdir(0o777 if mode & 0o077 else 0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # else it could be a link to another file
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
        partial.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # for instance of a full disk
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)
    return path


def open_for_owner(path: str, flags: int) -> int:
    """Open a file with access for its owner only, as an ``opener`` for `open`."""
    return os.open(path, flags, 0o600)


def read_secret(path: Path) -> bytes:
    """Read a secret file and log a warning if other users have access."""
    if (mode := path.stat().st_mode & 0o777) & 0o077:
        log.warning("%s can be read or written by other users (mode %o): chmod 600 %s", path, mode, path)
    return path.read_bytes()


def sync_folder(folder: Path) -> None:
    """Flush a folder's file names to disk, as `os.fsync` does with a file's content."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, created if missing for its owner only, under an exclusive lock."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def ensure_writable_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder if missing. Raises InputError if no file can be written there."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; allowed: a writable folder (--out)") from None


def write_rows(path: Path, arrays: Mapping[str, npt.NDArray[Any]], mode: int = 0o666) -> Path:
    """Write ids, labels, classes and coordinates of rows as CSV.

    `arrays`: ``ids`` (n,), else rows are numbered from 0; ``labels`` (n,), ``classes`` (n,), ``embedding`` (n, k);
    others are ignored. A class name that a spreadsheet would take for a formula gets an apostrophe, since it may come
    from another party's model. Ids are written unchanged.
    """
    return write_atomic(path, lambda file: file.write(rows_as_csv(arrays).encode()), mode)


def rows_as_csv(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return ids, labels, classes and coordinates of rows as CSV text, see `write_rows`."""
    columns = {word: arrays[name].tolist() for name, word in SHEET_COLUMNS.items() if name in arrays}
    if "class" in columns:
        columns["class"] = [f"'{name}" if FORMULA.match(str(name)) else name for name in columns["class"]]
    if "embedding" in arrays:
        columns |= {f"coordinate {place}": column.tolist() for place, column in enumerate(arrays["embedding"].T, 1)}
    if "id" not in columns:
        columns = {"row": list(range(len(next(iter(columns.values()), [])))), **columns}
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return sheet.getvalue()


SHEET_COLUMNS = {"ids": "id", "row": "row", "labels": "label", "classes": "class"}  # CSV column names by array name

FORMULA = re.compile(r"\s*[=@]|\s*[+-](?![\d.]*$)|[\t\r]")
"""Beginning of a text that a spreadsheet takes for a formula; a signed number is none."""


def write_new(path: Path, content: bytes, mode: int = 0o666) -> Path:
    """Write a new file, under the first free name of NAME, NAME-2, NAME-3, ..."""
    names = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2)))
    free = next(name for name in names if not name.exists() and not name.is_symlink())
    return write_atomic(free, lambda file: file.write(content), mode)


def without_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, by their names without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

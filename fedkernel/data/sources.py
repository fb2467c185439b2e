"""Loading of external data sets: bundled with scikit-learn, downloaded once, or the user's npz files."""

import inspect
import os
import socket
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError

import numpy as np
from scipy import sparse

from fedkernel.data.block_tables import is_sparse_file
from fedkernel.data.generated import GENERATED
from fedkernel.data.matrix import check_rows
from fedkernel.ground import AnyArray, InputError, listed, load_sparse, one_line, open_npz, read_header

SOURCES = ("npz", "openml", "fetch")
"""Prefixes of data set names; any other text before a colon is a loader's module."""

FOLDER_VARIABLE = "FEDKERNEL_DATA"
SOCKET_SECONDS = 20.0  # else a network that drops packets blocks for minutes


BUNDLED: Mapping[str, tuple[tuple[int, int], str]] = {  # shape and note
    "iris": ((150, 4), ""),
    "wine": ((178, 13), ""),
    "breast_cancer": ((569, 30), ""),
    "digits": ((1797, 64), ""),
    "diabetes": ((442, 10), ""),
    "linnerud": ((20, 3), "no labels"),
}
# kddcup99 (columns of text), 20newsgroups (text) and lfw_pairs (pairs of pictures) are no tables of numbers
FETCHED: Mapping[str, tuple[tuple[int, int], float]] = {  # shape, and megabytes of the download
    "olivetti_faces": ((400, 4096), 4),
    "california_housing": ((20640, 8), 0.5),
    "covtype": ((581012, 54), 11),
    "lfw_people": ((13233, 2914), 230),
    "20newsgroups_vectorized": ((11314, 130107), 14),
    "rcv1": ((804414, 47236), 650),
}


class SourceData(NamedTuple):
    """Data set as its source gives it, before the choice of rows, scaling and checks; `X` may be sparse."""

    X: Any
    y: AnyArray | None
    columns: tuple[str, ...]
    source: str


def from_sklearn(name: str, loader: str) -> SourceData:
    """Load a set by a function of `sklearn.datasets`, which may download it. `name`: the set's name in error texts."""
    import sklearn.datasets  # noqa: PLC0415 - takes a second to import

    return _from_bunch(_download(name, getattr(sklearn.datasets, loader)), f"scikit-learn {loader}")


def _from_bunch(bunch: Any, source: str) -> SourceData:
    """Convert a scikit-learn loader's result; targets of several columns (linnerud, rcv1) are dropped."""
    names = bunch.get("feature_names")
    target = bunch.get("target")
    y = None if target is None or sparse.issparse(target) else np.asarray(target)
    if y is not None and y.ndim != 1:
        y = None
    if y is not None and y.dtype == object:
        y = np.array(y.tolist())  # text as text, which can be saved without pickle
    return SourceData(bunch.data, y, () if names is None else tuple(str(name) for name in names), source)


def from_openml(name: str, which: str) -> SourceData:
    """Load openml.org's set `which`, a name or number, downloaded on first use. `name`: its name in error texts."""
    import sklearn.datasets  # noqa: PLC0415 - takes a second to import

    query: dict[str, Any] = {"data_id": int(which)} if which.isdecimal() else {"name": which}
    # this parser needs no pandas, so the same numbers come out on every machine; it codes columns of text as numbers
    # and lists them under categories: such codes have no meaning as coordinates and are refused
    bunch = _download(name, sklearn.datasets.fetch_openml, as_frame=False, parser="liac-arff", **query)
    categories = bunch.get("categories") or {}
    text = [column for column in bunch.feature_names if column in categories]
    if text:
        raise InputError(f"data set {name!r}: {len(text)} columns are not numeric ({listed(text)}); all must be")
    return _from_bunch(bunch, bunch.get("url") or f"openml.org {which}")


def _download(name: str, fetcher: Callable[..., Any], /, **options: Any) -> Any:
    """Call a caching scikit-learn fetcher. Every failure becomes an InputError of one sentence."""
    import sklearn.datasets  # noqa: PLC0415 - takes a second to import

    accepted = inspect.signature(fetcher).parameters  # before scikit-learn 1.5 only some fetchers have these
    hurry = {key: value for key, value in {"n_retries": 1, "delay": 0.5}.items() if key in accepted}
    size = ""
    if known := FETCHED.get(name.removeprefix("fetch:")):
        size = " ({} x {}, about {:g} MB)".format(*known[0], known[1])
    try:
        with _socket_timeout(SOCKET_SECONDS), warnings.catch_warnings():
            # reported by the error below
            warnings.filterwarnings("ignore", message="A network error occurred|Retry downloading")
            return fetcher(**options, **hurry)
    except HTTPError as error:
        error.close()
        raise InputError(f"data set {name!r}{size}: the server answered {error.code} {error.reason}") from None
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise InputError(
            f"data set {name!r}{size} must be downloaded once, into {sklearn.datasets.get_data_home()}, and the "
            f"network cannot be reached ({getattr(error, 'reason', error)}); these work offline: "
            f"{', '.join([*BUNDLED, *GENERATED])}, npz files"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"data set {name!r}{size} cannot be loaded: {error}") from error


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    old_timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(old_timeout)


def npz_files() -> dict[str, Path]:
    """Return the npz files of the user's folder by stem, or none if FEDKERNEL_DATA is not set."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return {}
    if not Path(folder).expanduser().is_dir():
        raise InputError(f"{FOLDER_VARIABLE} = {folder} is not a folder; set it to a folder of npz files, or unset it")
    return {path.stem: path for path in sorted(Path(folder).expanduser().glob("*.npz"))}


def named_path(name: str) -> Path | None:
    """Return the path in a data set's name ``npz:PATH.npz``, or None for other names."""
    prefix, _, rest = name.partition(":")
    return Path(rest).expanduser() if prefix == "npz" and rest.endswith(".npz") else None


def npz_path(name: str) -> Path:
    """Return the file named after `npz:`, by its path or by its stem in the user's folder."""
    if (path := named_path(f"npz:{name}")) is not None:
        return path
    files = npz_files()
    if name not in files:
        folder = os.environ.get(FOLDER_VARIABLE)
        holds = f"{folder} holds {listed([*files]) or 'no npz file'}" if folder else f"{FOLDER_VARIABLE} is not set"
        raise InputError(f"there is no npz:{name} ({holds}); allowed: npz:PATH.npz, npz:NAME in {FOLDER_VARIABLE}")
    return files[name]


def read_npz(path: Path) -> SourceData:
    """Read `X`, an array or from scipy.sparse.save_npz, and any `y` and column names `features`, without pickle."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        expected = "an npz file" if path.is_file() else "a file"
        raise InputError(f"{path} is not {expected}; allowed: an npz file that holds a table X and perhaps labels y")
    with open_npz(path) as archive:
        keys = list(archive)
        arrays: dict[str, Any] = {key: archive[key] for key in ("X", "y") if key in keys}
        if "X" not in arrays and is_sparse_file(keys):
            arrays["X"] = load_sparse(path)
        with suppress(ValueError, KeyError):  # optional: unreadable names are ignored, like other keys
            arrays["features"] = archive["features"]
    if "X" not in arrays:
        content = one_line(listed(keys)) or "nothing"
        raise InputError(f"{path} holds {content}; allowed: an array X of shape (rows, columns)")
    X = check_rows(arrays["X"], f"X in {path}")
    y = arrays.get("y")
    if y is not None and y.shape != X.shape[:1]:
        raise InputError(f"y in {path} has shape {y.shape}; allowed: one label per row, {X.shape[:1]}")
    names = arrays.get("features")
    if names is None or names.dtype.kind != "U" or names.shape != X.shape[1:]:
        return SourceData(X, y, (), str(path))
    return SourceData(X, y, tuple(names.tolist()), str(path))


def npz_header(path: Path) -> tuple[tuple[int, ...] | None, str]:
    """Return the shape of `X`, from the file's header only, and a note. The shape is None if the file is unusable."""
    try:
        with zipfile.ZipFile(path) as archive:
            stems = [name.removesuffix(".npy") for name in archive.namelist()]
        if "X" not in stems and is_sparse_file(stems):
            with open_npz(path) as arrays:
                return tuple(int(size) for size in arrays["shape"]), f"in {FOLDER_VARIABLE}"
        with zipfile.ZipFile(path) as archive, archive.open("X.npy") as stream:
            return read_header(stream).shape, f"in {FOLDER_VARIABLE}"
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        return None, f"cannot be used: {error}"

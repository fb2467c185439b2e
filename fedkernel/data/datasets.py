"""Named data sets: bundled with scikit-learn, generated, downloaded once, or the user's npz files.

| name | source |
|---|---|
| `iris`, `digits`, ... | bundled with scikit-learn (`BUNDLED`) |
| `geometric`, `blobs`, ... | generated, with options (`GENERATED`) |
| `fetch:NAME` | downloaded by scikit-learn on first use (`FETCHED`) |
| `openml:NAME`, `openml:ID` | the same from openml.org; an id fixes the version |
| `NAME`, `npz:NAME` | NAME.npz in the folder of the environment variable FEDKERNEL_DATA |
| `npz:PATH.npz` | any npz file |
| `package.module:function` | your loader, which returns X, or X and y |

An npz file holds an array X, or was written by scipy.sparse.save_npz. Such files, `documents` and some downloads are
sparse, and made dense unless `sparse` is set. A name of a bundled or generated set comes before a file's.
"""

import dataclasses
import difflib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeInt, PositiveInt
from scipy import sparse

from fedkernel import ground
from fedkernel.data import sources
from fedkernel.data.generated import GENERATED
from fedkernel.data.matrix import check_rows
from fedkernel.data.sources import BUNDLED, FETCHED, FOLDER_VARIABLE, SourceData
from fedkernel.ground import AnyArray, FloatArray, InputError, Rows

SPARSE_SCALES = ("none", "unit-norm")  # they preserve zeros
DENSE_CELLS = 100_000_000  # largest sparse set that is made dense: 0.8 GB of float64


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Loaded data set: table of numbers, with a label per row if the source has labels.

    - `X` (N, d): CSR (csr_array) if the specification asks for sparse.
    - `y` (N,): labels (integers or text) or targets (floats) of the source.
    - `columns`, `source`: the source's names of the columns, by default x0, x1, ..., and the origin of the numbers.
    """

    name: str
    X: Rows
    y: AnyArray | None
    columns: tuple[str, ...]
    source: str


@ground.value_object()
class DataSpec:
    """Specification of a data set, as in a `[data]` table.

    Rows are chosen first, then values are scaled, and then the table is transposed.

    - `name`: name or source, one of a table in docs/reference/configuration.md.
    - `scale`: of columns "standard" (mean 0, population standard deviation 1), "minmax" (to [0, 1]) or "center" (mean
      0), by which constant columns become 0; of rows "unit-norm" (length 1, or zeros).
    - `rows`: number of rows to keep, drawn at random, in their order; None: all.
    - `share`: the same as a fraction, of at least one row.
    - `classes`: labels of the rows to keep, compared as text.
    - `against_rest`: label of class 1; all others become class 0.
    - `seed`: seed of the drawn rows, and of a generated set without one in `options`; "run": each run's own.
    - `options`: fields of a generated set (`GENERATED`), such as `n`, `d` and `seed`, or arguments of a loader.
    - `sparse`: keep a sparse set as CSR, with a scale that keeps its zeros, "none" or "unit-norm".
    - `transposed`: swap samples and features, without labels. A vertical partition then divides samples, and VFedPCA,
      not centred, is PCA of a horizontal partition.
    """

    name: str
    scale: Literal["none", "standard", "minmax", "center", "unit-norm"] = "none"
    rows: PositiveInt | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    classes: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    against_rest: int | str | None = None
    seed: NonNegativeInt | Literal["run"] = 0
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    sparse: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        if self.name in GENERATED:
            GENERATED[self.name](**self.options)  # raises, early, for unknown or invalid options
        elif self.options and not _has_loader(self.name):
            raise InputError(f"options = {self.options!r}: only generated sets have any ({', '.join(GENERATED)})")
        if self.rows is not None and self.share is not None:
            raise InputError(f"rows = {self.rows} and share = {self.share} are the same thing; give only one of them")
        if self.sparse and self.scale not in SPARSE_SCALES:
            allowed = ", ".join(SPARSE_SCALES)
            raise InputError(f"scale = {self.scale!r} with sparse = true would fill the zeros; allowed: {allowed}")
        if self.transposed and self.sparse:
            raise InputError("transposed = true is not for sparse = true, read by rows; allowed: transposed = false")

    def within(self, folder: str | os.PathLike[str]) -> "DataSpec":
        """Return the specification with the relative path of an npz file resolved against a folder."""
        path = sources.named_path(self.name)
        return self if path is None else dataclasses.replace(self, name=f"npz:{Path(folder, path).resolve()}")

    def drawn(self, seed: int) -> "DataSpec":
        """Return the specification for a run. The run's seed replaces the seed "run"."""
        return dataclasses.replace(self, seed=seed) if self.seed == "run" else self

    @property
    def numeric_seed(self) -> int:
        """Seed as a number. Raises InputError if it is "run", which only a run replaces by a number."""
        if isinstance(self.seed, str):
            raise InputError(f"seed = {self.seed!r}, but data that are loaded for no run need a number")
        return self.seed

    def __hash__(self) -> int:
        # the options' values may be unhashable or equal across types (1 and 1.0); equality compares them
        return hash((self.name, self.scale, self.rows, self.share, self.classes, self.seed, frozenset(self.options)))


def load(spec: DataSpec | str) -> Dataset:
    """Load a data set by specification or bare name.

    A sparse set is made dense after the choice of rows, unless `sparse` is set. Raises InputError: unknown name, no
    network for a download, a file that is missing or not a table of finite numbers, more rows or other classes than the
    set has, a dense set with `sparse`, more than `DENSE_CELLS` numbers made dense.
    """
    spec = DataSpec(spec) if isinstance(spec, str) else spec
    raw = _load_source(spec)
    name = f"data set {spec.name!r} ({raw.source})"
    is_sparse: bool = sparse.issparse(raw.X)
    if spec.sparse and not is_sparse:
        raise InputError(f"sparse = true: {name} is dense; allowed with it: sparse = false")
    # checked before the choice of rows, so that an error's position is the file's
    X: Any = check_rows(raw.X, name)
    y = raw.y
    rows = _chosen_rows(spec, X.shape[0], y)
    if rows is not None:
        X, y = X[rows], None if y is None else y[rows]
    if spec.against_rest is not None:
        y = _with_labels(spec.name, "against_rest", [spec.against_rest], y).astype(int)
    if is_sparse and not spec.sparse:
        if X.shape[0] * X.shape[1] > DENSE_CELLS:
            size, most = f"{X.shape[0]} x {X.shape[1]}", DENSE_CELLS // X.shape[1]
            raise InputError(f"{name} is sparse and {size} is too large to be made dense; allowed: rows <= {most}")
        X = X.toarray()
    X = check_rows(_scaled(X, spec.scale), f"{name}, scaled,")
    columns = raw.columns
    if spec.transposed:
        X, y, columns = np.ascontiguousarray(X.T), None, ()
    return Dataset(spec.name, X, y, columns or tuple(f"x{j}" for j in range(X.shape[1])), raw.source)


def _load_source(spec: DataSpec) -> SourceData:
    prefix, colon, rest = spec.name.partition(":")
    if colon and prefix == "openml" and rest:
        return sources.from_openml(spec.name, rest)
    if colon and prefix == "fetch" and rest in FETCHED:
        return sources.from_sklearn(spec.name, f"fetch_{rest}")
    if spec.name in BUNDLED:
        return sources.from_sklearn(spec.name, f"load_{spec.name}")
    if spec.name in GENERATED:
        recipe = GENERATED[spec.name](**spec.options)
        seed = spec.numeric_seed if recipe.seed is None else recipe.seed
        X, y = recipe(ground.generator(spec.name, seed))
        return SourceData(X, y, (), f"generated: {recipe}, seed {seed}")
    if (colon and prefix == "npz") or spec.name in sources.npz_files():
        return sources.read_npz(sources.npz_path(rest if colon else spec.name))
    if _has_loader(spec.name):
        return _from_loader(spec)
    stems = [f"npz:{stem}" for stem in sources.npz_files()]
    set_names = [*BUNDLED, *GENERATED, *(f"fetch:{name}" for name in FETCHED), *stems]
    close = difflib.get_close_matches(spec.name, set_names, n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise InputError(
        f"data set {spec.name!r} is not known{hint}; allowed: {', '.join(set_names)}, openml:NAME, openml:ID, "
        f"npz:PATH.npz, and npz files of the folder {FOLDER_VARIABLE} ({os.environ.get(FOLDER_VARIABLE) or 'not set'})"
    )


def _has_loader(name: str) -> bool:
    prefix, colon, _ = name.partition(":")
    return (bool(colon) and prefix not in sources.SOURCES) or name in ground.short_names("datasets")


def _from_loader(spec: DataSpec) -> SourceData:
    load_raw = ground.load_function(spec.name, "datasets", "data.name")
    try:
        bound = inspect.signature(load_raw).bind(**spec.options)
    except TypeError as error:
        raise InputError(f"options = {spec.options!r}: {spec.name} does not take them ({error})") from None
    loaded = load_raw(*bound.args, **bound.kwargs)
    X, y = loaded if isinstance(loaded, tuple) else (loaded, None)
    X = X if sparse.issparse(X) else np.asarray(X)
    return SourceData(X, None if y is None else np.asarray(y), (), f"loaded by {spec.name}")


def _chosen_rows(spec: DataSpec, n: int, y: AnyArray | None) -> npt.NDArray[np.intp] | None:
    """Return the sorted positions of the rows chosen by `classes`, `rows` and `share`, or None for all rows."""
    if spec.classes is None and spec.rows is None and spec.share is None:
        return None
    rows = np.arange(n)
    if spec.classes is not None:
        rows = np.flatnonzero(_with_labels(spec.name, "classes", spec.classes, y))
    size = spec.rows if spec.share is None else max(1, round(spec.share * len(rows)))
    if size is not None:
        ground.check_at_most("rows", size, len(rows), f"what data set {spec.name!r} has, ")
        rows = np.sort(ground.generator("rows", spec.numeric_seed).choice(rows, size=size, replace=False))
    return rows


def _with_labels(name: str, field: str, wanted: Sequence[int | str], y: AnyArray | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with one of the wanted labels."""
    if y is None:
        raise InputError(f"{field} = {list(wanted)}: data set {name!r} has no labels; leave {field} out")
    labels, which = np.unique(y, return_inverse=True)
    texts = [_label_text(label) for label in labels.tolist()]
    chosen = [_label_text(label) for label in wanted]
    for label in chosen:
        if label not in texts:
            raise InputError(f"{field}: data set {name!r} has no label {label!r}; allowed: {ground.listed(texts)}")
    return np.asarray(np.isin(texts, chosen)[which])


def _label_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _scaled(X: Any, scale: str) -> Any:
    if scale == "none":
        return X
    from sklearn import preprocessing  # noqa: PLC0415 - takes a second to import

    if scale == "unit-norm":
        return preprocessing.normalize(X)
    if scale == "minmax":
        return preprocessing.minmax_scale(X)
    Z: FloatArray = preprocessing.StandardScaler(with_std=scale == "standard").fit_transform(X)
    Z[:, np.ptp(X, axis=0) == 0] = 0.0  # else the mean's rounding error remains
    return Z


class Available(NamedTuple):
    """Entry of `fedkernel list datasets`. `kind` is bundled, generated, fetch, openml, npz or loader."""

    name: str
    kind: str
    shape: tuple[int, ...] | None
    note: str


def available() -> list[Available]:
    """List every data set that `load` knows by name. Only the headers of npz files are read."""
    lines = [Available(name, "bundled", shape, note) for name, (shape, note) in BUNDLED.items()]
    for name, kind in GENERATED.items():
        fields = ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(kind))
        lines.append(Available(name, "generated", (kind().n, getattr(kind(), "d", 2)), f"options: {fields}"))
    for name, (shape, megabytes) in FETCHED.items():
        lines.append(Available(f"fetch:{name}", "fetch", shape, f"downloaded once, about {megabytes:g} MB"))
    lines.append(Available("openml:NAME or openml:ID", "openml", None, "downloaded once from openml.org"))
    lines.append(Available("npz:PATH.npz", "npz", None, "a table X, perhaps labels y; or from scipy.sparse.save_npz"))
    lines += [Available(name, "loader", None, address) for name, address in ground.short_names("datasets").items()]
    lines += [Available(f"npz:{stem}", "npz", *sources.npz_header(path)) for stem, path in sources.npz_files().items()]
    return lines

"""Partition of a table among clients, by columns (vertical) or by rows (horizontal).

| kind | method | each client gets |
|---|---|---|
| both | `even` | consecutive columns (rows), as many as the others or one more |
| both | `sizes` | consecutive columns (rows), as many as `sizes` says |
| vertical | `columns` | those that `columns` lists for it, in that order |
| vertical | `random` | consecutive columns, at least `minimum`; all ways to cut are equally likely |
| horizontal | `iid` | an even share of the rows, drawn at random |
| horizontal | `stratified` | an even share of the rows of every label, drawn at random |
| horizontal | `power` | consecutive rows, in proportion to rank^-`exponent` (the first: most), at least `minimum` |
| horizontal | `dirichlet` | of every label a share drawn from a symmetric Dirichlet(`alpha`), at least `minimum` rows |

Within a client the original order is kept, except for `columns`.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from scipy import sparse

from fedkernel.data.datasets import Dataset
from fedkernel.data.matrix import check_rows
from fedkernel.ground import AnyArray, Division, FloatArray, InputError, Rows, check_at_most, generator, value_object

IndexArray = npt.NDArray[np.intp]
Column = NonNegativeInt | str
ColumnList = Annotated[tuple[Column, ...], Field(min_length=1)]

METHODS: Mapping[str, tuple[str, ...]] = {
    "vertical": ("even", "sizes", "columns", "random"),
    "horizontal": ("even", "sizes", "iid", "stratified", "power", "dirichlet"),
}
# unused parameters are refused: recorded with the run they would mislead its reader
_USED_BY: Mapping[str, tuple[str, ...]] = {
    "sizes": ("sizes",),
    "columns": ("columns",),
    "exponent": ("power",),
    "alpha": ("dirichlet",),
    "minimum": ("random", "power", "dirichlet"),
    # iid, stratified and dirichlet: always, by themselves
    "shuffle": ("even", "sizes", "random", "iid", "stratified", "power", "dirichlet"),
}


@value_object()
class PartitionSpec:
    """Specification of a partition, as in a `[partition]` table.

    - `kind`: "vertical" divides columns, "horizontal" rows.
    - `method`: way of dividing, one of a table in docs/reference/configuration.md.
    - `clients`: number of clients; None: that of `sizes` or `columns`, or given by the caller of `split`.
    - `seed`: seed of all random choices; None: given by the caller of `split`, in an experiment each run's own.
    - `shuffle`: permute columns (rows) at random before they are cut.
    - `sizes`: with "sizes", each client's number of columns (rows).
    - `columns`: with "columns", each client's columns, by position (from 0) or name.
    - `exponent`: with "power", exponent of the rank: 1 / (a - 1) for a density x^-a of sizes; None: 1.
    - `alpha`: with "dirichlet", a small number gives each client few labels, a large one is like "iid"; None: 0.5.
    - `minimum`: with "random", "power" and "dirichlet", least number of columns (rows) of a client; None: 1.
    """

    kind: Division = "vertical"
    method: Literal["even", "sizes", "columns", "random", "iid", "stratified", "power", "dirichlet"] = "even"
    clients: PositiveInt | None = None
    seed: NonNegativeInt | None = None
    shuffle: bool = False
    sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = None
    columns: Annotated[tuple[ColumnList, ...], Field(min_length=1)] | None = None
    exponent: PositiveFloat | None = None
    alpha: PositiveFloat | None = None
    minimum: PositiveInt | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS[self.kind]:
            allowed = f"allowed for a {self.kind} partition: {', '.join(METHODS[self.kind])}"
            raise InputError(f"method = {self.method!r}: {allowed}")
        for name, methods in _USED_BY.items():
            if getattr(self, name) not in (None, False) and self.method not in methods:
                raise InputError(f"{name} is used by method {' or '.join(methods)} only; method = {self.method!r}")
        for name in ("sizes", "columns"):
            if self.method == name and getattr(self, name) is None:
                raise InputError(f"{name} is required by method {name!r}")
        _number_of_clients(self, None)


def _number_of_clients(spec: PartitionSpec, clients: int | None) -> int | None:
    """Return the number of clients, or None if no source gives one. Raises InputError if sources disagree."""
    numbers = {
        "clients": spec.clients,
        "the number of sizes": None if spec.sizes is None else len(spec.sizes),
        "the number of lists in columns": None if spec.columns is None else len(spec.columns),
        "clients (the caller's)": clients,
    }
    counts = {name: value for name, value in numbers.items() if value is not None}
    if len(set(counts.values())) > 1:
        differing = " but ".join(f"{name} = {value}" for name, value in counts.items())
        raise InputError(f"{differing}; allowed: the same number")
    return next(iter(counts.values()), None)


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Table divided among clients, checked to hold every column (row) exactly once.

    - `indices` (d_m,) or (n_m,): each client's columns (vertical) or rows (horizontal).
    - `shards` (N, d_m) or (n_m, d): copies, contiguous in memory; CSR (csr_array) if the table is sparse.
    - `labels` (n_m,): labels of each client's rows; None without labels or for a vertical partition.
    - `all_labels` (N,): labels of all rows, client by client for a horizontal partition.
    """

    kind: Division
    indices: tuple[IndexArray, ...]
    shards: list[Rows]
    labels: tuple[AnyArray, ...] | None = None
    all_labels: AnyArray | None = None

    def __post_init__(self) -> None:
        cut = 1 if self.kind == "vertical" else 0
        sizes = [len(index) for index in self.indices]
        if not sizes or len(self.shards) != len(sizes) or [shard.shape[cut] for shard in self.shards] != sizes:
            shapes = [shard.shape for shard in self.shards]
            raise InputError(f"shards of shapes {shapes} do not fit indices of lengths {sizes}; one of each per client")
        if len({shard.shape[1 - cut] for shard in self.shards}) > 1:
            raise InputError(f"the shards differ in their {'rows' if cut else 'columns'}; allowed: the same for all")
        if self.labels is not None and [len(part) for part in self.labels] != sizes:
            raise InputError("labels do not fit the indices; allowed: one label per row of each client")
        if not np.array_equal(np.sort(np.concatenate(self.indices)), np.arange(sum(sizes))):
            raise InputError(f"the indices of a partition must hold each of 0 to {sum(sizes) - 1} exactly once")


def split(
    spec: PartitionSpec,
    data: Dataset | npt.ArrayLike | sparse.sparray | sparse.spmatrix,
    y: npt.ArrayLike | None = None,
    *,
    clients: int | None = None,
    seed: int = 0,
) -> Partition:
    """Divide a table (N, d) among clients as a specification says. Raises InputError for contradictions.

    `y` (N,): labels, for an array; a `Dataset` has its own. `clients`, `seed`: used if `spec` has none; two numbers of
    clients must agree.
    """
    names: tuple[str, ...] = ()
    table: Any = data
    if isinstance(data, Dataset):
        if y is not None:
            raise InputError("y is for an array; a Dataset has its own y (dataclasses.replace(dataset, y=...))")
        table, y, names = data.X, data.y, data.columns
    X = check_rows(table, "data")
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != X.shape[:1]:
        raise InputError(f"y has shape {labels.shape}; allowed: one label per row, {X.shape[:1]}")
    if seed < 0:
        raise InputError(f"seed = {seed}; allowed: 0 or more")
    if clients is not None and clients < 1:
        raise InputError(f"clients = {clients}; allowed: 1 or more")
    rng = generator("partition", seed if spec.seed is None else spec.seed)
    m = _number_of_clients(spec, clients)
    if m is None:
        raise InputError("clients is required: neither the partition nor its caller gives the number")
    n, unit = (X.shape[1], "columns") if spec.kind == "vertical" else (X.shape[0], "rows")
    least = spec.minimum or 1
    each = f" and each needs minimum = {least}" if least > 1 else ""
    check_at_most("clients", m, n // least, "", f", since the data has {n} {unit}{each}")

    if spec.columns is not None:
        indices = _named(spec.columns, names, n)
    elif spec.method == "stratified":
        indices = _stratified(_classes(labels, spec.method), m, rng)
    elif spec.method == "dirichlet":
        indices = _dirichlet(_classes(labels, spec.method), m, 0.5 if spec.alpha is None else spec.alpha, least, rng)
    else:
        sizes = _sizes(spec, m, n, rng)
        order = rng.permutation(n) if spec.shuffle or spec.method == "iid" else np.arange(n)
        indices = [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
    shards = [_part(X, index, 1 if spec.kind == "vertical" else 0) for index in indices]
    own = None if labels is None or spec.kind == "vertical" else tuple(labels[index] for index in indices)
    return Partition(spec.kind, tuple(indices), shards, own, labels if own is None else np.concatenate(own))


def _part(X: Any, index: IndexArray, axis: int) -> Rows:
    """Return a contiguous copy of some rows (axis 0) or columns (axis 1), in order."""
    part = X[index] if axis == 0 else X[:, index]
    return check_rows(part, "data") if sparse.issparse(part) else np.ascontiguousarray(part)


def _sizes(spec: PartitionSpec, m: int, n: int, rng: np.random.Generator) -> IndexArray:
    least = spec.minimum or 1
    if spec.sizes is not None:
        if sum(spec.sizes) != n:
            raise InputError(f"sizes = {list(spec.sizes)} sum to {sum(spec.sizes)}; allowed: sum {n}, as the data has")
        return np.array(spec.sizes)
    if spec.method == "random":
        spare = n - m * (least - 1)  # all but one of each minimum are set aside, the rest is cut at m - 1 places
        cuts = np.sort(rng.choice(np.arange(1, spare), size=m - 1, replace=False))
        return np.asarray(np.diff(cuts, prepend=0, append=spare) + least - 1)
    if spec.method == "power":
        exponent = 1.0 if spec.exponent is None else spec.exponent
        return _in_proportion(n, np.arange(1.0, m + 1) ** -exponent, least)
    return np.array([len(part) for part in np.array_split(np.arange(n), m)])


def _in_proportion(n: int, weights: FloatArray, least: int) -> IndexArray:
    """Divide n in proportion to `weights` by largest remainders, with at least `least` for each."""
    free = np.ones(len(weights), dtype=bool)
    while True:  # ends: the first client, whose weight is the largest, never falls below
        shares = (n - least * np.sum(~free)) * weights / weights[free].sum()
        low = free & (shares < least)
        if not low.any():
            break
        free &= ~low
    shares[~free] = least
    sizes: IndexArray = np.floor(shares).astype(np.intp)
    order = np.argsort(-(shares - sizes), kind="stable")
    sizes[order[: n - sizes.sum()]] += 1
    return sizes


def _named(lists: Sequence[Sequence[Column]], names: Sequence[str], d: int) -> list[IndexArray]:
    """Return the positions of columns listed by position or name. Raises InputError unless each is listed once."""
    named = Counter[Column](names)
    position: dict[Column, int] = {**{name: j for j, name in enumerate(names)}, **{j: j for j in range(d)}}
    seen: set[int] = set()
    for column in [column for listed in lists for column in listed]:
        if column not in position or named[column] > 1:
            why = "names several columns" if column in position else "is not a column"
            raise InputError(f"columns: {column!r} {why}; allowed: positions 0 to {d - 1}{', names' if names else ''}")
        if position[column] in seen:
            raise InputError(f"columns: {column!r} is listed twice; allowed: every column once")
        seen.add(position[column])
    if missing := sorted(set(range(d)) - seen):
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        raise InputError(f"columns: {len(missing)} of {d} are not listed ({some}); allowed: every column once")
    return [np.array([position[column] for column in listed], dtype=np.intp) for listed in lists]


def _classes(labels: AnyArray | None, method: str) -> AnyArray:
    if labels is None:
        raise InputError(f"method = {method!r} needs labels; allowed: data with y")
    if labels.dtype.kind == "f" and not np.all(np.floor(labels) == labels):
        raise InputError(f"method = {method!r} needs labels; y holds fractions; allowed: integers or text")
    return labels


def _stratified(labels: AnyArray, m: int, rng: np.random.Generator) -> list[IndexArray]:
    """Deal rows to clients in turn, shuffled within each label, so that sizes differ by one at most."""
    order = np.concatenate([rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)])
    return [np.sort(order[client::m]) for client in range(m)]


def _dirichlet(labels: AnyArray, m: int, alpha: float, least: int, rng: np.random.Generator) -> list[IndexArray]:
    """Divide the rows of every label by its own draw from Dirichlet(alpha, ..., alpha).

    A client with fewer than `least` rows then takes random ones from the largest.
    """
    owner = np.empty(len(labels), dtype=np.intp)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(np.cumsum(rng.dirichlet(np.full(m, alpha)))[:-1] * len(rows)).astype(np.intp)
        for client, part in enumerate(np.split(rows, cuts)):
            owner[part] = client
    sizes = np.bincount(owner, minlength=m)
    for client in range(m):
        while sizes[client] < least:
            donor = int(sizes.argmax())
            owner[rng.choice(np.flatnonzero(owner == donor))] = client
            sizes[[donor, client]] += [-1, 1]
    return [np.flatnonzero(owner == client) for client in range(m)]

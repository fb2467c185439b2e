"""Runs of a strategy and its client on simulated sites, in this process or through an engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.serverapp import Grid
from scipy import sparse

from fedkernel.data import ArrayTable, SparseTable, Table, TableLike, check_matrix, write_raw
from fedkernel.engines import ENGINES
from fedkernel.engines.local import sites_here
from fedkernel.flower_apps import APPS
from fedkernel.ground import InputError, checked_address
from fedkernel.numerics import import_kernels
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import KernelClient
from fedkernel.run import Result, RunSettings
from fedkernel.site import Site
from fedkernel.wire import Job, RunSpec, simulated_keys

Outputs = dict[int, dict[str, npt.NDArray[Any]]]


def check_tables(tables: Sequence[TableLike], what: str, table: Callable[[Any, str], Any] = check_matrix) -> list[Any]:
    """Convert the clients' tables by `table` (see `KernelClient.table`); InputError if one is invalid."""
    checked = [table(rows, f"{what}[{number}]") for number, rows in enumerate(tables)]
    if not checked:
        raise InputError(f"{what} is empty, but at least one client is needed")
    return checked


@contextmanager
def simulated_sites(
    client: type[KernelClient],
    tables: Sequence[TableLike | TableToPrepare],
    new_tables: Sequence[TableLike] | None = None,
    *,
    y: Sequence[npt.NDArray[Any] | None] | None = None,
    share_rows: bool,
    serialised: bool = False,
) -> Iterator[tuple[Grid, Outputs]]:
    """Yield a grid of simulated sites with these tables, and the sites' outputs. `serialised`: as between machines."""
    outputs: Outputs = {number: {} for number in range(len(tables))}

    def site(number: int) -> Site:
        new = None if new_tables is None else new_tables[number]
        own = None if y is None else y[number]
        more: dict[str, Any] = {"labels": lambda: own, "derived": {}}  # of this run's tables alone
        more["masks"] = partial(simulated_keys, number, len(tables))
        return Site(number, tables[number], new, outputs[number].update, share_rows=share_rows, **more)

    sites = list(map(site, range(len(tables))))

    def find_site(context: Any, config: Any) -> Site:
        return sites[int(context.node_config["partition-id"])]

    with sites_here({client.__name__: client}, find_site, clients=len(tables), serialised=serialised) as grid:
        yield grid, outputs


def run_through_files(
    strategy: type[Any],
    parameters: Mapping[str, Any],
    tables: Sequence[TableLike | TableToPrepare],
    engine: str,
    settings: RunSettings,
    *,
    y: Sequence[npt.NDArray[Any] | None] | None = None,
    evaluate: bool = False,
) -> Result[Any]:
    """Run a strategy on an engine, with the tables and the result in a temporary folder."""
    import_kernels(parameters)  # as other processes will: a script's or notebook's kernel is refused here
    with TemporaryDirectory(prefix="fedkernel-") as folder:
        files = [as_file(table, Path(folder) / f"client-{number}") for number, table in enumerate(tables)]
        labels: list[str | None] | None = None
        if y is not None:
            labels = [None if own is None else as_file(own, Path(folder) / f"labels-{n}") for n, own in enumerate(y)]
        run = RunSpec(
            id="run",
            strategy=checked_address(strategy),
            pair=checked_address(strategy.client),
            parameters=dict(parameters),
            seed=settings.seed,
            shards=files,
            labels=labels,
            clients=len(tables),
            evaluate=evaluate,
            prepare=settings.prepare,
            wire=settings.wire,
            sums=settings.sums,
            privacy=settings.privacy,
        )
        limits: dict[str, Any] = {name: getattr(settings, name) for name in ("deadline", "deadlines", "quorum")}
        job = Job(runs=[run], apps=APPS, out=str(Path(folder) / "out"), whole=True, **limits)
        for _ in ENGINES[engine](job):
            pass
        return Result.load(Path(folder) / "out" / "run")


def as_file(table: Any, stem: Path) -> str:
    """Return the path of a table's file; a table without a file is written at `stem`."""
    if isinstance(table, TableToPrepare):
        return str(write_raw(table.raw, stem.with_suffix(".parquet")))
    if isinstance(table, Table) and table.path is not None:
        return str(table.path.resolve())
    if isinstance(table, SparseTable):
        path = stem.with_suffix(".npz")
        sparse.save_npz(path, table.X)
    elif isinstance(table, ArrayTable | np.ndarray):
        path = stem.with_suffix(".npy")
        np.save(path, table.X if isinstance(table, ArrayTable) else table, allow_pickle=False)
    else:
        raise InputError(f"{table.title} can be read in this process only; other engines need arrays or files")
    return str(path)

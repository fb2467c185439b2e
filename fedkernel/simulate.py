"""Runs a pair on simulated sites: in this process, or through files and an engine that starts processes of its own."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.serverapp import Grid

from fedkernel.arrays import FloatArray
from fedkernel.client import KernelClient
from fedkernel.cohort import RunSettings
from fedkernel.data import check_matrix
from fedkernel.engines import ENGINES
from fedkernel.engines.local import LocalGrid
from fedkernel.errors import InputError
from fedkernel.job import Job, RunSpec
from fedkernel.result import Result
from fedkernel.site import Site, client_app

T = TypeVar("T")

Outputs = dict[int, dict[str, npt.NDArray[Any]]]


def check_tables(tables: Sequence[npt.ArrayLike], what: str) -> list[FloatArray]:
    """Return the clients' tables as finite matrices, or raise an InputError that names the first that is none."""
    checked = [check_matrix(table, f"{what}[{number}]") for number, table in enumerate(tables)]
    if not checked:
        raise InputError(f"{what} is empty, but at least one client is needed")
    return checked


def in_process(
    pair: type[KernelClient],
    tables: Sequence[FloatArray],
    new_tables: Sequence[FloatArray] | None,
    act: Callable[[Grid], T],
) -> tuple[T, Outputs]:
    """Act on a grid whose nodes hold the tables, and return the outcome with what each site kept."""
    outputs: Outputs = {number: {} for number in range(len(tables))}

    def find_site(context: Any, config: Any) -> Site:
        number = int(context.node_config["partition-id"])
        new = None if new_tables is None else new_tables[number]
        return Site(number, tables[number], new, outputs[number].update)

    app = client_app({pair.__name__: pair}, find_site)
    with LocalGrid(app, clients=len(tables)) as grid:
        return act(grid), outputs


def through_files(
    strategy: str,
    parameters: Mapping[str, Any],
    tables: Sequence[FloatArray],
    engine: str,
    settings: RunSettings,
    *,
    evaluate: bool = False,
) -> Result[Any]:
    """Run a registered strategy on an engine by name, its tables and its result going through a temporary folder."""
    with TemporaryDirectory(prefix="fedkernel-") as folder:
        files = [str(Path(folder) / f"client-{number}.npy") for number in range(len(tables))]
        for file, table in zip(files, tables, strict=True):
            np.save(file, table, allow_pickle=False)
        run = RunSpec(
            id="run",
            strategy=strategy,
            parameters=dict(parameters),
            seed=settings.seed,
            shards=files,
            clients=len(tables),
            evaluate=evaluate,
        )
        job = Job(runs=[run], out=str(Path(folder) / "out"), deadline=settings.deadline)
        for _ in ENGINES[engine](job):
            pass
        return Result.load(Path(folder) / "out" / "run")

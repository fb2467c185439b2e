"""Growth of time, memory and floats with rows, columns and clients: a table with fitted exponents.

    python benchmarks/growth.py [--quick] [--only rows] [--pair CentroidKMeans]

Each run is a process of its own, since the peak of memory is the process's. Tables are generated to disk and read in
blocks. An exponent is the slope of logarithms over the two largest sizes: 1 is proportional. `formula` is that of the
method's arithmetic, or of its floats; with clients, of all rows' arithmetic to that of the messages. `engine` is local,
but where Ray is named.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel import RBF, Linear
from fedkernel.data import open_table
from fedkernel.strategies import ADMMKPCA, DKPCA, CentroidKMeans, CentroidKPCA, DisKPCA, FKKMeans, VFedPCA
from fedkernel.strategy.method import Method

BLOCK = 50_000
LIMIT = 200
"""Seconds that a run may take."""

PAIRS: dict[str, Callable[[], Method[Any]]] = {
    "CentroidKPCA": lambda: CentroidKPCA(5, RBF(width="columns"), n_landmarks=50),
    "CentroidKMeans": lambda: CentroidKMeans(5, kernel=RBF(width="columns")),
    "DisKPCA": lambda: DisKPCA(5, RBF(width="columns"), n_adaptive=50, share_rows=True),
    "FKKMeans": lambda: FKKMeans(5, kernel=RBF(width="columns")),
    "ADMMKPCA": lambda: ADMMKPCA(5, RBF(width="columns"), iterations=10, share_rows=True),
    "DKPCA": lambda: DKPCA(5, Linear()),
    "VFedPCA": lambda: VFedPCA(5),
}
VERTICAL = {"DKPCA", "VFedPCA"}


@dataclass(frozen=True)
class Growth:
    """Sizes along one direction.

    Attributes
    ----------
    varied : str
        "rows" (of all sites), "columns" or "clients".
    sizes, quick : tuple of int
    fixed : dict
        What does not vary.
    seconds, floats : str
        Formula by which seconds and floats grow.
    """

    varied: str
    pairs: tuple[str, ...]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    fixed: dict[str, int]
    seconds: str
    floats: str


OTHERS = ("CentroidKPCA", "DisKPCA", "FKKMeans")
HORIZONTAL = (*OTHERS, "CentroidKMeans")
TABLE, WIDE = {"columns": 20, "clients": 10}, {"rows": 1_000, "clients": 5}
GROWTHS = (
    Growth("rows", OTHERS, (10_000, 100_000, 1_000_000), (10_000, 40_000), TABLE, "1", "0"),
    Growth("rows", ("CentroidKMeans",), (10_000, 100_000, 1_000_000, 10_000_000), (10_000, 40_000), TABLE, "1", "0"),
    Growth("rows", ("VFedPCA",), (10_000, 100_000, 1_000_000), (10_000, 40_000), {**TABLE, "clients": 4}, "1", "1"),
    Growth("rows", ("DKPCA",), (1_000, 3_000, 10_000), (1_000, 2_000), {**TABLE, "clients": 4}, "1", "1"),
    Growth("columns", HORIZONTAL, (10, 100, 1_000, 10_000), (10, 100), {"rows": 4_000, "clients": 5}, "1", "1"),
    Growth("columns", ("DKPCA", "VFedPCA"), (20, 100, 1_000, 10_000), (20, 100), WIDE, "1", "0"),
    Growth("clients", HORIZONTAL, (10, 100, 1_000), (4, 16), {"rows": 60_000, "columns": 20}, "0 to 1", "1"),
    Growth("clients", ("DKPCA", "VFedPCA"), (10, 100, 1_000), (4, 16), {"rows": 300, "columns": 5_000}, "0 to 1", "1"),
    Growth("clients", ("ADMMKPCA",), (5, 20, 40), (3, 6), {"rows": 2_400, "columns": 20}, "-1 to 1", "0"),
)


def write_tables(folder: Path, size: dict[str, int], *, vertical: bool) -> list[Path]:
    """Generate each site's table to a file, a block at a time; returns the files."""
    rows, columns, clients = size["rows"], size["columns"], size["clients"]
    centers = 2 * np.random.default_rng(0).standard_normal((5, columns))
    edges = np.linspace(0, columns if vertical else rows, clients + 1).astype(int)
    files = []
    for client in range(clients):
        extent = int(edges[client + 1] - edges[client])
        shape = (rows, extent) if vertical else (extent, columns)
        path = folder / f"{client}.npy"
        stored = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
        for first in range(0, shape[0], BLOCK):
            rng = np.random.default_rng([first, 0 if vertical else client])
            part = stored[first : first + BLOCK]
            block = centers[rng.integers(5, size=len(part))]
            if vertical:
                block = block[:, edges[client] : edges[client + 1]]
                rng = np.random.default_rng([first, client])
            part[:] = block + rng.standard_normal(part.shape)
        stored.flush()
        files.append(path)
    return files


def measure(pair: str, size: dict[str, int], engine: str) -> dict[str, float]:
    """Run a pair on few rows, which imports what it needs, and then on all; returns the figures of the second run."""
    with tempfile.TemporaryDirectory() as folder:
        small = {**size, "rows": 300, "columns": 20, "clients": 2}
        PAIRS[pair]().fit([open_table(path) for path in write_tables(Path(folder), small, vertical=pair in VERTICAL)])
        tables = [open_table(path) for path in write_tables(Path(folder), size, vertical=pair in VERTICAL)]
        began = time.perf_counter()
        result = PAIRS[pair]().fit(tables, engine=engine)
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    totals = result.ledger.totals()
    return {"seconds": seconds, "peak_mb": peak, "floats_up": totals["floats_up"], "rounds": totals["rounds"]}


def apart(pair: str, size: dict[str, int], engine: str = "local") -> dict[str, float] | str:
    """Run a pair in a process of its own; returns why there is no measurement, if there is none."""
    command = [sys.executable, __file__, "--one", json.dumps([pair, size, engine])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no word"])[-1][:160]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def slope(sizes: list[int], values: list[float]) -> float:
    """Return the slope of logarithms over the two largest sizes."""
    if len(sizes) < 2 or min(values[-2:]) <= 0:
        return math.nan
    return math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])


def lines(growth: Growth, pair: str, *, quick: bool) -> Iterator[str]:
    """Yield a line for each size, and one of exponents."""
    sizes, measured = list[int](), list[dict[str, float]]()
    for size in growth.quick if quick else growth.sizes:
        one = apart(pair, {**growth.fixed, growth.varied: size})
        begin = f"{pair:<16} {growth.varied:<8} {size:>11,} "
        if isinstance(one, str):
            yield f"{begin} {one}"
            break
        sizes.append(size)
        measured.append(one)
        yield f"{begin} {one['seconds']:>9.2f} {one['peak_mb']:>8,.0f} {one['floats_up']:>13,.0f} {one['rounds']:>7.0f}"
    found = {name: slope(sizes, [one[name] for one in measured]) for name in ("seconds", "peak_mb", "floats_up")}
    yield (
        f"{pair:<16} {growth.varied:<8} {'exponent':>11}  {found['seconds']:>9.2f} {found['peak_mb']:>8.2f} "
        f"{found['floats_up']:>13.2f}         (formula: {growth.seconds} of seconds, {growth.floats} of floats)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small sizes each")
    parser.add_argument("--only", choices=["rows", "columns", "clients", "ray"])
    parser.add_argument("--pair", choices=PAIRS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*json.loads(arguments.one))))
        return
    print(f"{'pair':<16} {'varied':<8} {'size':>11}  {'seconds':>9} {'peak MB':>8} {'floats up':>13} {'rounds':>7}")
    for growth in GROWTHS:
        for pair in growth.pairs:
            if arguments.only in (None, growth.varied) and arguments.pair in (None, pair):
                for line in lines(growth, pair, quick=arguments.quick):
                    print(line, flush=True)
    if not arguments.quick and arguments.only in (None, "ray"):
        one = apart("CentroidKMeans", {"rows": 60_000, "columns": 20, "clients": 100}, "ray")
        print(f"CentroidKMeans   ray              100  {one if isinstance(one, str) else round(one['seconds'], 2)}")


if __name__ == "__main__":
    main()

"""Seconds of a run with masked sums against the same run in the open, where a reply has a megabyte.

    python benchmarks/masked_sums.py [--engine grpc]

Ten sites of 20 columns, CentroidKPCA with 511 landmarks: 130,816 sums from each site in one reply. Sites have the
fewest rows from which a policy's default lets so many numbers leave, half as many as the table has entries, and a third
of these. Runs take turns; all sites share this machine's cores, so that their masks cost ten times a site's.
"""

import argparse
import statistics
import time

import numpy as np

from fedkernel import CentroidKPCA
from fedkernel.protocol import TABLE_SHARE

SITES, COLUMNS, LANDMARKS, REPEATS = 10, 20, 511, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="local", choices=("local", "grpc"))
    engine = parser.parse_args().engine
    strategy, rng = CentroidKPCA(10, n_landmarks=LANDMARKS), np.random.default_rng(0)
    print("rows a site  numbers/entry  rounds  plain s  masked s  ratio")
    for share in (TABLE_SHARE, 3 * TABLE_SHARE):
        rows = round(LANDMARKS * (LANDMARKS + 1) / 2 * 1.25 / share / COLUMNS)  # 1.25: with the sums of all rounds
        centers = 2 * rng.normal(size=(60, COLUMNS))
        tables = [centers[rng.integers(60, size=rows)] + rng.normal(size=(rows, COLUMNS)) for _ in range(SITES)]
        seconds: dict[str, list[float]] = {"plain": [], "masked": []}
        for repeat in range(REPEATS + 1):
            for sums, took in seconds.items():
                began = time.perf_counter()
                result = strategy.fit(tables, seed=repeat, sums=sums, engine=engine)
                took.append(time.perf_counter() - began)
        totals = result.ledger.totals()
        plain, masked = (statistics.median(took[1:]) for took in seconds.values())  # the first run imports, too
        sent = totals["floats_up"] / (SITES * rows * COLUMNS)
        print(f"{rows:11,}  {sent:13.2f}  {totals['rounds']:6}  {plain:7.2f}  {masked:8.2f}  {masked / plain:5.2f}")


if __name__ == "__main__":
    main()

"""Runs in which a site says something else than it has computed, once, for every pair and class of reply: `make bench`.

A reply, or a letter to a peer, has numbers too large, too small, not finite, negated, doubled, not whole, of another
shape or in other rows, by a seed. Each run must end with finite numbers, or with one sentence that names this site and
no other; any other ending is shown, and is a failure in the end. Not a test: it takes a quarter of an hour.
tests/strategies/test_lying_sites.py does a little of it.
"""

import argparse
import logging
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lying import LIES, RUNS, classes, ending

ENDINGS = ("refused", "finished", "another blamed", "nobody named", "not finite", "hung", "crashed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="each lie in each class of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="append", choices=list(RUNS), help="by default all")
    parser.add_argument("--lie", action="append", choices=list(LIES), help="by default all")
    arguments = parser.parse_args()
    console, counts, began = Console(width=120, highlight=False), defaultdict[str, Counter[str]](Counter), time.time()
    logging.disable(logging.WARNING)  # of clusters, and of what does not settle
    for name in arguments.run or RUNS:
        for kind in classes(name):
            for lie in arguments.lie or LIES:
                for seed in range(arguments.seed, arguments.seed + arguments.times):
                    end, told, text = ending(name, kind, lie, seed)
                    counts[kind][end] += 1
                    if end not in ("refused", "finished", "not told"):
                        where = f"{kind} {told.time + 1} of client {told.site}, {told.told}, {lie}, seed {seed}"
                        console.print(f"{end}: {name}: {where}: {text}", markup=False)
    logging.disable(logging.NOTSET)
    table = Table("reply or letter", "runs", "refused, naming it", "finished, finite", *ENDINGS[2:], box=None)
    total = Counter[str]()
    for kind, ended in [*sorted(counts.items()), ("all", total)]:
        if ended is not total:
            total.update(ended)
        numbers = [ended[end] for end in ENDINGS]
        table.add_row(kind, *(f"{number:,}" for number in (sum(numbers), *numbers)))
    console.print(table)
    console.print(f"{time.time() - began:.0f} s")
    if failures := sum(total[end] for end in ENDINGS[2:]):
        sys.exit(f"{failures} runs did not end as they must")


if __name__ == "__main__":
    main()

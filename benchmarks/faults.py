"""Histories of a network that goes wrong by a seed, over the real hub and real nodes on a virtual clock: `make bench`.

In three of ten the server dies, too, up to three times, and another goes on with the run's journal, of which the end
may be missing or a bit be another one; in one of ten all is one process, which dies so. Each history ends as the run
without faults does, to the bit, or with one failure that names a site, by the round's deadline; where a site is gone
for good, a server that was started again waits for it.
One that does not is a violation: its seed is printed, and `--seed N` replays it with all that happens.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from lives import history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seed", type=int, help="replay one, and print what happens")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    if arguments.seed is not None:
        console.print(*history(arguments.seed, trace=lambda text: console.print(text, markup=False)))
        return
    began, endings, faults, violations = time.monotonic(), Counter[tuple[str, str]](), Counter[str](), list[int]()
    for seed in range(arguments.first, arguments.first + arguments.histories):
        try:
            name, ending, met = history(seed)
        except Exception as error:
            violations.append(seed)
            console.print(f"seed {seed}: {type(error).__name__}: {error}", markup=False)
            continue
        endings[name, ending] += 1
        faults.update(met)
    table = Table("pair", "ending", "histories", box=None)
    for (name, ending), count in sorted(endings.items()):
        table.add_row(name, ending, f"{count:,}")
    console.print(table)
    listed = ", ".join(f"{fault} {count:,}" for fault, count in sorted(faults.items()))
    console.print(f"{arguments.histories:,} histories, {time.monotonic() - began:.0f} s; faults: {listed}")
    if violations:
        raise SystemExit(f"{len(violations)} violations; seeds {', '.join(map(str, violations))}")


if __name__ == "__main__":
    main()

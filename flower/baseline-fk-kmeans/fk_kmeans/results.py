"""Table of a run's outer iterations: floats uploaded, Lanczos iterations and rank (figures 2, 4 and 5)."""

import sys
from itertools import groupby
from pathlib import Path

from fedkernel import Result


def table(folder: str | Path) -> str:
    """Return a Markdown table of the result in a folder, with the means over its outer iterations last."""
    rounds = [(row["values"]["t"], row) for row in Result.load(folder).history if "t" in row.get("values", {})]
    rows = []
    for t, group in groupby(rounds, key=lambda pair: pair[0]):
        those = [row for _, row in group]
        steps = len({row["values"]["lanczos_step"] for row in those if "lanczos_step" in row["values"]})
        rows.append((t, sum(row["floats_up"] for row in those), steps, those[-1]["values"].get("rank")))
    lines = ["| t | floats up | Lanczos iterations | rank |", "|---|---|---|---|"]
    lines += [f"| {t} | {floats:,} | {steps} | {rank} |" for t, floats, steps, rank in rows]
    floats, steps, ranks = ([row[place] for row in rows] for place in (1, 2, 3))
    means = [sum(values) / len(rows) for values in (floats, steps, ranks)]
    return "\n".join([*lines, "| mean | {:,.0f} | {:.1f} | {:.1f} |".format(*means)])


if __name__ == "__main__":
    print(table(sys.argv[1]))

"""Rows that any pair's sums give back, by `guards.table_share`: the attacks of pooled_attacks.py, run on every pair.

``OPENBLAS_NUM_THREADS=1 python benchmarks/pooled_sums.py [--seconds 8]`` writes docs/results/pooled-sums.md and its
figure in about 15 minutes. The page as it stands is of 3 seconds for `UniformKPCA`, vertical pairs and landmarks of the
coordinator's own, and without products of kernel values for `DisKPCA`. `SpectralKMeans` is as `UniformKPCA`.

Three sites each have 10 rows of wine's first 3 columns; or, where columns are divided, 5 of breast cancer's columns of
20 rows, of which one more than there are columns are known. From as many sums as guards of that share (8 to 0.25) let
through, the attacker searches for rows that give the same: of *all sites*, or, by the difference of two runs, for those
that one run lacks. A cell has the share of rows found to a tenth of their mean length, and in brackets the sums for
each entry sought; a dash stands for fewer sums than a row has entries. Real guards let fewer through for two runs.
"""

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cases import PAIRS
from pooled_attacks import KINDS, most_requests, recover, strategies_of, tables

DOCS = Path(__file__).parents[1] / "docs"
SHARES = (8.0, 2.0, 1.0, 0.5, 0.25)
FIGURE = "![Share of the rows recovered, by attack, pair and table_share](../images/pooled-sums.png)"
CHOSEN = "CentroidKPCA"
"""The pair that is also attacked by a coordinator that sends landmarks of its own."""


def attacked(pair, chosen, share, seconds):
    """Return what each attack recovers of a pair at one share."""
    vertical = next(strategies_of(pair)).partition == "vertical"
    logging.disable()
    requests, recovered = most_requests(pair, own := tables(vertical), share, chosen=chosen), []
    for kind in KINDS:
        limit = 3 * seconds if kind == KINDS[0] else seconds
        recovered.append(recover(own, requests, kind, vertical=vertical, seconds=limit))
    print(pair, "landmarks of its own" if chosen else "", share, *map(cell, recovered), flush=True)
    return recovered


def cell(recovered):
    return "-" if recovered is None else f"{recovered.near:.0%} ({recovered.equations:.2g})"


def draw(results):
    """Draw the recovered shares against the share of the table, a panel for each attack."""
    figure, panels = plt.subplots(1, len(KINDS), figsize=(14, 3.6), sharey=True, layout="constrained")
    for kind, panel in zip(KINDS, panels, strict=True):
        for number, (name, kinds) in enumerate(results.items()):
            near = [np.nan if own is None else 100 * own.near for own in kinds[kind]]
            style = ("-", "--", ":", "-.")[number % 4]
            panel.plot(SHARES, near, style, marker="os^vD*"[number % 6], label=name, alpha=0.8)
        panel.axvline(0.5, color="grey", linewidth=0.8)
        panel.set(xscale="log", title=kind, xlabel="table_share", xticks=SHARES, xticklabels=[f"{s:g}" for s in SHARES])
        panel.minorticks_off()
    panels[0].set_ylabel("rows recovered, %")
    panels[-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(DOCS / "images" / "pooled-sums.png", dpi=100, metadata={"Software": None})


def write(results):
    """Write the table and the figure."""
    few = [name for name, kinds in results.items() if not any(any(kind) for kind in kinds.values())]
    results = {name: kinds for name, kinds in results.items() if name not in few}
    lines = [f"| pair | attack | {' | '.join(f'{share:g}' for share in SHARES)} |", f"|{' --- |' * (len(SHARES) + 2)}"]
    lines += [
        f"| {name} | {kind} | {' | '.join(map(cell, results[name][kind]))} |" for name in results for kind in KINDS
    ]
    lines += ["", f"Not attacked, with fewer sums than a row has entries: {', '.join(few)}."]
    text = ["# Rows recovered from sums", "", (__doc__ or "").strip(), "", FIGURE, "", *lines]
    (DOCS / "results" / "pooled-sums.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    draw(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="of processor time, for each search; thrice as many for all sites"
    )
    arguments = parser.parse_args()
    cases = {pair: (pair, False) for pair in sorted(PAIRS, key=str.lower) if pair != "SpectralKMeans"}
    cases[f"{CHOSEN}, landmarks of its own"] = CHOSEN, True
    with ProcessPoolExecutor(2) as pool:
        tried = {
            (name, share): pool.submit(attacked, *case, share, arguments.seconds)
            for name, case in cases.items()
            for share in SHARES
        }
        results = {
            name: dict(zip(KINDS, zip(*(tried[name, share].result() for share in SHARES), strict=True), strict=True))
            for name in cases
        }
    write(results)


if __name__ == "__main__":
    main()

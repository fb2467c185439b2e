"""How each pair does with nothing but data: ``make defaults`` writes docs/results/defaults.md.

Every pair by its defaults, raw and standardised, on scikit-learn's sets and, where FEDKERNEL_DATA names their folder,
five more of at most 1,500 rows: at five sites of equal size (*whole*), and with few rows (*60 rows*): at the first site
where rows are divided, in all where columns are. Errors are against all tables in one place, and 0 where equal:

- sin-theta of the components, where columns are divided
- of pairs with landmarks, the reconstruction error above the least, as a share of the least
- of ADMM, 1 less the similarity to the leading direction of all rows
- of clusters, the objective of kernel k-means with the sites' labels above that with the central labels, as a share of
  the latter
"""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkernel import strategies
from fedkernel.data import DataSpec, load
from fedkernel.models import training_coordinates
from fedkernel.numerics import assign

OUT = Path(__file__).parents[1] / "docs" / "results" / "defaults.md"
BUNDLED = {"digits": 10, "wine": 3, "iris": 3, "breast_cancer": 2}
GIVEN = {"npz:satellite": 6, "npz:vehicle": 4, "npz:shuttle": 7, "npz:ionosphere": 2, "npz:college": 2}
"""Data sets, and their classes."""

ROWS, SITES, FEW = 1500, 5, 60
EQUAL = 1e-10
"""Error below which answers are equal; what is left is rounding."""

KINDS = {"floats": "floats were sent", "rows": "of their raw rows", "landmarks": "landmarks for"}
KINDS |= {"table": "numbers per table entry", "features": "random features in all"}
KINDS |= {
    "left out": "that sites left out",
    "width": "mean kernel value",
    "rounds": "rounds",
    "turning": "directions turned",
}
"""What findings are called in the table, by words that are in them."""


@dataclass(frozen=True)
class Pair:
    """A pair with nothing but data, made for a number of classes; its figure, and fields of a careful setting."""

    make: Callable[[int], Any]
    figure: str
    careful: Mapping[str, Any] = field(default_factory=dict)


SHOWN = {"share_rows": True}
PAIRS = {
    "DKPCA": Pair(lambda k: strategies.DKPCA(3), "error", {"local_components": 15}),
    "VFedPCA": Pair(lambda k: strategies.VFedPCA(), "error", {"rounds": 100}),
    "VFedAKPCA": Pair(lambda k: strategies.VFedAKPCA(), "error", {"rounds": 100}),
    "PeerVFedPCA": Pair(lambda k: strategies.PeerVFedPCA(), "error", {"rounds": 100}),
    "CentroidKMeans": Pair(strategies.CentroidKMeans, "objective", {"n_landmarks": 200}),
    "CentroidKPCA": Pair(lambda k: strategies.CentroidKPCA(), "error_ratio", {"n_landmarks": 100}),
    "DisKPCA": Pair(lambda k: strategies.DisKPCA(**SHOWN), "error_ratio", {"n_adaptive": 200}),
    "UniformKPCA": Pair(lambda k: strategies.UniformKPCA(**SHOWN), "error_ratio", {"n_samples": 200}),
    "FKKMeans": Pair(strategies.FKKMeans, "objective", {"accuracy": 0.0, "iterations": 50, "coreset_size": 300}),
    "RFKKMeans": Pair(strategies.RFKKMeans, "objective", {"n_features": 1000}),
    "SpectralKMeans": Pair(
        lambda k: strategies.SpectralKMeans(k, SHOWN), "objective", {"components": {"n_adaptive": 200, **SHOWN}}
    ),
    "ADMMKPCA": Pair(lambda k: strategies.ADMMKPCA(**SHOWN), "similarity", {"iterations": 40}),
}


class Outcome(NamedTuple):
    """What a run came to."""

    error: float
    floats: float
    rounds: int
    rows: int
    findings: list[str]

    @property
    def kinds(self) -> dict[str, str]:
        """The findings by their kind."""
        return {next((kind for kind, words in KINDS.items() if words in text), "other"): text for text in self.findings}


def table_of(name: str, *, standardised: bool, rows: int = ROWS) -> np.ndarray:
    """Return so many rows at most of a set, in an order of their own."""
    X = np.asarray(load(DataSpec(name)).X, dtype=float)
    X = X[np.random.default_rng(0).permutation(len(X))[:rows]]
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0) if standardised else X


def sites_of(X: np.ndarray, partition: str, *, few: bool) -> list[np.ndarray]:
    """Divide a table among the sites."""
    if partition == "vertical":
        return np.array_split(X[:FEW] if few else X, min(SITES, X.shape[1]), axis=1)
    return [X[:FEW], *np.array_split(X[FEW:], SITES - 1)] if few else np.array_split(X, SITES)


def outcome(strategy: Any, shards: list[np.ndarray], figure: str) -> Outcome:
    """Run a pair once."""
    reference = strategy.central(shards)
    result = strategy.fit(shards, seed=0, reference=reference)
    whole = sum(shard.size for shard in shards)
    if figure == "objective":
        labels = np.concatenate([result.outputs[site]["labels"] for site in range(len(shards))])
        X, expected = np.vstack(shards), assign(training_coordinates(reference), reference.centers_)[0]
        kernel = strategy.as_run(result).settled_on(shards)
        K = getattr(kernel, "components", kernel).kernel.settled(X.shape[1]).gram(X)
        error = objective(K, labels) / objective(K, expected) - 1
    else:
        value = result.metrics[figure]
        error = {"error": value, "error_ratio": value - 1, "similarity": 1 - value}[figure]
    ledger = result.ledger
    return Outcome(error, ledger.floats_up / whole, ledger.rounds, ledger.rows_up, result.findings)


def objective(K: np.ndarray, labels: np.ndarray) -> float:
    """Return the squared distances of rows to their clusters' means in feature space, by the kernel matrix."""
    within = sum(K[np.ix_(rows, rows)].mean(axis=1).sum() for rows in map(np.flatnonzero, _each(labels)))
    return float(np.trace(K) - within)


def _each(labels: np.ndarray) -> Iterator[np.ndarray]:
    return (labels == label for label in np.unique(labels))


def main() -> None:
    """Write the page."""
    sets = BUNDLED | (GIVEN if os.environ.get("FEDKERNEL_DATA") else {})
    above, waits, sentences, sections = [], [], {}, []
    for name, pair in PAIRS.items():
        lines = []
        for data, k in sets.items():
            for standardised in (False, True):
                for few in (False, True):
                    strategy = pair.make(k)
                    X = table_of(data, standardised=standardised)
                    got = outcome(strategy, sites_of(X, strategy.partition, few=few), pair.figure)
                    cells = [data.removeprefix("npz:"), "standardised" if standardised else "raw"]
                    error = got.error if abs(got.error) > EQUAL else 0
                    cells += ["60 rows" if few else "whole", f"{error:.2g}", f"{got.floats:.2f}"]
                    lines.append([*cells, str(got.rounds), str(got.rows), ", ".join(got.kinds)])
                    sentences |= got.kinds
                    above += [(name, got)] if got.floats > 1 else []
                    waits += [got.rounds] if name == "FKKMeans" else []
        print(name, flush=True, file=sys.stderr)
        sections += [f"## {name}", "", *_table(lines), ""]
    unsaid = sum("floats" not in got.kinds for _, got in above)
    said = (
        f"{len(above)} runs take more floats than the whole table has, {unsaid} of them without a finding that says so"
    )
    lead = (__doc__ or "").split("\n\n", 1)[1]
    text = ["# Every pair at its defaults", "", lead.strip(), ""]
    took = " to ".join(map(str, sorted({min(waits), max(waits)})))
    text += [f"{said}. FK k-means takes {took} rounds in each of these runs.", ""]
    floats = "Floats are those up, as a share of N d, the entries of all tables"
    text += [f"Written by `make defaults`. {floats}; findings by their kind, such as:", ""]
    text += [f"- {kind}: {sentence}" for kind, sentence in sorted(sentences.items())]
    OUT.write_text("\n".join([*text, "", *sections]).rstrip() + "\n", encoding="utf-8")
    print(textwrap.fill(said))


def _table(lines: list[list[str]]) -> list[str]:
    head = ["set", "units", "rows", "error", "floats / N d", "rounds", "rows sent", "findings"]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * 3 + ["---:"] * 4 + ["---"], *lines)]


if __name__ == "__main__":
    main()

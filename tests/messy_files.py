"""Three sites' files as they come: rows of scikit-learn's wine data of two cultivars, which k-means tells apart.

Over the rows of all sites, standardised, k-means agrees with the cultivar in every row (adjusted Rand index 1); with
one column of site c in another unit only by half (0.51). What stands between these files and that answer:

- a is clean: commas, points, UTF-8; its text column ``note`` is to be dropped, as at all sites.
- b was exported by a spreadsheet elsewhere: semicolons, decimal commas, Latin-1, other columns' order, blanks around
  names, and ids that a spreadsheet took for numbers: the zeros in front are cut.
- c has `OTHER_UNIT` in another unit, and `MISSING` empty cells.
"""

import csv
import io
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_wine

COLUMNS = ("alcohol", "ash", "magnesium", "flavanoids", "colour", "proline")
PLACES = (0, 2, 4, 6, 9, 12)  # among the columns of wine
ID, LABEL, NOTE = "sample", "cultivar", "note"
SITES = ("a", "b", "c")
OTHER_UNIT, FACTOR = "flavanoids", 18
MISSING = {"ash": (3, 8), "colour": (5,), "flavanoids": (8, 20)}
"""Positions of the rows of site c whose cell is empty, by column."""

SCHEMA = """\
# Written by hand, for all sites.
ids = true
id_length = 5

[columns]
alcohol = { unit = "%", from = 10, to = 16 }
ash = { from = 0, to = 5 }
magnesium = { unit = "mg/l", from = 50, to = 200, whole = true }
flavanoids = { from = 0, to = 8 }
colour = { from = 0, to = 20 }
proline = { unit = "mg/l", from = 100, to = 2500, whole = true }
"""


class Truth(NamedTuple):
    """What the files were made of: X (n, 6) in one unit without empty cells, the cultivar, id and site of each row."""

    X: np.ndarray
    cultivars: np.ndarray
    ids: tuple[str, ...]
    sites: np.ndarray

    def of(self, site):
        """The part of a site."""
        here = self.sites == site
        return Truth(self.X[here], self.cultivars[here], tuple(np.array(self.ids)[here].tolist()), self.sites[here])


def truth():
    """All rows, shuffled and dealt out to the sites; every fifth id begins with a zero."""
    wine = load_wine()
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.flatnonzero(wine.target != 1))
    numbers = rng.choice(90_000, rows.size, replace=False) + 10_000
    numbers[::5] %= 10_000
    assert len(set(numbers.tolist())) == rows.size
    names = np.array(["Barolo", "", "Barbera"])[wine.target[rows]]
    ids = tuple(f"{number:05}" for number in numbers)
    X = wine.data[np.ix_(rows, PLACES)]
    return Truth(X, names, ids, np.array(SITES)[np.arange(rows.size) % 3])


def write_messy_files(folder, whole=True):
    """Write a.csv, b.csv, c.csv and schema.toml; without `whole`, c.csv has one row. Return the files by site."""
    everything = truth()
    paths = {site: folder / f"{site}.csv" for site in SITES}
    a, b, c = (_cells(everything.of(site)) for site in SITES)
    paths["a"].write_bytes(_text(a).encode())
    order = [LABEL, *COLUMNS[::-1], NOTE, ID]
    b = {f" {name} " if name in ("ash", "colour") else name: b[name] for name in order}
    b = {name: [cell.replace(".", ",") for cell in column] for name, column in b.items()}
    b[ID] = [str(int(cell)) for cell in b[ID]]
    paths["b"].write_bytes(_text(b, delimiter=";").encode("latin-1"))
    c[OTHER_UNIT] = [f"{float(cell) * FACTOR:.12g}" for cell in c[OTHER_UNIT]]
    for name, positions in MISSING.items():
        for position in positions:
            c[name][position] = ""
    if not whole:
        c = {name: column[:1] for name, column in c.items()}
    paths["c"].write_bytes(_text(c).encode())
    (folder / "schema.toml").write_text(SCHEMA)
    return paths


def _cells(part):
    columns = {name: [f"{cell:.12g}" for cell in column] for name, column in zip(COLUMNS, part.X.T, strict=True)}
    notes = [f"gerührt, Fass {row}" for row in range(len(part.ids))]
    return {ID: list(part.ids), **columns, LABEL: part.cultivars.tolist(), NOTE: notes}


def _text(columns, delimiter=","):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()

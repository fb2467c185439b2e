"""docs/explanation/privacy.md: cards of attacks. ``cd tests && python -m attacks.cards`` writes it."""

import inspect
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from attacks import table
from attacks.algebra import EXACT
from attacks.target import STUDIES
from fedkernel.ground import InputError, load_class
from fedkernel.protocol import Member, Plan, forecast_share, privacy, share_text
from fedkernel.strategy import KernelStrategy, strategy_of
from fedkernel.wire import masked_sums

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "privacy.md"

HEAD = """# What attacks recover

What can a coordinator or a peer recover of a site's table from the numbers that leave it, and what stops that?
What the preparation of raw tables tells is in [raw tables](../how-to/preparing.md#where-sites-hold-rows).

- A sum over all sites shows no single row, but many sums are equations for the rows. Each site limits
  [how many numbers leave](#numbers-for-each-entry).
- [Masks](#masked-sums) hide each site's part of a sum from the coordinator.
- Only [noise](#noise) gives a guarantee, differential privacy. All else on this page is measured with
  [attacks](#attacks) that somebody thought of, and not proven.
"""

SUMS = """
## Nothing but sums

Some pairs need nothing but sums over all sites. The coordinator still receives each site's reply, and could look at
it, unless the sums are masked. The table has all other replies, and letters to peers, of a run at its defaults, and of
the rounds in which the sites measure its model (`evaluate = true`).

"""

MASKS = f"\n## Masked sums\n\n{inspect.cleandoc(str(masked_sums.__doc__))}\n"
NOISE = f"\n## Noise\n\n{inspect.cleandoc(str(privacy.__doc__))}\n"

ENTRIES = """
## Numbers for each entry

Each number that follows from the rows is an equation for them. So in a run a site lets at most half as many numbers
leave as its table has entries, to any one reader (`guards.table_share`). From so many, searches and equations found no
row exactly. But PCA's products gave the inner products of correlated columns to about a tenth, and with known rows the
other rows to about a third ([measured](../results/what-sums-tell.md)). **Nothing is proven below half.**

In all runs together, at most ten times as many leave, to all readers; an operator who wants no more than in one run
sets `limits.total.share` to 0.5. Only a new folder (`--out`) begins the count anew. Masked numbers count like others.
Where columns are divided, sites of few columns exceed the limit by nature, since each vector has a number for every
row.

The table forecasts these numbers at the defaults with 3 components or clusters, for the site with the smallest table,
with letters to all peers together. By default sites with fewer than 20 rows answer nothing.

"""

THERE = """
Attacks on honest runs at these shapes recovered ([last table](../results/what-sums-tell.md)):

- from `VFedPCA`, `VFedAKPCA`, and `PeerVFedPCA` if the peer is the parent of a leaf: all rows of a site, if one more
  row is known than the site has columns (for `VFedAKPCA` twice as many), with a relative error of at most 0.09 for up
  to 6 columns, and 0.3 from 40 columns on; from `DKPCA` with an error of 0 for one column, 0.7 to 0.9 for more
- from `FKKMeans` and `DisKPCA`: rows nearer than random rows with the table's covariance by a quarter at most
- from `RFKKMeans`: 21 to 33% of the rows exactly
- from `DisKPCA`, `UniformKPCA`, `SpectralKMeans`: the landmarks, which are rows
- from `CentroidKMeans`, `CentroidKPCA`: means of groups of at least 5 rows
- from `ADMMKPCA`: all rows, by the neighbours

Searches for more than 100,000 entries were not tried.

"""

NO_SECRECY = """## Sums are not secrecy

Masks hide single replies, but the sums remain. `python benchmarks/pooled_sums.py` attacks the sums of every pair
([all figures](../results/pooled-sums.md)).

![Share of the rows recovered, by attack, pair and table_share](../images/pooled-sums.png)

- **One run.** The attacker has the sums of all sites, or of one site if another run was without it. With
  `guards.table_share` at 0.5 and below it finds no more rows than chance gives. Above, it finds rows in FK k-means and
  disKPCA from about 1.5 sums for each entry on, and where columns are divided and some rows are known, from 0.9. Longer
  searches find more.
- **Two runs whose rows differ by one.** The difference of their sums gives this row exactly, for any pair that sums
  columns, as the rule for a kernel's width does. `table.rows_apart` stops this: runs at a site are on the same rows,
  or on rows that differ by at least 20.
- **Two runs whose rows differ by more**, here by a fifth. At 0.5 these rows are found in FK k-means and disKPCA. So a
  site counts the numbers of such a run against these rows' entries alone, which the benchmark does not.
- **Means of groups' coordinates** (`clusters = "lloyd"`). From the mean of 200 features of 44 rows, no row is found.
  Whoever knows 35 of the rows finds the other 9 exactly.
- **Several runs** that ask for other features are like one run with more numbers. Only `limits.total.share` stops this.
"""

CARDS = """## Attacks

Each attack is carried out twice: at a site that has approved everything and has no guards, but lets rows leave only
where the card says so; and, *guarded*, at a site of `fedkernel join` with its defaults, a key for ids and pins for
peers. Tables are scikit-learn's wine and breast cancer, standardised.
`cd tests && ../.venv/bin/python -m attacks.cards` carries all out and writes this page
([tests/attacks](../../tests/attacks)).

| word | meaning |
| --- | --- |
| honest-but-curious | follows the protocol; the guarded site has approved just what it asks |
| malicious | departs from an approved study, or keeps to its plan with vectors of its own |
| recovered | relative error in the Frobenius norm of what the attack is after: 0 is all but rounding, 1 is nothing |
| half the directions | half as many vectors as there are columns; known rows give the others' parts along these |

If a guard ends a run, what came before it counts as recovered. Other attacks may recover more, and some may ask for
less than a guard refuses.
"""

SHAPES = ((178, 13), (4000, 16), (20000, 784))
SITES = (3, 20)

LESS: Mapping[str, str] = {
    "ADMMKPCA": 'for wide tables `exchange = "features"` with few features; else nothing',
    "CentroidKMeans": "fewer landmarks (`n_landmarks`) or `rounds`",
    "CentroidKPCA": "fewer landmarks (`n_landmarks`) or `rounds`",
    "DKPCA": "`local_components` below half of a site's columns",
    "DisKPCA": "fewer landmarks (`n_adaptive`), and a smaller `embedding_size`",
    "FKKMeans": "larger sites",
    "PeerVFedPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
    "RFKKMeans": "fewer `n_features`, a smaller `coreset_size`; or `FKKMeans`",
    "SpectralKMeans": "fewer landmarks; a smaller `coreset_size`",
    "UniformKPCA": "fewer landmarks (`n_samples`)",
    "VFedAKPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
    "VFedPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
}
"""Settings with which a pair sends less."""

ANY = (*table.HORIZONTAL, *table.VERTICAL)
FAMILIES = (("ADMMKPCA",), table.CENTROIDS, table.LANDMARKS, table.KMEANS, table.VERTICAL, ANY)
"""Pairs of each card: an attack is on the first that has all of its own."""

COLUMNS = ("attack", "pairs", "adversary", "recovered", "guarded", "what stops it", "what remains")

WORSE: Mapping[table.Adversary, table.Adversary] = {
    table.MALICIOUS: table.CURIOUS,
    table.MALICIOUS_PEER: table.CURIOUS_PEER,
}

Figures = Mapping[tuple[str, str], tuple[str, str, str]]
"""By attack and pair, relative errors as the page has them, without and with guards, and what stopped it."""


def digit(error: float) -> str:
    """Return a relative error as the page has it."""
    return "0" if error < EXACT else "1" if error > STOPPED else f"{error:.1g}"


STOPPED = 0.9
"""An attack with a larger relative error has recovered nothing."""


def safe_against(pair: str, figures: Figures) -> list[table.Adversary]:
    """Return the adversaries that recover nothing of a pair's guarded site, with any of the attacks.

    A malicious one can do what an honest-but-curious one does. One with whom no attack was tried is not among them.
    """
    against = {name: attack for name, attack in table.ATTACKS.items() if pair in attack.pairs}
    beaten = {attack.adversary for name, attack in against.items() if figures[name, pair][1] != "1"}
    beaten |= {malicious for malicious, curious in WORSE.items() if curious in beaten}
    safe = {attack.adversary for attack in against.values()} - beaten
    safe |= {WORSE[who] for who in safe if who in WORSE}
    return [who for who in get_args(table.Adversary) if who in safe]


def card(family: Sequence[str], figures: Figures) -> str:
    """Return the card of some pairs."""
    lines = [f"## {'Any pair' if family == ANY else ', '.join(family)}", ""]
    lines += [_line(*COLUMNS), _line(*["---"] * len(COLUMNS))]
    for name, attack in table.ATTACKS.items():
        if next(own for own in FAMILIES if set(attack.pairs) <= set(own)) != family:
            continue
        alike: dict[tuple[str, str, str], list[str]] = {}
        for pair in attack.pairs:
            alike.setdefault(figures[name, pair], []).append(pair)
        for figure, pairs in alike.items():
            whose = "all" if len(pairs) == len(family) else ", ".join(pairs)
            lines.append(_line(_says(name, attack), whose, attack.adversary, *figure, attack.remains))
    return "\n".join(lines) + "\n"


def page(figures: Figures) -> str:
    """Return the whole page."""
    pairs = sorted({pair for _, pair in table.CASES}, key=str.lower)
    return "\n".join(
        [
            HEAD + SUMS + sums_of(pairs) + MASKS + NOISE + ENTRIES + shares_of(pairs) + THERE + NO_SECRECY,
            CARDS,
            safe_ones(pairs, figures),
            *(card(family, figures) for family in FAMILIES),
        ]
    )


def safe_ones(pairs: Sequence[str], figures: Figures) -> str:
    """Return a table of the adversaries that recover nothing of a guarded site."""
    alike: dict[str, list[str]] = {}
    for pair in pairs:
        alike.setdefault(", ".join(safe_against(pair, figures)) or "nobody", []).append(f"`{pair}`")
    lines = [_line("pairs", "at a guarded site these attacks recover nothing for"), _line("---", "---")]
    return "\n".join([*lines, *(_line(", ".join(own), who) for who, own in alike.items())]) + "\n"


def sums_of(pairs: Sequence[str]) -> str:
    """Return a table of the messages that a pair's coordinator does not only add up."""
    lines = [_line("pair", "sums only", "other replies and letters", "to measure the model"), _line(*["---"] * 4)]
    for pair in pairs:
        for more in ({}, {"clusters": "lloyd"})[: 2 if pair in (*table.KMEANS, "SpectralKMeans") else 1]:
            strategy = strategy_of(pair, STUDIES[pair] | more)
            alone, measured = (_alone(plan) for plan in (strategy.plan(3, 0), strategy.evaluation_plan()))
            setting = "".join(f', `{name} = "{value}"`' for name, value in more.items())
            lines.append(_line(f"`{pair}`{setting}", "no" if alone else "**yes**", alone, measured))
    return "\n".join(lines) + "\n"


def _alone(plan: Plan | None) -> str:
    """Return the classes of a plan's replies, and letters, that are not summed."""
    requests = [request for step in plan or () for request in step.requests]
    single = [own.reply for own in requests if not own.summed and own.reply != "Receipt"]
    return ", ".join(
        f"`{name}`" for name in dict.fromkeys([*single, *(post for own in requests for post in own.posts)])
    )


def shares_of(pairs: Sequence[str]) -> str:
    """Return a table of the numbers for each entry that are forecast at the defaults."""
    settings = [(shape, sites) for shape in SHAPES for sites in SITES]
    lines = [_line("pair", *(f"{n:,} x {d}, {sites} sites" for (n, d), sites in settings), "for less")]
    lines.append(_line(*["---"] * (len(settings) + 2)))
    for pair in pairs:
        shares = (_share(pair, *shape, sites) for shape, sites in settings)
        lines.append(_line(f"`{pair}`", *shares, LESS[pair]))
    return "\n".join(lines) + "\n"


def _share(pair: str, rows: int, columns: int, sites: int) -> str:
    kind = load_class(pair, KernelStrategy, "pairs", "pair")
    number = "n_clusters" if "n_clusters" in inspect.signature(kind).parameters else "n_components"
    shares_rows = {"share_rows": True} if "share_rows" in inspect.signature(kind).parameters else {}
    if pair == "SpectralKMeans":
        shares_rows = {"components": {"share_rows": True}}
    strategy = kind(**({} if pair == "ADMMKPCA" else {number: 3}), **shares_rows)
    if strategy.partition == "vertical":
        parts = [(rows, len(part)) for part in np.array_split(np.arange(columns), min(sites, columns))]
    else:
        parts = [(len(part), columns) for part in np.array_split(np.arange(rows), sites)]
    members = [Member(number, number, *part) for number, part in enumerate(parts)]
    try:
        return share_text(forecast_share(strategy.forecast_of_run(members), members))
    except InputError:
        return "-"


def written() -> Figures:
    """Return the figures of the page that is there."""
    figures = {}
    row = r"^\| \*\*(.+?)\*\*.*? \| ([^|]+) \| [^|]+ \| (\S+) \| (\S+) \| ([^|]+) \|"
    for name, pairs, *figure in re.findall(row, PAGE.read_text(), flags=re.M):
        for pair in table.ATTACKS[name].pairs if pairs == "all" else pairs.split(", "):
            figures[name, pair] = (figure[0], figure[1], figure[2])
    return figures


def tried(name: str, pair: str) -> tuple[str, str, str]:
    """Carry an attack out, without and with guards, and return its figures."""
    outcomes = []
    for guarded in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(table.ATTACKS[name].try_on(Path(folder), pair, guarded=guarded))
    return figures_of(*outcomes)


def figures_of(unguarded: table.Outcome, guarded: table.Outcome) -> tuple[str, str, str]:
    """Return what the page has of an attack."""
    stopped = ", ".join(guarded.rules) or ("id-key" if guarded.error > STOPPED else "nothing")
    return digit(unguarded.error), digit(guarded.error), stopped


def _says(name: str, attack: table.Attack) -> str:
    opened = f" ({', '.join(attack.openings)})" if attack.openings else ""
    return f"**{name}**{opened}: {attack.what}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Carry all attacks out, and write the page."""
    figures = {case: tried(*case) for case in table.CASES}
    PAGE.write_text(page(figures))


if __name__ == "__main__":
    main()

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

What a coordinator or a peer can recover of a site's table, what stops that, and what remains: first what holds for all
pairs, then cards of [attacks](#attacks) on each. What preparing raw tables tells, before any pair begins, is in
[preparing.md](../how-to/preparing.md).
"""

SUMS = """
## Nothing but sums

The coordinator of a pair that needs nothing but sums adds the sites' replies up, and looks at no site's own. It
could, unless the sums are masked. By the plan of each pair's defaults, and that by which sites measure the model;
letters go to peers.

"""

MASKS = f"\n## Masked sums\n\n{inspect.cleandoc(str(masked_sums.__doc__))}\n"
NOISE = f"\n## Noise\n\n{inspect.cleandoc(str(privacy.__doc__))}\n"

ENTRIES = """
## Numbers for each entry

Numbers that follow from the rows are equations for them. A site lets no more of them leave in a run, to any one reader,
than half as many as its table has entries (`guards.table_share`). In half as many, searches and equations found no row
exactly, but PCA's products give inner products of correlated columns to about a tenth, and with known rows the others
to about a third ([what-sums-tell.md](../results/what-sums-tell.md)). **Below half as many nothing is proven.**

All replies and letters of all runs, to whomever, stay together below ten times as many (`limits.total.share`), also
where the file has changed; only a new folder (`--out`) forgets. An operator who wants no more in all runs than in one
sets 0.5.

Where columns are divided, sites of few columns are above half by nature. Masks hide single replies, but count no less.

At the defaults (3 components or clusters), by rows and columns of the whole table and number of sites: the numbers that
are forecast to leave a site for each entry of the smallest table, letters to all peers together. Sites with fewer than
20 rows answer nothing.

"""

THERE = """
What attacks on honest runs at these shapes recovered ([last table](../results/what-sums-tell.md)):

- `VFedPCA`, `VFedAKPCA`, and `PeerVFedPCA` at the parent of a leaf: all rows of a site, where one more than its columns
  is known (twice as many of `VFedAKPCA`), with an error of 0.09 at most for up to 6 columns, 0.3 from 40 on; `DKPCA`: 0
  for one column, 0.7 to 0.9 for more
- `FKKMeans` and `DisKPCA`: rows as near as others drawn with the table's covariance, or nearer by a quarter at most
- `RFKKMeans`: 21 to 33% of the rows exactly
- `DisKPCA`, `UniformKPCA`, `SpectralKMeans`: landmarks as they are, such as 6 of 60 rows
- `CentroidKMeans`, `CentroidKPCA`: means of groups of at least 5 rows
- `ADMMKPCA`: all rows, to neighbours

Searches for more than 100,000 entries were not tried.

"""

NO_SECRECY = """## Sums are not secrecy

Masks hide single replies, and the sums remain. `python benchmarks/pooled_sums.py` attacks those of every pair, at five
values of `guards.table_share`: [by which attacks, and all figures](../results/pooled-sums.md).

![Share of the rows recovered, by attack, pair and table_share](../images/pooled-sums.png)

- Sums of one run, of all sites or, by the difference from a run without one, of a site: at 0.5 and below no more rows
  than chance gives. A search finds a site's rows in FK k-means and disKPCA from about 1.5 sums for each entry on; where
  columns are divided and rows known, from 0.9. Sums of all sites are for as many times the entries as there are sites;
  a search longer than 24 seconds finds more.
- Runs one row apart: any pair that sums columns, as the width by rule does, gives it exactly, at any limit. What stops
  this is `table.rows_apart`, by default 20 rows.
- Runs more rows apart, here a fifth: without a rule, as many sums as the whole table allows, for the entries of these
  rows alone. So only these entries count, and there are no more sums for each than with one site apart.
- Means of groups' coordinates (`clusters = "lloyd"`) are non-linear equations for the groups' rows, at most half as
  many as there are entries. From the mean of 200 features of 44 rows, a search within the columns' ranges finds no row,
  but comes nearer (0.4) than the rows' own mean (0.6). Who knows 35 of them finds the other 9 exactly, where sums of
  columns give a single one. A search by squares, cells and products of `CentroidKPCA` comes no nearer than the means of
  the cells ([cards](#attacks)).
- Several runs that ask for other features are one with more numbers: four at 0.5 are the column of 2. What stops that
  is `limits.total.share` alone.
"""

CARDS = """## Attacks

Each attack is on a site that has approved everything and has no guards, but consents to rows only where the card says
so; then, *guarded*, on one of `fedkernel join` with its defaults, a key for ids and pins for peers. Tables are
scikit-learn's wine and breast cancer, standardised. `cd tests && ../.venv/bin/python -m attacks.cards` carries all out
and writes this page; a test runs them anew ([tests/attacks](../../tests/attacks)).

| word | meaning |
| --- | --- |
| honest-but-curious | follows the protocol and computes what it can; the guarded site has approved just what it asks |
| malicious | asks for what it likes: departs from an approved study, or keeps to its plan with vectors of its own |
| recovered | relative error in the Frobenius norm of what the attack is after: 0 is all but rounding, 1 nothing |
| what stops it | by the site's record: a rule of its policy, the plan of the study, or a guard |
| a plan that asks it | what remains is a study whose plan says just that, for an operator who approves it |
| half the directions | half as many as there are columns; known rows give the others' parts along these |

Of a run that a guard ends, what came before counts. That attacks recover nothing is said only of those that are here:
there may be others, and smaller ones than a guard refuses.
"""

SHAPES = ((178, 13), (4000, 16), (20000, 784))
SITES = (3, 20)

LESS: Mapping[str, str] = {
    "ADMMKPCA": '`exchange = "features"` with few features, of wide tables; else no way: neighbours get rows',
    "CentroidKMeans": "fewer landmarks (`n_landmarks`), fewer `rounds`; by itself at the defaults",
    "CentroidKPCA": "fewer landmarks (`n_landmarks`), fewer `rounds`; by itself at the defaults",
    "DKPCA": "`local_components` below half of a site's columns",
    "DisKPCA": "fewer landmarks (`n_adaptive`), and a smaller `embedding_size`; larger tables",
    "FKKMeans": "by itself, but at sites of some ten rows",
    "PeerVFedPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
    "RFKKMeans": "fewer `n_features`, a smaller `coreset_size`; or `FKKMeans`",
    "SpectralKMeans": "fewer landmarks; a smaller `coreset_size`",
    "UniformKPCA": "fewer landmarks (`n_samples`)",
    "VFedAKPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
    "VFedPCA": "fewer `n_components`, fewer `rounds`; sites with more columns",
}
"""How a pair takes less."""

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

    A malicious one can do what an honest-but-curious one does.
    """
    against = {name: attack for name, attack in table.ATTACKS.items() if pair in attack.pairs}
    peers = any("peer" in attack.adversary for attack in against.values())
    beaten = {attack.adversary for name, attack in against.items() if figures[name, pair][1] != "1"}
    beaten |= {malicious for malicious, curious in WORSE.items() if curious in beaten}
    return [who for who in get_args(table.Adversary) if who not in beaten and (peers or "peer" not in who)]


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
    lines = [_line("pair", "sums only", "else", "where it is measured"), _line(*["---"] * 4)]
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

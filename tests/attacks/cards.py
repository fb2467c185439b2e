"""docs/explanation/privacy.md: a card per pair. ``cd tests && python -m attacks.cards`` writes it."""

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

A card per pair: attacks of coordinators and peers on a site, what they recover, what stops them, what remains. The
figures are of [tests/attacks](../../tests/attacks), which a test runs anew; this page is written by

```sh
cd tests && ../.venv/bin/python -m attacks.cards
```

*Recovered* is the relative error in the Frobenius norm, of one digit: 0 is everything, but for rounding, and 1 nothing.
Which part of the table, or which figure, the attack is after, it says. First at a site that has approved everything and
has no guards, but consents to rows only where the card says so; then, *guarded*, at one of `fedkernel join` with its
defaults, a key for ids and pins for peers. There a malicious adversary has another study of the pair approved, to which
it does not keep, or to whose plan it keeps with vectors of its own; of an honest-but-curious one just what it asks is
approved. *What stops it* is what the site's record names: a rule of its policy, the plan of the study, or a guard. Of a
run that a guard ends, what came before counts. Tables are scikit-learn's wine and breast cancer, standardised.

An *honest-but-curious* adversary follows the protocol and computes what it can of what it is sent; a *malicious* one
asks for, or sends, whatever it likes. That attacks recover nothing for one of them is said only of those that are here:
there may be others, and smaller ones than a guard refuses. What preparing raw tables tells, before any pair begins, is
in [preparing.md](../how-to/preparing.md).
"""

SUMS = """
## Nothing but sums

The coordinator of a pair that needs nothing but sums adds the sites' replies up, and looks at no site's own. It
could, unless the sums are masked. By the plans of each pair's defaults and, where the model is measured at the
sites, of that; letters go to peers.

"""

MASKS = f"\n## Masked sums\n\n{inspect.cleandoc(str(masked_sums.__doc__))}\n"
NOISE = f"\n## Noise\n\n{inspect.cleandoc(str(privacy.__doc__))}\n"

ENTRIES = """
## Numbers for each entry

Numbers that follow from the rows are equations for them, whatever else guards say of each. A site lets no more of them
leave in a run, to any one reader, than half as many as its table has entries (`guards.table_share`). What searches and
equations find with how many of them, by rows, columns, D, T, k and rounds, and at the defaults below, is in
[what-sums-tell.md](../results/what-sums-tell.md): with half as many no row was found exactly, but PCA's products
give inner products of correlated columns to about a tenth, and with known rows the others to about a third. **Below
half as many nothing is proven.** All runs together stay below ten times as many, unless the policy says otherwise
(`limits.total.share`): a site's folder adds up all replies and letters, to whomever they went and whatever the file was
then, since a changed file may have most of its rows as before. That bounds a coordinator with many studies, but is far
above what a run may take: an operator who wants no more than that in all sets 0.5.

Above half as many in a run are by nature sites of few columns where columns are divided: masks over all sites hide
single replies, but count no less here; noise is to come.

At the defaults (3 components or clusters), by rows and columns of the whole table and number of sites: the numbers that
are forecast to leave a site for each entry of the smallest table, letters to all peers together. Sites with fewer than
20 rows answer nothing.

"""

THERE = """
What attacks on honest runs at these shapes gave, in the order of the columns above, with 2 components or 3 clusters
(the last table of [what-sums-tell.md](../results/what-sums-tell.md)): the relative error of a site's other rows,
where one more than its columns is known (twice as many of VFedAKPCA), or of rows that a search finds, beside that of
rows drawn with the table's covariance. A search for more than 100,000 entries was not tried.

| pair | what attacks gave |
| --- | --- |
| `ADMMKPCA` | all rows, to neighbours |
| `CentroidKMeans` | means of groups of at least 5 rows |
| `CentroidKPCA` | means of groups of at least 5 rows; of its products of kernel values the table below |
| `DisKPCA` | .64 (drawn .83), .85 (1.1), .65 (.63), .71 (.76), not tried; and landmarks, as `UniformKPCA` |
| `DKPCA` | .69, 0, .80, 0, .86, .88 |
| `FKKMeans` | .77 (drawn .83), .98 (1.1), .56 (.63), .70 (.76), not tried |
| `PeerVFedPCA` | as VFedPCA, at the parent of a leaf |
| `RFKKMeans` | 23, 33, 21 and 23% of the rows exactly, not tried |
| `SpectralKMeans` | 6 of 60 rows as they are, 0 of 9, 28 of 1,334, 2 of 200, 29 of 6,667, 3 of 1,000 |
| `UniformKPCA` | 6 of 60 rows as they are, 0 of 9, 13 of 1,334, 1 of 200, 13 of 6,667, 1 of 1,000 |
| `VFedAKPCA` | .087, 0, .056, 0, not tried |
| `VFedPCA` | 0, 0, 0, 0, .33, .30 |

"""

POOLED = PAGE.parents[1] / "results" / "pooled-sums.md"

NO_SECRECY = """## Sums are not secrecy

Masks hide single replies, and the sums remain. `python benchmarks/pooled_sums.py` attacks those of every pair, at five
values of `guards.table_share`, and writes this table: the share of the rows that came nearer than a tenth of their
length, and in brackets how many sums there are for each entry that is sought. How, and on which tables, is in
[pooled-sums.md](../results/pooled-sums.md).

![Share of the rows recovered, by attack, pair and table_share](../images/pooled-sums.png)

{table}

- Sums of one run, of all sites or, by the difference from a run without one, of a site: at 0.5 and below no more rows
  than chance gives (drawn from the table's covariance, one of ten in a draw of twenty). Of FK k-means and disKPCA a
  search finds a site's rows from about 1.5 sums for each entry on; where columns are divided and rows known, from 0.9.
  Sums of all sites are for as many times the entries as there are sites: at 8, given is what the search came to in 24
  seconds; a longer one finds more.
- One row apart: any pair that sums columns, as the width by rule does, gives it exactly, at any limit. What stops this
  is `table.rows_apart`, by default 20 rows.
- More rows apart, here a fifth: as many sums as the whole table allows, for the entries of these rows alone. So of a
  run on other rows than another at the site only the entries of the rows by which they differ count. The table has what
  was found without that rule; with it there are no more sums for each entry than with one site apart.
- Several runs that ask for other features are one with more numbers: four at 0.5 are the column of 2. What stops that
  is `limits.total.share` alone, ten by default.
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

COLUMNS = ("attack", "adversary", "recovered", "guarded", "what stops it", "what remains")

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


def card(pair: str, figures: Figures) -> str:
    """Return the card of a pair."""
    safe = safe_against(pair, figures)
    lines = [
        f"## {pair}",
        "",
        f"At a guarded site these attacks recover nothing for: {', '.join(safe) or 'none of them'}.",
        "",
        _line(*COLUMNS),
        _line(*["---"] * len(COLUMNS)),
    ]
    for name, attack in table.ATTACKS.items():
        if pair in attack.pairs:
            lines.append(_line(_says(name, attack), attack.adversary, *figures[name, pair], attack.remains))
    return "\n".join(lines) + "\n"


def page(figures: Figures) -> str:
    """Return the whole page."""
    pairs = sorted({pair for _, pair in table.CASES}, key=str.lower)
    return "\n".join(
        [
            HEAD + SUMS + sums_of(pairs) + MASKS + NOISE + ENTRIES + shares_of(pairs) + THERE + pooled(),
            *(card(pair, figures) for pair in pairs),
        ]
    )


def pooled() -> str:
    """Return what attacks on sums recover, from the file that the benchmark writes."""
    text = POOLED.read_text(encoding="utf-8")
    return NO_SECRECY.replace("{table}", text[text.index("| pair |") :].strip())


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
    letters = [post for own in requests for post in own.posts]
    return ", ".join(f"`{name}`" for name in dict.fromkeys([*single, *letters]))


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
    for section in PAGE.read_text().split("\n## ")[1:]:
        pair = section.partition("\n")[0]
        row = r"^\| \*\*(.+?)\*\*.*? \| [^|]+ \| (\S+) \| (\S+) \| ([^|]+) \|"
        for name, *figure in re.findall(row, section, flags=re.M):
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

"""docs/results/attacks.md and parts of docs/explanation/privacy.md, which ``python -m attacks.cards`` writes."""

import inspect
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from attacks import table
from attacks.algebra import EXACT
from fedkernel.ground import InputError, load_class
from fedkernel.protocol import Member, forecast_share, privacy, share_text
from fedkernel.strategy import KernelStrategy
from fedkernel.wire import masked_sums

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "results" / "attacks.md"

CARDS = "What the messages tell"
"""Heading of the cards of messages."""
PRIVACY = DOCS / "explanation" / "privacy.md"
"""The page of what messages tell, of which some parts are written from the code."""

HEAD = """# Attacks on each pair

Attacks on an open site, which has approved everything and has no guards, and on a *guarded* one: a site of
`fedkernel join` at its defaults, with a key for ids and pins for peers. Others may recover more.
`cd tests && ../.venv/bin/python -m attacks.cards` carries all out and writes this page
([tests/attacks](../../tests/attacks)), with scikit-learn's wine and breast cancer, standardised.

- *Honest-but-curious* attackers follow the protocol, and the guarded site has approved just what they ask. *Malicious*
  ones depart from the approved study, or keep to its plan with vectors or centres of their own.
- *Recovered* is the relative error in the Frobenius norm of what the attack is after, such as the rows that the
  attacker does not know: 0 is all but rounding, 1 is nothing. If a guard ends a run, what came before it counts.
- An option in brackets is what the open site's operator had to set.
- *What stops it* is a rule of the guarded site's [policy](../reference/policy.md), its operator's consent, or a key.
"""

SHAPES = ((178, 13), (4000, 16), (20000, 784))
SITES = (3, 20)

ANY = (*table.HORIZONTAL, *table.VERTICAL)
FAMILIES = (("ADMMKPCA",), table.CENTROIDS, table.LANDMARKS, table.KMEANS, table.VERTICAL, ANY)
"""Pairs of each card: an attack is on the first that has all of its own."""

COLUMNS = ("attack", "pairs", "adversary", "recovered", "guarded", "what stops it")

WORSE: Mapping[table.Adversary, table.Adversary] = {
    table.MALICIOUS: table.CURIOUS,
    table.MALICIOUS_PEER: table.CURIOUS_PEER,
}

PAIRS = sorted({pair for _, pair in table.CASES}, key=str.lower)

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
            lines.append(_line(_says(name, attack), whose, attack.adversary, *figure))
    return "\n".join(lines) + "\n"


def page(figures: Figures) -> str:
    """Return the whole page of attacks."""
    cards = (card(family, figures) for family in FAMILIES)
    return "\n".join([HEAD, safe_ones(PAIRS, figures), *cards])


def privacy_page() -> str:
    """Return the page of messages, with the parts that the code says as they are now."""
    text = PRIVACY.read_text(encoding="utf-8")
    docstrings = {"masks": masked_sums, "noise": privacy}
    parts = {name: inspect.cleandoc(str(module.__doc__)) for name, module in docstrings.items()}
    for name, part in (parts | {"shares": shares_of(PAIRS).rstrip()}).items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{before}{begin}{part}\n{''.join(rest.partition(f'<!-- end of {name} -->')[1:])}"
    return text


def safe_ones(pairs: Sequence[str], figures: Figures) -> str:
    """Return a table of the adversaries that recover nothing of a guarded site."""
    alike: dict[str, list[str]] = {}
    for pair in pairs:
        alike.setdefault(", ".join(safe_against(pair, figures)) or "none of those tried", []).append(f"`{pair}`")
    lines = [_line("pairs", "who recovers nothing at a guarded site, with any attack below"), _line("---", "---")]
    return "\n".join([*lines, *(_line(", ".join(own), who) for who, own in alike.items())]) + "\n"


def shares_of(pairs: Sequence[str]) -> str:
    """Return a table of the numbers for each entry that are forecast at the defaults."""
    settings = [(shape, sites) for shape in SHAPES for sites in SITES]
    lines = [_line("pair", *(f"{n:,} x {d}, {sites} sites" for (n, d), sites in settings))]
    lines.append(_line(*["---"] * (len(settings) + 1)))
    for pair in pairs:
        shares = (_share(pair, *shape, sites) for shape, sites in settings)
        lines.append(_line(f"`{pair}`", *shares))
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
    row = r"^\| \*\*(.+?)\*\*.*? \| ([^|]+) \| [^|]+ \| (\S+) \| (\S+) \| ([^|]+) \|$"
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
    """Carry all attacks out, and write the pages."""
    PRIVACY.write_text(privacy_page(), encoding="utf-8")
    figures = {case: tried(*case) for case in table.CASES}
    PAGE.write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Tables of docs/explanation/privacy.md: cards of attacks. ``cd tests && python -m attacks.cards`` writes them."""

import inspect
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from marked_pages import filled

from attacks import table
from attacks.algebra import EXACT
from attacks.target import STUDIES
from fedkernel.ground import InputError, load_class
from fedkernel.protocol import Member, Plan, forecast_share, privacy, share_text
from fedkernel.strategy import KernelStrategy, strategy_of
from fedkernel.wire import masked_sums

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "privacy.md"

MASKS = f"\n## Masked sums\n\n{inspect.cleandoc(str(masked_sums.__doc__))}\n"
NOISE = f"\n## Noise\n\n{inspect.cleandoc(str(privacy.__doc__))}\n"

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
    """Return the page with its tables, and the texts of docstrings, as they are now."""
    pairs = sorted({pair for _, pair in table.CASES}, key=str.lower)
    attacks = "\n".join([safe_ones(pairs, figures), *(card(family, figures) for family in FAMILIES)])
    return filled(PAGE.read_text(), sums=sums_of(pairs) + MASKS + NOISE, entries=shares_of(pairs), attacks=attacks)


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

"""docs/privacy.md: a card per pair, from the attacks and what they recover. ``cd tests && python -m attacks.cards``."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from attacks.algebra import EXACT
from attacks.table import (
    ATTACKS,
    CASES,
    CURIOUS,
    CURIOUS_PEER,
    MALICIOUS,
    MALICIOUS_PEER,
    Adversary,
    Attack,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "privacy.md"

HEAD = """# What attacks recover

A card per pair: attacks of coordinators and peers on a site, what they recover, what stops them, what remains. The
figures are of [tests/attacks](../tests/attacks), which a test runs anew; this page is written by

```sh
cd tests && ../.venv/bin/python -m attacks.cards
```

*Recovered* is the relative error in the Frobenius norm, of one digit: 0 is everything, but for rounding, and 1 nothing.
Which part of the table, or which figure, the attack is after, it says. The site is one of `fedkernel join` with its
defaults, unless the card says with which option; tables are scikit-learn's wine and breast cancer, standardised.

An *honest-but-curious* adversary follows the protocol and computes what it can of what it is sent; a *malicious* one
asks for, or sends, whatever it likes. A pair is said to be safe against one only as far as these attacks go: there may
be others.
"""

COLUMNS = ("attack", "adversary", "recovered", "what stops it", "what remains")

WORSE: Mapping[Adversary, Adversary] = {MALICIOUS: CURIOUS, MALICIOUS_PEER: CURIOUS_PEER}

Figures = Mapping[tuple[str, str], str]
"""Relative errors as the page has them, by attack and pair."""


def digit(error: float) -> str:
    """Return a relative error as the page has it."""
    return "0" if error < EXACT else f"{error:.1g}"


def safe_against(pair: str) -> list[Adversary]:
    """Return the adversaries that recover nothing of a pair's site by its defaults, with any of the attacks.

    A malicious one can do what an honest-but-curious one does.
    """
    against = [attack for attack in ATTACKS.values() if pair in attack.pairs]
    peers = any("peer" in attack.adversary for attack in against)
    beaten = {attack.adversary for attack in against if not attack.openings}
    beaten |= {malicious for malicious, curious in WORSE.items() if curious in beaten}
    return [who for who in get_args(Adversary) if who not in beaten and (peers or "peer" not in who)]


def card(pair: str, figures: Figures) -> str:
    """Return the card of a pair."""
    safe = safe_against(pair)
    lines = [
        f"## {pair}",
        "",
        f"Safe by default against: {', '.join(safe)}." if safe else "Safe by default against: none of them.",
        "",
        _line(*COLUMNS),
        _line(*["---"] * len(COLUMNS)),
    ]
    for name, attack in ATTACKS.items():
        if pair in attack.pairs:
            cells = attack.adversary, figures[name, pair], attack.stops, attack.remains
            lines.append(_line(_says(name, attack), *cells))
    return "\n".join(lines) + "\n"


def page(figures: Figures) -> str:
    """Return the whole page."""
    pairs = sorted({pair for _, pair in CASES}, key=str.lower)
    return "\n".join([HEAD, *(card(pair, figures) for pair in pairs)])


def written() -> Figures:
    """Return the figures of the page that is there."""
    figures = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        pair = section.partition("\n")[0]
        for name, figure in re.findall(r"^\| \*\*(.+?)\*\*.*? \| [^|]+ \| (\S+) \|", section, flags=re.M):
            figures[name, pair] = figure
    return figures


def _says(name: str, attack: Attack) -> str:
    opened = f" ({', '.join(attack.openings)})" if attack.openings else ""
    return f"**{name}**{opened}: {attack.what}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Carry all attacks out, and write the page."""
    figures = {}
    for name, pair in CASES:
        with tempfile.TemporaryDirectory() as folder:
            figures[name, pair] = digit(ATTACKS[name].error(Path(folder), pair, ATTACKS[name].operator))
    PAGE.write_text(page(figures))


if __name__ == "__main__":
    main()

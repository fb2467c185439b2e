"""How figures are written on tables and pages, and pages from templates."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.claims import Verdict
from experiments.report.formats import plain_markdown
from experiments.results import Spread

NOTHING = "–"
"""The figure does not apply."""


LOOKS = {
    Verdict.HOLDS: ("holds", "✓ "),
    Verdict.NOISE: ("unsure", "≈ "),
    Verdict.FAILS: ("fails", "✗ "),
    Verdict.UNTESTABLE: ("kind", ""),
}
"""How verdicts look on a page: their style, and the mark before them."""


def render(template: str, **values: Any) -> str:
    """Return a page: of HTML, which what is written in it cannot break, or of Markdown."""
    import jinja2  # noqa: PLC0415 - no other command waits for it

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=template.endswith(".html.jinja"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain_markdown"] = plain_markdown
    return environment.get_template(template).render(values, looks=LOOKS)


def with_spread(spread: Spread, write: Callable[[float], str]) -> str:
    """Write a mean, and its standard deviation where there is one above 0."""
    return f"{write(spread.mean)} ± {write(spread.std)}" if spread.std else write(spread.mean)


def count(value: float) -> str:
    """Write how many."""
    if value >= 1e9:
        return f"{value / 1e9:.2f} G"
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:.1f}"


def size(value: float) -> str:
    """Write bytes."""
    if value < 1000:
        return f"{value:.0f} B"
    power = min(int(math.log10(value) // 3), 4)
    return f"{value / 1000**power:.1f} {'kMGT'[power - 1]}B"


def seconds(value: float) -> str:
    """Write a time, without its unit."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"

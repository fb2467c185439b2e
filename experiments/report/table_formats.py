"""Unformatted table, and its forms for a terminal, as Markdown, LaTeX or, with full figures, CSV."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.text import Text

from experiments.report.terminal_table import NARROWEST, WideTable


class Format(StrEnum):
    """Output formats of a table besides the console's."""

    csv = "csv"
    latex = "latex"
    markdown = "markdown"


@dataclass(frozen=True)
class Layout:
    """Unformatted table: headings, cells, title and caption.

    - `rows`: a cell for each heading.
    - `keys`: number of columns at the left that name a row: a name, then values of swept parameters.
    - `words`: number of columns at the left with text, the others have numbers.
    """

    headings: list[str]
    rows: list[list[str]]
    keys: int = 1
    title: str = ""
    caption: str = ""
    words: int = 1


def for_terminal(layout: Layout) -> WideTable:
    """Return a table of the terminal's width, in parts if it is too wide."""
    table = WideTable(layout.keys, layout.caption)
    for place, heading in enumerate(layout.headings):
        if place == 0:
            table.add_column(Text(heading), overflow="fold", min_width=NARROWEST)
        elif place < layout.keys:
            table.add_column(Text(heading), justify="right")
        else:
            broken = heading.replace(" central", "\ncentral") if layout.keys > 1 else heading
            table.add_column(Text(broken), justify="right", no_wrap=True)
    for row in layout.rows:
        table.add_row(*map(Text, row))  # Text, not markup: a method may be called [red]
    return table


def as_markdown(layout: Layout) -> str:
    """Write a table in GitHub's Markdown, with title and caption as paragraphs."""
    rule = ["---"] * layout.words + ["---:"] * (len(layout.headings) - layout.words)
    rows = [list(map(plain_markdown, row)) for row in (layout.headings, *layout.rows)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))
    parts = (plain_markdown(layout.title), table, plain_markdown(layout.caption))
    return "\n\n".join(part for part in parts if part) + "\n"


def plain_markdown(text: str) -> str:
    """Escape a text for one line of a paragraph or a cell of Markdown."""
    return text.translate(_MARKDOWN)


def as_latex(layout: Layout) -> str:
    """Write a tabular for the package booktabs, with title and caption above it as comments."""
    comments = [f"% {' '.join(text.split())}" for text in (layout.title, layout.caption) if text]
    lines = [
        " & ".join(_latex(cell, number=place >= layout.keys) for place, cell in enumerate(row)) + r" \\"
        for row in (layout.headings, *layout.rows)
    ]
    begin = rf"\begin{{tabular}}{{{'l' * layout.words}{'r' * (len(layout.headings) - layout.words)}}}"
    whole = [*comments, begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(whole) + "\n"


def as_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write comma-separated values with all digits; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()


_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|~$"} | {"\n": " "})
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": "$<$", ">": "$>$", "≤": r"$\le$", "±": r"$\pm$", "→": r"$\to$", "−": "$-$", "–": "--", "\n": " "}
)
_NUMBER = re.compile(r"(?P<mantissa>[-+]?\d[\d,]*(?:\.\d+)?)(?:e(?P<exponent>[-+]\d+))?")


def _latex(cell: str, *, number: bool) -> str:
    escaped = cell.translate(_LATEX)
    return _NUMBER.sub(_mathematics, escaped) if number else escaped


def _mathematics(match: re.Match[str]) -> str:
    """Format a number's power of ten and its sign, which is a hyphen outside of mathematics."""
    mantissa, exponent = match["mantissa"], match["exponent"]
    if exponent is None or not int(exponent):
        return f"${mantissa}$" if mantissa[0] in "-+" else mantissa
    power = rf"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa} \cdot {power}$"

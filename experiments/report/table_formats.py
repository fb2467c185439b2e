"""Unformatted table, and its forms for a terminal of any width, as Markdown, LaTeX or, with full figures, CSV."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

NARROWEST = 12  # least characters of a row's name in a line; a longer name is folded
GAP = 2  # characters between two columns, and at both ends together

LOOK: Mapping[str, Any] = MappingProxyType(
    {"box": box.SIMPLE_HEAD, "caption_justify": "left", "pad_edge": False, "collapse_padding": True}
)


class WideTable(Table):
    """Table whose first `keys` columns name its rows; if too wide, the other columns are shown in parts."""

    def __init__(self, keys: int = 1, caption: str | None = None) -> None:
        super().__init__(caption=caption, **LOOK)
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        *parts, last = self._parts(console, options)
        for columns in parts:
            yield self._part(columns, None)
        yield self._part(last, self.caption)  # type: ignore[arg-type] # a text, as it was given

    def _parts(self, console: Console, options: ConsoleOptions) -> list[list[Column]]:
        widths = [_width(console, options, column) for column in self.columns]
        widths[0] = min(widths[0], max(NARROWEST, options.max_width // 4))
        room, keys = options.max_width - GAP, self.keys
        if sum(widths[:keys]) + GAP * keys + max(widths[keys:], default=0) > room:
            keys = 1
        named = sum(widths[:keys]) + GAP * (keys - 1)
        parts: list[list[int]] = [[]]
        for place in range(keys, len(widths)):
            if parts[-1] and named + sum(GAP + widths[other] for other in [*parts[-1], place]) > room:
                parts.append([])
            parts[-1].append(place)
        return [[self.columns[place] for place in [*range(keys), *part]] for part in parts]

    def _part(self, columns: Sequence[Column], caption: str | None) -> Table:
        part = Table(*(column.copy() for column in columns), caption=caption, **LOOK)
        for row, cells in zip(self.rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            part.add_row(*cells, end_section=row.end_section)
        return part


def _width(console: Console, options: ConsoleOptions, column: Column) -> int:
    """Return the width in characters of a column's widest cell or heading, in one line each."""
    unlimited = options.update(width=10_000)
    texts = [Measurement.get(console, unlimited, cell).maximum for cell in (column.header, *column.cells)]
    return max(column.min_width or 0, *texts)


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
    """Write comma-separated values with all digits, and None as an empty cell."""
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
    """Set a number's power of ten and sign in mathematics. Outside of it, the sign would be a hyphen."""
    mantissa, exponent = match["mantissa"], match["exponent"]
    if exponent is None or not int(exponent):
        return f"${mantissa}$" if mantissa[0] in "-+" else mantissa
    power = rf"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa} \cdot {power}$"

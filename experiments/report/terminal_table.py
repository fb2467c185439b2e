"""Table for a terminal of any width, split into parts if too wide, each with the rows' names."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

NARROWEST = 12
"""Least characters of a row's name in a line; a longer name is folded."""

GAP = 2
"""Characters between two columns, and at both ends together."""

LOOK: Mapping[str, Any] = MappingProxyType(
    {"box": box.SIMPLE_HEAD, "caption_justify": "left", "pad_edge": False, "collapse_padding": True}
)


class WideTable(Table):
    """Table whose first columns name its rows; if too wide, the other columns are shown in parts.

    `keys` is the number of naming columns; all but the first are shown only once if they would leave no room for
    others.
    """

    def __init__(self, keys: int = 1, caption: str | None = None) -> None:
        super().__init__(caption=caption, **LOOK)
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table if it fits, else its parts."""
        parts = self._parts(console, options)
        if len(parts) == 1:
            yield from super().__rich_console__(console, options)
            return
        for columns in parts[:-1]:
            yield self._part(columns, None)
        yield self._part(parts[-1], self.caption)  # type: ignore[arg-type] # a text, as it was given

    def _parts(self, console: Console, options: ConsoleOptions) -> list[list[Column]]:
        """Return the columns of each part."""
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
        """Return a table of some of the columns."""
        part = Table(*(column.copy() for column in columns), caption=caption, **LOOK)
        for row, cells in zip(self.rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            part.add_row(*cells, end_section=row.end_section)
        return part


def _width(console: Console, options: ConsoleOptions, column: Column) -> int:
    """Return the width in characters of a column's widest cell or heading, in one line each."""
    unlimited = options.update(width=10_000)
    texts = [Measurement.get(console, unlimited, cell).maximum for cell in (column.header, *column.cells)]
    return max(column.min_width or 0, *texts)

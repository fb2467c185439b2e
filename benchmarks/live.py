"""Tables of which each row is printed as soon as it is measured, on a terminal or not."""

from collections.abc import Sequence


class Columns:
    """Columns of fixed widths; a longer cell moves what follows in its row."""

    def __init__(self, headings: Sequence[str], widths: Sequence[int]) -> None:
        self._widths = [max(len(heading), width) for heading, width in zip(headings, widths, strict=True)]
        self.add(headings)

    def add(self, cells: Sequence[str]) -> None:
        """Print a row."""
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        print("  ".join(padded).rstrip(), flush=True)

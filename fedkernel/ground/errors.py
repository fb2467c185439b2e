"""Errors for users: one sentence each, with the fault and the allowed values."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Self


class FedkernelError(Exception):
    """Base class of all errors that fedkernel raises on purpose, with a text for the user.

    - `nodes`: Flower's ids of the nodes at fault, where the coordinator has evidence beyond their own reports.
    - `mendable`: whether all causes are tables or files that those nodes can replace and rejoin with.
    - `joining`: whether the error arose before a run's own protocol began.
    """

    nodes: tuple[int, ...] = ()
    mendable: bool = False
    joining: bool = False

    def at(self, nodes: Iterable[int], *, mendable: bool = False) -> Self:
        """Set the nodes at fault (Flower's ids), and return the error."""
        self.nodes, self.mendable = tuple(nodes), mendable
        return self

    def reworded(self, text: str) -> Self:
        """Return a copy of the error with a different text."""
        error = type(self).__new__(type(self))  # bypasses the subclass's constructor
        error.__dict__.update(self.__dict__)
        error.args = (text,)
        return error


class InputError(FedkernelError, ValueError):
    """Input that is not allowed; the text names the input, its value and the allowed values.

    The text may name files, columns and cells, so a site sends a coordinator only a `ShareableError`.
    """


class ShareableError(InputError):
    """Failure of a site to answer a request, with a text that may also go to the coordinator.

    The text may name requests, numbers of rows and columns, columns that the site has introduced and the operator's
    decisions, but no path, other column, cell, id or label. For any other `InputError` at a site with data of its own
    the coordinator gets only a code, under which the site's log has the text.
    """


class OwnFileError(InputError):
    """Fault in a site's own files, with details in the site's log only. `outline`: the text for the coordinator."""

    def __init__(self, outline: str, text: str) -> None:
        super().__init__(text)
        self.outline = outline


class RefusedError(ShareableError):
    """Refusal by a site's policy or approved plan, with a shareable text. `rule`: such as ``study.min_sites``."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class ProtocolError(FedkernelError, RuntimeError):
    """Breach of a protocol, or missing reply; the text names protocol, round, request and client."""


class QuorumError(ProtocolError):
    """Too few clients for a run; the text names the missing ones and the required number."""

    @classmethod
    def of(cls, cause: str, others: Sequence[str], needs: str) -> Self:
        """Return the error for one client's failure, with the other missing clients and the run's requirement."""
        also = f"; {listed(others)} {'is' if len(others) == 1 else 'are'} missing, too" if others else ""
        return cls(f"{cause}{also}; {needs}")


class LetterError(ProtocolError):
    """Failure of a client because another client's letter is wrong or missing."""


class EngineError(FedkernelError, RuntimeError):
    """Failure of an engine (local, ray, grpc or superlink) to start or to finish a run."""


def and_more(count: int) -> str:
    """Return the suffix " (and N more)" of an error text that names one cause of several."""
    return f" (and {count} more)" if count > 0 else ""


def listed(names: Sequence[str]) -> str:
    """Join the first twelve names of a list with commas, for an error's text."""
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def one_line(text: str) -> str:
    """Replace line breaks and control characters in a text from another party."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(text.split()))


def shortened(text: str, most: int = 100) -> str:
    """Cut another party's text to at most `most` characters, for quotation."""
    return text if len(text) <= most else f"{text[:most]}..."


MOST_SHOWN = 500
"""Most characters of another party's text in a message."""


def printable(text: str) -> str:
    """Return another party's text as one printable line of at most `MOST_SHOWN` characters."""
    return one_line(text[: 4 * MOST_SHOWN])[:MOST_SHOWN]


def quoted(text: str) -> str:
    """Return another party's text as `printable`, in quotation marks."""
    line = printable(text).replace('"', "'")
    return f'"{line}"'


def format_duration(seconds: float) -> str:
    """Format a duration as seconds, minutes, or hours and minutes."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def client_label(client: int, site: str | None) -> str:
    """Format a client's number and, if known, its site's name."""
    return f"client {client}" if site is None else f"client {client} (site {site!r})"


def distinct_names(paths: Sequence[str]) -> list[str]:
    """Shorten paths to file names for texts, with as many folders as make all of them different."""
    parts = [PurePath(path).parts for path in paths]
    longest = max(map(len, parts), default=1)
    most = next((n for n in range(1, longest) if len({own[-n:] for own in parts}) == len(parts)), longest)
    return [str(PurePath(*own[-most:])) for own in parts]


def row_of_file(position: int, header: int = 1) -> str:
    """Name a row by its number in a file. `position`: from 0 below the names in row `header`, without empty lines."""
    return f"row {position + header + 1} (row {header} has the names)"

"""The errors a user can meet, each one sentence that names what was wrong and what is allowed."""

from collections.abc import Iterable, Sequence
from typing import Self


class FedkernelError(Exception):
    """Base of all errors raised on purpose by this project; the text of each is meant for its user.

    Attributes
    ----------
    nodes : tuple of int
        Flower's ids of the nodes with which the cause lies, where a coordinator knows that from more than their words.
    mendable : bool
        Whether all of it are their tables or files, with others of which they may come back.
    joining : bool
        Whether it came up before a run's own protocol began.
    """

    nodes: tuple[int, ...] = ()
    mendable: bool = False
    joining: bool = False

    def at(self, nodes: Iterable[int], *, mendable: bool = False) -> Self:
        """Return it, with the nodes with which the cause lies."""
        self.nodes, self.mendable = tuple(nodes), mendable
        return self

    def reworded(self, text: str) -> Self:
        """Return an error of the same class, with all that is known of this one, that says something else."""
        error = type(self).__new__(type(self))  # whatever a subclass's constructor takes
        error.__dict__.update(self.__dict__)
        error.args = (text,)
        return error


class InputError(FedkernelError, ValueError):
    """Something the caller gave is not allowed; the text names it, its value and what is allowed.

    It may name files, columns and cells: what a site says to a coordinator is a `TellableError`.
    """


class TellableError(InputError):
    """A site cannot answer what it is asked; both ends read the text.

    It names requests, numbers of rows and columns, columns that the site has introduced and what its operator decides:
    no path, no other column, no cell, id or label. Of any other `InputError` that is raised at a site with data of its
    own the coordinator hears no more than that, and under which code the site's log has the text.
    """


class OwnFileError(InputError):
    """Something is wrong with a site's own files or rows; the text, which names them, is for the site's log.

    `outline`: what the coordinator may hear.
    """

    def __init__(self, outline: str, text: str) -> None:
        super().__init__(text)
        self.outline = outline


class RefusedError(TellableError):
    """What a site's policy, or a plan that its operator has approved, does not allow; both ends read the text.

    `rule`: its name, such as ``study.min_sites``.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class ProtocolError(FedkernelError, RuntimeError):
    """A party broke the protocol or did not answer; the text names protocol, round, request and client."""


class QuorumError(ProtocolError):
    """Too few clients are left: the text names who is missing, how long was waited, how many are left and needed."""

    @classmethod
    def of(cls, cause: str, others: Sequence[str], needs: str) -> Self:
        """Return what the cause of one that is missing comes to, with the others and with why a run needs them."""
        also = f"; {some(others)} {'is' if len(others) == 1 else 'are'} missing, too" if others else ""
        return cls(f"{cause}{also}; {needs}")


class LetterError(ProtocolError):
    """A client cannot go on with what another wrote to it, or did not: the cause does not lie with who says so."""


class EngineError(FedkernelError, RuntimeError):
    """The machinery that carries the messages could not start or did not finish."""


def and_more(count: int) -> str:
    """Return how many causes there are beside the one that is named."""
    return f" (and {count} more)" if count > 0 else ""


def some(names: Sequence[str]) -> str:
    """Write the first names of a list, for an error's text."""
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def one_line(text: str) -> str:
    """Return a text without line breaks and signs that steer a terminal, as what somebody else wrote is passed on."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(text.split()))


def shortened(text: str, most: int = 100) -> str:
    """Return a text that somebody else wrote as it is quoted: its beginning where it is long."""
    return text if len(text) <= most else f"{text[:most]}..."


SHOWN = 500
"""Characters of somebody else's text that are shown."""


def shown(text: str) -> str:
    """Return what somebody else wrote as it is shown everywhere: a line of `SHOWN` printable characters at most."""
    return one_line(text[: 4 * SHOWN])[:SHOWN]


def words(text: str) -> str:
    """Return a sentence of somebody else's as it is shown, quoted as theirs."""
    line = shown(text).replace('"', "'")
    return f'"{line}"'


def lasting(seconds: float) -> str:
    """Write a time in the two units, at most, that matter."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def called(client: int, site: str | None) -> str:
    """Return how texts call a client: by its number, and by its site's name where that is known."""
    return f"client {client}" if site is None else f"client {client} (site {site!r})"


def row_of_file(position: int, header: int = 1) -> str:
    """Return what a spreadsheet calls a row of a file, and how it counts; position 0 is the first below the names.

    These stand in the row `header`. Empty lines, which are passed over in reading, are not counted; `fedkernel check`
    counts them, too.
    """
    return f"row {position + header + 1} (row {header} has the names)"

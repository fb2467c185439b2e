"""What a protocol is: a generator function of a run, which yields rounds and is sent the replies."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedkernel.ground import Precision, called, generator
from fedkernel.protocol.constraints import SINGLE
from fedkernel.protocol.messages import Reply, ReplyT, Request, Summed, SummedT

T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """One client of a run, as it introduced itself.

    Attributes
    ----------
    client, node_id, rows, columns, new_rows : int
        With a vertical partition and ids, `rows` are those that all sites have.
    site : str or None
        The name of its site.
    names : tuple of str
        Those of its columns; empty where they have none.
    ids : bool
        Whether it knows its rows by ids.
    sampled : int or None
        How many of its rows it lets be sampled into a coreset; None: any.
    raw_columns : int or None
        Columns of its own table, where `columns` are those of a prepared one.
    left : int
        Numbers that have left it before the method began, for its preparation and widths.
    """

    client: int
    node_id: int
    rows: int
    columns: int
    new_rows: int = 0
    site: str | None = None
    names: tuple[str, ...] = ()
    ids: bool = False
    sampled: int | None = None
    raw_columns: int | None = None
    left: int = 0

    @property
    def entries(self) -> int:
        """Entries of its own table, of the rows that the run works on."""
        return self.rows * (self.columns if self.raw_columns is None else self.raw_columns)

    @property
    def called(self) -> str:
        """What texts call it."""
        return called(self.client, self.site)


@dataclass(frozen=True)
class Run:
    """What a protocol is given: the clients as they were when the run began, and the seed.

    Attributes
    ----------
    members : tuple of Member
        In the order of the clients' numbers, which are 0 and up without gaps.
    seed : int
    wire : {"float64", "float32"}
        What arrays travel as.
    """

    members: tuple[Member, ...]
    seed: int = 0
    wire: Precision = "float64"

    @property
    def clients(self) -> range:
        """The clients' numbers."""
        return range(len(self.members))

    @property
    def rows(self) -> int:
        """The rows of all clients' tables together."""
        return sum(member.rows for member in self.members)

    @property
    def columns(self) -> int:
        """The columns of the first client's table: with a horizontal partition those of all."""
        return self.members[0].columns

    def tolerance(self, tol: float) -> float:
        """Return a tolerance relative to what clients reply, or what its rounding on the wire lets be reached."""
        return tol if self.wire == "float64" else max(tol, SINGLE)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the coordinator's generator for one purpose, the same whenever it is asked for."""
        return generator(purpose, self.seed)


@dataclass(frozen=True)
class Round:
    """What a protocol yields: one request for every client, or one for each of some clients.

    `values`: figures the protocol knows at this point (a residual, say); they go into the run's history. `summed`:
    whether the protocol is sent the sum of the replies, and not these.
    """

    requests: Request[Any] | Mapping[int, Request[Any]]
    values: Mapping[str, float] = field(default_factory=dict)
    summed: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no request, such as a request's class."""
        if not isinstance(self.requests, Request | Mapping):
            raise TypeError(f"a round asks {self.requests!r}; allowed: a request, such as to_all(SumColumns())")

    @property
    def phase(self) -> str:
        """Name of the step: that of its (first) request."""
        return type(self._first).__name__

    @property
    def reply_type(self) -> type[Reply]:
        """What (the first of) the clients reply with."""
        return self._first.reply_type

    @property
    def _first(self) -> Request[Any]:
        return self.requests if isinstance(self.requests, Request) else next(iter(self.requests.values()))

    def of_client(self, client: int) -> Request[Any] | None:
        """Return what this client is asked, if anything."""
        return self.requests if isinstance(self.requests, Request) else self.requests.get(client)


Protocol = Generator[Round, Any, T]
"""A protocol whose result is a ``T``. It is pure: given the same run and the same replies it does the same."""


def to_all(request: Request[ReplyT], **values: float) -> Protocol[list[ReplyT]]:
    """Ask every client the same; the replies come in the order of the clients."""
    replies: list[ReplyT] = yield Round(request, values)
    return replies


def to_each(requests: Mapping[int, Request[ReplyT]], **values: float) -> Protocol[list[ReplyT]]:
    """Ask each of the clients named something of its own; the replies come in the order of the clients."""
    replies: list[ReplyT] = yield Round(dict(sorted(requests.items())), values)
    return replies


def to_sum(requests: Request[SummedT] | Mapping[int, Request[SummedT]], **values: float) -> Protocol[SummedT]:
    """Ask every client the same, or each of some its own, for what adds up; nothing but the sum comes back.

    What a client has replied is seen by nobody beyond the check of its form: not by the protocol, the history, the log.
    """
    if isinstance(requests, Mapping):
        requests = dict(sorted(requests.items()))
    round_ = Round(requests, values, summed=True)
    if not issubclass(round_.reply_type, Summed):
        raise TypeError(f"{round_.phase} is answered by {round_.reply_type.__name__}; allowed with to_sum: a Summed")
    total: SummedT = yield round_
    return total

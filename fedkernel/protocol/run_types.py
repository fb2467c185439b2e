"""Types of protocols: generator functions of a run that yield rounds and receive the clients' replies."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedkernel.ground import Precision, client_label, generator
from fedkernel.protocol.constraints import FLOAT32_ROUNDING
from fedkernel.protocol.messages import Reply, ReplyT, Request, Summed, SummedT
from fedkernel.protocol.privacy import Privacy

T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """Client of a run, with the sizes and names that it introduced itself with.

    - `rows`: with a vertical partition and ids, the rows that all sites have.
    - `site`: the name of its site.
    - `names`: its columns' names; empty: none.
    - `ids`: its rows have ids.
    - `sampled`: largest number of its rows that may be sampled into a coreset; None: any.
    - `raw_columns`: columns of its own table, if `columns` are those of a prepared one.
    - `left`: numbers that left it before the method began, for its preparation and widths.
    - `file`: name of a simulated site's file.
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
    file: str | None = None

    @property
    def entries(self) -> int:
        """Number of entries of the client's own table, in the rows that the run uses."""
        return self.rows * (self.columns if self.raw_columns is None else self.raw_columns)

    @property
    def label(self) -> str:
        """Label of the client in texts: its file's name or, if unknown, its number and any name of its site."""
        return self.file or client_label(self.client, self.site)


@dataclass(frozen=True)
class Run:
    """Input of a protocol: the run's clients and seed, and the precision of sent arrays.

    `members`: the clients, in the order of their numbers from 0. `privacy`: of the sums, which then have noise.
    """

    members: tuple[Member, ...]
    seed: int = 0
    wire: Precision = "float64"
    privacy: Privacy | None = None

    @property
    def clients(self) -> range:
        """Numbers of the clients."""
        return range(len(self.members))

    @property
    def rows(self) -> int:
        """Total number of rows of all clients' tables."""
        return sum(member.rows for member in self.members)

    @property
    def columns(self) -> int:
        """Number of columns of the first client's table. With a horizontal partition, all tables have as many."""
        return self.members[0].columns

    def tolerance(self, tol: float) -> float:
        """Return a relative tolerance, raised to float32's rounding error if arrays are sent as float32."""
        return tol if self.wire == "float64" else max(tol, FLOAT32_ROUNDING)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the coordinator's random generator for one purpose, in the same state at every call."""
        return generator(purpose, self.seed)


@dataclass(frozen=True)
class Round:
    """Round of a protocol, with one request for all clients or one each. `values`: figures for the run's history."""

    requests: Request[Any] | Mapping[int, Request[Any]]
    values: Mapping[str, float] = field(default_factory=dict)
    summed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.requests, Request | Mapping):
            raise TypeError(f"a round has requests = {self.requests!r}; allowed: a request, as in to_all(SumColumns())")

    @property
    def phase(self) -> str:
        """Name of the round: the class of its first request."""
        return type(self._first).__name__

    @property
    def reply_type(self) -> type[Reply]:
        """Class of the reply to its first request."""
        return self._first.reply_type

    @property
    def _first(self) -> Request[Any]:
        return self.requests if isinstance(self.requests, Request) else next(iter(self.requests.values()))

    def of_client(self, client: int) -> Request[Any] | None:
        """Return the round's request to a client, or None."""
        return self.requests if isinstance(self.requests, Request) else self.requests.get(client)


Protocol = Generator[Round, Any, T]
"""Protocol whose result is a ``T``; it is pure: the same run and the same replies give the same requests."""


def to_all(request: Request[ReplyT], **values: float) -> Protocol[list[ReplyT]]:
    """Send all clients the same request, and return their replies, sorted by client."""
    replies: list[ReplyT] = yield Round(request, values)
    return replies


def to_each(requests: Mapping[int, Request[ReplyT]], **values: float) -> Protocol[list[ReplyT]]:
    """Send one request to each of some clients, and return their replies, sorted by client."""
    replies: list[ReplyT] = yield Round(dict(sorted(requests.items())), values)
    return replies


def to_sum(requests: Request[SummedT] | Mapping[int, Request[SummedT]], **values: float) -> Protocol[SummedT]:
    """Send a request to all clients, or one to each of some. Return the sum: the protocol never sees a single reply."""
    if isinstance(requests, Mapping):
        requests = dict(sorted(requests.items()))
    round_ = Round(requests, values, summed=True)
    if not issubclass(round_.reply_type, Summed):
        raise TypeError(f"{round_.phase} is answered by {round_.reply_type.__name__}; allowed with to_sum: a Summed")
    total: SummedT = yield round_
    return total

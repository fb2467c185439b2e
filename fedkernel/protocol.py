"""What a protocol is made of: a generator that yields rounds and is sent the replies."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedkernel.messages import ReplyT, Request

T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """What a protocol yields: one request for every client, or one for each of some clients.

    Attributes
    ----------
    requests : Request or mapping of int to Request
    values : mapping of str to float
        Figures the protocol knows at this point (a residual, say); they go into the run's history.
    """

    requests: Request[Any] | Mapping[int, Request[Any]]
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """Name of the step: that of its (first) request."""
        request = self.requests if isinstance(self.requests, Request) else next(iter(self.requests.values()))
        return type(request).__name__

    def of_client(self, client: int) -> Request[Any] | None:
        """Return what this client is asked, if anything."""
        return self.requests if isinstance(self.requests, Request) else self.requests.get(client)


Protocol = Generator[Round, list[Any], T]
"""A protocol whose result is a ``T``. It is pure: given the same replies it does the same."""


def to_all(request: Request[ReplyT], **values: float) -> Protocol[list[ReplyT]]:
    """Ask every client the same; the replies come in the order of the clients."""
    return (yield Round(request, values))


def to_each(requests: Mapping[int, Request[ReplyT]], **values: float) -> Protocol[list[ReplyT]]:
    """Ask each of the clients named something of its own; the replies come in the order of the clients."""
    return (yield Round(dict(sorted(requests.items())), values))

"""A protocol is a generator that yields rounds and is sent the replies; this module drives one over a Flower Grid."""

import logging
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel.engines import _flower
from fedkernel.errors import InputError, ProtocolError
from fedkernel.ledger import Entry, Ledger
from fedkernel.messages import VERSION, ConfigValue, Reply, ReplyT, Request, decode, encode

log = logging.getLogger(__name__)

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


@dataclass(frozen=True)
class Member:
    """One client of the cohort, as it introduced itself."""

    client: int
    node_id: int
    rows: int
    columns: int
    new_rows: int


@dataclass(frozen=True)
class RunSettings:
    """What every message of a run carries: which run it belongs to, its seed, and how long a round may take."""

    run: str = "run"
    seed: int = 0
    clients: int | None = None
    deadline: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse a seed that would only fail at the clients, and a deadline that none can meet."""
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed = {self.seed}, but must be from 0 to 2^63 - 1")
        if not self.deadline > 0:
            raise InputError(f"deadline = {self.deadline:g}, but must be greater than 0")


@dataclass
class Account:
    """What a run cost: the ledger, and a row per round with its wall-clock seconds."""

    ledger: Ledger = field(default_factory=Ledger)
    history: list[dict[str, Any]] = field(default_factory=list)

    def close_round(self, number: int, phase: str, seconds: float, values: Mapping[str, float]) -> None:
        """Add the row of a finished round."""
        costs = self.ledger.of_round(number)
        row = {"round": number, "phase": phase, "seconds": seconds, "clients": len(costs.entries)}
        totals = {name: total for name, total in costs.totals().items() if name != "rounds"}
        self.history.append(row | totals | ({"values": dict(values)} if values else {}))


def join(grid: Grid, settings: RunSettings, pair: str, account: Account) -> list[Member]:
    """Ask every node who it is, and return the cohort in the order of the clients' own numbers.

    Flower's node ids change when a process restarts, so clients are known by the number their site gives them.

    Raises
    ------
    ProtocolError
        If nodes are missing, have the same number, fail, or speak another wire version.
    """
    started = time.perf_counter()
    config = ConfigRecord({"pair": pair, "run": settings.run, "seed": settings.seed})
    nodes = _wait_for_nodes(grid, settings)
    content = RecordDict({"config": config})
    messages = [Message(content, node, MessageType.QUERY, group_id="0") for node in nodes]
    down = _flower.content_bytes(content)
    replies = list(grid.send_and_receive(messages, timeout=settings.deadline))
    if len(replies) < len(nodes):
        late = len(nodes) - len(replies)
        raise ProtocolError(
            f"{pair}, joining: {late} of {len(nodes)} clients did not answer in {settings.deadline:g} s"
        )
    members: list[Member] = []
    failures: list[str] = []
    told_bytes: dict[int, int] = {}
    for reply in replies:
        if reply.has_error():
            failures.append(reply.error.reason or f"error {reply.error.code}")
            continue
        told = reply.content["config"]
        if told["version"] != VERSION:
            raise ProtocolError(
                f"{pair}, joining: client {told['client']!r} speaks wire version {told['version']!r}, "
                f"the coordinator {VERSION}"
            )
        size = {name: int(str(told[name])) for name in ("client", "rows", "columns", "new_rows")}
        members.append(Member(node_id=reply.metadata.src_node_id, **size))
        told_bytes[size["client"]] = _flower.content_bytes(reply.content)
    if failures:
        raise ProtocolError(sorted(failures)[0] + _others(len(failures) - 1))
    members.sort(key=lambda member: member.client)
    if settings.clients is not None:
        members = [member for member in members if member.client < settings.clients]
    if [member.client for member in members] != list(range(settings.clients or len(members))):
        numbers = ", ".join(str(member.client) for member in members)
        raise ProtocolError(
            f"{pair}, joining: the clients must be numbered 0 to {(settings.clients or len(members)) - 1} "
            f"without gaps, but their numbers are {numbers}"
        )
    for member in members:
        account.ledger.add(Entry(0, "join", member.client, 0, down, 0, told_bytes[member.client]))
    account.close_round(0, "join", time.perf_counter() - started, {})
    return members


def _wait_for_nodes(grid: Grid, settings: RunSettings) -> list[int]:
    """Wait until as many nodes are connected as the run wants, or one if it takes all there are."""
    wanted, give_up = settings.clients or 1, time.monotonic() + settings.deadline
    while len(nodes := sorted(grid.get_node_ids())) < wanted:
        if time.monotonic() > give_up:
            raise ProtocolError(f"{len(nodes)} of {wanted} clients were connected after {settings.deadline:g} s")
        time.sleep(0.05)
    return nodes


def _others(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


class Conversation(Generic[T]):
    """One protocol under way: what is asked next, whether the answers are in order, what it cost.

    Parameters
    ----------
    protocol : Protocol
    name, pair : str
        Name of the strategy (for errors) and of the client class that answers.
    cohort : sequence of Member
    settings : RunSettings
    account : Account
        Rounds are numbered on from what it holds.
    go_on : bool
        Go on without clients that fail or keep silent, as long as one is left; else that is an error.

    Attributes
    ----------
    done : bool
    value : T
        The protocol's result, once done.
    """

    def __init__(
        self,
        protocol: Protocol[T],
        *,
        name: str,
        pair: str,
        cohort: Sequence[Member],
        settings: RunSettings,
        account: Account,
        go_on: bool = False,
    ) -> None:
        self._protocol = protocol
        self._name = name
        self._cohort = list(cohort)
        self._go_on = go_on
        self._settings = settings
        self._header: dict[str, ConfigValue] = {"pair": pair, "run": settings.run, "seed": settings.seed}
        self._account = account
        self._round_number = account.ledger.rounds
        self._pending: Round
        self._asked: dict[int, tuple[Request[Any], int]]
        self._started = 0.0
        self.done = False
        self.value: T
        self._advance(None)

    def _advance(self, replies: list[Reply] | None) -> None:
        try:
            self._pending = next(self._protocol) if replies is None else self._protocol.send(replies)
        except StopIteration as stop:
            self.done, self.value = True, stop.value
        else:
            self._round_number += 1

    def messages(self) -> list[Message]:
        """Return the messages of the pending round, one for each client that is asked."""
        self._asked = {}
        self._started = time.perf_counter()
        messages = []
        for member in self._cohort:
            request = self._pending.of_client(member.client)
            if request is None:
                continue
            arrays, scalars = encode(request)
            config = ConfigRecord(self._header | {"round": self._round_number} | scalars)
            content = RecordDict({"arrays": ArrayRecord(arrays), "config": config})
            self._asked[member.client] = (request, _flower.content_bytes(content))
            messages.append(Message(content, member.node_id, MessageType.TRAIN, group_id=str(self._round_number)))
        if not messages:
            raise ProtocolError(f"{self._name}, round {self._round_number}: it asks no client that is in the run")
        return messages

    def receive(self, replies: Iterable[Message]) -> bool:
        """Check the replies of the pending round, account for them, and move the protocol on.

        Returns
        -------
        bool
            Whether the protocol is done.

        Raises
        ------
        ProtocolError
            If a client failed or kept silent (unless the run may go on without it), if a reply is not what was asked,
            or if replies contradict each other.
        """
        client_of = {member.node_id: member.client for member in self._cohort}
        came = {client_of[reply.metadata.src_node_id]: reply for reply in replies}
        failures = {client: cause for client in self._asked if (cause := self._failure(client, came.get(client)))}
        if failures and (not self._go_on or len(failures) == len(self._asked)):
            raise ProtocolError(next(iter(failures.values())) + _others(len(failures) - 1))
        for client, cause in failures.items():
            log.warning("going on without client %d: %s", client, cause)
            del self._asked[client]
        self._cohort = [member for member in self._cohort if member.client not in failures]
        decoded = [self._decode(client, came[client].content) for client in self._asked]
        self._check_shared_dimensions(decoded)
        seconds = time.perf_counter() - self._started
        self._account.close_round(self._round_number, self._pending.phase, seconds, self._pending.values)
        self._advance(decoded)
        return self.done

    def _where(self, client: int) -> str:
        return f"{self._name}, round {self._round_number} ({self._pending.phase}), client {client}"

    def _failure(self, client: int, reply: Message | None) -> str | None:
        if reply is None:
            return f"{self._where(client)}: no answer within {self._settings.deadline:g} s"
        if reply.has_error():
            return f"{self._where(client)}: {reply.error.reason or f'error {reply.error.code}'}"
        return None

    def _decode(self, client: int, content: RecordDict) -> Reply:
        request, bytes_down = self._asked[client]
        try:
            arrays = content.array_records["arrays"].to_numpy_ndarrays()
            reply = decode(request.reply_type, arrays, content.config_records["config"])
            request.check_reply(reply)
        except KeyError as error:
            raise ProtocolError(f"{self._where(client)}: the reply has no record {error}") from None
        except (ProtocolError, ValueError) as error:
            raise ProtocolError(f"{self._where(client)}: {error}") from None
        bytes_up = _flower.content_bytes(content)
        self._account.ledger.add(
            Entry(self._round_number, self._pending.phase, client, request.floats, bytes_down, reply.floats, bytes_up)
        )
        return reply

    def _check_shared_dimensions(self, replies: Sequence[Reply]) -> None:
        first: dict[str, tuple[int, int]] = {}
        for client, reply in zip(self._asked, replies, strict=True):
            for dimension, size in reply.dimensions().items():
                if dimension.endswith("_m"):
                    continue
                other, other_size = first.setdefault(dimension, (client, size))
                if size != other_size:
                    raise ProtocolError(
                        f"{self._where(client)}: {dimension} = {size}, but client {other} has {dimension} = {other_size}"
                    )

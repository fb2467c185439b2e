"""The clients of a run: who takes part, in which order, under which settings."""

import time
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel.engines import _flower
from fedkernel.errors import InputError, ProtocolError, and_more
from fedkernel.ledger import Account, Entry
from fedkernel.messages import VERSION


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
        raise ProtocolError(sorted(failures)[0] + and_more(len(failures) - 1))
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

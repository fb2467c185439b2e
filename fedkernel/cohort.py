"""The clients of a run: who takes part, in which order, under which settings, and with which rows in common."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, get_args

import pydantic
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel.alignment import Missing, agree, check_same_columns
from fedkernel.engines import _flower
from fedkernel.engines.exchange import POLL, node_called, send_and_receive
from fedkernel.errors import InputError, ProtocolError, and_more, explain, one_line
from fedkernel.ledger import Account, Entry
from fedkernel.messages import VERSION
from fedkernel.protocol import Member

CONNECT_SECONDS = 60.0
"""How long a run waits for nodes that are not connected: they are there before it, or come within seconds."""


@dataclass(frozen=True)
class RunSettings:
    """What every message of a run carries: which run it belongs to, its seed, and how long a round may take.

    With a vertical partition and ids, rows that are `missing` somewhere are dropped, or the run is refused. The
    protocol's own steps have as many BLAS `threads`.
    """

    run: str = "run"
    seed: int = 0
    clients: int | None = None
    deadline: float = 3600.0
    missing: Missing = "drop"
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse a seed that would only fail at the clients, and a deadline that none can meet."""
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed = {self.seed}, but must be from 0 to 2^63 - 1")
        if not self.deadline > 0:
            raise InputError(f"deadline = {self.deadline:g}, but must be greater than 0")
        if self.missing not in get_args(Missing):
            raise InputError(f"missing = {self.missing!r}, but must be one of {', '.join(get_args(Missing))}")
        if self.threads < 1:
            raise InputError(f"threads = {self.threads}, but must be at least 1")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunSettings":
        """Return what a Flower configuration says of a run, which may say other things, too."""
        return cls(**{field.name: config[field.name] for field in fields(cls) if field.name in config})


def reason_of(reply: Message) -> str:
    """Return why a client could not answer, as it says."""
    return one_line(reply.error.reason or "")[:1000] or f"error {reply.error.code}"


def join(
    grid: Grid,
    settings: RunSettings,
    pair: str,
    account: Account,
    partition: Literal["vertical", "horizontal"],
) -> list[Member]:
    """Ask every node who it is, and return the cohort in the order of the clients' own numbers.

    Flower's node ids change when a process restarts, so clients are known by the number their site gives them. Sites
    with the same columns must agree on the names of these; sites that know their rows by ids agree on the rows.

    Raises
    ------
    ProtocolError
        If nodes are missing, have the same number, fail, or speak another wire version.
    InputError
        If the sites' columns or ids do not fit together.
    """
    started = time.perf_counter()
    wire = _Wire(grid, settings, pair)
    down, replies = wire.ask(_wait_for_nodes(grid, settings), "joining", MessageType.QUERY)
    members: list[Member] = []
    bytes_up: dict[int, int] = {}
    for node, content in replies.items():
        member = _introduced(node, content, f"{pair}, joining: {node_called(grid, node)}")
        members.append(member)
        bytes_up[member.client] = _flower.content_bytes(content)
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
        account.ledger.add(Entry(0, "join", member.client, 0, down, 0, bytes_up[member.client]))
    account.close_round(0, "join", time.perf_counter() - started, {})
    if partition == "vertical":
        return _align(wire, members, account)
    named = {member.called: member.names for member in members if member.names}
    if named:
        check_same_columns(named)
    return members


class _Introduction(pydantic.BaseModel):
    """How a client introduces itself."""

    model_config = pydantic.ConfigDict(strict=True)

    client: Annotated[int, pydantic.Field(ge=0)]
    rows: Annotated[int, pydantic.Field(ge=0)]
    columns: Annotated[int, pydantic.Field(ge=0)]
    new_rows: Annotated[int, pydantic.Field(ge=0)]
    site: Annotated[str, pydantic.Field(max_length=200)] | None = None
    names: list[str] = []
    ids: bool = False

    @pydantic.model_validator(mode="after")
    def _a_name_each(self) -> "_Introduction":
        if self.names and len(set(self.names)) != self.columns:
            raise ValueError(f"it tells {len(set(self.names))} different names of its {self.columns} columns")
        return self


def _introduced(node: int, content: RecordDict, where: str) -> Member:
    """Check how a client introduced itself."""
    try:
        fields = dict(content.config_records["config"])
    except KeyError:
        raise ProtocolError(f"{where} did not say who it is") from None
    if (version := fields.pop("version", None)) != VERSION:
        raise ProtocolError(f"{where} speaks wire version {version!r}, the coordinator {VERSION}")
    try:
        shown = _Introduction.model_validate(fields)
    except pydantic.ValidationError as error:
        raise ProtocolError(f"{where} introduced itself wrongly: {explain(error, given=fields)[:300]}") from None
    site = None if shown.site is None else one_line(shown.site)
    size = {"rows": shown.rows, "columns": shown.columns, "new_rows": shown.new_rows}
    return Member(node_id=node, client=shown.client, **size, site=site, names=tuple(shown.names), ids=shown.ids)


def _align(wire: "_Wire", members: Sequence[Member], account: Account) -> list[Member]:
    """Have sites that know their rows by ids work on those that all of them have, in one order.

    Sites without ids are taken to hold the same rows in the same order.
    """
    without = [member.called for member in members if not member.ids]
    if len(without) == len(members):
        return list(members)
    if without:
        knows = next(member.called for member in members if member.ids)
        raise InputError(
            f"{without[0]}{and_more(len(without) - 1)} has no ids, but {knows} has; allowed: ids at all sites or none"
        )
    started = time.perf_counter()
    nodes = {member.node_id: member for member in members}

    def ask(action: str, **arrays: Any) -> dict[int, RecordDict]:
        down, replies = wire.ask([*nodes], "aligning", f"{MessageType.QUERY}.{action}", **arrays)
        ordered = {node: replies[node] for node in nodes}
        for node, content in ordered.items():
            up = _flower.content_bytes(content)
            account.ledger.add(Entry(0, "align", nodes[node].client, 0, down, 0, up))
        return ordered

    keys: dict[str, Any] = {}
    hashed: dict[str, Any] = {}
    for node, content in ask("ids").items():
        who = nodes[node].called
        try:
            keys[who] = content.config_records["config"]["key"]
            hashed[who] = _flower.read_array(content.array_records["arrays"]["ids"])
        except KeyError as error:
            raise ProtocolError(f"{wire.pair}, aligning: the reply of {who} has no {error}") from None
        except ProtocolError as error:
            raise ProtocolError(f"{wire.pair}, aligning: the reply of {who}: {error}") from None
        if keys[who] != keys[members[0].called]:
            raise InputError(
                f"{who} has another id-key than {members[0].called}; allowed: the same at all sites, or none"
            )
    common = agree(hashed, wire.settings.missing, wire.settings.run)
    for node, content in ask("align", ids=common).items():
        rows = content.config_records["config"].get("rows") if "config" in content.config_records else None
        if rows != len(common):
            raise ProtocolError(f"{wire.pair}, aligning: {nodes[node].called} has {rows!r} of {len(common)} rows")
    figures = {f"rows_{member.client}": float(member.rows) for member in members} | {"rows": float(len(common))}
    account.close_round(0, "align", time.perf_counter() - started, figures)
    return [replace(member, rows=len(common)) for member in members]


@dataclass(frozen=True)
class _Wire:
    """Asks nodes what is no request of a protocol."""

    grid: Grid
    settings: RunSettings
    pair: str

    def ask(self, nodes: Sequence[int], doing: str, action: str, **arrays: Any) -> tuple[int, dict[int, RecordDict]]:
        """Return the bytes of what was sent to each of them, and their replies by node; one cause where one fails."""
        content = RecordDict(
            {"config": ConfigRecord({"pair": self.pair, "run": self.settings.run, "seed": self.settings.seed})}
        )
        if arrays:
            content["arrays"] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        messages = [Message(content, node, action, group_id="0") for node in nodes]
        down = _flower.content_bytes(content)
        replies = send_and_receive(self.grid, messages, self.settings.deadline)
        if silent := sorted(set(nodes) - {reply.metadata.src_node_id for reply in replies}):
            who = f"{node_called(self.grid, silent[0])}{and_more(len(silent) - 1)}"
            raise ProtocolError(f"{self.pair}, {doing}: {who} did not answer in {self.settings.deadline:g} s")
        failures = sorted(reason_of(reply) for reply in replies if reply.has_error())
        if failures:
            raise ProtocolError(failures[0] + and_more(len(failures) - 1))
        return down, {reply.metadata.src_node_id: reply.content for reply in replies}


def _wait_for_nodes(grid: Grid, settings: RunSettings) -> list[int]:
    """Wait until as many nodes are connected as the run wants, or one if it takes all there are."""
    wanted, patience = settings.clients or 1, min(settings.deadline, CONNECT_SECONDS)
    give_up = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < wanted:
        if time.monotonic() > give_up:
            raise ProtocolError(f"{len(nodes)} of {wanted} clients were connected after {patience:g} s")
        time.sleep(POLL)
    return nodes

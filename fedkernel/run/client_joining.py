"""Joining of a run's clients before the first round: introductions, joint seed, and alignment of rows."""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel import wire
from fedkernel.ground import Division, InputError, ProtocolError, QuorumError, and_more, listed, one_line, quoted
from fedkernel.protocol import Member, ReplyT, Request
from fedkernel.run import message_delivery
from fedkernel.run.flower_grids import MessageGrid
from fedkernel.run.journal import Journal
from fedkernel.run.ledger import Account, Entry, Ledger
from fedkernel.run.row_matching import check_same_columns, common_rows, outlying_site
from fedkernel.run.settings import RunSettings
from fedkernel.wire import flower_internals

log = logging.getLogger(__name__)

JOINING_PHASES = {"joining": "join", "aligning": "align", "drawing the seed": "seed"}
"""Phases of the steps before a protocol, by the steps' names in texts."""

CONNECT_SECONDS = 60.0  # longest wait for nodes to connect, in seconds; they start before the run or within seconds


def reason_of(reply: Message) -> str:
    """Return a failed reply's error text, from the client or the engine, or an empty text if it succeeded."""
    if not reply.has_error():
        return "" if reply.has_content() else "its reply is empty"
    reason = reply.error.reason or f"error {reply.error.code}"
    return one_line(reason) if _is_engine_error(reply) else quoted(reason)


def _is_engine_error(reply: Message) -> bool:
    """Return whether the engine, not the client, reported a reply's error. The text then names the client."""
    return reply.has_error() and reply.error.code in wire.ENGINE_CODES


def join(
    grid: Grid,
    settings: RunSettings,
    pair: str,
    account: Account,
    partition: Division,
    *,
    journal: Journal | None = None,
) -> tuple[list[Member], RunSettings]:
    """Join a run's clients. Returns members in the clients' order, and settings with the joint seed, if one is drawn.

    Flower's node ids change when a process restarts, so clients are known by the number their site gives them. Sites
    with the same columns must agree on their names; sites whose rows have ids are aligned by these. Raises
    ProtocolError if nodes are missing, have the same number, fail, or use a different wire version. Raises InputError
    if the sites' columns or ids do not fit together.
    """
    started = time.perf_counter()
    nodes = {node: message_delivery.node_name(grid, node) for node in _wait_for_nodes(grid, settings)}
    exchange = _JoiningExchange(grid, settings, pair, journal)
    down, introductions = exchange.ask(wire.Introduce(), MessageType.QUERY, "joining", nodes)
    members = [
        Member(node_id=node, file=settings.file_of(reply.client), **reply.model_dump(exclude={"commitment"}))
        for node, (reply, _) in introductions.items()
    ]
    contents = {reply.client: content for reply, content in introductions.values()}
    members.sort(key=lambda member: member.client)
    if settings.clients is not None:
        members = [member for member in members if member.client < settings.clients]
    if [member.client for member in members] != list(range(settings.clients or len(members))):
        numbers = ", ".join(f"{member.client} ({nodes[member.node_id]})" for member in members)
        raise ProtocolError(
            f"{pair}, joining: the clients must be numbered 0 to {(settings.clients or len(members)) - 1} "
            f"without gaps, but their numbers are {numbers}"
        )
    costs = Ledger(exchange.joining_entry("join", member.client, down, contents[member.client]) for member in members)
    account.close_round(0, "join", time.perf_counter() - started, {}, costs)
    if settings.joint_seed:
        committed = {reply.client: reply for reply, _ in introductions.values()}
        settings = replace(settings, seed=_draw_seed(exchange, members, committed, account))
        exchange = replace(exchange, settings=settings)
    if partition == "vertical":
        return _align(exchange, members, account), settings
    if named := [member for member in members if member.names]:
        _check_columns(named, in_any_order=settings.prepare is not None)
    return members, settings


def minority_nodes(values: Mapping[int, Hashable]) -> list[int]:
    """Return the nodes whose value differs from the majority's, or all nodes if there is no majority."""
    (value, count), *others = Counter(values.values()).most_common()
    if not others:
        return []
    return [node for node, own in values.items() if own != value or 2 * count <= len(values)]


def _check_columns(members: Sequence[Member], *, in_any_order: bool) -> None:
    """Raise InputError if the sites' column names differ. The error names the minority's nodes as its cause."""
    order = sorted if in_any_order else tuple
    apart = minority_nodes({member.node_id: tuple(order(member.names)) for member in members})
    some_agree = len(apart) < len(members)
    expected_first = sorted(members, key=lambda member: some_agree and member.node_id in apart)
    try:
        check_same_columns({member.label: member.names for member in expected_first}, in_any_order=in_any_order)
    except InputError as error:
        raise error.at(apart, mendable=True) from None


def _draw_seed(
    exchange: "_JoiningExchange",
    members: Sequence[Member],
    introduced: Mapping[int, wire.Introduction],
    account: Account,
) -> int:
    """Collect the sites' shares of the joint seed, and return the seed (`fedkernel.wire.seed_agreement`)."""
    if without := [member.label for member in members if introduced[member.client].commitment is None]:
        text = f"{exchange.pair}, joining: {without[0]}{and_more(len(without) - 1)} draws no share of the seed"
        raise ProtocolError(text)
    started, doing, costs = time.perf_counter(), "drawing the seed", Ledger()
    commitments = tuple(str(introduced[member.client].commitment) for member in members)
    shown = exchange.collect(wire.ShowShare(commitments=commitments), "share", doing, members, costs)
    shares = tuple(reply.share for reply in shown)
    for member, share, bound in zip(members, shares, commitments, strict=True):
        if wire.commitment(share) != bound:
            raise ProtocolError(f"{exchange.pair}, drawing the seed: {member.label} sent a share that it did not draw")
    exchange.collect(wire.TakeShares(shares=shares), "seed", doing, members, costs)
    seed = wire.joint_seed(shares)
    account.close_round(0, "seed", time.perf_counter() - started, {"seed": seed}, costs)
    log.info("%s: the sites drew the seed %d", exchange.settings.run, seed)
    return seed


def _align(exchange: "_JoiningExchange", members: Sequence[Member], account: Account) -> list[Member]:
    """Restrict sites to their common rows, by ids and in one order. Sites without ids are assumed to be aligned."""
    without = [member.label for member in members if not member.ids]
    if len(without) == len(members):
        return list(members)
    if without:
        knows = next(member.label for member in members if member.ids)
        raise InputError(
            f"{without[0]}{and_more(len(without) - 1)} has no row ids, but {knows} has; all sites need ids, or none"
        ).at(minority_nodes({member.node_id: member.ids for member in members}), mendable=True)
    started, costs = time.perf_counter(), Ledger()
    rows: Literal["rows", "new_rows"] = "new_rows" if exchange.settings.project else "rows"
    replies = exchange.collect(wire.HashIds(), "ids", "aligning", members, costs)
    hashed = [*zip(members, replies, strict=True)]
    checks = {member.node_id: reply.key_check.tobytes() for member, reply in hashed}
    for member, reply in hashed:
        if (count := len(reply.hashes)) != (has := getattr(member, rows)):
            raise ProtocolError(
                f"{exchange.pair}, aligning: {member.label} sent {count} hashes of ids, but has {has} rows"
            ).at([member.node_id])
        if not np.array_equal(reply.key_check, replies[0].key_check):
            raise InputError(
                f"{member.label} and {members[0].label} have different id-keys; all sites need the same key, or none"
            ).at(minority_nodes(checks), mendable=True)
    hashes = {member.label: reply.hashes for member, reply in hashed}
    try:
        common = common_rows(hashes, exchange.settings.missing, exchange.settings.run)
    except InputError as error:
        alone = outlying_site(hashes)
        raise error.at([member.node_id for member in members if member.label == alone], mendable=True) from None
    exchange.collect(wire.TakeRows(hashes=common), "align", "aligning", members, costs)
    figures = {f"rows_{member.client}": float(getattr(member, rows)) for member in members}
    figures |= {"rows": float(len(common)), "order": wire.order_id(common)}
    account.close_round(0, "align", time.perf_counter() - started, figures, costs)
    return [replace(member, **dict[str, Any]({rows: len(common)})) for member in members]


@dataclass(frozen=True)
class _JoiningExchange:
    """Exchange of the requests that precede a protocol, with the run's settings and journal."""

    grid: Grid
    settings: RunSettings
    pair: str
    journal: Journal | None = None

    def ask(
        self, request: Request[ReplyT], kind: str, doing: str, nodes: Mapping[int, str]
    ) -> tuple[int, dict[int, tuple[ReplyT, RecordDict]]]:
        """Send a request to nodes and collect the replies; `nodes` maps node ids to names for error messages.

        Returns the request's size in bytes, and by node, in the order of `nodes`, each reply decoded and as received.
        """
        header = self.settings.header(self.pair)
        if kind == MessageType.QUERY:
            header[wire.BEGINNING] = secrets.token_hex(16) if self.journal is None else self.journal.beginning
        content = wire.to_content(request, header)
        messages = [Message(content, node, kind, group_id="0") for node in nodes]
        journal, deadline = self.journal, self.settings.deadline
        if (record := message_delivery.recorded_replies(journal, self.grid, messages, doing, deadline)) is not None:
            contents = dict(zip(record.nodes, map(flower_internals.content_from_bytes, record.contents), strict=True))
        else:
            contents = self._contents(messages, doing, nodes)
        decoded: dict[int, tuple[ReplyT, RecordDict]] = {}
        for node, who in nodes.items():
            try:
                reply: ReplyT = wire.from_content(request.reply_type, contents[node])  # type: ignore[assignment]
                request.check_reply(reply)
            except (ProtocolError, ValueError) as error:
                raise ProtocolError(f"{self.pair}, {doing}: {who}: {str(error)[:300]}").at([node]) from None
            decoded[node] = reply, contents[node]
        if journal is not None and record is None:
            message_delivery.record_replies(journal, self.grid, list(nodes), [contents[node] for node in nodes])
        return flower_internals.content_bytes(content), decoded

    def _contents(self, messages: Sequence[Message], doing: str, nodes: Mapping[int, str]) -> dict[int, RecordDict]:
        """Send messages and return the replies' contents by node; raise ProtocolError for the first failure."""
        deadline = self.settings.deadline_of(JOINING_PHASES[doing])
        replies = message_delivery.send_and_receive(self.grid, messages, deadline)
        try:
            reply_of = message_delivery.replies_by_node(replies, nodes)
        except ProtocolError as error:
            raise ProtocolError(f"{self.pair}, {doing}: {error}") from None
        needs = f"a run begins with all {len(nodes)} clients"
        if silent := [node for node in nodes if node not in reply_of]:
            cause = f"{self.pair}, {doing}: {nodes[silent[0]]} did not answer in {deadline:g} s"
            raise QuorumError.of(cause, [nodes[node] for node in silent[1:]], needs).at(silent)
        failures = {node: reason for node, reply in reply_of.items() if (reason := reason_of(reply))}
        if failures:
            causes = sorted(
                reason if _is_engine_error(reply_of[node]) else f"{self.pair}, {doing}: {nodes[node]}: {reason}"
                for node, reason in failures.items()
            )
            codes = {reply_of[node].error.code if reply_of[node].has_error() else None for node in failures}
            if codes == {wire.DISCONNECTED}:
                first, *others = failures
                cause = f"{self.pair}, {doing}: {failures[first]}"
                raise QuorumError.of(cause, [nodes[node] for node in others], needs).at(failures)
            mendable = codes <= {wire.UNFIT_TABLE, None}
            raise ProtocolError(causes[0] + and_more(len(causes) - 1)).at(failures, mendable=mendable)
        return {node: reply.content for node, reply in reply_of.items()}

    def collect(
        self, request: Request[ReplyT], action: str, doing: str, members: Sequence[Member], costs: Ledger
    ) -> list[ReplyT]:
        """Send a request to members, add its costs, and return the replies in the members' order."""
        names = {member.node_id: member.label for member in members}
        down, replies = self.ask(request, f"{MessageType.QUERY}.{action}", doing, names)
        for member in members:
            costs.add(self.joining_entry(JOINING_PHASES[doing], member.client, down, replies[member.node_id][1]))
        return [replies[member.node_id][0] for member in members]

    def joining_entry(self, phase: str, client: int, bytes_down: int, content: RecordDict) -> Entry:
        """Return the ledger entry of a reply before the method's first round. It has round 0 and no floats."""
        size = flower_internals.content_bytes(content)
        return Entry(0, phase, client, 0, bytes_down, 0, size, sha256=self.settings.hash_of(content))


def _wait_for_nodes(grid: Grid, settings: RunSettings) -> list[int]:
    """Wait until `settings.clients` nodes are connected (None: at least one), and return their ids."""
    least, longest = settings.clients or 1, min(settings.deadline, CONNECT_SECONDS)
    give_up = time.monotonic() + longest
    while len(nodes := sorted(grid.get_node_ids())) < least:
        if time.monotonic() > give_up:
            absent = grid.absent() if isinstance(grid, MessageGrid) else []
            who = f"; missing: {listed([message_delivery.node_name(grid, node) for node in absent])}" if absent else ""
            raise QuorumError(f"{len(nodes)} of {least} clients were connected after {longest:g} s{who}").at(absent)
        time.sleep(message_delivery.POLL_SECONDS)
    return nodes

"""Joining of a run's clients: introductions, joint seed and alignment of rows, before the first round."""

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

from fedkernel.ground import Division, InputError, ProtocolError, QuorumError, and_more, listed, one_line, quoted
from fedkernel.protocol import Member, ReplyT, Request
from fedkernel.run.flower_grids import MessageGrid
from fedkernel.run.journal import Journal
from fedkernel.run.ledger import Account, Entry, Ledger
from fedkernel.run.message_delivery import POLL, by_node, node_called, recorded, send_and_receive, write_down
from fedkernel.run.row_matching import check_same_columns, common_rows, stranger_of
from fedkernel.run.settings import RunSettings
from fedkernel.wire import (
    BEGINNING,
    CARRIERS,
    GONE,
    UNFIT_TABLE,
    HashIds,
    Introduce,
    Introduction,
    ShowShare,
    TakeRows,
    TakeShares,
    commitment,
    flower_internals,
    from_content,
    joint_seed,
    order_of,
    to_content,
)

log = logging.getLogger(__name__)

JOINING = {"joining": "join", "aligning": "align", "drawing the seed": "seed"}
"""Steps before a protocol, as texts name them, with their phases."""

CONNECT_SECONDS = 60.0
"""Longest wait for nodes to connect; they start before the run or within seconds."""


def reason_of(reply: Message) -> str:
    """Return a failed reply's error text, from the client or the transport; empty if it succeeded."""
    if not reply.has_error():
        return "" if reply.has_content() else "its reply has nothing in it"
    reason = reply.error.reason or f"error {reply.error.code}"
    return one_line(reason) if _is_carriers(reply) else quoted(reason)


def _is_carriers(reply: Message) -> bool:
    """Return whether the transport, not the client, reported the error; its text names the client already."""
    return reply.has_error() and reply.error.code in CARRIERS


def join(
    grid: Grid,
    settings: RunSettings,
    pair: str,
    account: Account,
    partition: Division,
    *,
    journal: Journal | None = None,
) -> tuple[list[Member], RunSettings]:
    """Collect every node's introduction; return the members in the clients' order, and the run's settings.

    Flower's node ids change when a process restarts, so clients are known by the number their site gives them. Sites
    with the same columns must agree on their names; sites whose rows have ids are aligned by these. The settings have
    the joint seed, if it is drawn. Raises ProtocolError if nodes are missing, have the same number, fail, or speak
    another wire version. Raises InputError if the sites' columns or ids do not fit together.
    """
    started = time.perf_counter()
    nodes = {node: node_called(grid, node) for node in _wait_for_nodes(grid, settings)}
    wire = _Wire(grid, settings, pair, journal)
    down, introductions = wire.ask(Introduce(), MessageType.QUERY, "joining", nodes)
    members = [
        Member(node_id=node, **reply.model_dump(exclude={"commitment"})) for node, (reply, _) in introductions.items()
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
    costs = Ledger(wire.entry("join", member.client, down, contents[member.client]) for member in members)
    account.close_round(0, "join", time.perf_counter() - started, {}, costs)
    if settings.joint_seed:
        committed = {reply.client: reply for reply, _ in introductions.values()}
        settings = replace(settings, seed=_draw_seed(wire, members, committed, account))
        wire = replace(wire, settings=settings)
    if partition == "vertical":
        return _align(wire, members, account), settings
    if named := [member for member in members if member.names]:
        _check_columns(named, in_any_order=settings.prepare is not None)
    return members, settings


def unlike(values: Mapping[int, Hashable]) -> list[int]:
    """Return the nodes whose value differs from the majority's: all without a majority, none if all agree."""
    (value, count), *others = Counter(values.values()).most_common()
    if not others:
        return []
    return [node for node, own in values.items() if own != value or 2 * count <= len(values)]


def _check_columns(members: Sequence[Member], *, in_any_order: bool) -> None:
    """Raise InputError if sites' column names differ, with the minority's nodes as the cause."""
    order = sorted if in_any_order else tuple
    apart = unlike({member.node_id: tuple(order(member.names)) for member in members})
    some_agree = len(apart) < len(members)
    expected_first = sorted(members, key=lambda member: some_agree and member.node_id in apart)
    try:
        check_same_columns({member.label: member.names for member in expected_first}, in_any_order=in_any_order)
    except InputError as error:
        raise error.at(apart, mendable=True) from None


def _draw_seed(
    wire: "_Wire", members: Sequence[Member], introductions: Mapping[int, Introduction], account: Account
) -> int:
    """Draw the run's seed jointly by the sites' shares (`fedkernel.wire.seed_agreement`)."""
    if without := [member.label for member in members if introductions[member.client].commitment is None]:
        raise ProtocolError(
            f"{wire.pair}, joining: {without[0]}{and_more(len(without) - 1)} draws no share of the seed"
        )
    started = time.perf_counter()
    commitments = tuple(str(introductions[member.client].commitment) for member in members)
    who, costs = {member.node_id: member.label for member in members}, Ledger()

    def ask(request: Request[ReplyT], action: str) -> list[ReplyT]:
        down, replies = wire.ask(request, f"{MessageType.QUERY}.{action}", "drawing the seed", who)
        for member in members:
            costs.add(wire.entry("seed", member.client, down, replies[member.node_id][1]))
        return [replies[member.node_id][0] for member in members]

    shares = tuple(reply.share for reply in ask(ShowShare(commitments=commitments), "share"))
    for member, share, bound in zip(members, shares, commitments, strict=True):
        if commitment(share) != bound:
            raise ProtocolError(f"{wire.pair}, drawing the seed: {member.label} showed another share than it drew")
    ask(TakeShares(shares=shares), "seed")
    seed = joint_seed(shares)
    account.close_round(0, "seed", time.perf_counter() - started, {"seed": seed}, costs)
    log.info("%s: the sites drew the seed %d", wire.settings.run, seed)
    return seed


def _align(wire: "_Wire", members: Sequence[Member], account: Account) -> list[Member]:
    """Restrict sites whose rows have ids to the common rows, in one order.

    Sites without ids are taken to hold the same rows in the same order.
    """
    without = [member.label for member in members if not member.ids]
    if len(without) == len(members):
        return list(members)
    if without:
        knows = next(member.label for member in members if member.ids)
        raise InputError(
            f"{without[0]}{and_more(len(without) - 1)} has no ids, but {knows} has; allowed: ids at all sites or none"
        ).at(unlike({member.node_id: member.ids for member in members}), mendable=True)
    started = time.perf_counter()
    nodes, costs = {member.node_id: member for member in members}, Ledger()

    def ask(request: Request[ReplyT], action: str) -> dict[str, ReplyT]:
        who = {node: member.label for node, member in nodes.items()}
        down, replies = wire.ask(request, f"{MessageType.QUERY}.{action}", "aligning", who)
        for node, (_, content) in replies.items():
            costs.add(wire.entry("align", nodes[node].client, down, content))
        return {who[node]: reply for node, (reply, _) in replies.items()}

    rows: Literal["rows", "new_rows"] = "new_rows" if wire.settings.project else "rows"
    hashed = ask(HashIds(), "ids")
    checks = {member.node_id: hashed[member.label].key_check.tobytes() for member in members}
    for member in members:
        if hashed[member.label].hashes.shape[0] != (has := getattr(member, rows)):
            count = len(hashed[member.label].hashes)
            raise ProtocolError(f"{wire.pair}, aligning: {member.label} sent {count} ids of {has} rows").at(
                [member.node_id]
            )
        if not np.array_equal(hashed[member.label].key_check, hashed[members[0].label].key_check):
            raise InputError(
                f"{member.label} has another id-key than {members[0].label}; allowed: the same at all sites, or none"
            ).at(unlike(checks), mendable=True)
    hashes = {who: reply.hashes for who, reply in hashed.items()}
    try:
        common = common_rows(hashes, wire.settings.missing, wire.settings.run)
    except InputError as error:
        alone = stranger_of(hashes)
        raise error.at([member.node_id for member in members if member.label == alone], mendable=True) from None
    ask(TakeRows(hashes=common), "align")
    figures = {f"rows_{member.client}": float(getattr(member, rows)) for member in members}
    figures |= {"rows": float(len(common)), "order": order_of(common)}
    account.close_round(0, "align", time.perf_counter() - started, figures, costs)
    return [replace(member, **dict[str, Any]({rows: len(common)})) for member in members]


@dataclass(frozen=True)
class _Wire:
    """Exchange of requests that precede a protocol, with its journal and costs."""

    grid: Grid
    settings: RunSettings
    pair: str
    journal: Journal | None = None

    def ask(
        self, request: Request[ReplyT], kind: str, doing: str, nodes: Mapping[int, str]
    ) -> tuple[int, dict[int, tuple[ReplyT, RecordDict]]]:
        """Send a request to `nodes`, named by their values in texts.

        Returns the request's size in bytes, and by node, in the order of `nodes`, the replies decoded and as received.
        """
        header = self.settings.header(self.pair)
        if kind == MessageType.QUERY:
            header[BEGINNING] = secrets.token_hex(16) if self.journal is None else self.journal.beginning
        content = to_content(request, header)
        messages = [Message(content, node, kind, group_id="0") for node in nodes]
        if (record := recorded(self.journal, self.grid, messages, doing, self.settings.deadline)) is not None:
            contents = dict(zip(record.nodes, map(flower_internals.content_from_bytes, record.contents), strict=True))
        else:
            contents = self._contents(messages, doing, nodes)
        decoded: dict[int, tuple[ReplyT, RecordDict]] = {}
        for node, who in nodes.items():
            try:
                reply: ReplyT = from_content(request.reply_type, contents[node])  # type: ignore[assignment]
                request.check_reply(reply)
            except (ProtocolError, ValueError) as error:
                raise ProtocolError(f"{self.pair}, {doing}: {who}: {str(error)[:300]}").at([node]) from None
            decoded[node] = reply, contents[node]
        if self.journal is not None and record is None:
            write_down(self.journal, self.grid, list(nodes), [contents[node] for node in nodes])
        return flower_internals.content_bytes(content), decoded

    def _contents(self, messages: Sequence[Message], doing: str, nodes: Mapping[int, str]) -> dict[int, RecordDict]:
        """Return the nodes' replies by node, or raise the first failure's cause."""
        deadline = self.settings.deadline_of(JOINING[doing])
        replies = send_and_receive(self.grid, messages, deadline)
        try:
            reply_of = by_node(replies, nodes)
        except ProtocolError as error:
            raise ProtocolError(f"{self.pair}, {doing}: {error}") from None
        needs = f"a run begins with all {len(nodes)} clients"
        if silent := [node for node in nodes if node not in reply_of]:
            cause = f"{self.pair}, {doing}: {nodes[silent[0]]} did not answer in {deadline:g} s"
            raise QuorumError.of(cause, [nodes[node] for node in silent[1:]], needs).at(silent)
        failures = {node: reason for node, reply in reply_of.items() if (reason := reason_of(reply))}
        if failures:
            causes = sorted(
                reason if _is_carriers(reply_of[node]) else f"{self.pair}, {doing}: {nodes[node]}: {reason}"
                for node, reason in failures.items()
            )
            if all(reply_of[node].has_error() and reply_of[node].error.code == GONE for node in failures):
                first, *others = failures
                cause = f"{self.pair}, {doing}: {failures[first]}"
                raise QuorumError.of(cause, [nodes[node] for node in others], needs).at(failures)
            mendable = all(reply_of[node].error.code == UNFIT_TABLE for node in failures if reply_of[node].has_error())
            raise ProtocolError(causes[0] + and_more(len(causes) - 1)).at(failures, mendable=mendable)
        return {node: reply.content for node, reply in reply_of.items()}

    def entry(self, phase: str, client: int, bytes_down: int, content: RecordDict) -> Entry:
        """Return the ledger entry of one reply."""
        size = flower_internals.content_bytes(content)
        return Entry(0, phase, client, 0, bytes_down, 0, size, sha256=self.settings.hash_of(content))


def _wait_for_nodes(grid: Grid, settings: RunSettings) -> list[int]:
    """Wait until `settings.clients` nodes are connected, or at least one if that is None."""
    least, patience = settings.clients or 1, min(settings.deadline, CONNECT_SECONDS)
    give_up = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < least:
        if time.monotonic() > give_up:
            absent = grid.absent() if isinstance(grid, MessageGrid) else []
            who = f"; without: {listed([node_called(grid, node) for node in absent])}" if absent else ""
            raise QuorumError(f"{len(nodes)} of {least} clients were connected after {patience:g} s{who}").at(absent)
        time.sleep(POLL)
    return nodes

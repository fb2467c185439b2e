"""Main loop of a run: it sends each round's requests over a Flower Grid, and checked replies to the protocol."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel import wire
from fedkernel.data import Preparation
from fedkernel.ground import Division, ProtocolError, QuorumError, and_more, blas_threads, limit_steps
from fedkernel.peers import CarriesLetters, sealed_in
from fedkernel.protocol import Member, Protocol, Reply, Request, Round, Run, Summed
from fedkernel.run.client_joining import reason_of
from fedkernel.run.events import log_event
from fedkernel.run.flower_grids import MessageGrid
from fedkernel.run.journal import Exchange, Journal
from fedkernel.run.ledger import Account, Entry, Ledger, LetterEntry
from fedkernel.run.message_delivery import record_replies, recorded_replies, replies_by_node, send_and_receive
from fedkernel.run.settings import RunSettings
from fedkernel.wire import flower_internals

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Execution:
    """State of one run that all its protocols share, once the clients have joined.

    - `name`, `pair`: class names of the strategy, for errors, and of the client that answers.
    - `partition`: decides the dimension that all clients' tables share; replies are checked against it.
    - `account`: costs so far; rounds are numbered on from these.
    - `preparation`: of the tables, with a horizontal partition. `warnings`: its findings that may affect the result.
    - `journal`: replies recorded before the run was stopped; new ones are added.
    """

    name: str
    pair: str
    partition: Division
    losses: wire.Losses
    grid: Grid
    settings: RunSettings
    run: Run
    account: Account
    preparation: Preparation | None = None
    warnings: tuple[str, ...] = ()
    journal: Journal | None = None

    def start_protocol(self, protocol: Protocol[T]) -> "RunningProtocol[T]":
        """Start a protocol to be advanced round by round, with the settings' number of threads."""
        return RunningProtocol(self, limit_steps(self.settings.threads, protocol))

    def finish(self, protocol: Protocol[T]) -> T:
        """Run a protocol over the grid to its end, and return its result."""
        around, deadline = (self.journal, self.grid), self.settings.deadline
        with blas_threads(self.settings.threads):  # once, or each step and each client would set them anew
            running = self.start_protocol(protocol)
            while not running.done:
                messages = running.messages()
                if (record := recorded_replies(*around, messages, running.where, deadline)) is not None:
                    running.replay(record)
                else:
                    running.receive(send_and_receive(self.grid, messages, running.deadline))
        return running.value


class RunningProtocol(Generic[T]):
    """Protocol in progress, with messages, checks and accounts of each round. `value`: the result, once `done`."""

    def __init__(self, execution: Execution, protocol: Protocol[T]) -> None:
        self._execution, self._account = execution, execution.account
        self._protocol = protocol
        self._cohort = list(execution.run.members)
        self._client_of = {member.node_id: member.client for member in self._cohort}
        self._node_of = {client: node for node, client in self._client_of.items()}
        self._names = {member.client: member.label for member in self._cohort}
        self._sizes = {member.client: _table_sizes(member, execution.partition) for member in self._cohort}
        self._round_number = self._account.ledger.rounds
        self._pending: Round
        self._requests: dict[int, tuple[Request[Any], int]]
        self._started = 0.0
        self.done = False
        self.value: T
        self._advance(None)

    def _advance(self, replies: list[Reply] | Reply | None) -> None:
        try:
            self._pending = next(self._protocol) if replies is None else self._protocol.send(replies)
        except StopIteration as stop:
            self.done, self.value = True, stop.value
        else:
            if not isinstance(self._pending, Round):
                kind = type(self._pending).__name__
                text = f"{self._execution.name}: the protocol yields a {kind}; write: yield from to_all(SomeRequest())"
                raise TypeError(text)
            self._round_number += 1

    def messages(self) -> list[Message]:
        """Build the pending round's messages, one for each client that gets a request."""
        self._requests = {}
        self._started = time.perf_counter()
        messages: list[Message] = []
        header = self._execution.settings.header(self._execution.pair) | self._alike()
        # Most rounds send all clients the same request: it is encoded and measured once.
        encoded: dict[int, tuple[RecordDict, int]] = {}
        for member in self._cohort:
            request = self._pending.of_client(member.client)
            if request is None:
                continue
            if id(request) not in encoded:
                content = wire.to_content(request, header | {"round": self._round_number})
                encoded[id(request)] = content, flower_internals.content_bytes(content)
            content, size = encoded[id(request)]
            self._requests[member.client] = (request, size)
            # Flower validates the first message; the others differ in nothing that it validates
            messages.append(
                flower_internals.for_node(messages[0], member.node_id, content)
                if messages
                else Message(content, member.node_id, MessageType.TRAIN, group_id=str(self._round_number))
            )
        if not messages:
            text = f"{self._execution.name}, round {self._round_number}: no request goes to a client of the run"
            raise ProtocolError(text)
        members = [member for member in self._cohort if member.client in self._requests]
        fields = self._event_fields
        log_event("round begun", "%s: round %d, %s, begins", *fields.values(), **fields, asked=members)
        return messages

    def _alike(self) -> dict[str, bool]:
        """Return the header that says if all clients got the same requests so far. It is empty without masked sums."""
        if not self._is_masked:
            return {}
        requests = [self._pending.of_client(member.client) for member in self._cohort]
        distinct = {id(request): request for request in requests if request is not None}.values()
        is_one = len(distinct) == 1 or len({wire.content_digest(wire.to_content(it)) for it in distinct}) == 1
        self._account.alike &= is_one and None not in requests
        return {wire.ALIKE: self._account.alike}

    def receive(self, replies: Iterable[Message]) -> bool:
        """Check the pending round's replies, account for them, and advance the protocol; return whether it is done.

        Raises ProtocolError if a client the run needs failed or did not answer, or if replies do not fit the request or
        each other.
        """
        addressees = {self._node_of[client] for client in self._requests}
        try:
            reply_of = {self._client_of[node]: reply for node, reply in replies_by_node(replies, addressees).items()}
        except ProtocolError as error:
            raise ProtocolError(f"{self._place}: {error}") from None
        failures = {
            client: cause for client in self._requests if (cause := self._failure(client, reply_of.get(client)))
        }
        if failures:
            codes = {client: reply_of[client].error.code for client in failures if client in reply_of}
            # the reader of an unfit letter did not write it, and only the error's text names its writer
            at = [self._node_of[client] for client in failures if not self._is_letters(client, codes.get(client))]
            try:
                self._drop_or_fail(failures, lost=set(codes.values()) <= {wire.DISCONNECTED})
            except ProtocolError as error:
                raise error.at(at, mendable=set(codes.values()) == {wire.UNFIT_TABLE}) from None
        contents, costs = [reply_of[client].content for client in self._requests], Ledger()
        decoded = [self._decode(*pair, costs) for pair in zip(self._requests, contents, strict=True)]
        self._check_shared_dimensions(decoded)
        slowest = max(self._seconds(*pair) for pair in zip(self._requests, contents, strict=True))
        seconds = time.perf_counter() - self._started
        total = self._sum_of(decoded) if self._pending.summed else None
        if (journal := self._execution.journal) is not None:
            account = {"seconds": seconds, "slowest": slowest, "ledger": costs.to_table()}
            nodes = [self._node_of[client] for client in self._requests]
            records = contents if total is None else [wire.to_content(total)]  # a sum's addends are never recorded
            record_replies(journal, self._execution.grid, nodes, records, account)
        self._close(seconds, slowest, costs)
        self._advance(decoded if total is None else total)
        return self.done

    def replay(self, record: Exchange) -> None:
        """Advance the protocol by the recorded replies to the pending round, without sending anything."""
        answered = [self._client_of[node] for node in record.nodes]
        self._drop(self._requests.keys() - answered)
        costs = Ledger.from_table(record.account["ledger"])
        self._close(record.account["seconds"], record.account["slowest"], costs, replayed=True)
        contents = [flower_internals.content_from_bytes(content) for content in record.contents]
        if self._pending.summed:
            noisy = self._execution.settings.privacy is not None
            self._advance(wire.from_content(self._pending.reply_type, contents[0], noisy=noisy))
            return
        kinds = [self._requests[client][0].reply_type for client in answered]
        precision = self._execution.settings.wire  # a sum never crosses it
        self._advance([wire.from_content(*pair, precision) for pair in zip(kinds, contents, strict=True)])

    @property
    def where(self) -> str:
        """Name of the pending round for texts, such as ``round 3``."""
        return f"round {self._round_number}"

    @property
    def deadline(self) -> float:
        """Most seconds that the pending round may take."""
        return self._execution.settings.deadline_of(self._pending.phase)

    def _drop_or_fail(self, causes: Mapping[int, str], *, lost: bool) -> None:
        """Drop failed clients if the run may go on, else raise the first cause. `lost`: all of them disconnected."""
        losses, pending, grid = self._execution.losses, self._pending, self._execution.grid
        left = len(self._cohort) - len(causes)
        if len(causes) == len(self._requests) and losses.quorum is None:
            left = 0
        needs = losses.fault(self._round_number, pending.phase, left, summed=pending.summed)
        if needs is not None:
            absent = grid.absent() if isinstance(grid, MessageGrid) else []  # some answered before they left
            away = [member.client for member in self._cohort if member.client in causes or member.node_id in absent]
            first, cause = next(iter(causes.items()))
            of = len(self._execution.run.members)
            needs = f"{len(self._cohort) - len(away)} of {of} clients are left, but {needs}"
            if lost:
                raise QuorumError.of(cause, [self._names[client] for client in away if client != first], needs)
            raise ProtocolError(cause + and_more(len(causes) - 1) + (f"; {needs}" if losses.quorum is not None else ""))
        for client, cause in causes.items():
            log.warning("going on without %s: %s", self._names[client], cause)
        self._drop(causes)

    def _drop(self, clients: Iterable[int]) -> None:
        """Drop clients from the run, and note in its account the meaning of the result without them."""
        gone, pending = set(clients), self._pending
        meaning = self._execution.losses.meaning(self._round_number, pending.phase, summed=pending.summed)
        for client in sorted(gone):
            where = f"round {self._round_number} ({pending.phase})"
            self._account.losses.append(f"{self._names[client]} was lost in {where}: the result is {meaning}")
        self._requests = {client: pair for client, pair in self._requests.items() if client not in gone}
        self._cohort = [member for member in self._cohort if member.client not in gone]

    def _close(self, seconds: float, slowest: float, costs: Ledger, *, replayed: bool = False) -> None:
        """Add the pending round to the run's account, and log its end."""
        values = self._pending.values
        self._account.close_round(
            *(self._round_number, self._pending.phase, seconds, values, costs), slowest_seconds=slowest
        )
        row, figures = self._account.history[-1], "".join(f", {name} = {value:g}" for name, value in values.items())
        took = {name: row[name] for name in ("seconds", "bytes_up", "bytes_down")}
        log_event(
            *("round over", "%s: round %d, %s%s", *self._event_fields.values(), figures),
            **(self._event_fields | took),
            replayed=replayed,
        )

    @property
    def _event_fields(self) -> dict[str, Any]:
        run, number = self._execution.settings.run, self._round_number
        return {"run": run, "round": number, "phase": self._pending.phase}

    def _is_letters(self, client: int, code: int | None) -> bool:
        """Return whether a client failed over an unfit letter of another client."""
        return code == wire.UNFIT_LETTER and isinstance(self._requests[client][0], CarriesLetters)

    @property
    def _is_masked(self) -> bool:
        return self._execution.settings.sums == "masked"

    @property
    def _place(self) -> str:
        return f"{self._execution.name}, round {self._round_number} ({self._pending.phase})"

    def _sum_of(self, replies: Sequence[Any]) -> Reply:
        if self._is_masked:
            label = wire.mask_label(self._execution.settings.run, self._round_number, self._pending.phase)
            try:
                return wire.sum_masked(self._pending.reply_type, replies, label)
            except ProtocolError as error:
                raise ProtocolError(f"{self._place}, the sum over the clients: {error}") from None
        try:
            total: Reply = type(replies[0]).sum_of(replies)
        except ValueError:
            parts = [max(float(abs(array).max(initial=0.0)) for array in reply.arrays().values()) for reply in replies]
            most = list(self._requests)[parts.index(max(parts))]
            text = "the sum over the clients is too large, and this client's part is the largest"
            raise self._fault_of(most, text) from None
        return total

    def _place_of(self, client: int) -> str:
        return f"{self._place}, {self._names[client]}"

    def _fault_of(self, client: int, what: str) -> ProtocolError:
        """Return the error about a client's invalid reply, with the client's node as its cause."""
        return ProtocolError(f"{self._place_of(client)}: {what}").at([self._node_of[client]])

    def _failure(self, client: int, reply: Message | None) -> str | None:
        if reply is None:
            return f"{self._place_of(client)}: no answer within {self.deadline:g} s"
        return f"{self._place_of(client)}: {reason}" if (reason := reason_of(reply)) else None

    def _decode(self, client: int, content: RecordDict, costs: Ledger) -> Reply:
        request, bytes_down = self._requests[client]
        try:
            if self._is_masked and issubclass(request.reply_type, Summed):
                reply: Reply = self._decode_masked(request, content, self._sizes[client])
            else:
                reply = wire.from_content(request.reply_type, content, self._execution.settings.wire)
                request.check_reply(reply)
                request.check_table(reply, self._sizes[client])
            posted = self._posted(client, reply)
        except (ProtocolError, ValueError) as error:
            raise self._fault_of(client, str(error)) from None
        bytes_up = flower_internals.content_bytes(content)
        floats = {"floats_down": request.floats, "floats_up": reply.floats}
        traffic = {**floats, "bytes_down": bytes_down, "bytes_up": bytes_up, "rows_up": reply.disclosed}
        sha256 = self._execution.settings.hash_of(content)
        costs.add(Entry(self._round_number, self._pending.phase, client, **traffic, sha256=sha256))
        for letter in posted:
            costs.post(letter)
        return reply

    def _decode_masked(self, request: Request[Any], content: RecordDict, sizes: Mapping[str, int]) -> wire.MaskedSum:
        """Decode a masked reply and check its sizes and noise. Raises ProtocolError if the round is not summed."""
        if not self._pending.summed:
            raise ProtocolError(f"{request.reply_type.__name__} is read individually, which masks prevent")
        masked = wire.from_content(wire.MaskedSum, content)
        if masked.noisy != (self._execution.settings.privacy is not None):
            raise ProtocolError(f"{request.reply_type.__name__} is sent {'with' if masked.noisy else 'without'} noise")
        outline = masked.outline(request.reply_type)
        for known in (request.known_dimensions(), sizes):
            outline.dimensions(known)
        return masked

    def _posted(self, client: int, reply: Reply) -> list[LetterEntry]:
        """Return the ledger entries of a reply's letters, after a check of their sender and round."""
        posted: list[LetterEntry] = []
        for sealed in sealed_in(reply):
            sender, receiver, number, _ = sealed.header
            if (sender, number) != (client, self._round_number):
                raise ProtocolError(f"it sends a letter of client {sender}, round {number}")
            posted.append(LetterEntry(number, sender, receiver, sealed.floats, sealed.size))
        return posted

    def _seconds(self, client: int, content: RecordDict) -> float:
        """Return the computing seconds that a client reports in its reply; no protocol depends on them."""
        seconds = wire.records_of(content)[1].get("seconds", 0.0)
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise self._fault_of(client, f"seconds = {seconds!r}, but must be a number from 0")
        return float(seconds)

    def _check_shared_dimensions(self, replies: Sequence[Reply]) -> None:
        sizes_of: dict[str, dict[int, int]] = {}
        for client, reply in zip(self._requests, replies, strict=True):
            for name, size in reply.dimensions().items():
                if not name.endswith("_m"):
                    sizes_of.setdefault(name, {})[client] = size
        for name, sizes in sizes_of.items():
            # the error names the client whose size differs from most clients'
            expected = Counter(sizes.values()).most_common(1)[0][0]
            other = next(client for client, size in sizes.items() if size == expected)
            for client, size in sizes.items():
                if size != expected:
                    where = self._place_of(client)
                    raise ProtocolError(f"{where}: {name} = {size}, but client {other} has {name} = {expected}")


def _table_sizes(member: Member, partition: Division) -> dict[str, int]:
    """Return the known sizes of a client's tables by dimension name, to check its replies."""
    shared = {"N": member.rows} if partition == "vertical" else {"d": member.columns, "width": member.columns}
    return shared | {"n_m": member.rows, "d_m": member.columns, "n_new": member.new_rows}

"""The Flower ClientApp that answers for a site."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, MessageType
from flwr.clientapp import ClientApp

from fedkernel.data import as_table
from fedkernel.ground import (
    AnyArray,
    FedkernelError,
    InputError,
    LetterError,
    OwnFileError,
    ProtocolError,
    RefusedError,
    ShareableError,
    blas_threads,
    computing_seconds,
    listed,
    printable,
)
from fedkernel.kernel_width import WidthClient
from fedkernel.peers import PeerClient
from fedkernel.preparing import PrepareClient, TableToPrepare, to_text
from fedkernel.protocol import KernelClient, MessageT, Receipt, Reply, wire_of
from fedkernel.site.audit_log import Answer, admit, has_record, record
from fedkernel.site.context_state import Memory, copy_of
from fedkernel.site.gate import Gate, Standing
from fedkernel.site.raw_request import NOTHING, Asking, asking_of
from fedkernel.site.resource_limits import memory_within, most_memory, within_seconds
from fedkernel.site.row_order import find_rows
from fedkernel.site.site_setup import FindSite, Site, log_details, logged
from fedkernel.wire import (
    AGAIN,
    BEGINNING,
    FAILED,
    REFUSED,
    RULE,
    UNFIT_LETTER,
    UNFIT_TABLE,
    CommonRows,
    HashedIds,
    HashIds,
    Introduce,
    Introduction,
    Share,
    ShowShare,
    TakeRows,
    TakeShares,
    answer_again,
    commitment,
    flower_internals,
    from_content,
    hash_ids,
    header_of,
    key_check,
    order_of,
    records_of,
    to_content,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Call:
    """A message to a site, with the site and the run's state there."""

    message: Message
    config: Mapping[str, Any]
    context: Context
    site: Site
    clients: Mapping[str, type[KernelClient]]
    standing: Standing | None = None
    known: Memory | None = None

    @property
    def run(self) -> str:
        return str(self.config["run"])

    @property
    def seed(self) -> int:
        seed, gate = int(self.config["seed"]), self.site.gate
        if gate is None:
            return seed
        drawn = None if self.standing is None else self.standing.seed
        if seed != (settled := gate.run.seed if drawn is None else drawn):
            text = f"run {self.run!r} has seed = {settled}, but the request has {seed}"
            raise RefusedError(RULE if gate.run.joint_seed else "plan", text)
        return seed

    def share(self) -> str:
        """Return the site's share of the run's seed; ShareableError if the run has no joint seed."""
        if (gate := self.site.gate) is None or not gate.run.joint_seed:
            raise ShareableError(f"run {self.run!r} has a seed that {self.site.called} does not draw")
        return gate.share

    def request(self, kind: type[MessageT]) -> MessageT:
        """Return the message, decoded as a request of the given kind."""
        return from_content(kind, self.message.content)

    def memory(self) -> Memory:
        return Memory(self.context, self.run) if self.known is None else self.known

    @property
    def kind(self) -> type[KernelClient]:
        """The message's client class."""
        site, pair = self.site, str(self.config["pair"])
        if isinstance(site.X, TableToPrepare) and pair == PrepareClient.__name__:
            return PrepareClient
        willing = self.clients if site.pairs is None else site.pairs
        if pair == WidthClient.__name__ and (site.gate is None or site.gate.run.plan is not None):
            willing = {pair: WidthClient}  # for any pair with a plan
        if pair not in willing:
            allowed = ", ".join(sorted(willing)) or "nothing, since neither its job nor --allow names a pair"
            raise ShareableError(f"{site.called} runs {allowed}, but was asked for {pair!r}")
        return willing[pair]

    def client(self, memory: Memory, kind: type[KernelClient]) -> KernelClient:
        """Return a client with the rows of the run."""
        site, positions = self.site, memory.rows
        X: Any = site.X
        new: Any = site.new
        if positions is not None and site.projects and new is not None:
            new, positions = as_table(new, f"the new rows of {site.called}").take(positions), None
        own: dict[str, Any] = {"share_rows": site.share_rows, "guards": site.guards, "noise_key": site.noise_key}
        if isinstance(X, TableToPrepare) and issubclass(kind, PrepareClient):
            X, new, own = X.rows(positions), X.new, own | {"prepare": X.prepare, "min_rows": site.min_rows}
        elif isinstance(X, TableToPrepare):
            if (text := memory.preparation) is None:
                raise ShareableError(f"{site.called} was asked by a method before its table was prepared")
            X, new = X.prepared(text, positions), X.prepared_new(text)
        elif X is not None and positions is not None:
            X = as_table(X, f"the data of {site.called}").take(positions)
        elif site.derived is not None:
            own["derived"] = site.derived.setdefault(kind, {})
        if issubclass(kind, PeerClient):
            if site.peers_pinned and not site.has_pinned_peers:
                others = f" (its pins are of others than {listed(site.sites)}, as of another deployment)"
                raise RefusedError(
                    "study.peers",
                    f"it has pinned no peer of the run{others if site.has_pins else ''}, and writes letters "
                    "to those only: join --pins, or --peers-without-pins (study.peers)",
                )
            own |= {"identity": site.identity, "pins": site.pins, "key_file": site.kept_keys, "names": site.sites}
        if kind.needs_labels:
            own["y"] = site.labels_at(positions)
        if site.earlier is not None:
            own["earlier"] = site.earlier
        try:
            client = kind(X, new=new, client=site.number, seed=self.seed, memory=memory, **own)
        except InputError as error:
            if site.gate is None or isinstance(error, ShareableError):
                raise
            raise OwnFileError(f"{site.called} cannot use its table", f"{site.path}: {error}") from None
        site.check_rows(client.X.shape[0])
        client.entries = _own_entries(site, client)
        return client

    def hashes(self) -> AnyArray:
        """Return the hashes of the site's ids, of shape (n_m, 16)."""
        if self.site.ids is None:
            raise ShareableError(f"{self.site.called} has no ids, but was asked for them")
        if not self.site.id_key and not self.site.ids_without_key:
            raise ShareableError(
                f"{self.site.called} has no key to hash its ids with, so that who has the hashes could try likely ids; "
                "allowed: a key that all sites share (join --id-key), or where the site says so (--ids-without-key)"
            )
        return hash_ids(self.site.ids, self.site.id_key, self.run, self.seed)


def _own_entries(site: Site, client: KernelClient) -> int | None:
    """Return the entries of the table that replies describe, if not the client's own table; else None."""
    if site.projects and client.new is not None:
        return int(math.prod(client.new.shape))
    if isinstance(site.X, TableToPrepare):  # its prepared form has a column per level
        return int(client.X.shape[0]) * len(site.X.raw.names)
    return None


def client_app(clients: Mapping[str, type[KernelClient]], find_site: FindSite) -> ClientApp:
    """Build the ClientApp that answers for a site with these client classes, or the site's own ones.

    `find_site`: returns the site for Flower's context and a message's header.
    """

    def handler(act: Callable[[_Call], Answer]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            site: Site | None = None
            gate: Gate | None = None
            answer: Answer | None = None
            standing: Standing | None = None
            rule, node, before, began = "", context.node_config, None, time.process_time()
            asking = NOTHING
            try:
                if has_record(node):  # only then, since hashing takes as long as sending
                    asking = asking_of(message)
                site = find_site(context, config := header_of(message))
                memory = _checked_memory(message, str(config["run"]), context, site)
                if (gate := site.gate) is not None:
                    before = copy_of(context.state)
                    standing = _admitted(context, config, asking, gate)
                with memory_within(most_memory(gate.policy.limits.run.memory)) if gate else nullcontext():
                    answer = act(_Call(message, config, context, site, clients, standing, memory))
                record(node, asking, answer, gate=gate, admitted=standing)  # raises if nothing may leave
                if standing is not None:
                    _note(context, asking, site, standing)
                return flower_internals.reply_to(message, answer.content)
            except FedkernelError as error:
                rule = error.rule if isinstance(error, RefusedError) else ""
                text = _told(error, site, own="data" in node)
                if rule and site and message.metadata.message_type != MessageType.TRAIN:
                    text = f"{site.called}: {text}"  # in a round, the coordinator adds the name
                code, outline = _code_of(error, site, message), text
            except Exception as error:
                code, outline = FAILED, (site.outline if site else logged)(error)
            if before is not None:  # a refused request changes no state: neither guards nor settled rows
                context.state = before
            outline = printable(outline)  # the outbox has the text as sent
            try:
                computed = 0.0 if standing is None else time.process_time() - began
                record(node, asking, answer, refused=outline, rule=rule, gate=gate, seconds=computed)
            except Exception:
                log.exception("the refusal is not in the record")
            return Message(Error(code, outline), reply_to=message)

        return handle

    def joining(act: Callable[[_Call], Reply]) -> Callable[[Message, Context], Message]:
        def answer(call: _Call) -> Answer:
            reply = act(call)
            return Answer(to_content(reply), reply)

        return handler(answer)

    app = ClientApp()
    app.query()(joining(_introduce))
    app.query("share")(joining(_show_share))
    app.query("seed")(joining(_take_shares))
    app.query("ids")(joining(_hash_ids))
    app.query("align")(joining(_take_rows))
    app.train()(handler(_train))
    app.query(AGAIN)(partial(_answer_again, app))
    return app


def _answer_again(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer all bundled requests of a message, or reply with an error."""
    try:
        return answer_again(app, message, context)
    except ProtocolError as error:
        return Message(Error(REFUSED, str(error)), reply_to=message)


def _told(error: FedkernelError, site: Site | None, *, own: bool) -> str:
    """Return the text that the coordinator gets of an error raised on purpose.

    A site with data of its own sends only texts made for both ends, and logs the others; a simulated one sends all.
    """
    if isinstance(error, OwnFileError):
        return log_details(str(error), error.outline)
    if not own or isinstance(error, ShareableError | ProtocolError):
        log.info("refused: %s", printable(str(error)))
        return str(error).replace(site.path, "its table") if site and site.path else str(error)
    return log_details(str(error), f"{site.called if site else 'the site'} cannot answer", error)


def _check_wire(config: Mapping[str, Any], gate: Gate) -> None:
    """Raise RefusedError if a request has another array precision than the approved run."""
    declared = "float64" if config["pair"] == PrepareClient.__name__ else gate.run.wire
    if (wire := wire_of(config)) != declared:
        raise RefusedError("plan", f"run {gate.run.id!r} has wire = {declared}, but the request has {wire}")


def _checked_memory(message: Message, run: str, context: Context, site: Site) -> Memory | None:
    """Return the memory of a message's run once it has begun; ShareableError if the table has changed."""
    if message.metadata.message_type == MessageType.QUERY or (memory := Memory.find(context, run)) is None:
        return None
    site.check_table(memory.table, run)
    return memory


def _code_of(error: FedkernelError, site: Site | None, message: Message) -> int:
    if isinstance(error, LetterError):
        return UNFIT_LETTER
    return UNFIT_TABLE if _is_unfit(error, site, message) else REFUSED


def _is_unfit(error: FedkernelError, site: Site | None, message: Message) -> bool:
    """Return whether an error is a table's fault: an InputError before the method's own requests."""
    before = message.metadata.message_type != MessageType.TRAIN or (
        site is not None and header_of(message)["pair"] == PrepareClient.__name__
    )
    return before and isinstance(error, InputError) and not isinstance(error, RefusedError)


def _admitted(context: Context, config: Mapping[str, Any], asking: Asking, gate: Gate) -> Standing:
    """Return the totals after a request; RefusedError if the gate refuses or the memory is outdated."""
    _check_wire(config, gate)
    standing = admit(context.node_config, asking, gate)
    if asking.request != Introduce.__name__:
        Memory(context, asking.run).check_current(standing.run.begun, standing.taken - 1)
    return standing


def _note(context: Context, asking: Asking, site: Site, standing: Standing) -> None:
    """Note the run's rows and progress once the reply is in the outbox."""
    memory = Memory(context, asking.run)
    # not earlier: refused requests could fill the disk, and an unfit table may be corrected after alignment
    if memory.settled and not memory.noted and asking.request != TakeRows.__name__:
        site.check_rows_apart(memory.rows, True)
        if memory.order is not None:
            site.remember_order(memory.rows, memory.order)
        memory.noted = True
    memory.note_current(standing.run.begun, standing.taken)


def _introduce(call: _Call) -> Reply:
    """Begin a run and reply with client number, table size, and names of site and columns if any."""
    site = call.site
    call.request(Introduce)
    if site.X is None:
        return Introduction(client=site.number, rows=0, columns=0, new_rows=0)
    site.check_keep()
    kind, raw = call.kind, site.X if isinstance(site.X, TableToPrepare) else None
    restarted = "run" not in call.context.state
    memory = Memory.begin(call.context, call.run)
    memory.table = site.table_as_begun(str(call.config.get(BEGINNING, "")), site.table())
    client = call.client(memory, kind if raw is None else PrepareClient)
    if site.kept_keys is not None:
        site.kept_keys.begin(restarted=restarted)
    draws = site.gate is not None and site.gate.run.joint_seed
    return Introduction(
        **client.get_properties({}),
        site=site.name,
        names=tuple(site.columns) if raw is None else raw.raw.names,
        ids=site.ids is not None,
        sampled=_sampled(call, kind, client.X.shape[0]),
        commitment=commitment(call.share()) if draws else None,
    )


def _show_share(call: _Call) -> Reply:
    """Reply with the site's share of the seed; the gate has checked the commitments."""
    call.request(ShowShare)
    return Share(share=call.share())


def _take_shares(call: _Call) -> Reply:
    """Acknowledge the sites' shares of the seed; the gate has checked them."""
    call.request(TakeShares)
    call.share()
    return Receipt()


def _sampled(call: _Call, kind: type[KernelClient], rows: int) -> int | None:
    """Return the sampling limit in rows, if the method samples; ShareableError if the plan surely exceeds it."""
    site, guards = call.site, call.site.guards
    if guards is None:
        return None
    run = None if site.gate is None else site.gate.run
    if run is not None and not (run.align and site.ids is not None):  # otherwise the rows are not settled yet
        for foreseen in guards.refusals(run.plan or (), kind.answers, rows):
            if foreseen.certain:
                raise ShareableError(f"{site.called}: {foreseen.text}")
    return guards.most_sampled(rows) if any(request.sampled for request in kind.answers) else None


def _hash_ids(call: _Call) -> Reply:
    """Reply with the hashes of the site's ids, and a check value of the key."""
    call.memory()
    call.request(HashIds)
    return HashedIds(hashes=call.hashes(), key_check=key_check(call.site.id_key, call.run, call.seed))


def _take_rows(call: _Call) -> Reply:
    """Restrict the run to the common rows, in their order, and reply with their number."""
    memory, own = call.memory(), call.hashes()
    if memory.settled:
        raise ShareableError(
            f"the rows that {call.site.called} works on are settled; allowed: to align them once in a run"
        )
    common = call.request(TakeRows).hashes
    positions = find_rows(own, common)
    if not call.site.projects:  # each new row is projected on its own
        call.site.check_rows(len(positions))
    if len(positions) < (least := math.ceil(call.site.row_share * len(own))):
        raise ShareableError(
            f"{call.site.called} has {len(positions)} of its {len(own)} rows in common with all others, but works on "
            f"{least} or more (guard: alignment)"
        )
    rows = None if np.array_equal(positions, np.arange(len(own))) else positions
    call.site.check_rows_apart(rows, False)
    memory.settle()
    memory.rows = rows
    memory.order = order_of(common)
    return CommonRows(rows=len(positions))


def _train(call: _Call) -> Answer:
    """Answer a request of the method's protocol."""
    arrays = flower_internals.read_arrays(records_of(call.message.content)[0])
    memory = call.memory()
    if not memory.settled:
        call.site.check_rows_apart(None, False)
        memory.settle()
    client, limits = call.client(memory, call.kind), call.site.gate and call.site.gate.policy.limits
    client.most_memory = most_memory(limits.run.memory) if limits else None
    with blas_threads(call.site.threads):
        # simulated clients share a process, so only this thread counts; a site with a gate counts BLAS threads too
        clock = computing_seconds if call.site.gate is None else time.process_time
        began = clock()
        replied, _, scalars = within_seconds(
            limits.request.seconds if limits else None,
            lambda: client.fit(arrays, call.config),
        )
        seconds = clock() - began
    call.site.check_table(memory.table, call.run)  # the client may have read it block by block
    settled = isinstance(client, PrepareClient) and client.preparation is not None
    if isinstance(client, PrepareClient) and client.preparation is not None:
        memory.preparation = to_text(client.preparation)
    if client.outputs or settled:
        call.site.keep(client.outputs | _beside(call.site, memory))
    content = flower_internals.content_of(replied, {**scalars, "seconds": seconds})
    letters = client.mail.letters_digest if isinstance(client, PeerClient) and call.site.gate is not None else b""
    return Answer(content, client.reply, letters)


def _beside(site: Site, memory: Memory) -> dict[str, AnyArray]:
    """Return the arrays kept beside a run's outputs: row ids (or positions, if rows were dropped) and preparation."""
    beside, positions = {}, memory.rows
    if site.ids is not None:
        ids = np.array(site.ids)
        beside["ids"] = ids if positions is None else ids[positions]
    elif isinstance(site.X, TableToPrepare) and site.X.kept is not None:
        beside["rows"] = site.X.kept
    if memory.preparation is not None:
        beside["preparation"] = np.array(memory.preparation)
    return beside

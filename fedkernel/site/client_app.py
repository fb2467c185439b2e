"""Flower ClientApp that answers a coordinator's messages for a site, under the site's policy."""

import hashlib
import logging
import math
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, MessageType
from flwr.clientapp import ClientApp

from fedkernel import wire
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
    printable,
)
from fedkernel.peers import PeerClient
from fedkernel.preparing import PrepareClient, TableToPrepare, to_text
from fedkernel.protocol import Done, KernelClient, Reply, Summed, encode, wire_of
from fedkernel.site.audit_log import Answer, admit, append_to_outbox, keeps_outbox
from fedkernel.site.context_state import Memory, copy_state
from fedkernel.site.gate import Gate, RunProgress
from fedkernel.site.raw_request import RawRequest, read_raw_request
from fedkernel.site.resource_limits import memory_limit, memory_within, within_seconds
from fedkernel.site.row_order import find_rows
from fedkernel.site.site_call import SiteCall
from fedkernel.site.site_setup import FindSite, Site, log_under_code, logged
from fedkernel.wire import flower_internals

log = logging.getLogger(__name__)


def client_app(
    clients: Mapping[str, type[KernelClient]], find_site: FindSite, describe: Callable[[Exception], str] = logged
) -> ClientApp:
    """Build the ClientApp that answers messages for the sites that `find_site` returns.

    `clients`: client classes by name, for sites that list none (`Site.pairs`). `describe`: returns the text for the
    coordinator of an unexpected error, without the error's message, which may quote data.
    """

    def handler(act: Callable[[SiteCall], Answer]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            site: Site | None = None
            gate: Gate | None = None
            answer: Answer | None = None
            progress: RunProgress | None = None
            rule, node, before, began = "", context.node_config, None, time.process_time()
            request = RawRequest("", {}, {})
            try:
                if keeps_outbox(node):  # only then, since hashing takes as long as sending
                    request = read_raw_request(message)
                site = find_site(context, config := wire.header_of(message))
                memory = _checked_memory(message, str(config["run"]), context, site)
                if (gate := site.gate) is not None:
                    before = copy_state(context.state)
                    progress = _progress_after(context, config, request, gate)
                with memory_within(memory_limit(gate.policy.limits.run.memory)) if gate else nullcontext():
                    answer = act(SiteCall(message, config, context, site, clients, progress, memory))
                append_to_outbox(node, request, answer, gate=gate, admitted=progress)  # raises if nothing may leave
                if progress is not None:
                    _note_progress(context, request, site, progress)
                return flower_internals.reply_to(message, answer.content)
            except FedkernelError as error:
                rule = error.rule if isinstance(error, RefusedError) else ""
                text = _error_text(error, site, own="data" in node)
                if rule and site and message.metadata.message_type != MessageType.TRAIN:
                    text = f"{site.display_name}: {text}"  # in a round, the coordinator adds the name
                code, outline = _error_code(error, site, message), text
            except Exception as error:
                code, outline = wire.FAILED, describe(error)
            if before is not None:  # a refused request changes no state: neither guards nor settled rows
                context.state = before
            outline = printable(outline)  # the outbox has the text as sent
            try:
                refusal = append_to_outbox(
                    *(node, request, answer),
                    refused=outline,
                    rule=rule,
                    gate=gate,
                    admitted=progress,
                    seconds=0.0 if progress is None else time.process_time() - began,
                )
                code, outline = (code if refusal == outline else wire.REFUSED), refusal
            except Exception:
                log.exception("the refusal could not be written to the outbox")
            return Message(Error(code, outline), reply_to=message)

        return handle

    def joining(act: Callable[[SiteCall], Reply]) -> Callable[[Message, Context], Message]:
        def answer(call: SiteCall) -> Answer:
            reply = act(call)
            return Answer(wire.to_content(reply), reply)

        return handler(answer)

    app = ClientApp()
    app.query()(joining(_introduce))
    app.query("share")(joining(_reveal_share))
    app.query("seed")(joining(_take_shares))
    app.query("ids")(joining(_hash_ids))
    app.query("align")(joining(_take_rows))
    app.train()(handler(_train))
    app.query(wire.REPEAT_ACTION)(partial(_answer_again, weakref.proxy(app)))  # or it would hold itself, and all tables
    return app


def _answer_again(app: Callable[[Message, Context], Message], message: Message, context: Context) -> Message:
    """Answer all requests of a bundle, or reply with an error if the message is no bundle."""
    try:
        return wire.answer_bundle(app, message, context)
    except ProtocolError as error:
        return Message(Error(wire.REFUSED, str(error)), reply_to=message)


def _error_text(error: FedkernelError, site: Site | None, *, own: bool) -> str:
    """Return an error's text for the coordinator. A site with `own` data sends shareable texts only and logs others."""
    if isinstance(error, OwnFileError):
        return log_under_code(str(error), error.outline)
    if not own or isinstance(error, ShareableError | ProtocolError):
        log.info("refused: %s", printable(str(error)))
        return str(error).replace(site.path, "its table") if site and site.path else str(error)
    return log_under_code(str(error), f"{site.display_name if site else 'the site'} cannot answer", error)


def _check_wire(config: Mapping[str, Any], gate: Gate) -> None:
    """Raise RefusedError if a request's precision, sums or privacy differ from those of the approved run."""
    privacy = gate.run.privacy.text if gate.run.privacy else None
    if (text := config.get("privacy")) != privacy:
        raise RefusedError("plan", f"privacy = {text!r} in the request, but run {gate.run.id!r} has {privacy!r}")
    if (sums := config.get("sums", "plain")) != gate.run.sums:
        raise RefusedError("plan", f"sums = {sums!r} in the request, but run {gate.run.id!r} has {gate.run.sums!r}")
    declared = "float64" if config["pair"] == PrepareClient.__name__ else gate.run.wire
    if (precision := wire_of(config)) != declared:
        raise RefusedError("plan", f"wire = {precision} in the request, but run {gate.run.id!r} has wire = {declared}")


def _checked_memory(message: Message, run: str, context: Context, site: Site) -> Memory | None:
    """Return the client's memory of a run, or None before it begins. Raises ShareableError if the table has changed."""
    if message.metadata.message_type == MessageType.QUERY or (memory := Memory.find(context, run)) is None:
        return None
    site.check_table(memory.table, run)
    return memory


def _error_code(error: FedkernelError, site: Site | None, message: Message) -> int:
    """Return an error's code. An InputError before the method's own requests means that the table is unfit."""
    if isinstance(error, LetterError):
        return wire.UNFIT_LETTER
    prepares = site is not None and wire.header_of(message)["pair"] == PrepareClient.__name__
    before = prepares or message.metadata.message_type != MessageType.TRAIN
    is_unfit = before and isinstance(error, InputError) and not isinstance(error, RefusedError)
    return wire.UNFIT_TABLE if is_unfit else wire.REFUSED


def _progress_after(context: Context, config: Mapping[str, Any], request: RawRequest, gate: Gate) -> RunProgress:
    """Return a run's progress after a request. Raises RefusedError if it is refused or the memory is outdated."""
    _check_wire(config, gate)
    progress = admit(context.node_config, request, gate)
    if request.name != wire.Introduce.__name__:
        Memory(context, request.run).check_current(progress.run.begun, progress.taken - 1)
    return progress


def _note_progress(context: Context, request: RawRequest, site: Site, progress: RunProgress) -> None:
    """Store the run's rows and progress for later messages and runs, once the reply is in the outbox."""
    memory = Memory(context, request.run)
    # not earlier: refused requests could fill the disk, and an unfit table may be corrected after alignment
    if memory.settled and not memory.noted and request.name != wire.TakeRows.__name__:
        site.check_rows_apart(memory.rows, True)
        if memory.order is not None:
            site.remember_order(memory.rows, memory.order)
        memory.noted = True
    memory.note_current(progress.run.begun, progress.taken)


def _introduce(call: SiteCall) -> Reply:
    """Begin a run, and reply with the client's number, table size, site name and column names."""
    site = call.site
    call.request(wire.Introduce)
    if site.X is None:
        return wire.Introduction(client=site.number, rows=0, columns=0, new_rows=0)
    site.check_keep()
    kind, raw = call.kind, site.X if isinstance(site.X, TableToPrepare) else None
    restarted = "run" not in call.context.state
    memory = Memory.begin(call.context, call.run)
    memory.table = site.table_at_start(str(call.config.get(wire.BEGINNING, "")), site.table())
    client = call.client(memory, kind if raw is None else PrepareClient)
    if site.kept_keys is not None:
        site.kept_keys.begin(restarted=restarted)
    draws = site.gate is not None and site.gate.run.joint_seed
    return wire.Introduction(
        **client.get_properties({}),
        site=site.name,
        names=tuple(site.columns) if raw is None else raw.raw.names,
        ids=site.ids is not None,
        sampled=_most_sampled(call, kind, client.X.shape[0]),
        commitment=wire.commitment(call.share()) if draws else None,
    )


def _reveal_share(call: SiteCall) -> Reply:
    """Reply with the site's share of the joint seed; the gate has checked the commitments."""
    call.request(wire.ShowShare)
    return wire.Share(share=call.share())


def _take_shares(call: SiteCall) -> Reply:
    """Acknowledge all sites' shares of the joint seed; the gate has checked them."""
    call.request(wire.TakeShares)
    call.share()
    return Done()


def _most_sampled(call: SiteCall, kind: type[KernelClient], rows: int) -> int | None:
    """Return the most rows that a method may sample, if it samples. Raises ShareableError if guards forbid the plan."""
    site, guards = call.site, call.site.guards
    if guards is None:
        return None
    run = None if site.gate is None else site.gate.run
    if run is not None and not (run.align and site.ids is not None):  # otherwise the rows are not settled yet
        for foreseen in guards.refusals(run.plan or (), kind.answers, rows):
            if foreseen.certain:
                raise ShareableError(f"{site.display_name}: {foreseen.text}")
    return guards.most_sampled(rows) if any(request.sampled for request in kind.answers) else None


def _hash_ids(call: SiteCall) -> Reply:
    """Reply with the hashes of the site's row ids, and a check value of the hash key."""
    call.memory()
    call.request(wire.HashIds)
    return wire.HashedIds(hashes=call.hashes(), key_check=wire.key_check(call.site.id_key, call.run, call.seed))


def _take_rows(call: SiteCall) -> Reply:
    """Restrict the run to the rows common to all sites, in the request's order, and reply with their number."""
    memory, own = call.memory(), call.hashes()
    if memory.settled:
        raise ShareableError(f"the rows of {call.site.display_name} are settled; allowed: one alignment per run")
    common = call.request(wire.TakeRows).hashes
    positions = find_rows(own, common)
    if not call.site.projects:  # each new row is projected on its own
        call.site.check_rows(len(positions))
    if len(positions) < (least := math.ceil(call.site.row_share * len(own))):
        raise ShareableError(
            f"only {len(positions)} of {len(own)} rows of {call.site.display_name} are common to all sites; its policy "
            f"requires {least} (table.row_share)"
        )
    rows = None if np.array_equal(positions, np.arange(len(own))) else positions
    memory.settle(call.site.check_rows_apart(rows, False))
    memory.rows = rows
    memory.order = wire.order_id(common)
    return wire.CommonRows(rows=len(positions))


def _train(call: SiteCall) -> Answer:
    """Answer a request of the method's protocol by the client's computation."""
    arrays = flower_internals.read_arrays(wire.records_of(call.message.content)[0])
    memory = call.memory()
    if not memory.settled:
        memory.settle(call.site.check_rows_apart(None, False))
    client, limits = call.client(memory, call.kind), call.site.gate and call.site.gate.policy.limits
    client.most_memory = memory_limit(limits.run.memory) if limits else None
    with blas_threads(call.site.threads):
        # simulated clients share a process, so only this thread counts; a site with a gate counts BLAS threads too
        clock = computing_seconds if call.site.gate is None else time.process_time
        began = clock()
        most = limits.request.seconds if limits else None
        replied, _, scalars = within_seconds(most, lambda: client.fit(arrays, call.config))
        seconds = clock() - began
    if limits is not None and call.site.gate is not None:  # fields that were left out have got their defaults
        fields = client.request.model_dump(mode="json", exclude=set(client.request.shapes()))
        call.site.gate.policy.check_request(fields)
    call.site.check_table(memory.table, call.run)  # the client may have read it block by block
    settled = isinstance(client, PrepareClient) and client.preparation is not None
    if isinstance(client, PrepareClient) and client.preparation is not None:
        memory.preparation = to_text(client.preparation)
    if client.outputs or settled:
        call.site.keep(client.outputs | _side_arrays(call.site, memory))
    letters = client.mail.letters_digest if isinstance(client, PeerClient) and call.site.gate is not None else b""
    sites = 0
    if call.config.get("sums") == "masked":
        before, identity = memory.requests_digest or f"{client.seed} {memory.order}", wire.identity_of(call.config)
        memory.requests_digest = wire.digest(before + identity, arrays)
        if isinstance(client.reply, Summed):
            masked, sites = call.masked(client.reply, client.request, memory.requests_digest)
            replied, scalars = encode(masked)
            letters = hashlib.sha256(letters + masked.words.tobytes()).digest()
    content = flower_internals.content_of(replied, {**scalars, "seconds": seconds})
    return Answer(content, client.reply, letters, sites, client.own_entries())


def _side_arrays(site: Site, memory: Memory) -> dict[str, AnyArray]:
    """Return arrays to store with a run's outputs: row ids, or positions if rows were dropped, and preparation."""
    arrays, positions = {}, memory.rows
    if site.ids is not None:
        ids = np.array(site.ids)
        arrays["ids"] = ids if positions is None else ids[positions]
    elif isinstance(site.X, TableToPrepare) and site.X.kept is not None:
        arrays["rows"] = site.X.kept
    if memory.preparation is not None:
        arrays["preparation"] = np.array(memory.preparation)
    return arrays

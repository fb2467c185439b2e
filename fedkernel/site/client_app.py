"""Flower ClientApp that answers a coordinator's messages for a site, under the site's policy."""

import hashlib
import json
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

from fedkernel import wire
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
    generator,
    listed,
    printable,
)
from fedkernel.kernel_width import WidthClient
from fedkernel.peers import PeerClient
from fedkernel.preparing import PrepareClient, TableToPrepare, to_text
from fedkernel.protocol import (
    KernelClient,
    MessageT,
    Privacy,
    Receipt,
    Reply,
    Request,
    Summed,
    draw_noise,
    encode,
    step_of,
    wire_of,
)
from fedkernel.site.audit_log import Answer, admit, append_to_outbox, keeps_outbox
from fedkernel.site.context_state import Memory, copy_state
from fedkernel.site.gate import Gate, RunProgress
from fedkernel.site.kept_noise import Noise
from fedkernel.site.raw_request import NO_REQUEST, RawRequest, read_raw_request
from fedkernel.site.resource_limits import memory_limit, memory_within, within_seconds
from fedkernel.site.row_order import find_rows
from fedkernel.site.site_setup import FindSite, Site, log_under_code, logged
from fedkernel.wire import flower_internals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _SiteCall:
    """Message to a site, with the site and the run's state there."""

    message: Message
    config: Mapping[str, Any]
    context: Context
    site: Site
    clients: Mapping[str, type[KernelClient]]
    progress: RunProgress | None = None
    known: Memory | None = None

    @property
    def run(self) -> str:
        return str(self.config["run"])

    @property
    def seed(self) -> int:
        seed, gate = int(self.config["seed"]), self.site.gate
        if gate is None:
            return seed
        drawn = None if self.progress is None else self.progress.seed
        if seed != (settled := gate.run.seed if drawn is None else drawn):
            text = f"seed = {seed} in the request, but run {self.run!r} has seed = {settled}"
            raise RefusedError(wire.JOINT_SEED_RULE if gate.run.joint_seed else "plan", text)
        return seed

    def share(self) -> str:
        """Return the site's share of the run's joint seed; ShareableError if the run has none."""
        if (gate := self.site.gate) is None or not gate.run.joint_seed:
            raise ShareableError(f"run {self.run!r} has no joint seed, so {self.site.display_name} has no share of it")
        return gate.share

    def request(self, kind: type[MessageT]) -> MessageT:
        """Decode the message as a request of the given class."""
        return wire.from_content(kind, self.message.content)

    def memory(self) -> Memory:
        return Memory(self.context, self.run) if self.known is None else self.known

    @property
    def kind(self) -> type[KernelClient]:
        """Client class that answers the message; ShareableError if the site does not allow it."""
        site, pair = self.site, str(self.config["pair"])
        if isinstance(site.X, TableToPrepare) and pair == PrepareClient.__name__:
            return PrepareClient
        allowed = self.clients if site.pairs is None else site.pairs
        if pair == WidthClient.__name__ and (site.gate is None or site.gate.run.plan is not None):
            allowed = {pair: WidthClient}  # for any client with a plan
        if pair not in allowed:
            names = ", ".join(sorted(allowed)) or "no client, since neither its job nor --allow names one"
            raise ShareableError(f"{site.display_name} runs {names}, but was asked for {pair!r}")
        return allowed[pair]

    def client(self, memory: Memory, kind: type[KernelClient]) -> KernelClient:
        """Build the client of a class on the site's rows in this run."""
        site, positions = self.site, memory.rows
        X: Any = site.X
        new: Any = site.new
        if positions is not None and site.projects and new is not None:
            new, positions = as_table(new, f"the new rows of {site.display_name}").take(positions), None
        own: dict[str, Any] = {"share_rows": site.share_rows, "guards": site.guards, "noise_key": site.noise_key}
        own["privacy"] = self.privacy
        if isinstance(X, TableToPrepare) and issubclass(kind, PrepareClient):
            X, new, own = X.rows(positions), X.new, own | {"prepare": X.prepare, "min_rows": site.min_rows}
        elif isinstance(X, TableToPrepare):
            if (text := memory.preparation) is None:
                raise ShareableError(
                    f"the table of {site.display_name} is not prepared yet, but the request needs that"
                )
            X, new = X.prepared(text, positions), X.prepared_new(text)
        elif X is not None and positions is not None:
            X = as_table(X, f"the data of {site.display_name}").take(positions)
        elif site.derived is not None:
            own["derived"] = site.derived.setdefault(kind, {})
        if issubclass(kind, PeerClient):
            if site.peers_pinned and not site.has_pinned_peers:
                others = f" (its pins name none of {listed(site.sites)}; are they of another deployment?)"
                raise RefusedError(
                    "study.peers",
                    f"it has pinned no peer of the run{others if site.has_pins else ''}, and exchanges letters with "
                    "pinned peers only: join --pins, or --peers-without-pins (study.peers)",
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
            raise OwnFileError(f"{site.display_name} cannot use its table", f"{site.path}: {error}") from None
        site.check_rows(client.X.shape[0])
        client.entries = _own_entries(site, client)
        client.apart = memory.apart
        return client

    def masked(self, reply: Summed, request: Request[Any], requests: str) -> tuple[wire.MaskedSum, int]:
        """Return a summed reply under masks, perhaps with noise, and the number of sites in their sum.

        Masks are bound to the requests so far, if all sites got these. RefusedError if they did not, and the policy
        wants nothing but masked sums, or the run has noise, whose size follows from the request.
        """
        if self.site.masks is None or not isinstance(number := self.config.get("round"), int):
            raise ShareableError(f"{self.site.display_name} has no keys for masked sums, or the request no round")
        keys, alike, gate = self.site.masks(self.run), self.config.get(wire.ALIKE) is True, self.site.gate
        if not alike and gate is not None and (gate.policy.study.sums == "masked" or gate.run.privacy is not None):
            text = f"{type(reply).__name__} would leave, but sites got different requests before it"
            raise RefusedError("study.sums", f"{text} (study.sums)")
        label = wire.mask_label(self.run, number, str(self.config["message"]))
        noise = self.noise(reply, request, label, len(keys.public))
        return keys.mask(reply, label, requests.encode() if alike else b"", noise), len(keys.public)

    @property
    def privacy(self) -> Privacy | None:
        """Privacy of the run, which a site with a gate has from the approved study."""
        if (gate := self.site.gate) is not None:
            return gate.run.privacy
        return Privacy(**json.loads(str(text))) if (text := self.config.get("privacy")) else None

    def noise(self, reply: Summed, request: Request[Any], label: str, sites: int) -> Noise | None:
        """Return the site's noise on a summed reply; None: the run has none."""
        if (privacy := self.privacy) is None:
            return None
        arrays, bounds = reply.arrays(), request.sensitivity(privacy.radius)
        if arrays.keys() != bounds.keys():
            raise ShareableError(f"{type(reply).__name__} has no noise, as one row may change it by any amount")
        sizes = {name: array.size for name, array in arrays.items()}
        scales = privacy.own_scales(bounds, sizes, sites)
        rng = None if self.site.keep_noise else generator(f"noise {label}", self.seed, self.site.number)

        def draw() -> Noise:
            return {
                name: draw_noise(sizes[name], scale, step_of(bounds[name]), rng).reshape(arrays[name].shape)
                for name, scale in scales.items()
                if scale
            }

        if self.site.keep_noise is None:
            return draw()
        # other numbers get other noise, or the difference of two replies would have none
        return self.site.keep_noise(hashlib.sha256(wire.digest(label, arrays.values()).encode()).hexdigest(), draw)

    def hashes(self) -> AnyArray:
        """Return the hashes of the site's ids, of shape (n_m, 16)."""
        if self.site.ids is None:
            raise ShareableError(f"{self.site.display_name} has no row ids, but the request asks for their hashes")
        if not self.site.id_key and not self.site.ids_without_key:
            raise ShareableError(
                f"{self.site.display_name} has no key for the hashes of its ids, so anyone holding the hashes could "
                "guess ids by trial; allowed: a key that all sites share (join --id-key), or --ids-without-key"
            )
        return wire.hash_ids(self.site.ids, self.site.id_key, self.run, self.seed)


def _own_entries(site: Site, client: KernelClient) -> int | None:
    """Return the number of table entries that replies describe, if not those of the client's `X`; else None."""
    if site.projects and client.new is not None:
        return int(math.prod(client.new.shape))
    if isinstance(site.X, TableToPrepare):  # its prepared form has a column per level
        return int(client.X.shape[0]) * len(site.X.raw.names)
    return None


def client_app(clients: Mapping[str, type[KernelClient]], find_site: FindSite) -> ClientApp:
    """Build the ClientApp of the sites that `find_site` returns, with client classes by name or those of the site."""

    def handler(act: Callable[[_SiteCall], Answer]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            site: Site | None = None
            gate: Gate | None = None
            answer: Answer | None = None
            progress: RunProgress | None = None
            rule, node, before, began = "", context.node_config, None, time.process_time()
            request = NO_REQUEST
            try:
                if keeps_outbox(node):  # only then, since hashing takes as long as sending
                    request = read_raw_request(message)
                site = find_site(context, config := wire.header_of(message))
                memory = _checked_memory(message, str(config["run"]), context, site)
                if (gate := site.gate) is not None:
                    before = copy_state(context.state)
                    progress = _progress_after(context, config, request, gate)
                with memory_within(memory_limit(gate.policy.limits.run.memory)) if gate else nullcontext():
                    answer = act(_SiteCall(message, config, context, site, clients, progress, memory))
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
                code, outline = wire.FAILED, (site.outline if site else logged)(error)
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

    def joining(act: Callable[[_SiteCall], Reply]) -> Callable[[Message, Context], Message]:
        def answer(call: _SiteCall) -> Answer:
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
    app.query(wire.REPEAT_ACTION)(partial(_answer_again, app))
    return app


def _answer_again(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer all requests of a bundle, or reply with an error if the message is no bundle."""
    try:
        return wire.answer_bundle(app, message, context)
    except ProtocolError as error:
        return Message(Error(wire.REFUSED, str(error)), reply_to=message)


def _error_text(error: FedkernelError, site: Site | None, *, own: bool) -> str:
    """Return an error's text for the coordinator; a site with data of its `own` logs all but shareable ones."""
    if isinstance(error, OwnFileError):
        return log_under_code(str(error), error.outline)
    if not own or isinstance(error, ShareableError | ProtocolError):
        log.info("refused: %s", printable(str(error)))
        return str(error).replace(site.path, "its table") if site and site.path else str(error)
    return log_under_code(str(error), f"{site.display_name if site else 'the site'} cannot answer", error)


def _check_wire(config: Mapping[str, Any], gate: Gate) -> None:
    """Raise RefusedError if a request's array precision or sums differ from the approved run's."""
    privacy = gate.run.privacy.text if gate.run.privacy else None
    if (text := config.get("privacy")) != privacy:
        raise RefusedError("plan", f"privacy = {text!r} in the request, but run {gate.run.id!r} has {privacy!r}")
    if (sums := config.get("sums", "plain")) != gate.run.sums:
        raise RefusedError("plan", f"sums = {sums!r} in the request, but run {gate.run.id!r} has {gate.run.sums!r}")
    declared = "float64" if config["pair"] == PrepareClient.__name__ else gate.run.wire
    if (precision := wire_of(config)) != declared:
        raise RefusedError("plan", f"wire = {precision} in the request, but run {gate.run.id!r} has wire = {declared}")


def _checked_memory(message: Message, run: str, context: Context, site: Site) -> Memory | None:
    """Return the client's memory of a run that has begun, else None; ShareableError if the table has changed."""
    if message.metadata.message_type == MessageType.QUERY or (memory := Memory.find(context, run)) is None:
        return None
    site.check_table(memory.table, run)
    return memory


def _error_code(error: FedkernelError, site: Site | None, message: Message) -> int:
    """Return an error's code; the site's table is unfit by an InputError before the method's own requests."""
    if isinstance(error, LetterError):
        return wire.UNFIT_LETTER
    before = message.metadata.message_type != MessageType.TRAIN or (
        site is not None and wire.header_of(message)["pair"] == PrepareClient.__name__
    )
    is_unfit = before and isinstance(error, InputError) and not isinstance(error, RefusedError)
    return wire.UNFIT_TABLE if is_unfit else wire.REFUSED


def _progress_after(context: Context, config: Mapping[str, Any], request: RawRequest, gate: Gate) -> RunProgress:
    """Return the run's progress with a request; RefusedError if the gate refuses it or the memory is outdated."""
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


def _introduce(call: _SiteCall) -> Reply:
    """Begin a run; reply with the client's number, table size, site name and column names."""
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


def _reveal_share(call: _SiteCall) -> Reply:
    """Reply with the site's share of the joint seed; the gate has checked the commitments."""
    call.request(wire.ShowShare)
    return wire.Share(share=call.share())


def _take_shares(call: _SiteCall) -> Reply:
    """Acknowledge all sites' shares of the joint seed; the gate has checked them."""
    call.request(wire.TakeShares)
    call.share()
    return Receipt()


def _most_sampled(call: _SiteCall, kind: type[KernelClient], rows: int) -> int | None:
    """Return the most rows that may be sampled, if the method samples; ShareableError if the plan exceeds them."""
    site, guards = call.site, call.site.guards
    if guards is None:
        return None
    run = None if site.gate is None else site.gate.run
    if run is not None and not (run.align and site.ids is not None):  # otherwise the rows are not settled yet
        for foreseen in guards.refusals(run.plan or (), kind.answers, rows):
            if foreseen.certain:
                raise ShareableError(f"{site.display_name}: {foreseen.text}")
    return guards.most_sampled(rows) if any(request.sampled for request in kind.answers) else None


def _hash_ids(call: _SiteCall) -> Reply:
    """Reply with the hashes of the site's row ids, and a check value of the hash key."""
    call.memory()
    call.request(wire.HashIds)
    return wire.HashedIds(hashes=call.hashes(), key_check=wire.key_check(call.site.id_key, call.run, call.seed))


def _take_rows(call: _SiteCall) -> Reply:
    """Restrict the run to the common rows, in their order, and reply with their number."""
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


def _train(call: _SiteCall) -> Answer:
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
        replied, _, scalars = within_seconds(
            limits.request.seconds if limits else None, lambda: client.fit(arrays, call.config)
        )
        seconds = clock() - began
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
    """Return row ids (or positions, if rows were dropped) and preparation, stored with a run's outputs."""
    arrays, positions = {}, memory.rows
    if site.ids is not None:
        ids = np.array(site.ids)
        arrays["ids"] = ids if positions is None else ids[positions]
    elif isinstance(site.X, TableToPrepare) and site.X.kept is not None:
        arrays["rows"] = site.X.kept
    if memory.preparation is not None:
        arrays["preparation"] = np.array(memory.preparation)
    return arrays

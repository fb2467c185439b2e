"""Message to a site, with the run's client, seed, masks, noise and hashes of ids for the answer."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Context, Message

from fedkernel import wire
from fedkernel.data import as_table
from fedkernel.ground import AnyArray, InputError, OwnFileError, RefusedError, ShareableError, generator, listed
from fedkernel.kernel_width import WidthClient
from fedkernel.peers import PeerClient
from fedkernel.preparing import PrepareClient, TableToPrepare
from fedkernel.protocol import KernelClient, MessageT, Privacy, Request, Summed, draw_noise, step_of
from fedkernel.site.context_state import Memory
from fedkernel.site.gate import RunProgress
from fedkernel.site.result_files import Noise
from fedkernel.site.site_setup import Site


@dataclass(frozen=True)
class SiteCall:
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
        """Id of the run."""
        return str(self.config["run"])

    @property
    def seed(self) -> int:
        """Seed of the run. Raises RefusedError if the request's seed is not the approved or drawn one."""
        seed, gate = int(self.config["seed"]), self.site.gate
        if gate is None:
            return seed
        drawn = None if self.progress is None else self.progress.seed
        if seed != (settled := gate.run.seed if drawn is None else drawn):
            text = f"seed = {seed} in the request, but run {self.run!r} has seed = {settled}"
            raise RefusedError(wire.JOINT_SEED_RULE if gate.run.joint_seed else "plan", text)
        return seed

    def share(self) -> str:
        """Return the site's share of the run's joint seed. Raises ShareableError if the run has none."""
        if (gate := self.site.gate) is None or not gate.run.joint_seed:
            raise ShareableError(f"run {self.run!r} has no joint seed, so {self.site.display_name} has no share of it")
        return gate.share

    def request(self, kind: type[MessageT]) -> MessageT:
        """Decode the message as a request of the given class."""
        return wire.from_content(kind, self.message.content)

    def memory(self) -> Memory:
        """Return the client's memory of the run."""
        return Memory(self.context, self.run) if self.known is None else self.known

    @property
    def kind(self) -> type[KernelClient]:
        """Client class that answers the message. Raises ShareableError if the site does not allow it."""
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
                text = f"the table of {site.display_name} is not prepared yet, but the request needs that"
                raise ShareableError(text)
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
        client.entries = own_table_entries(site, client)
        client.apart = memory.apart
        return client

    def masked(self, reply: Summed, request: Request[Any], requests: str) -> tuple[wire.MaskedSum, int]:
        """Return a summed reply under masks, perhaps with noise, and the number of sites whose masks cancel.

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
        """Return the site's noise on a summed reply, or None if the run has no noise."""
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


def own_table_entries(site: Site, client: KernelClient) -> int | None:
    """Return the number of table entries that replies describe, or None if it is that of the client's `X`."""
    if site.projects and client.new is not None:
        return int(math.prod(client.new.shape))
    if isinstance(site.X, TableToPrepare):  # its prepared form has a column per level
        return int(client.X.shape[0]) * len(site.X.raw.names)
    return None

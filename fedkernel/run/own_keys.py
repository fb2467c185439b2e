"""The keys of a site, in files that its node's configuration names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkernel.errors import InputError
from fedkernel.peers.kept import KeptKeys
from fedkernel.peers.sealing import KeyPair, read_pins
from fedkernel.run.alignment import read_key
from fedkernel.run.job import RunSpec
from fedkernel.run.policy import flag
from fedkernel.seeds import derived


class OwnKeys(NamedTuple):
    """Keys that a node's configuration names; None, or no key: not named."""

    ids: bytes
    identity: KeyPair | None
    pins: Mapping[str, str]

    def pins_in(self, run: RunSpec) -> dict[int, str]:
        """Return the pins of a run's clients, by number: those of its named sites, and what was pinned by number."""
        numbers = {name: number for number, name in enumerate(run.sites or ())}
        return {
            numbers.get(peer, int(peer) if peer.isdecimal() else -1): pin
            for peer, pin in self.pins.items()
            if peer in numbers or peer.isdecimal()
        }


def read_own_keys(node: Mapping[str, Any]) -> OwnKeys:
    """Read the keys that a node's configuration names, as `site_of_job` lists them; InputError where one is missing."""
    key = read_key(str(node["id-key"])) if "id-key" in node else b""
    identity = KeyPair.read(str(node["identity"])) if "identity" in node else None
    return OwnKeys(key, identity, read_pins(str(node["pins"])) if "pins" in node else {})


def check_own_pin(keys: OwnKeys, name: str) -> None:
    """Raise InputError if a site's pins, which may be a file of all sites', have another identity of it than it has."""
    if (pin := keys.pins.get(name)) is None:
        return
    if keys.identity is None:
        raise InputError(f"pins: a key of {name!r} is pinned, but this site has none; allowed: its key (--identity)")
    if keys.identity.fingerprint != pin:
        raise InputError(
            f"pins: {pin} is pinned for {name!r}, but this site's key has fingerprint {keys.identity.fingerprint}; "
            "allowed: the key and the pins of one deployment (--identity, --pins)"
        )


def kept_keys(node: Mapping[str, Any], run: str, secret: bytes, identity: KeyPair | None) -> KeptKeys | None:
    """Return where a node keeps the keys of a run, if it is to: sealed by the secret in its folder and its identity."""
    if not flag(node, "keep-letter-keys"):
        return None
    own = derived(secret, "kept keys") + (identity.private if identity else b"")
    return KeptKeys(Path(str(node["out"])).expanduser(), run, own)

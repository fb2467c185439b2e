"""Keys of a site, from the files in its node's configuration, and the site's own secret."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedkernel.data import file_errors
from fedkernel.ground import InputError, derive_key, ensure_writable_folder, open_for_owner, read_secret
from fedkernel.peers import KeyPair, RunKeyFile, read_pins
from fedkernel.site.policy_reading import flag
from fedkernel.wire import HASH_BYTES, RunSpec


class OwnKeys(NamedTuple):
    """Keys in a node's configuration: for id hashes, the identity's, and pinned ones. None or empty: not configured."""

    ids: bytes
    identity: KeyPair | None
    pins: Mapping[str, str]

    def pins_in(self, run: RunSpec) -> dict[int, str]:
        """Return pinned fingerprints by a run's client numbers. The pins themselves name sites or client numbers."""
        numbers = {name: number for number, name in enumerate(run.sites or ())}
        return {
            numbers.get(peer, int(peer) if peer.isdecimal() else -1): pin
            for peer, pin in self.pins.items()
            if peer in numbers or peer.isdecimal()
        }


def read_key(path: str) -> bytes:
    """Read the key for id hashes that sites share. Raises InputError if it is missing or shorter than 16 bytes."""
    with file_errors(path, "a file with the sites' key"):
        key = read_secret(Path(path).expanduser()).strip()
    if len(key) < HASH_BYTES:
        raise InputError(f"the key in {path} has {len(key)} bytes; allowed: at least {HASH_BYTES}")
    return key


def read_own_keys(node: Mapping[str, Any]) -> OwnKeys:
    """Read the keys in a node's configuration (`site_of_job`). Raises InputError if a file is missing."""
    key = read_key(str(node["id-key"])) if "id-key" in node else b""
    identity = KeyPair.read(str(node["identity"])) if "identity" in node else None
    return OwnKeys(key, identity, read_pins(str(node["pins"])) if "pins" in node else {})


def check_own_pin(keys: OwnKeys, name: str) -> None:
    """Raise InputError if the pins, which all sites may share, contradict the site's own identity."""
    if (pin := keys.pins.get(name)) is None:
        return
    if keys.identity is None:
        raise InputError(f"pins: a key of {name!r} is pinned, but this site has no key; pass it with --identity")
    if keys.identity.fingerprint != pin:
        raise InputError(
            f"pins: {pin} is pinned for {name!r}, but this site's key has fingerprint {keys.identity.fingerprint}; "
            "--identity and --pins must be of one deployment"
        )


def kept_keys(node: Mapping[str, Any], run: str, secret: bytes, identity: KeyPair | None) -> RunKeyFile | None:
    """Return the encrypted store of a run's letter keys in the node's folder, or None if not configured."""
    if not flag(node, "keep-letter-keys"):
        return None
    sealing_key = derive_key(secret, "kept keys") + (identity.private if identity else b"")
    return RunKeyFile(Path(str(node["out"])).expanduser(), run, sealing_key)


NAME = "secret"  # name of the secret's file in a site's folder; seed shares and noise derive from it
SIZE = 32  # bytes of the secret


def own_secret(folder: Path) -> bytes:
    """Return the secret in a site's folder, created if missing. Raises InputError unless it has 32 bytes."""
    path = folder / NAME
    if not path.exists():
        ensure_writable_folder(folder, 0o700)
        new_file = folder / f".{NAME}.{secrets.token_hex(8)}"
        with open(new_file, "xb", opener=open_for_owner) as file:
            file.write(secrets.token_bytes(SIZE))
        with suppress(FileExistsError):  # another process of the site created it
            os.link(new_file, path)
        new_file.unlink()
    if len(secret := read_secret(path)) != SIZE:
        raise InputError(f"{path} has {len(secret)} bytes, but must have {SIZE}; without it, a new secret is made")
    return secret

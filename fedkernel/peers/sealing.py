"""Encryption of letters between two clients, so that their forwarder can neither read nor change them.

Two clients agree on keys by the Noise Protocol Framework's pattern KK (revision 34, section 7.5): X25519 of each one's
key for this run with the other's (ee), of each one's with the other's identity (es, se), and of the two identities
(ss), mixed in this order by HKDF-SHA256. The result gives a key for each direction together with a hash of all that was
agreed on: this format, the run, both clients' numbers and all four public keys. A letter is sealed by AES-256-SIV (RFC
5297) under its direction's key; run, round, sender, receiver and sequence are authenticated with it.

Of Noise's messages only the public keys are sent, handed out by the coordinator: no tag confirms them. In Noise's terms
(section 7.7) every letter has source property 2: only the sender's identity, or both the receiver's identity and key
for the run, can seal it, so a stolen site identity alone does not let the thief write to that site in another's name. A
letter has destination property 3 until the site has opened one of that peer's letters, and 5 from then on: it stays
secret even if identities are stolen later. Before that, this holds unless the coordinator handed out keys of its own as
the peer's for the run.

Letters are sealed under SIV since a restarted site writes its letters again with the same keys
(`fedkernel.peers.run_key_file`): an equal letter has equal bytes, and a different one under the same number shows only
that it differs. A cipher with nonces would reveal both contents.

Protected: a letter's contents, even if an identity is stolen later; its integrity, its place in the order, its sender
and its receiver; with pinned fingerprints on both sides, the identity of both clients.

Not protected: the senders, receivers, times and sizes of letters; their delivery. Without pins a coordinator that hands
out its own keys instead of the clients' reads everything, and a pin on one side alone protects only that side's
letters.
"""

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedkernel.ground import InputError, ProtocolError, parse_toml, read_secret

KEY_BYTES, SEALING_BYTES, TAG_BYTES = 32, 64, 16
"""Bytes of an X25519 key, of a letter's AES-SIV key, and of its authentication tag."""

_FORM = b"fedkernel letters 2: KK 25519 AES-256-SIV SHA256"
_SIGNING = b"fedkernel receipts 1: Ed25519 HKDF-SHA256"

Peer = TypeVar("Peer", int, str)


@dataclass(frozen=True)
class KeyPair:
    """X25519 key pair: a site's identity, or a key for one run. `private`: 32 bytes, which never leave the site."""

    private: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check the key's length."""
        if len(self.private) != KEY_BYTES:
            raise InputError(f"a private X25519 key has {KEY_BYTES} bytes, not {len(self.private)}")

    @classmethod
    def new(cls) -> "KeyPair":
        """Generate a key pair from the operating system's randomness, never from a run's seed."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "KeyPair":
        """Read a PKCS#8 PEM file without a password, as from `write` or ``openssl genpkey -algorithm x25519``."""
        try:
            key = load_pem_private_key(read_secret(Path(path)), password=None)
        except FileNotFoundError:
            raise InputError(f"there is no identity file {path}") from None
        except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise InputError(f"{path} is no X25519 key as PEM without a password ({type(error).__name__})") from None
        if not isinstance(key, X25519PrivateKey):
            raise InputError(f"{path} holds a key of a different kind than X25519")
        return cls(key.private_bytes_raw())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the pair to a new file that only its owner may read."""
        pem = X25519PrivateKey.from_private_bytes(self.private).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)

    @cached_property
    def public(self) -> bytes:
        """Public key, 32 bytes."""
        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    @cached_property
    def signing(self) -> Ed25519PrivateKey:
        """Ed25519 signing key of the identity, derived from its X25519 key, which cannot sign."""
        derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_SIGNING).derive(self.private)
        return Ed25519PrivateKey.from_private_bytes(derived)

    @property
    def listed(self) -> str:
        """Public keys as a study lists them: for masks, then of `signing`. Each has 64 hexadecimal digits."""
        return (self.public + self.signing.public_key().public_bytes_raw()).hex()

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key, for other sites' pins."""
        return fingerprint(self.public)


def fingerprint(public: bytes) -> str:
    """Return the first 128 bits of a public key's SHA-256 as 32 hexadecimal digits."""
    return sha256(public).hexdigest()[:32]


def check_pins(pins: Mapping[Peer, str]) -> dict[Peer, str]:
    """Return the pinned fingerprints by client; InputError if one is malformed."""
    for client, pin in pins.items():
        if not re.fullmatch("[0-9a-f]{32}", pin):
            raise InputError(f"the pin of client {client} is {pin!r}, but a fingerprint is 32 digits from 0-9a-f")
    return dict(pins)


def read_pins(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a TOML file of pins, with a line ``name = "fingerprint"`` for each peer. A number may replace the name."""
    try:
        table = parse_toml(Path(path).read_text(), "it")
        if not table:
            raise InputError('there is no pin in it; allowed: a line name = "fingerprint" for each peer')
        return check_pins({client: str(pin) for client, pin in table.items()})
    except FileNotFoundError:
        raise InputError(f"there is no file of pins {path}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(f'{path} must have lines name = "fingerprint" ({type(error).__name__})') from None


class PublishedKeys(NamedTuple):
    """Published keys of a client: its number and two public keys."""

    client: int
    identity: bytes
    ephemeral: bytes


def letter_keys(
    run: str, client: int, identity: KeyPair, ephemeral: KeyPair, peer: PublishedKeys
) -> tuple[bytes, bytes]:
    """Compute a client's keys for letters to and from a peer; ProtocolError if the peer's public keys are invalid."""
    own = PublishedKeys(client, identity.public, ephemeral.public)
    first, second = sorted((own, peer))
    crossed = [(ephemeral, peer.identity), (identity, peer.ephemeral)]  # es and se, as the first sees them
    es, se = crossed if own is first else reversed(crossed)
    chain = sha256(_FORM).digest()
    try:
        for pair, public in (es, (identity, peer.identity), (ephemeral, peer.ephemeral), se):
            chain = _expanded(chain, exchange(pair, public), KEY_BYTES)
    except ValueError:
        raise ProtocolError(f"the keys of client {peer.client} are no X25519 public keys") from None
    # every part has a fixed length except the run, which comes last
    parts = [struct.pack("<I", party.client) + party.identity + party.ephemeral for party in (first, second)]
    agreed = sha256(_FORM + b"".join(parts) + run.encode()).digest()
    keys = _expanded(chain, agreed, 2 * SEALING_BYTES)
    forward, backward = keys[:SEALING_BYTES], keys[SEALING_BYTES:]
    return (forward, backward) if own is first else (backward, forward)


def _expanded(chain: bytes, secret: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=chain, info=None).derive(secret)


def exchange(own: KeyPair, public: bytes) -> bytes:
    """Return the secret that a key pair shares with a public key; ValueError if the latter is no X25519 key."""
    return X25519PrivateKey.from_private_bytes(own.private).exchange(X25519PublicKey.from_public_bytes(public))


class Header(NamedTuple):
    """Unencrypted header of a letter: sender, receiver, round, and the letter's number in this direction."""

    sender: int
    receiver: int
    round: int
    sequence: int

    def pack(self) -> bytes:
        """Return the header as 16 bytes."""
        return _HEADER.pack(*self)

    @classmethod
    def of(cls, letter: bytes | memoryview) -> "Header":
        """Return the header of a sealed letter."""
        return cls(*_HEADER.unpack_from(letter))


_HEADER = struct.Struct("<4I")
HEADER_BYTES = _HEADER.size


def seal(key: bytes, run: str, header: Header, content: bytes) -> bytes:
    """Encrypt a letter's content, and return header, tag and ciphertext as bytes."""
    clear = header.pack()
    return clear + AESSIV(key).encrypt(content, [clear, run.encode()])


def unseal(key: bytes, run: str, letter: bytes | memoryview) -> bytes:
    """Return a letter's decrypted content. ProtocolError: altered, or sealed in another run or by another key."""
    clear = letter[:HEADER_BYTES]
    try:
        return AESSIV(key).decrypt(letter[HEADER_BYTES:], [clear, run.encode()])
    except (InvalidTag, ValueError):  # ValueError: it is too short
        raise ProtocolError("it was altered, or sealed with other keys or in a different run") from None

"""Masks on replies that are only summed, which cancel in the sum over all sites and in no other.

A reply leaves its site in fixed point (`fedkernel.numerics.fixed_point`), plus a mask for each other site: a ChaCha20
keystream that the two sites share, added by the one with the lower number and subtracted by the other. Its key is by
HKDF-SHA256 from X25519 of the two sites' identities. The study lists their public keys; its approval, or a site's pins,
vouch for them. A key serves one message, so its nonce is constant: it is bound to the study, the run, the round, the
request, and all requests before. A coordinator that sends sites different requests, such as zeros to all but one, gets
masks that do not cancel.

The coordinator sees one site's reply as if drawn, and the sum, which is no secret: it reveals of all sites together
what a plain reply reveals of one. A site whose policy has ``sums = "masked"`` lets nothing but such sums leave.

Not protected:

- Against all other sites together with the coordinator, who can take a site's masks off. So can a thief of identities,
  also from replies that were recorded before.
- Where a method sends sites different requests: landmarks that one site knows, parts of a vector, letters. Masks are
  bound to the round alone from there on, and hide a reply only from a coordinator that follows the protocol. The policy
  refuses these replies.
- If a site forgets which masks it has used. Its folder (``--out``) has the record; a new folder needs a new identity.

The coordinator checks sizes and the sum, not each reply: checks of single sites are the price of their secrecy. Each
site still checks its own reply before it is masked. It is all sites or none: a lost site comes back with the same
bytes, or the run ends.

The last word of each reply is a check word: a constant of the round plus all words, before the masks, times public odd
numbers. By its sum the coordinator sees that a reply is missing, came twice or is of another run (all but one in 2^64),
any change of a single word, and nearly all of several; not whose it is. As the numbers are public, this is no
protection against whoever alters replies on purpose, which is the transport's task.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pydantic
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedkernel.ground import InputError, ProtocolError, ShareableError, explain
from fedkernel.numerics import digits_of, from_fixed_point, to_fixed_point
from fedkernel.peers import KEY_BYTES, KeyPair, exchange
from fedkernel.protocol import Reply, Shape, Size, Summed

FORM = b"fedkernel masks 1: X25519 HKDF-SHA256 ChaCha20"

DO_NOT_CANCEL = (
    "the masks do not cancel, or the check word is wrong: a site's masked reply is missing, came twice, was altered, "
    "or is of another run, round, request or set of sites"
)

ALIKE = "alike"
"""Name of the scalar in requests of a run with masked sums: all sites were sent the same requests so far."""

Unsigned = npt.NDArray[np.uint64]


class MaskedSum(Reply):
    """Site's addend of a sum over all sites, under masks: 3 words for each float, 1 for each count.

    Reveals only its type and size to anyone but all other sites together; the sum of all sites' is that of the plain
    replies, rounded by 4e-25. `kind`: class of the plain reply. `sizes`: shapes of its arrays. `words`: of all arrays,
    and last the check word.
    """

    kind: str
    sizes: dict[str, tuple[Size, ...]]
    words: Annotated[npt.NDArray[np.int64], Shape("words_m", dtype="int64")]

    @property
    def floats(self) -> int:
        """Number of floats in the plain reply."""
        return sum(map(math.prod, self.sizes.values()))

    def dimensions(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the sizes of the plain reply's arrays, the same at all sites, with `known` ones."""
        own = {f"{name}[{axis}]": size for name, shape in self.sizes.items() for axis, size in enumerate(shape)}
        return {**(known or {}), **own}

    def outline(self, kind: type[Any]) -> Summed:
        """Return a plain reply of these shapes, without its numbers; ValueError if the words are not of such a one."""
        shapes = kind.shapes()
        required = {name for name in shapes if kind.model_fields[name].is_required()}
        if self.kind != kind.__name__ or not required <= self.sizes.keys() <= shapes.keys():
            raise ValueError(f"a masked {kind.__name__} is expected, not {self.kind} with {', '.join(self.sizes)}")
        if any(len(shape) != max(1, len(shapes[name].dimensions)) for name, shape in self.sizes.items()):
            raise ValueError(f"the arrays of a masked {kind.__name__} have other numbers of axes than {self.sizes}")
        if len(self.words) != sum(_words_of(kind, name, shape) for name, shape in self.sizes.items()) + 1:
            raise ValueError(f"a masked {kind.__name__} has other words than its arrays need, {len(self.words)}")
        outline: Summed = kind.model_construct(**{name: np.broadcast_to(0.0, it) for name, it in self.sizes.items()})
        return outline


@dataclass(frozen=True)
class MaskKeys:
    """Keys of a site for the masks of one run; `context` binds them to the run.

    `number`: the site's. `own`: its key pair. `public`: keys of all sites, in the order of their numbers.
    """

    number: int
    own: KeyPair
    public: tuple[bytes, ...]
    context: bytes

    def __post_init__(self) -> None:
        """Raise ShareableError unless the site's key is at its number, and all keys differ."""
        if not self.number < len(self.public) or self.public[self.number] != self.own.public:
            raise ShareableError(
                f"the run lists another key for site {self.number} than its own, {self.own.public.hex()} "
                "(fedkernel identity --public)"
            )
        if len(set(self.public)) < len(self.public):
            raise ShareableError("the run lists a key for two sites; allowed: a different one for each")

    def mask(self, reply: Summed, label: str, asked: bytes) -> MaskedSum:
        """Return a reply under this site's masks; `asked`: digest of all requests that the sites have in common.

        Raises ShareableError if a number is too large for the fixed-point form.
        """
        kind, arrays, parts, sites = type(reply), reply.arrays(), list[Unsigned](), len(self.public)
        for name, array in arrays.items():
            try:
                words = to_fixed_point(array, sites, whole=name in kind.whole_numbers())
            except InputError as error:
                raise ShareableError(f"{kind.__name__}: {name}: {error}") from None
            parts.append(words.view(np.uint64).ravel())
        masked = np.concatenate([*parts, np.zeros(1, np.uint64)])
        masked[-1] = _check_word(masked[:-1], label, 1)
        zeros, stream = bytes(masked.nbytes), bytearray(masked.nbytes)
        keystream = np.frombuffer(stream, "<u8")
        for number in range(sites):
            if number != self.number:
                self._cipher(number, label, asked).encryptor().update_into(zeros, stream)
                (np.add if number > self.number else np.subtract)(masked, keystream, out=masked)
        sizes = {name: array.shape for name, array in arrays.items()}
        return MaskedSum(kind=kind.__name__, sizes=sizes, words=masked.view(np.int64))

    def _cipher(self, number: int, label: str, asked: bytes) -> Cipher[None]:
        """Return the cipher that this site shares with another; ProtocolError if the other's key is no public key."""
        try:
            secret = _shared(self.own, self.public[number])
        except ValueError:
            raise ProtocolError(f"the key of site {number} is no X25519 public key") from None
        info = b"".join([FORM, hashlib.sha256(self.context).digest(), hashlib.sha256(asked).digest(), label.encode()])
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
        return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)


@lru_cache(maxsize=1 << 14)
def _shared(own: KeyPair, public: bytes) -> bytes:
    return exchange(own, public)


@cache
def simulated_pair(number: int) -> KeyPair:
    """Return the key pair of a simulated site, which is no secret: one person operates all of them."""
    return KeyPair(hashlib.sha256(b"fedkernel simulated site %d" % number).digest()[:KEY_BYTES])


def simulated_keys(number: int, sites: int, run: str) -> MaskKeys:
    """Return the keys of a simulated site for the masks of a run."""
    public = tuple(simulated_pair(other).public for other in range(sites))
    return MaskKeys(number, simulated_pair(number), public, run.encode())


def mask_label(run: str, round_number: int, request: str) -> str:
    """Return the label of a round's masks."""
    return json.dumps([run, round_number, request])


def sum_masked(kind: type[Any], replies: Sequence[MaskedSum], label: str) -> Summed:
    """Return the sum of all sites' replies; ProtocolError if masks do not cancel, or if it breaks its class's rules."""
    sites = len(replies)
    total = np.zeros(replies[0].words.shape, np.uint64)
    for reply in replies:
        if reply.words.shape != total.shape:
            raise ProtocolError(DO_NOT_CANCEL)
        total += reply.words.view(np.uint64)
    if total[-1] != _check_word(total[:-1], label, sites):
        raise ProtocolError(DO_NOT_CANCEL)
    words, place, arrays = total.view(np.int64), 0, dict[str, Any]()
    for name, shape in replies[0].sizes.items():
        end = place + _words_of(kind, name, shape)
        arrays[name] = from_fixed_point(words[place:end].reshape(-1, *shape), sites)
        place = end
    try:
        summed: Summed = kind(**arrays)
        return summed
    except pydantic.ValidationError as error:
        raise ProtocolError(f"{kind.__name__}: {explain(error)}") from None


def _words_of(kind: type[Summed], name: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * digits_of(whole=name in kind.whole_numbers())


def _check_word(words: Unsigned, label: str, sites: int) -> np.uint64:
    """Return the label's constant, for each site, plus the words times the odd numbers, modulo 2^64."""
    constant = int.from_bytes(hashlib.sha256(FORM + label.encode()).digest()[:8])
    sums = int(np.arange(1, 2 * words.size, 2, dtype=np.uint64) @ words)
    return np.uint64((sites * constant + sums) % (1 << 64))

"""Masks on replies that are only summed, which cancel in the sum over all sites and in no other.

For each other site, a site adds a mask to its reply: a ChaCha20 keystream that the two share, and that the other one
subtracts. So each reply looks like numbers drawn at random, and the sum is as it would be. Masks are bound to the run,
the round and all requests so far. If a coordinator sends sites different requests, such as zeros to all but one, the
masks do not cancel.

A site whose policy has ``sums = "masked"`` lets nothing but such sums leave. There the first refusal of a computed
reply ends the run, since refusals would tell a coordinator something of the rows.

Not protected:

- A site against all other sites together with the coordinator, or against a thief of its identity. They can take its
  masks off, also from recorded replies.
- Replies to requests that differ by site, such as landmarks that one site has already: from there on masks work only
  if the coordinator follows the protocol. A policy with ``sums = "masked"`` refuses such requests.
- A site that forgets which masks it has used, since the same mask on two replies shows their difference. So a new
  folder (``--out``), or one restored from a backup, needs a new identity.
- Small addends beside large ones: the sum's last bits confirm a right guess.
- Sizes and computing times.
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

from fedkernel.ground import FloatArray, InputError, ProtocolError, ShareableError, explain
from fedkernel.numerics import add_words, from_fixed_point, to_fixed_point, words_of
from fedkernel.peers import KEY_BYTES, KeyPair, exchange
from fedkernel.protocol import NOISY, Reply, Shape, Size, Summed

FORM = b"fedkernel masks 2: X25519 HKDF-SHA256 ChaCha20"

DO_NOT_CANCEL = (
    "the masks do not cancel: a site's masked reply is missing, came twice, or is of another run, round, request or "
    "set of sites"
)

UNASKED_BY = {
    "ClusterSizes": "evaluate = false",
    "Differences": '[prepare] drift = "ignore"',
    "LocalCenters": 'centroids = "shared"',
    "LocalCoreset": 'clusters = "lloyd"',
    "LocalCost": 'clusters = "lloyd"',
}
"""Settings of an experiment under which a reply that is no sum is not asked for."""

ALIKE = "alike"
"""Name of the scalar in requests of a run with masked sums: all sites were sent the same requests so far."""

Unsigned = npt.NDArray[np.uint64]


class MaskedSum(Reply):
    """Masked addend of a site in a sum over all sites: 3 words for each float, 1 for each count.

    Reveals only its type and size to anyone but all other sites together; the sum of all sites' is that of the plain
    replies, rounded by 4e-25. `kind`: class of the plain reply. `sizes`: shapes of its arrays. `words`: of all floats,
    then of all counts, and last the check word. `sha256`: of the words. `noisy`: noise was added, also to counts, which
    are floats then.
    """

    kind: str
    noisy: bool = False
    sizes: dict[str, tuple[Size, ...]]
    sha256: str
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
        """Return a plain reply of these shapes without its numbers. Raises ValueError if the words do not fit it."""
        shapes = kind.shapes()
        required = {name for name in shapes if kind.model_fields[name].is_required()}
        if self.kind != kind.__name__ or not required <= self.sizes.keys() <= shapes.keys():
            raise ValueError(f"a masked {kind.__name__} is expected, not {self.kind} with {', '.join(self.sizes)}")
        if any(len(shape) != max(1, len(shapes[name].dimensions)) for name, shape in self.sizes.items()):
            raise ValueError(f"the arrays of a masked {kind.__name__} have other numbers of axes than {self.sizes}")
        if len(self.words) != sum(words_of(whole=whole) * count for whole, count in self._numbers(kind).items()) + 1:
            raise ValueError(f"a masked {kind.__name__} has other words than its arrays need, {len(self.words)}")
        if self.sha256 != hashlib.sha256(self.words.data).hexdigest():
            raise ValueError(f"the words of a masked {kind.__name__} were altered on their way")
        outline: Summed = kind.model_construct(**{name: np.broadcast_to(0.0, it) for name, it in self.sizes.items()})
        return outline

    def _numbers(self, kind: type[Summed]) -> dict[bool, int]:
        """Return the number of floats (False) and of whole numbers (True)."""
        counts = {False: 0, True: 0}
        for name, shape in self.sizes.items():
            counts[name in self.whole_numbers_of(kind)] += math.prod(shape)
        return counts

    def whole_numbers_of(self, kind: type[Summed]) -> frozenset[str]:
        """Return the names of the plain reply's arrays that are sent as whole numbers."""
        return frozenset() if self.noisy else kind.whole_numbers()


@dataclass(frozen=True)
class MaskKeys:
    """Keys of a site for the masks of one run; `context` binds them to the run.

    A mask's key is derived by HKDF-SHA256 from the X25519 secret of the two sites' identities, and bound to both public
    keys, the study, the run, the round, the request, and all requests before. The study lists the public keys, and a
    site trusts these because it has approved the study or pinned them.

    `number`: the site's. `own`: its key pair. `public`: keys of all sites, in the order of their numbers.
    """

    number: int
    own: KeyPair
    public: tuple[bytes, ...]
    context: bytes

    def __post_init__(self) -> None:
        """Raise ShareableError unless all keys differ."""
        if len(set(self.public)) < len(self.public):
            raise ShareableError("the run lists a key for two sites; allowed: a different one for each")

    def mask(
        self, reply: Summed, label: str, requests: bytes, noise: Mapping[str, FloatArray] | None = None
    ) -> MaskedSum:
        """Return a reply under this site's masks.

        `requests`: digest of all requests so far, empty if sites got different ones. `noise`: is added, exactly.
        Raises ShareableError if a number is too large for the fixed-point form.
        """
        kind, arrays, sites, own_noise = type(reply), reply.arrays(), len(self.public), noise or {}
        wide, whole = [np.empty((words_of(whole=False), 0), np.uint64)], list[Unsigned]()
        for name, array in arrays.items():
            try:
                is_whole = noise is None and name in kind.whole_numbers()
                addends = 2 * sites if name in own_noise else sites
                words = to_fixed_point(array, addends, whole=is_whole).reshape(words_of(whole=is_whole), -1)
                if name in own_noise:
                    more = to_fixed_point(own_noise[name], addends, whole=False)
                    add_words(words.reshape(-1), more.reshape(-1), array.size)
            except InputError as error:
                raise ShareableError(f"{kind.__name__}: {name}: {error}") from None
            whole.append(words.ravel()) if is_whole else wide.append(words)
        numbers = np.concatenate(wide, axis=1)
        masked = np.concatenate([numbers.ravel(), *whole, np.array([_check_word(label, 1)])])
        zeros, stream = bytes(masked.nbytes), bytearray(masked.nbytes)
        keystream = np.frombuffer(stream, "<u8")
        np.invert(masked, out=masked)  # to subtract by adding: x - y = ~(~x + y)
        for number in range(sites):
            if number == self.number:
                np.invert(masked, out=masked)
                continue
            self._cipher(number, label, requests).encryptor().update_into(zeros, stream)
            add_words(masked, keystream, numbers.shape[1])
        sizes, sha256 = {name: array.shape for name, array in arrays.items()}, hashlib.sha256(masked.data).hexdigest()
        return MaskedSum(
            kind=kind.__name__, noisy=noise is not None, sizes=sizes, words=masked.view(np.int64), sha256=sha256
        )

    def _cipher(self, number: int, label: str, requests: bytes) -> Cipher[None]:
        """Return the cipher shared with another site. Raises ProtocolError if the other's key is no public key."""
        try:
            secret = _shared(self.own, self.public[number])
        except ValueError:
            raise ProtocolError(f"the key of site {number} is no X25519 public key") from None
        pair = sorted((self.own.public, self.public[number]))  # as different public keys can have one shared secret
        digests = (hashlib.sha256(part).digest() for part in (self.context, requests))
        info = b"".join([FORM, *pair, *digests, label.encode()])
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
        return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)  # a constant nonce: a key masks one message


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
    """Return the sum of all sites' replies. Raises ProtocolError if masks do not cancel or the sum is invalid."""
    first, sites = replies[0], len(replies)
    wide, total = first._numbers(kind)[False], np.zeros(first.words.shape, np.uint64)
    for reply in replies:
        if reply.words.shape != total.shape:
            raise ProtocolError(DO_NOT_CANCEL)
        add_words(total, reply.words.view(np.uint64), wide)
    if total[-1] != _check_word(label, sites):
        raise ProtocolError(DO_NOT_CANCEL)
    parts, arrays = np.split(total, [words_of(whole=False) * wide]), dict[str, Any]()
    left = {False: parts[0].reshape(words_of(whole=False), wide), True: parts[1].reshape(1, -1)}
    for name, shape in first.sizes.items():
        is_whole = name in first.whole_numbers_of(kind)
        words, left[is_whole] = np.split(left[is_whole], [math.prod(shape)], axis=1)
        arrays[name] = from_fixed_point(words.reshape(-1, *shape))
    try:
        summed: Summed = kind.model_validate(arrays, context=NOISY if first.noisy else None)
        return summed
    except pydantic.ValidationError as error:
        raise ProtocolError(f"{kind.__name__}: {explain(error)}") from None


def _check_word(label: str, sites: int) -> np.uint64:
    """Return the label's constant, times the number of sites, modulo 2^64.

    Each reply's last word is this constant, masked too. Their sum shows that a reply is missing, came twice or is of
    another run, though not whose; it misses one such fault in 2^64.
    """
    constant = int.from_bytes(hashlib.sha256(FORM + label.encode()).digest()[:8])
    return np.uint64(sites * constant % (1 << 64))

"""Letters from client to client, and the messages that carry them, sealed, through the coordinator.

A pair declares its letters like its messages::

    class Estimate(Letter):
        values: Annotated[FloatArray, Shape("d")]

Replies that post letters and requests that deliver them inherit `CarriesLetters`. In the protocol, `Mail` moves the
letters of one round's replies into the next round's requests.

A letter's format is fixed: its length (uint32), the clear header (16 bytes), the tag (16), then encrypted: a code of
its class (4), the sizes of the axes (`MOST_AXES` times 4), the float64 entries. So it has 8 bytes per float and
`OVERHEAD`: anybody can compute the number of floats in a sealed letter, but not their shape.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.ground import ProtocolError, explain
from fedkernel.peers.sealing import HEADER_BYTES, TAG_BYTES, Header
from fedkernel.protocol import Message, Protocol, Reply, ReplyT, Request, Shape, to_each

Bytes = npt.NDArray[np.uint8]

MOST_AXES = 10  # most axes of a letter's arrays, all together

_LENGTH = struct.Struct("<I")
_SIZES = struct.Struct(f"<{MOST_AXES}I")
_KIND = struct.Struct("<I")
_UNSET = 2**32 - 1  # placeholder for the sizes of an array that is not set
OVERHEAD = _LENGTH.size + HEADER_BYTES + _KIND.size + _SIZES.size + TAG_BYTES  # bytes of a letter without its floats


class Letter(Message):
    """Base class of letters, of float64 arrays alone; a subclass's docstring says what it reveals to its receiver."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a letter class whose fields do not fit the format."""
        shapes = cls.shapes()
        if set(shapes) != set(cls.model_fields) or any(shape.dtype != np.float64 for shape in shapes.values()):
            raise TypeError(f"{cls.__name__}: the fields of a letter must be float64 arrays with a Shape")
        axes = [len(shape.dimensions) for shape in shapes.values()]
        if sum(axes) > MOST_AXES or 0 in axes:
            raise TypeError(f"{cls.__name__}: the arrays of a letter have 1 to {MOST_AXES} axes, all together")


LetterT = TypeVar("LetterT", bound=Letter)


@cache
def _kind(kind: type[Letter]) -> bytes:
    return _KIND.pack(crc32(kind.__name__.encode()))


def letter_to_bytes(letter: Letter) -> bytes:
    """Serialise a letter's content, before it is sealed."""
    arrays = letter.arrays()
    sizes: list[int] = []
    for name, shape in letter.shapes().items():
        sizes += arrays[name].shape if name in arrays else [_UNSET] * len(shape.dimensions)
    sizes += [0] * (MOST_AXES - len(sizes))
    entries = [np.ascontiguousarray(array, "<f8").data for array in arrays.values()]
    return b"".join([_kind(type(letter)), _SIZES.pack(*sizes), *entries])


def letter_from_bytes(kind: type[LetterT], content: bytes) -> LetterT:
    """Rebuild a letter from `letter_to_bytes`, fully checked; ProtocolError if it is invalid."""
    start = _KIND.size + _SIZES.size
    if len(content) < start or content[: _KIND.size] != _kind(kind):
        raise ProtocolError(f"it is no {kind.__name__}")
    sizes, shapes, first = _SIZES.unpack_from(content, _KIND.size), {}, 0
    for name, declared in kind.shapes().items():
        last = first + len(declared.dimensions)
        if _UNSET not in (shape := sizes[first:last]):
            shapes[name] = shape
        first = last
    floats = sum(prod(shape) for shape in shapes.values())
    if len(content) != start + 8 * floats:
        raise ProtocolError(f"as a {kind.__name__} it needs {floats} floats, but has {len(content) - start} bytes")
    # one copy of all, since the entries are not aligned within the content
    entries, first, fields = np.frombuffer(content, "<f8", floats, start).astype(np.float64), 0, {}
    for name, shape in shapes.items():
        last = first + prod(shape)
        try:
            fields[name] = entries[first:last].reshape(shape)
        except ValueError:  # too large a size beside one of 0
            raise ProtocolError(f"as a {kind.__name__} it has an invalid array shape {shape}") from None
        first = last
    try:
        return kind.model_validate(fields)
    except pydantic.ValidationError as error:
        raise ProtocolError(f"{kind.__name__}: {explain(error, quote=False)}") from None


class Sealed(NamedTuple):
    """Sealed letter in transit: readable header, and all its bytes as a view of the message."""

    header: Header
    letter: memoryview

    @property
    def floats(self) -> int:
        """Number of floats in the letter."""
        return (self.size - OVERHEAD) // 8

    @property
    def size(self) -> int:
        """Number of bytes in the message."""
        return _LENGTH.size + len(self.letter)


def pack(letters: Sequence[bytes | memoryview]) -> Bytes | None:
    """Concatenate letters for a message's field ``letters``; None without letters."""
    if not letters:
        return None
    parts = ((_LENGTH.pack(len(letter)), letter) for letter in letters)
    return np.frombuffer(b"".join(itertools.chain.from_iterable(parts)), np.uint8)


def unpack(packed: Bytes | None) -> Iterator[Sealed]:
    """Split the result of `pack`; ValueError if it is not a sequence of letters."""
    if packed is None:
        return
    data, start = np.ascontiguousarray(packed).data.toreadonly(), 0
    while start < len(data):
        first = start + _LENGTH.size
        end = first + (_LENGTH.unpack_from(data, start)[0] if first <= len(data) else 0)
        if end > len(data) or end - start < OVERHEAD or (end - start - OVERHEAD) % 8:
            raise ValueError("must be sealed letters one after the other, but one is cut off or has no letter's size")
        letter = data[first:end]
        yield Sealed(Header.of(letter), letter)
        start = end


class CarriesLetters(Message):
    """Base class of replies that post letters, and of requests that deliver them.

    `letters`: uint8 array of sealed letters from `pack`, or None. A reply gets them from a mailbox, a request from
    `Mail`.
    """

    letters: Annotated[Bytes | None, Shape("letters_m", dtype="uint8")] = None

    @cached_property
    def sealed(self) -> tuple[Sealed, ...]:
        """Sealed letters with their readable headers."""
        return tuple(unpack(self.letters))

    @property
    def floats(self) -> int:
        """Number of floats in the arrays, including those in sealed letters."""
        return super().floats + sum(letter.floats for letter in self.sealed)

    @property
    def floats_by_reader(self) -> Mapping[int | None, int]:
        """Number of floats for each reader: the coordinator's are outside the letters, a peer's in its letters."""
        floats: dict[int | None, int] = {None: super().floats}
        for letter in self.sealed:
            floats[letter.header.receiver] = floats.get(letter.header.receiver, 0) + letter.floats
        return floats

    @pydantic.model_validator(mode="after")
    def _letters_are_whole(self) -> "CarriesLetters":
        _ = self.sealed
        return self


class Letters(CarriesLetters, Reply):
    """Sealed letters and nothing else; reveals each letter's sender, receiver and size."""


def sealed_in(message: Message) -> Sequence[Sealed]:
    """Return the sealed letters in a message, none if it cannot carry any."""
    return message.sealed if isinstance(message, CarriesLetters) else ()


def sort_mail(replies: Sequence[Message]) -> Mapping[int, Bytes]:
    """Return the letters in replies, packed by receiver for the field ``letters`` of the receiver's next request."""
    mail: dict[int, list[memoryview]] = {}
    for reply in replies:
        for sealed in sealed_in(reply):
            mail.setdefault(sealed.header.receiver, []).append(sealed.letter)
    return {receiver: packed for receiver, letters in sorted(mail.items()) if (packed := pack(letters)) is not None}


class Mail:
    """Letters in transit within a protocol. Each round of this class delivers the last one's letters and collects new.

    A letter is lost if the next of these rounds does not address its receiver by a request for letters.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._due: Mapping[int, Bytes] = {}

    def to_all(self, request: Request[ReplyT], **values: float) -> Protocol[list[ReplyT]]:
        """Send all clients the same request, together with each one's letters. Replies are sorted by client."""
        return (yield from self.to_each(dict.fromkeys(range(self._clients), request), **values))

    def to_each(self, requests: Mapping[int, Request[ReplyT]], **values: float) -> Protocol[list[ReplyT]]:
        """Send one request to each of some clients, together with each one's letters. Replies are sorted by client."""
        delivering = dict(requests)
        for client, letters in self._due.items():
            if client in requests and isinstance(request := requests[client], CarriesLetters):
                delivering[client] = request.model_copy(update={"letters": letters})
        replies = yield from to_each(delivering, **values)
        self._due = sort_mail(replies)
        return replies

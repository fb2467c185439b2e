"""Letters: what clients write to each other, and how messages carry it, sealed, through the coordinator.

A pair declares its letters as it declares messages::

    class Estimate(Letter):
        values: Annotated[FloatArray, Shape("d")]

and lets the replies that post letters and the requests that deliver them inherit `CarriesLetters`. In its protocol,
`Mail` takes the letters out of one round's replies and puts them into the next round's requests.

A letter's form is fixed: its length (uint32), the clear header (16 bytes), the tag (16), then encrypted: which letter
it is (4), the sizes of the axes (`AXES` times 4), the float64 entries. So it is always 8 bytes per float and
`OVERHEAD`, from which anybody can tell how many floats a sealed letter has, but not their shape.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from math import prod
from typing import Annotated, Any, NamedTuple, Self, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.ground import ProtocolError, explain
from fedkernel.peers.sealing import HEADER, TAG, Header
from fedkernel.protocol import Message, MessageT, Protocol, Reply, ReplyT, Request, Shape, to_each

Bytes = npt.NDArray[np.uint8]

AXES = 10
"""Axes that the arrays of a letter have at most, all together."""

_LENGTH = struct.Struct("<I")
_SIZES = struct.Struct(f"<{AXES}I")
_KIND = struct.Struct("<I")
_NOTHING = 2**32 - 1
"""In place of the sizes of an array that is not set."""

OVERHEAD = _LENGTH.size + HEADER + _KIND.size + _SIZES.size + TAG
"""Bytes that a letter has beside its floats."""


class Letter(Message):
    """Base of what a client writes to another: float64 arrays and nothing else.

    The docstring of every subclass says what it reveals to the client that receives it.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a declaration that has no such form."""
        shapes = cls.shapes()
        if set(shapes) != set(cls.model_fields) or any(shape.dtype != np.float64 for shape in shapes.values()):
            raise TypeError(f"{cls.__name__}: the fields of a letter must be float64 arrays with a Shape")
        axes = [len(shape.dimensions) for shape in shapes.values()]
        if sum(axes) > AXES or 0 in axes:
            raise TypeError(f"{cls.__name__}: the arrays of a letter have 1 to {AXES} axes, all together")


LetterT = TypeVar("LetterT", bound=Letter)


@cache
def _kind(kind: type[Letter]) -> bytes:
    return _KIND.pack(crc32(kind.__name__.encode()))


def letter_to_bytes(letter: Letter) -> bytes:
    """Return a letter's content as bytes, before it is sealed."""
    arrays = letter.arrays()
    sizes: list[int] = []
    for name, shape in letter.shapes().items():
        sizes += arrays[name].shape if name in arrays else [_NOTHING] * len(shape.dimensions)
    sizes += [0] * (AXES - len(sizes))
    entries = [np.ascontiguousarray(array, "<f8").data for array in arrays.values()]
    return b"".join([_kind(type(letter)), _SIZES.pack(*sizes), *entries])


def letter_from_bytes(kind: type[LetterT], content: bytes) -> LetterT:
    """Rebuild a letter of a kind from `letter_to_bytes` and check everything about it, with a ProtocolError."""
    start = _KIND.size + _SIZES.size
    if len(content) < start or content[: _KIND.size] != _kind(kind):
        raise ProtocolError(f"it is no {kind.__name__}")
    sizes, shapes, first = _SIZES.unpack_from(content, _KIND.size), {}, 0
    for name, declared in kind.shapes().items():
        last = first + len(declared.dimensions)
        if _NOTHING not in (shape := sizes[first:last]):
            shapes[name] = shape
        first = last
    floats = sum(prod(shape) for shape in shapes.values())
    if len(content) != start + 8 * floats:
        raise ProtocolError(
            f"as a {kind.__name__} it should have {floats} floats, but has {len(content) - start} bytes"
        )
    # in one copy of all, since in the content they do not lie as processors want them
    entries, first, fields = np.frombuffer(content, "<f8", floats, start).astype(np.float64), 0, {}
    for name, shape in shapes.items():
        last = first + prod(shape)
        try:
            fields[name] = entries[first:last].reshape(shape)
        except ValueError:  # too large a size beside one of 0
            raise ProtocolError(f"as a {kind.__name__} it has a shape {shape}, which no array can have") from None
        first = last
    try:
        return kind.model_validate(fields)
    except pydantic.ValidationError as error:
        raise ProtocolError(f"{kind.__name__}: {explain(error, quote=False)}") from None


class Sealed(NamedTuple):
    """A letter on its way, as everybody sees it.

    `letter`: its bytes, header included, where the message has them.
    """

    header: Header
    letter: memoryview

    @property
    def floats(self) -> int:
        """How many floats are in it."""
        return (self.size - OVERHEAD) // 8

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return _LENGTH.size + len(self.letter)


def pack(letters: Sequence[bytes | memoryview]) -> Bytes | None:
    """Put letters one after the other for a message's field ``letters``; none: None."""
    if not letters:
        return None
    parts = ((_LENGTH.pack(len(letter)), letter) for letter in letters)
    return np.frombuffer(b"".join(itertools.chain.from_iterable(parts)), np.uint8)


def unpack(packed: Bytes | None) -> Iterator[Sealed]:
    """Take apart what `pack` put together; ValueError if it is not letters one after the other."""
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
    """Base of replies that post letters and of requests that deliver them.

    Attributes
    ----------
    letters : ndarray of shape (bytes,) or None
        Sealed letters as `pack` puts them together. A client's reply gets its own from its mailbox; a request gets
        them from `Mail`.
    """

    letters: Annotated[Bytes | None, Shape("letters_m", dtype="uint8")] = None

    @cached_property
    def sealed(self) -> tuple[Sealed, ...]:
        """The letters as everybody sees them."""
        return tuple(unpack(self.letters))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, perhaps with other letters, which are taken apart anew."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("sealed", None)
        return copy

    @property
    def floats(self) -> int:
        """Floats that the arrays carry, those in sealed letters included."""
        return super().floats + sum(letter.floats for letter in self.sealed)

    @property
    def floats_by_reader(self) -> Mapping[int | None, int]:
        """Floats that each reader gets: the coordinator those outside the letters, a peer those of its letters."""
        floats: dict[int | None, int] = {None: super().floats}
        for letter in self.sealed:
            floats[letter.header.receiver] = floats.get(letter.header.receiver, 0) + letter.floats
        return floats

    @pydantic.model_validator(mode="after")
    def _letters_are_whole(self) -> "CarriesLetters":
        _ = self.sealed
        return self


class Letters(CarriesLetters, Reply):
    """Nothing but letters: reveals who writes to whom, and how much."""


def sealed_in(message: Message) -> Sequence[Sealed]:
    """Return the letters in a message, which may be one that carries none."""
    return message.sealed if isinstance(message, CarriesLetters) else ()


def sort_mail(replies: Sequence[Message]) -> Mapping[int, Bytes]:
    """Return what is to be delivered to each receiver: the field ``letters`` of its next request.

    Who gets no mail is not in it: ``sort_mail(replies).get(client)`` fits the field in any case.
    """
    mail: dict[int, list[memoryview]] = {}
    for reply in replies:
        for sealed in sealed_in(reply):
            mail.setdefault(sealed.header.receiver, []).append(sealed.letter)
    return {receiver: packed for receiver, letters in sorted(mail.items()) if (packed := pack(letters)) is not None}


class Mail:
    """The letters under way in a protocol: its rounds deliver those of the round before, and collect new ones.

    Parameters
    ----------
    clients : int
        How many there are. A letter that the next of these rounds does not deliver, because its request carries none or
        is to others, is lost.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._due: Mapping[int, Bytes] = {}

    def to_all(self, request: Request[ReplyT], **values: float) -> Protocol[list[ReplyT]]:
        """Ask every client the same, each with its letters; the replies come in the order of the clients."""
        return (yield from self.to_each(dict.fromkeys(range(self._clients), request), **values))

    def to_each(self, requests: Mapping[int, Request[ReplyT]], **values: float) -> Protocol[list[ReplyT]]:
        """Ask each of the clients named something of its own, with its letters; the replies come in their order."""
        due = self._due
        replies = yield from to_each(
            {client: _delivering(request, due.get(client)) for client, request in requests.items()}, **values
        )
        self._due = sort_mail(replies)
        return replies


def _delivering(request: MessageT, letters: Bytes | None) -> MessageT:
    if letters is None or not isinstance(request, CarriesLetters):
        return request
    return request.model_copy(update={"letters": letters})

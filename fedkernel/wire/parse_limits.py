"""Limit on the bytes of a serialised message that are not array entries, checked before parsing.

A parsed name, number or record takes many times its serialised bytes, but array entries are copied once at most. The
limit thus bounds the memory of a message beyond twice its size.
"""

from collections.abc import Iterator

from fedkernel.ground import ProtocolError

MAX_OVERHEAD_BYTES = 1 << 21
"""Most bytes of a message that are not array entries: enough for the names of 100,000 columns."""

MOST_FIELDS = 10_000  # most protobuf fields of a message that are read: enough for more than a thousand arrays

SMALL = min(MAX_OVERHEAD_BYTES, 2 * MOST_FIELDS)
"""Largest size in bytes at which no message can exceed either limit: a field has at least two bytes."""

ENTRIES = (2, 1, 2, 1, 2, 4)
"""Protobuf field path to array entries: content, items, array record, its items, array, data."""


def check_overhead(data: bytes | bytearray) -> None:
    """Raise ProtocolError if a serialised message has too many bytes besides array entries, or is cut off."""
    if len(data) <= SMALL:
        return
    fields_to_go = [MOST_FIELDS]
    try:
        overhead = len(data) - _entries(memoryview(data), ENTRIES, fields_to_go)
    except (IndexError, ValueError):
        raise ProtocolError("it is not a Flower message: it is cut off or damaged") from None
    if fields_to_go[0] <= 0:
        raise ProtocolError(f"it has too many parts; allowed are {MOST_FIELDS:,}")
    if overhead > MAX_OVERHEAD_BYTES:
        raise ProtocolError(f"it has {overhead:,} bytes besides array entries; allowed are {MAX_OVERHEAD_BYTES:,}")


def _entries(message: memoryview, path: tuple[int, ...], fields_to_go: list[int]) -> int:
    """Return the total bytes of the protobuf fields at the end of a field path."""
    if not path:
        return len(message)
    total = 0
    for number, content in _fields(message, fields_to_go):
        if number == path[0]:
            total += _entries(content, path[1:], fields_to_go)
    return total


def _fields(message: memoryview, fields_to_go: list[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of a message's length-delimited fields, until `fields_to_go` is used up."""
    place = 0
    while place < len(message) and fields_to_go[0] > 0:
        fields_to_go[0] -= 1
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 0:
            _, place = _varint(message, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        elif kind == 2:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise ValueError
            yield tag >> 3, message[place : place + length]
            place += length
        else:
            raise ValueError


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the protobuf varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError

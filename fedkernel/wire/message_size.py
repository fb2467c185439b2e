"""What of a serialised message is entries of arrays, and what is not: told before anything of it is parsed.

A parser makes of a name, a number or a record many times the bytes that these have on the wire, of an array's entries
no more than a copy. So all but the entries is bounded, and with it what a message can take beyond twice its size.
"""

from collections.abc import Iterator

from fedkernel.ground import ProtocolError

MOST_BESIDE = 1 << 21
"""Bytes of a message that are no entries of arrays: names, numbers, texts, records. 100,000 columns' names fit."""

MOST_FIELDS = 10_000
"""Fields of protobuf that are looked at: more than a thousand arrays have."""

SMALL = min(MOST_BESIDE, 2 * MOST_FIELDS)
"""Bytes of a message that cannot have too much of anything: a field has two at least."""

ENTRIES = (2, 1, 2, 1, 2, 4)
"""Where entries are: a message's content, its items, their arrays by name, these arrays' items, the array, its data."""


def check_weight(data: bytes | bytearray) -> None:
    """Refuse a serialised message of Flower's that is not as large as it is for the sake of its arrays.

    Raises ProtocolError if it has too much beside their entries, too many parts, or is cut off.
    """
    if len(data) <= SMALL:
        return
    fields_to_go = [MOST_FIELDS]
    try:
        beside = len(data) - _entries(memoryview(data), ENTRIES, fields_to_go)
    except (IndexError, ValueError):
        raise ProtocolError("it is no message of Flower's: it is cut off or damaged") from None
    if fields_to_go[0] <= 0:
        raise ProtocolError(f"it has too many parts; allowed are {MOST_FIELDS:,}")
    if beside > MOST_BESIDE:
        raise ProtocolError(f"it has {beside:,} bytes beside the entries of its arrays; allowed are {MOST_BESIDE:,}")


def _entries(message: memoryview, path: tuple[int, ...], fields_to_go: list[int]) -> int:
    """Return how many bytes lie at the end of a path of fields."""
    if not path:
        return len(message)
    total = 0
    for number, content in _fields(message, fields_to_go):
        if number == path[0]:
            total += _entries(content, path[1:], fields_to_go)
    return total


def _fields(message: memoryview, fields_to_go: list[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the fields of a message that have one, as long as there are some left."""
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
    """Return a number and where it ends."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError

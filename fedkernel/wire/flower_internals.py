"""Wrappers around Flower's private functions, kept in one file and tested on flwr 1.41."""

import copy
import io
import itertools
import os
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import cache, lru_cache
from typing import Any, Literal, TypeGuard, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.app.message.message import make_message
from flwr.common import serde
from flwr.common.serde_utils import metadata_from_proto, metadata_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.recorddict_pb2 import Array as ArrayProto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.serverapp import Grid
from flwr.supercore.run import Run as Run  # noqa: PLC0414 - for annotations elsewhere
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import ArrayLike, NDArray

from fedkernel.ground import ProtocolError, header_of, one_line, read_header, shortened
from fedkernel.wire.parse_limits import check_overhead

PartT = TypeVar("PartT", bound=Sized)
RecordT = TypeVar("RecordT", RecordDict, ArrayRecord, ConfigRecord)

SCALARS = (str, int, float, bool, bytes)  # types of scalars that a message may have
MAX_CACHED_CHARACTERS = 100  # most characters of a cached name or text, so that a sender cannot fill the cache

_NEW_ATTRIBUTES: dict[type, dict[str, Any]] = {
    **{kind: vars(kind()) for kind in (RecordDict, ArrayRecord, ConfigRecord)},
    Array: {name: value for name, value in vars(Array("", (), "", b"")).items() if name.startswith("_")},
}
"""Attributes of new Flower objects, copied to build records without Flower's checks."""

_numbers = itertools.count(1)


@cache
def _name_of_process(pid: int) -> str:
    """Return a process's random prefix of message ids; a forked process gets its own."""
    return str(uuid.uuid4())[:-12]


def ensure_task_identity() -> None:
    """Set the task identity that Flower needs to build messages, unless it is set."""
    for name in ("task_id", "run_id", "node_id"):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, 1)


def empty_run() -> Run:
    """Return Flower's record of a run without an app bundle, for an in-process grid."""
    return Run.create_empty(run_id=1)


def new_context(node_id: int, node_config: dict[str, int | str], run_config: dict[str, str]) -> Context:
    """Return Flower's Context of one client, or of the server (node 0), for a whole run."""
    return Context(1, node_id, dict(node_config), RecordDict(), dict(run_config))


def polls_slowly(grid: Grid) -> bool:
    """Return whether a grid sleeps for seconds between polls for replies, like a SuperLink's."""
    # not imported here, which takes half a second: a process with such a grid has imported it
    module = sys.modules.get("flwr.superlink.grid.http_grid")
    return module is not None and isinstance(grid, module.HttpGrid)


def stamp(message: Message) -> str:
    """Set a globally unique id on a message, like a SuperLink, and return the id."""
    # a prefix and a counter: random ids would make threads wait for each other
    message_id = f"{_name_of_process(os.getpid())}{next(_numbers):012x}"
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


def with_type_and_content(message: Message, kind: str, content: RecordDict) -> Message:
    """Return a copy of a message with another type and content. Raises ProtocolError if the type is unknown."""
    metadata = copy.copy(message.metadata)
    try:
        metadata.message_type = kind
    except ValueError:
        raise ProtocolError(f"unknown message type {shortened(kind)!r}") from None
    return make_message(metadata, content)


def reply_to(message: Message, content: RecordDict) -> Message:
    """Return Flower's ``Message(content, reply_to=message)``, built without Flower's argument checks."""
    request, now = message.metadata.__dict__, time.time()
    metadata = Metadata.__new__(Metadata)
    metadata.__dict__.update(
        request,
        _message_id="",
        _src_node_id=request["_dst_node_id"],
        _dst_node_id=request["_src_node_id"],
        _src_task_id=request["_dst_task_id"],
        _dst_task_id=request["_src_task_id"],
        _reply_to_message_id=request["_message_id"],
        _created_at=now,
        _ttl=request["_created_at"] + request["_ttl"] - now,
        _delivered_at="",
    )
    return _message(metadata, content)


def for_node(message: Message, node: int, content: RecordDict) -> Message:
    """Return a copy of an unsent message with a different destination node and content."""
    metadata = Metadata.__new__(Metadata)
    metadata.__dict__.update(message.metadata.__dict__, _dst_node_id=node)
    return _message(metadata, content)


def _message(metadata: Metadata, content: RecordDict) -> Message:
    message = Message.__new__(Message)
    message.__dict__.update(_metadata=metadata, _content=content, _error=None)
    return message


def set_source(message: Message, node: int) -> None:
    """Set the source node of a message."""
    message.metadata.__dict__["_src_node_id"] = node


def to_bytes(message: Message) -> bytes:
    """Serialise a message as Flower's protobuf bytes."""
    return b"".join(to_parts(message))


def to_parts(message: Message, content: Sequence[bytes] | None = None) -> tuple[bytes, ...]:
    """Serialise a message in parts without copying its arrays; `content`: the content's parts, if known."""
    if not message.has_content():
        return (serde.message_to_proto(message).SerializeToString(),)
    head = metadata_to_proto(message.metadata).SerializeToString()
    return (_tag(1, len(head)) + head, *_field(2, *(content or content_to_parts(message.content))))


def content_to_parts(content: RecordDict) -> list[bytes]:
    """Serialise a message's content in parts without copying its arrays (Flower copies them five times)."""
    return _parts(content, lambda array: array.entries if isinstance(array, HeldArray) else array.data)


def content_from_bytes(data: bytes) -> RecordDict:
    """Rebuild a message's content from trusted bytes, the joined `content_to_parts`."""
    return _content(RecordDictProto.FromString(data))


def _content(proto: RecordDictProto) -> RecordDict:
    """Rebuild a message's content from its parsed protobuf form, without Flower's second type check."""
    return _filled(RecordDict, {item.key: _record(item) for item in proto.items})


def _record(item: Any) -> Any:
    match item.WhichOneof("value"):
        case "array_record":
            return _filled(ArrayRecord, {entry.key: _array(entry.value) for entry in item.array_record.items})
        case "config_record":
            return _filled(ConfigRecord, {entry.key: _value(entry.value) for entry in item.config_record.items})
        case _:
            return serde.recorddict_from_proto(RecordDictProto(items=[item]))[item.key]


def _array(proto: Any) -> Array:
    array, shape = Array.__new__(Array), tuple(proto.shape)
    array.__dict__.update(_NEW_ATTRIBUTES[Array], dtype=proto.dtype, shape=shape, stype=proto.stype, data=proto.data)
    return array


def _value(proto: Any) -> Any:
    name = proto.WhichOneof("value")
    value = getattr(proto, name)
    return list(value.vals) if name.endswith("_list") else value


def from_bytes(data: bytes | bytearray) -> Message:
    """Rebuild a message from untrusted bytes. Raises ProtocolError unless it is one with content or an error."""
    check_overhead(data)
    try:
        proto = MessageProto.FromString(data)
        if proto.HasField("content"):
            message = _message(metadata_from_proto(proto.metadata), _content(proto.content))
            message.metadata.delivered_at = ""
        else:
            message = serde.message_from_proto(proto)
    except Exception as error:  # a forged message can fail anywhere in Flower's checks
        raise ProtocolError(f"it is not a Flower message ({type(error).__name__})") from None
    if not (message.has_content() or message.has_error()):
        raise ProtocolError("it is an empty Flower message")
    return message


def mismatch(request: Message, reply: Message) -> str | None:
    """Describe the first metadata field of a reply that does not match its request, or return None."""
    sent, answered = request.metadata, reply.metadata
    expected = {
        "src_node_id": sent.dst_node_id,
        "reply_to_message_id": sent.message_id,
        "run_id": sent.run_id,
        "group_id": sent.group_id,
        "message_type": sent.message_type,
    }
    for name, value in expected.items():
        if (other := getattr(answered, name)) != value:
            return f"its {name} is {one_line(repr(other))[:80]}, but must be {value!r}"
    return None


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype)


class HeldArray(Array):
    """Flower Array backed by a NumPy array and serialised on demand. Raises ValueError for Python objects.

    `values`: copied in memory `order` and made read-only, except an array over Python bytes, or a read-only one that
    owns its entries. `serialise_empty`: serialise an empty array, of shape (0,), instead.
    """

    values: NDArray[Any]
    serialised: NDArray[Any]

    def __init__(self, values: ArrayLike, *, serialise_empty: bool = False, order: Literal["C", "F"] = "C") -> None:
        array = values if _of_bytes(values) or _is_frozen(values, order) else np.array(values, order=order)
        if array.dtype.hasobject:
            raise ValueError(f"the entries have type {array.dtype}, but must be numbers or text")
        array.flags.writeable = False
        serialised = np.empty(0) if serialise_empty else array
        # at once, since Flower's __setattr__ checks each assignment
        self.__dict__.update(
            _NEW_ATTRIBUTES[Array],
            values=array,
            serialised=serialised,
            dtype=_name_of(serialised.dtype),
            shape=serialised.shape,
            stype="numpy.ndarray",
        )

    @property
    def data(self) -> bytes:  # type: ignore[override] # a field of Flower's
        """The array as an .npy file, written anew at each access: engines read it once, if at all."""
        return self.header + self.entries

    @property
    def entries(self) -> bytes:
        """The entries in the order of the .npy file."""
        return self.serialised.tobytes(order="A")

    @property
    def header(self) -> bytes:
        """The header of the .npy file."""
        return header_of(self.dtype, self.shape, bool(self.serialised.flags.fnc))

    def deflate(self) -> bytes:
        """Serialise as Flower's own `Array`, since a SuperLink's form contains the class name."""
        return Array(self.dtype, self.shape, self.stype, self.data).deflate()

    def __reduce__(self) -> tuple[type[Array], tuple[str, tuple[int, ...], str, bytes]]:
        """Pickle as Flower's own `Array`."""
        return Array, (self.dtype, self.shape, self.stype, self.data)


def _of_bytes(values: ArrayLike) -> TypeGuard[NDArray[Any]]:
    """Return whether a value is a C-ordered array over a Python bytes object, as of a sealed letter."""
    return isinstance(values, np.ndarray) and isinstance(values.base, bytes) and values.flags.c_contiguous


def _is_frozen(values: ArrayLike, order: Literal["C", "F"]) -> TypeGuard[NDArray[Any]]:
    if not isinstance(values, np.ndarray):
        return False
    flags = values.flags
    return flags.owndata and not flags.writeable and (flags.c_contiguous if order == "C" else flags.f_contiguous)


def read_array(array: Array, *, copy: bool = True) -> NDArray[Any]:
    """Return the NumPy array of a Flower Array, whose bytes are an .npy file.

    `copy`: return a writable copy, else a read-only view; an array over Python bytes is never copied. Raises
    ProtocolError if the header is invalid, or announces other entries than numbers or text, or not their size in bytes.
    """
    if isinstance(array, HeldArray):
        return array.values.copy(order="K") if copy and not _of_bytes(array.values) else array.values
    stream = io.BytesIO(array.data)
    try:
        header = read_header(stream)
    except ValueError as error:
        raise ProtocolError(f"an array {error}") from None
    entries = memoryview(array.data)[stream.tell() :]
    if header.size != len(entries):
        raise ProtocolError(f"an array announces {header}, but has {len(entries):,} bytes")
    try:
        values: NDArray[Any] = np.ndarray(header.shape, header.dtype, entries, order="F" if header.fortran else "C")
    except (TypeError, ValueError, OverflowError):  # too many dimensions, a fractional one, or a huge one and a 0
        raise ProtocolError(f"invalid array header: {header}") from None
    return values.copy(order="K") if copy else values


def read_arrays(record: ArrayRecord, *, copy: bool = True) -> list[NDArray[Any]]:
    """Return the NumPy arrays of a record in their order; see `read_array`."""
    return [read_array(array, copy=copy) for array in record.values()]


def content_of(arrays: Iterable[NDArray[Any]], scalars: Mapping[str, Any]) -> RecordDict:
    """Build content of scalars and lazily serialised arrays. Raises TypeError for others, ValueError over 64 bits."""
    for name, value in scalars.items():
        if not isinstance(value, SCALARS):
            raise TypeError(f"{name} = {value!r}, but must be one of {', '.join(kind.__name__ for kind in SCALARS)}")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"{name} = {value} does not fit a message's 64 bits: from -2^63 to 2^64 - 1")
    # in an .npy file's memory order, so that products have the same bits
    held = {str(n): HeldArray(array, order="F" if array.flags.fnc else "C") for n, array in enumerate(arrays)}
    # unchecked: Flower's three checks per entry would dominate the time of small messages
    records = {"arrays": _filled(ArrayRecord, held), "config": _filled(ConfigRecord, dict(scalars))}
    return _filled(RecordDict, records)


def _filled(kind: type[RecordT], entries: dict[str, Any]) -> RecordT:
    """Build a Flower record from entries that are known to be valid, without Flower's checks."""
    record = kind.__new__(kind)
    record.__dict__.update(_NEW_ATTRIBUTES[kind], _data=entries)
    return record


def content_bytes(content: RecordDict) -> int:
    """Return the serialised size of a message's content without serialising an array."""
    return sum(map(len, _parts(content, lambda array: range(_entries(array)))))


def _parts(content: RecordDict, entries: Callable[[Array], PartT]) -> list[bytes | PartT]:
    """Serialise a message's content in parts; `entries` returns the part for an array's entries."""
    parts: list[bytes | PartT] = []
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            arrays = [part for key, array in record.items() for part in (_before_entries(key, array), entries(array))]
            parts += _field(1, *_bytes(1, name.encode()), *_field(2, *arrays))
        elif isinstance(record, ConfigRecord) and not any(isinstance(value, list) for value in record.values()):
            scalars = b"".join([_item(key, value) for key, value in record.items()])
            parts += _field(1, *_bytes(1, name.encode()), *_field(4, scalars))
        else:
            parts.append(serde.recorddict_to_proto(RecordDict({name: record})).SerializeToString())
    return parts


def _before_entries(key: str, array: Array) -> bytes:
    """Return the serialised bytes of a record's array that precede its entries, cached if short."""
    kind = array.dtype, array.shape, array.stype
    header = array.header if isinstance(array, HeldArray) else b""
    is_short = len(key) + sum(map(len, kind)) < MAX_CACHED_CHARACTERS
    return (_short_beginning if is_short else _beginning)(key, kind, header, _entries(array))


def _beginning(key: str, kind: tuple[str, tuple[int, ...], str], header: bytes, entries: int) -> bytes:
    """Return the serialised bytes of an array that precede its entries; `entries`: the entries' size in bytes."""
    dtype, shape, stype = kind
    beginning: bytes = ArrayProto(dtype=dtype, shape=shape, stype=stype).SerializeToString()
    if header or entries:
        beginning += _tag(4, len(header) + entries) + header
    beginning = b"".join(_bytes(1, key.encode())) + _tag(2, len(beginning) + entries) + beginning
    return _tag(1, len(beginning) + entries) + beginning


_short_beginning = lru_cache(maxsize=256)(_beginning)


def _entries(array: Array) -> int:
    """Return the size of an array's entries in bytes, with the header unless the array is a `HeldArray`."""
    return array.serialised.nbytes if isinstance(array, HeldArray) else len(array.data)


def _item(key: str, value: Any) -> bytes:
    """Serialise a named scalar of a record; the bytes are cached if short."""
    kind = type(value)
    if len(key) <= MAX_CACHED_CHARACTERS:
        if kind is float:  # the last eight bytes
            return _short_item(key, 0.0)[:-8] + struct.pack("<d", value)
        if kind is int or kind is bool or (kind is str and len(value) <= MAX_CACHED_CHARACTERS):
            return _short_item(key, value)
    return _item_of(key, value)


def _item_of(key: str, value: Any) -> bytes:
    item: bytes = serde.config_record_to_proto(_filled(ConfigRecord, {key: value})).SerializeToString()
    return item


_short_item = lru_cache(maxsize=1024, typed=True)(_item_of)  # True is no 1


def _bytes(number: int, value: bytes | PartT) -> list[bytes | PartT]:
    """Return the parts of a protobuf field of bytes or text; none if the value is empty."""
    return _field(number, value) if value else []


def _field(number: int, *parts: bytes | PartT) -> list[bytes | PartT]:
    """Return the parts of a length-delimited protobuf field: tag and length, then the content."""
    return [_tag(number, sum(map(len, parts))), *parts]


@lru_cache(maxsize=4096)
def _tag(number: int, length: int) -> bytes:
    return bytes([number << 3 | 2, *_digits(length)])


def _digits(number: int) -> list[int]:
    """Return the bytes of a number as a protobuf varint."""
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return [*digits, number]

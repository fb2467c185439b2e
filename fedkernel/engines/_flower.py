"""Every touch of Flower that is not part of its public interface, so that a new release is met in one place.

Tested on flwr 1.41.
"""

import sys
import uuid
from typing import Any, cast

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_to_proto
from flwr.common.serde_utils import metadata_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.recorddict_pb2 import Array as ArrayProto
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from fedkernel.arrays import READING

__all__ = [
    "Run",
    "content_bytes",
    "content_to_bytes",
    "empty_run",
    "ensure_task_identity",
    "from_bytes",
    "head_to_bytes",
    "new_context",
    "polls_slowly",
    "read_array",
    "read_arrays",
    "stamp",
    "to_bytes",
]

_CONTENT = b"\x12"
"""Protobuf's tag of a message's content: field 2, of a length that follows."""


def ensure_task_identity() -> None:
    """Give this process the identity without which Flower builds no messages; one that is set already stays."""
    for name in ("task_id", "run_id", "node_id"):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, 1)


def empty_run() -> Run:
    """Return a run without an app bundle, as an in-process grid has it."""
    return Run.create_empty(run_id=1)


def new_context(node_id: int, node_config: dict[str, int | str], run_config: dict[str, str]) -> Context:
    """Return the context in which one client (or the server, node 0) lives for a whole run."""
    return Context(
        run_id=1,
        node_id=node_id,
        node_config=dict(node_config),
        state=RecordDict(),
        run_config=dict(run_config),
    )


def polls_slowly(grid: Grid) -> bool:
    """Tell whether a grid sleeps for seconds between two questions for replies, as a SuperLink's does."""
    # not imported, which takes half a second and is for the coordinator only: whoever has such a grid has imported it
    module = sys.modules.get("flwr.superlink.grid.http_grid")
    return module is not None and isinstance(grid, module.HttpGrid)


def stamp(message: Message) -> str:
    """Give a message the id that a SuperLink would give it."""
    message_id = str(uuid.uuid4())
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


def to_bytes(message: Message) -> bytes:
    """Serialise a message as it travels between Flower's processes."""
    return cast(bytes, message_to_proto(message).SerializeToString())


def content_to_bytes(content: RecordDict) -> bytes:
    """Serialise a message's content."""
    return cast(bytes, recorddict_to_proto(content).SerializeToString())


def head_to_bytes(message: Message, size: int) -> bytes:
    """Serialise what precedes a message's content of so many bytes: both together are the message's `to_bytes`."""
    metadata = MessageProto(metadata=metadata_to_proto(message.metadata))
    return metadata.SerializeToString() + _CONTENT + _varint(size)  # type: ignore[no-any-return]


def from_bytes(data: bytes) -> Message:
    """Rebuild a message from `to_bytes`."""
    return message_from_proto(MessageProto.FromString(data))


def read_array(array: Array) -> NDArray[Any]:
    """Return the array that one of Flower's arrays carries."""
    with READING:
        return array.numpy()


def read_arrays(record: ArrayRecord) -> list[NDArray[Any]]:
    """Return the arrays of a record in their order."""
    return [read_array(array) for array in record.values()]


def content_bytes(content: RecordDict) -> int:
    """Return the size of `content_to_bytes`, without copying the arrays."""
    others = RecordDict({name: record for name, record in content.items() if not isinstance(record, ArrayRecord)})
    size = int(recorddict_to_proto(others).ByteSize())
    for name, record in content.array_records.items():
        inner = sum(_field(_field(len(key.encode())) + _field(_array_size(array))) for key, array in record.items())
        size += _field(_field(len(name.encode())) + _field(inner))
    return size


def _array_size(array: Array) -> int:
    empty = ArrayProto(dtype=array.dtype, shape=array.shape, stype=array.stype)
    return int(empty.ByteSize()) + (_field(len(array.data)) if array.data else 0)


def _field(size: int) -> int:
    """Return what a protobuf field of so many bytes takes, with its tag and its length."""
    return 1 + len(_varint(size)) + size


def _varint(number: int) -> bytes:
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])

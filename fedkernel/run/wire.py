"""A request or a reply as the content of one of Flower's messages."""

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedkernel.errors import ProtocolError
from fedkernel.protocol.messages import ConfigValue, Message, MessageT, decode, encode
from fedkernel.run import flower


def to_content(message: Message, header: Mapping[str, ConfigValue] | None = None) -> RecordDict:
    """Return what carries a message, and beside it a header of scalars."""
    arrays, scalars = encode(message)
    return RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord({**(header or {}), **scalars})})


def digest(content: RecordDict) -> str:
    """Return the SHA-256 of the message that a content carries, the same at both ends: type, scalars, arrays, salt."""
    arrays, scalars = content.array_records["arrays"], content.config_records["config"]
    identity = [scalars.get(name) for name in ("message", "version", "arrays", "fields", "salt")]
    sha256 = hashlib.sha256(json.dumps(identity).encode())
    for array in flower.read_arrays(arrays):
        sha256.update(f"{array.dtype.str}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).data)
    return sha256.hexdigest()


def from_content(kind: type[MessageT], content: RecordDict) -> MessageT:
    """Rebuild a message of the given kind and check everything about it.

    Raises
    ------
    ProtocolError
        One sentence on the first thing that is wrong.
    """
    try:
        arrays, scalars = content.array_records["arrays"], content.config_records["config"]
    except KeyError as error:
        raise ProtocolError(f"{kind.__name__}: there is no record {error}") from None
    return decode(kind, flower.read_arrays(arrays), scalars)

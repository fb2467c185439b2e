"""A request or a reply as the content of one of Flower's messages."""

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedkernel.arrays import AnyArray
from fedkernel.errors import ProtocolError
from fedkernel.protocol.messages import ConfigValue, Message, MessageT, decode, encode
from fedkernel.run import flower


def to_content(message: Message, header: Mapping[str, ConfigValue] | None = None) -> RecordDict:
    """Return what carries a message, and beside it a header of scalars."""
    arrays, scalars = encode(message)
    return RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord({**(header or {}), **scalars})})


def identity_of(scalars: Mapping[str, object]) -> str:
    """Return what a message is besides its arrays, as JSON: type, version, names of arrays, scalars, salt."""
    names = ("message", "version", "arrays", "fields", "salt")
    return json.dumps([scalars.get(name) for name in names], default=repr)


def digest(identity: str, arrays: Iterable[AnyArray]) -> str:
    """Return the SHA-256 of a message, by `identity_of` it and its arrays: the same at both ends."""
    sha256 = hashlib.sha256(identity.encode())
    for array in arrays:
        sha256.update(f"{array.dtype.str}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).data)
    return sha256.hexdigest()


def content_digest(content: RecordDict) -> str:
    """Return the SHA-256 of all that a message's content has: the same wherever and whenever it is the same."""
    sha256 = hashlib.sha256()
    for name, record in sorted(content.items()):
        if isinstance(record, ArrayRecord):
            for key, array in record.items():
                sha256.update(json.dumps([name, key, len(array.data)]).encode())
                sha256.update(array.data)
        else:
            sha256.update(json.dumps([name, sorted(record.items())], default=repr).encode())
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

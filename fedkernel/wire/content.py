"""Conversion of requests and replies to and from the content of Flower messages, and bundles of earlier requests."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MessageType, RecordDict
from flwr.app import Message as FlowerMessage

from fedkernel.ground import AnyArray, Precision, ProtocolError, shortened
from fedkernel.protocol import ConfigValue, Message, MessageT, decode, encode, wire_of
from fedkernel.wire import flower_internals

RECORDS: dict[str, type[ArrayRecord] | type[ConfigRecord]] = {"arrays": ArrayRecord, "config": ConfigRecord}
"""Names and types of the two records in a message's content; others are refused."""


def to_content(message: Message, header: Mapping[str, ConfigValue] | None = None) -> RecordDict:
    """Return the Flower content of a message. `header`: more scalars, which may set the arrays' precision."""
    header = header or {}
    arrays, scalars = encode(message, wire_of(header))
    return flower_internals.content_of(arrays, {**header, **scalars})


def identity_of(scalars: Mapping[str, object]) -> str:
    """Return a message's type, version, array names, fields and salt, taken from its scalars, as JSON."""
    names = ("message", "version", "arrays", "fields", "salt")
    return json.dumps([scalars.get(name) for name in names], default=repr)


def digest(identity: str, arrays: Iterable[AnyArray]) -> str:
    """Return the SHA-256 of a message's `identity_of` and arrays, the same at coordinator and site."""
    sha256 = hashlib.sha256(identity.encode())
    for array in arrays:
        sha256.update(f"{array.dtype.str}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).data)
    return sha256.hexdigest()


def content_digest(content: RecordDict, without: Collection[str] = ()) -> str:
    """Return the SHA-256 of all records in a message's content, except the scalars named in `without`."""
    sha256 = hashlib.sha256()
    for name, record in sorted(content.items()):
        if isinstance(record, ArrayRecord):
            for key, array in record.items():
                data = array.data
                sha256.update(json.dumps([name, key, len(data)]).encode())
                sha256.update(data)
        else:
            scalars = sorted(item for item in record.items() if item[0] not in without)
            sha256.update(json.dumps([name, scalars], default=repr).encode())
    return sha256.hexdigest()


def records_of(content: RecordDict) -> tuple[ArrayRecord, ConfigRecord]:
    """Return the array and scalar records of a message's content. Raises ProtocolError unless it has just these."""
    records = dict(content.items())
    for name, kind in RECORDS.items():
        if name not in records:
            raise ProtocolError(f"there is no record {name!r}")
        if not isinstance(records[name], kind):
            raise ProtocolError(f"the record {name!r} is no {kind.__name__}, but a {type(records[name]).__name__}")
    if len(records) > len(RECORDS):
        other = next(name for name in records if name not in RECORDS)
        raise ProtocolError(f"there is a record {shortened(other)!r}; allowed: {', '.join(RECORDS)}")
    return cast(ArrayRecord, records["arrays"]), cast(ConfigRecord, records["config"])


HEADER: dict[str, type[str] | type[int]] = {"run": str, "pair": str, "seed": int}
"""Names and types of the scalars that every request has besides its fields."""


def header_of(message: FlowerMessage) -> dict[str, Any]:
    """Return all scalars of a request. Raises ProtocolError if one of `HEADER` is missing or has a wrong type."""
    if not message.has_content():
        raise ProtocolError("the request is empty")
    try:
        scalars = dict(records_of(message.content)[1].items())
        for name, kind in HEADER.items():
            if type(scalars.get(name)) is not kind:
                raise ProtocolError(f"{name} must be a {kind.__name__}, not {shortened(repr(scalars.get(name)))}")
    except ProtocolError as error:
        raise ProtocolError(f"the request cannot be read: {error}") from None
    return scalars


VARYING = {"salt", "seconds"}  # names of a reply's scalars that change when the reply is computed again


def answer_hash(content: RecordDict) -> str:
    """Return the SHA-256 of a reply's content without its `VARYING` scalars."""
    return content_digest(content, VARYING)


def from_content(
    kind: type[MessageT], content: RecordDict, wire: Precision = "float64", *, noisy: bool = False
) -> MessageT:
    """Rebuild and validate a message from its content. Raises ProtocolError, in one sentence, for the first fault."""
    try:
        arrays, scalars = records_of(content)
    except ProtocolError as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from None
    return decode(kind, flower_internals.read_arrays(arrays), dict(scalars.items()), wire, noisy=noisy)


REPEAT_ACTION = "again"
"""Action in the Flower message type of a bundle of earlier requests."""

KINDS, ANSWERS = "kinds", "answers"
"""Names of the list of request types in a bundle, and of the list of hashes in its reply."""


def bundle_requests(requests: Sequence[tuple[str, RecordDict]]) -> RecordDict:
    """Bundle requests in one message content. Each record is named by its request's number and its own name."""
    content = RecordDict({KINDS: ConfigRecord({KINDS: [kind for kind, _ in requests]})})
    for number, (_, request) in enumerate(requests):
        for name, record in request.items():
            content[f"{number} {name}"] = record
    return content


def _requests_in(content: RecordDict) -> Iterator[tuple[str, RecordDict]]:
    """Yield the type and content of each bundled request. Raises ProtocolError if the content is no bundle."""
    kinds = content.config_records.get(KINDS, ConfigRecord()).get(KINDS)
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise ProtocolError("the bundle of repeated requests has no list of request types")
    requests: dict[str, RecordDict] = defaultdict(RecordDict)
    for place, record in content.items():
        if place != KINDS:
            number, _, name = place.partition(" ")
            requests[number][name] = record
    if requests.keys() != set(map(str, range(len(kinds)))):
        raise ProtocolError(f"the bundle announces {len(kinds)} requests, but holds {len(requests)} or other ones")
    for order, kind in enumerate(kinds):
        if kind == f"{MessageType.QUERY}.{REPEAT_ACTION}":
            raise ProtocolError("a bundle of repeated requests cannot hold another bundle")
        yield str(kind), requests[str(order)]


def answer_bundle(
    app: Callable[[FlowerMessage, Context], FlowerMessage], message: FlowerMessage, context: Context
) -> FlowerMessage:
    """Answer a bundle by its replies' hashes in order, or the first error. Raises ProtocolError if it is no bundle."""
    answers = list[str]()
    for kind, request in _requests_in(message.content if message.has_content() else RecordDict()):
        reply = app(flower_internals.with_type_and_content(message, kind, request), context)
        if reply.has_error():
            return FlowerMessage(reply.error, reply_to=message)
        answers.append(answer_hash(reply.content))
    return FlowerMessage(RecordDict({"config": ConfigRecord({ANSWERS: answers})}), reply_to=message)

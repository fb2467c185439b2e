"""Undecoded, untrusted content of a request, for the gate and the outbox."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict

from fedkernel.ground import AnyArray, read_table
from fedkernel.wire import digest, flower_internals, identity_of, records_of

MOST_TEXT = 1000  # most characters of a sender's text that the site logs

RENEWED_ARRAYS = ("letters", "identities", "ephemerals")
"""Names of arrays that differ at every start of a run: sealed letters and peers' keys."""


class RawRequest(NamedTuple):
    """Request before it is decoded. `name` (its class), `run` and `round` are as the sender claims.

    `fields`: its parameters as JSON values; empty if unreadable. `text`: the parameters as received. `sha256`: hash of
    request and client class, parameters, and arrays except `RENEWED_ARRAYS`.
    """

    name: str
    fields: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    run: str = ""
    round: int = 0
    text: str = "{}"
    sha256: bytes = b""


def read_raw_request(message: Message) -> RawRequest:
    """Read the raw request of a message, from the same fields as `fedkernel.protocol.decode`."""
    content = message.content if message.has_content() else RecordDict()
    config = content.config_records.get("config", ConfigRecord())
    text, number = str(config.get("fields", "{}")), config.get("round", 0)
    fields: Mapping[str, Any] = {}
    arrays: Mapping[str, AnyArray] = {}
    with suppress(ValueError):
        fields = read_table(text)
    identity = json.dumps([str(config.get("pair")), identity_of(config)])
    sha256 = digest(identity, [])
    with suppress(Exception):  # no content may keep a request out of the outbox
        arrays = arrays_of(content)
        sha256 = digest(identity, [array for name, array in arrays.items() if name not in RENEWED_ARRAYS])
    return RawRequest(
        name=str(config.get("message", "")),
        fields=fields,
        shapes=shapes_of(arrays),
        run=str(config.get("run", ""))[:MOST_TEXT],
        round=max(0, number) if isinstance(number, int) else 0,
        text=text,
        sha256=bytes.fromhex(sha256),
    )


def arrays_of(content: RecordDict) -> dict[str, AnyArray]:
    """Return a message's arrays by field name, or by position if the names do not fit."""
    record, config = records_of(content)
    names = [name for name in str(config.get("arrays", "")).split(",") if name]
    arrays = flower_internals.read_arrays(record, copy=False)
    fit = len(names) == len(set(names)) == len(arrays)
    return dict(zip(names if fit else map(str, range(len(arrays))), arrays, strict=True))


def shapes_of(arrays: Mapping[str, AnyArray]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays by the arrays' names."""
    return {name: array.shape for name, array in arrays.items()}

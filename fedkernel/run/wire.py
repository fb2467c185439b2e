"""A request or a reply as the content of one of Flower's messages."""

from collections.abc import Mapping

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedkernel.errors import ProtocolError
from fedkernel.protocol.messages import ConfigValue, Message, MessageT, decode, encode
from fedkernel.run import flower


def to_content(message: Message, header: Mapping[str, ConfigValue] | None = None) -> RecordDict:
    """Return what carries a message, and beside it a header of scalars."""
    arrays, scalars = encode(message)
    return RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord({**(header or {}), **scalars})})


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

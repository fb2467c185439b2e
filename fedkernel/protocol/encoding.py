"""Wire form of messages: positional arrays and flat scalars, as float64 or float32, decoded with all checks."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.ground import Precision, ProtocolError, ShareableError, explain, one_line, read_table, shortened
from fedkernel.protocol.messages import NOISY, Message, MessageT

WIRE_VERSION = 5
"""Version of the wire form, the same at both ends."""

Scalar = bool | bytes | float | int | str
"""Types that Flower's NumPyClient carries beside arrays."""

ConfigValue = Scalar | list[int] | list[float] | list[str] | list[bytes] | list[bool]
"""Types that Flower's ConfigRecord holds."""

MOST_ERROR_CHARACTERS = 500  # largest number of characters of an error text about a refused message


def encode(message: Message, wire: Precision = "float64") -> tuple[list[npt.NDArray[Any]], dict[str, Scalar]]:
    """Convert a message into the positional arrays and flat scalars that a NumPyClient carries.

    ShareableError if an array that a ``wire`` of float32 rounds (`Message.narrowed`) is too large or small for that.
    """
    arrays, shapes = message.arrays(), message.shapes()
    has_scalars = len(shapes) < len(type(message).model_fields)
    if wire == "float32":
        narrowed = message.narrowed()
        arrays |= {name: _to_float32(message, name, arrays[name]) for name in arrays if name in narrowed}
    scalars: dict[str, Scalar] = {
        "message": type(message).__name__,
        "version": WIRE_VERSION,
        "arrays": ",".join(arrays),
        "fields": message.model_dump_json(exclude=set(shapes)) if has_scalars else "{}",
    }
    return list(arrays.values()), scalars


def wire_of(header: Mapping[str, Any]) -> Precision:
    """Return the array precision named in a request's header; ProtocolError if it is unknown."""
    wire = header.get("wire", "float64")
    if wire not in get_args(Precision):
        raise ProtocolError(f"wire = {_quoted(wire)}, but must be one of {', '.join(get_args(Precision))}")
    return wire  # type: ignore[no-any-return]


def decode(
    kind: type[MessageT],
    arrays: Sequence[npt.NDArray[Any]],
    scalars: Mapping[str, Any],
    wire: Precision = "float64",
    *,
    noisy: bool = False,
) -> MessageT:
    """Rebuild a message of a class from its encoded form, with all checks; ProtocolError on the first fault.

    `noisy`: it is a sum with noise, which need not obey the rules of its class.
    """
    version = scalars.get("version")
    if version != WIRE_VERSION:
        raise ProtocolError(f"the message has wire version {_quoted(version)}, but this version reads {WIRE_VERSION}")
    if scalars.get("message") != kind.__name__:
        raise ProtocolError(f"expected {kind.__name__}, but the message is {_quoted(scalars.get('message'))}")
    announced, text = scalars.get("arrays", ""), scalars.get("fields", "")
    if not isinstance(announced, str) or not isinstance(text, str):
        raise ProtocolError(f"{kind.__name__}: arrays and fields must be texts")
    names = [name for name in announced.split(",") if name]
    if len(names) != len(arrays):
        raise ProtocolError(f"{kind.__name__} announces {len(names)} arrays, but has {len(arrays)}")
    shapes = kind.shapes()
    if len(set(names)) != len(names):
        raise ProtocolError(f"{kind.__name__} names an array twice: {shortened(', '.join(names))}")
    if strange := [name for name in names if name not in shapes]:
        raise ProtocolError(f"{kind.__name__} has no array {_quoted(strange[0])}")
    try:
        fields = read_table(text)
        if both := [name for name in shapes if fields.get(name) is not None]:
            raise ProtocolError(f"{kind.__name__}: {both[0]} is an array, but was sent among the scalars")
        values = dict(zip(names, arrays, strict=True))
        if wire == "float64":
            return kind.model_validate({**fields, **values}, context=NOISY if noisy else None)
        narrowed = kind.narrowed()
        wide = {name: _to_float64(kind, name, array) for name, array in values.items() if name in narrowed}
        return kind.model_validate({**fields, **values, **wide}, context=narrowed)
    except ValueError as error:
        text = explain(error) if isinstance(error, pydantic.ValidationError) else str(error)
        raise ProtocolError(f"{kind.__name__}: {shortened(one_line(text), MOST_ERROR_CHARACTERS)}") from None


def _to_float32(message: Message, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array to float32; ShareableError if it is beyond the range, or so small that digits would be lost."""
    largest, limits = float(np.abs(array).max(initial=0.0)), np.finfo(np.float32)
    least = float(limits.tiny / limits.eps)
    if largest > float(limits.max) or 0 < largest < least:
        raise ShareableError(
            f"{type(message).__name__}: {name} is too {'large' if largest > 1 else 'small'} to be sent as float32: its "
            f'largest entry must be from {least:.0e} to {float(limits.max):.0e}; allowed: wire = "float64"'
        )
    return array.astype(np.float32)


def _to_float64(kind: type[Message], name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype != np.float32:
        raise ProtocolError(f"{kind.__name__}: {name} must be sent as float32 in this run, not as {array.dtype}")
    return array.astype(np.float64)


def _quoted(value: object) -> str:
    return shortened(repr(value))

"""The errors a user can meet, each one sentence that names what was wrong and what is allowed."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

import pydantic

T = TypeVar("T")


class FedkernelError(Exception):
    """Base of all errors raised on purpose by this project; the text of each is meant for its user."""


class InputError(FedkernelError, ValueError):
    """Something the caller gave is not allowed; the text names it, its value and what is allowed.

    The text never quotes data rows, so a client may send it to the coordinator.
    """


class ProtocolError(FedkernelError, RuntimeError):
    """A party broke the protocol or did not answer; the text names protocol, round, request and client."""


class EngineError(FedkernelError, RuntimeError):
    """The machinery that carries the messages could not start or did not finish."""


def explain(error: pydantic.ValidationError, fields: Sequence[str] = ()) -> str:
    """Turn the first finding of a validation error into one clause: the field's path, its value, what is allowed.

    Parameters
    ----------
    error : pydantic.ValidationError
    fields : sequence of str
        Names of the fields that could be given: positional arguments are named by it, and unknown names answered.
    """
    finding = error.errors(include_url=False)[0]
    kind, message, where = finding["type"], finding["msg"].removeprefix("Value error, "), list(finding["loc"])
    if where and isinstance(where[0], int) and where[0] < len(fields):
        where[0] = fields[where[0]]
    path = ".".join(str(part) for part in where)
    if kind in ("missing", "missing_argument"):
        return f"{path} is required"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        allowed = f" (allowed: {', '.join(fields)})" if fields and len(where) == 1 else ""
        return f"{path} is not a known name here{allowed}"
    if kind == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path} = {finding['input']!r}: {message[:1].lower()}{message[1:]}"


@dataclass_transform(field_specifiers=(dataclasses.field, pydantic.Field))
def value_object(*, frozen: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a pydantic dataclass that refuses unknown names and whose errors are one `InputError`.

    Used for everything a configuration table can build: kernels (frozen) and strategies.
    """

    def decorate(cls: type[T]) -> type[T]:
        config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
        made = pydantic.dataclasses.dataclass(frozen=frozen, config=config)(cls)
        initialise = made.__init__
        names = [name for name in inspect.signature(made).parameters if name != "type"]

        @functools.wraps(initialise)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                initialise(self, *args, **kwargs)
            except pydantic.ValidationError as error:
                raise InputError(f"{made.__name__}: {explain(error, names)}") from None

        made.__init__ = __init__  # type: ignore[method-assign, assignment]
        return made

    return decorate


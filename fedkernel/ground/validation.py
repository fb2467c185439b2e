"""Parsing of JSON tables, validated value objects, and error texts for invalid values."""

import dataclasses
import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, dataclass_transform, get_args

import numpy as np
import pydantic
from pydantic_core import ErrorDetails

from fedkernel.ground.errors import InputError, shortened

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)


def check_at_most(name: str, value: int, most: int, bound: str = "the number of rows, ", note: str = "") -> None:
    """Raise InputError if a value exceeds `most`. Text: ``NAME = VALUE, but must be at most BOUND MOST NOTE``."""
    if value > most:
        raise InputError(f"{name} = {value}, but must be at most {bound}{most}{note}")


def unknown_name(path: str, known: Sequence[str]) -> str:
    """Return an error clause about an unknown name, by its dotted path, with the allowed names."""
    path = shortened(path)
    if not known:
        return f"{path} is not a known name here"
    close = difflib.get_close_matches(path.rpartition(".")[2], known, n=1)
    hint = "".join(f"did you mean {name}? " for name in close)
    return f"{path} is not a known name here ({hint}allowed: {', '.join(known)})"


MOST_ENTRIES = 10_000
"""Most entries of a JSON table, and of a list except of texts or tables: each wrong one would be a finding of 1 KB."""

_TABLE = pydantic.TypeAdapter(dict[str, Any])


def read_table(text: str) -> dict[str, Any]:
    """Parse a JSON object from another party, with a limit on its entries.

    Raises pydantic.ValidationError if it is no table or nested deeper than about 200 levels. Raises InputError if a
    table or list in it has too many entries to check.
    """
    table = _TABLE.validate_json(text)
    pending: list[Any] = [table]
    while pending:
        value = pending.pop()
        inner = list(value.values()) if isinstance(value, dict) else value
        if len(inner) > MOST_ENTRIES and (isinstance(value, dict) or {*map(type, inner)} not in ({str}, {dict})):
            kind = "table" if isinstance(value, dict) else "list"
            raise InputError(f"a {kind} has {len(inner):,} entries; allowed are {MOST_ENTRIES:,}")
        pending += [entry for entry in inner if isinstance(entry, dict | list)]
    return table


def read_json(kind: type[ModelT], text: str, what: str, refused: type[Exception]) -> ModelT:
    """Read a pydantic model from another party's JSON. Raises `refused`, which names `what`, if it is not valid."""
    try:
        read_table(text)
        return kind.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise refused(f"{what} is not valid: {explain(error)}") from None
    except InputError as error:
        raise refused(f"{what} is not valid: {error}") from None


MISSING, UNKNOWN = ("missing", "missing_argument"), ("extra_forbidden", "unexpected_keyword_argument")
"""pydantic's types of findings for missing and unknown names."""

MOST_VALUE_CHARACTERS = 300  # most characters of a quoted value


def explain(
    error: pydantic.ValidationError,
    fields: Sequence[str] = (),
    *,
    quote: bool = True,
    validated: Mapping[str, Any] | None = None,
    inner: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the first finding of a validation error as a clause: path, value and allowed values.

    An unknown name takes precedence over a missing one in the same table, as the likely misspelling.

    - `fields`: allowed names, for positional arguments and for hints on unknown names.
    - `quote`: whether to quote the value; arrays are never quoted.
    - `validated`: the fields' values, by which pydantic's own names, such as a union's tags, are left out of the path.
    - `inner`: allowed names in inner tables, by the table's path, which may end in * for any name.
    """
    findings = error.errors(include_url=False)
    finding = _most_helpful(findings)
    kind = finding["type"]
    where = _path(finding, fields, validated)
    path = ".".join(where)
    if kind in MISSING:
        given = map(str, finding["input"]) if isinstance(finding["input"], dict) else ()
        close = difflib.get_close_matches(where[-1], list(given), n=1)
        return _required(where, finding["loc"]) + "".join(f" (is {name} meant for it?)" for name in close)
    if kind in UNKNOWN:
        tables = (".".join(where[:-1]), ".".join([*where[:-2], "*"]))
        known = fields if len(where) == 1 else next((inner[table] for table in tables if inner and table in inner), ())
        return unknown_name(path, known)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        name, tag = finding["ctx"]["discriminator"].strip("'"), finding["ctx"].get("tag")
        if tag is None:
            return _required([*where, name], finding["loc"])
        field = f"{path}.{name}" if path else name
        quoted = f" = {shortened(repr(tag), MOST_VALUE_CHARACTERS)}" if quote else ""
        return f"{field}{quoted} is not known (allowed: {finding['ctx']['expected_tags'].replace(chr(39), '')})"
    if kind == "value_error":
        message = finding["msg"].removeprefix("Value error, ")
        return f"{path}: {message}" if path else message
    # each branch of a union has a finding of its own with allowed values
    allowed = [_allowed(branch) for branch in findings if _path(branch, fields, validated) == where]
    message, value = " or ".join(dict.fromkeys(allowed)), finding["input"]
    if not quote or isinstance(value, np.ndarray):
        message += f", not {type(value).__name__}"
    elif path:
        path += f" = {shortened(repr(value), MOST_VALUE_CHARACTERS)}"
    return f"{path}: {message}" if path else message


def _required(where: Sequence[str], places: Sequence[int | str]) -> str:
    """Return the clause for a missing name, by its path or its table's place in a list."""
    if len(where) > 2 and where[-2].isdecimal() and int(where[-2]) in places:
        return f"{where[-1]} is required in the {_ordinal(int(where[-2]) + 1)} {'.'.join(where[:-2])}"
    return f"{'.'.join(where)} is required"


def _ordinal(number: int) -> str:
    """Return an English ordinal: 1st, 2nd, 3rd, 4th, ..., 11th."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _most_helpful(findings: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the first finding, or if it is a missing name, an unknown name in the same table."""
    first = findings[0]
    if first["type"] not in MISSING:
        return first
    table = first["loc"][:-1]
    unknown_names = (finding for finding in findings if finding["type"] in UNKNOWN and finding["loc"][:-1] == table)
    return next(unknown_names, first)


def _path(finding: ErrorDetails, fields: Sequence[str], validated: Mapping[str, Any] | None) -> list[str]:
    """Return a finding's path in the user's terms. Union tags are left out, and tables in lists appear by name."""
    if not finding["loc"]:
        return []
    first, *rest = finding["loc"]
    if isinstance(first, int) and first < len(fields):
        first = fields[first]
    path = [str(first)]
    if validated is None or first not in validated:
        return path + [str(part) for part in rest]
    value: Any = validated[str(first)]
    for place, part in enumerate(rest, start=1):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
            path.append(str(part))
        elif isinstance(value, list | tuple) and isinstance(part, int) and part < len(value):
            value = value[part]
            name = value.get("name") if isinstance(value, Mapping) else None
            path.append(name if isinstance(name, str) and name else str(part))
        elif finding["type"].startswith("missing") and place == len(rest):
            path.append(str(part))
    return path


def _allowed(finding: ErrorDetails) -> str:
    if finding["type"] in ("dataclass_type", "model_type", "model_attributes_type", "dict_type"):
        return "input should be a table"
    if finding["type"] in ("tuple_type", "list_type"):
        return "input should be a list"
    if finding["type"] in ("too_short", "too_long"):
        least, most = finding["ctx"].get("min_length"), finding["ctx"].get("max_length")
        return f"input should have {f'at most {most}' if least is None else f'at least {least}'} entries"
    return finding["msg"][:1].lower() + finding["msg"][1:]


def _names_in(annotation: Any, value: Any) -> list[str]:
    """Return the names that a table for a dataclass may have. Among several dataclasses its `type` decides."""
    kind, parts = value.get("type") if isinstance(value, Mapping) else None, get_args(annotation)
    if inspect.isclass(annotation):
        if dataclasses.is_dataclass(annotation) and getattr(annotation, "type", None) == kind:
            return list(inspect.signature(annotation).parameters)
        parts = tuple(type.__subclasses__(annotation)) if kind else ()
    return [name for part in parts for name in _names_in(part, value)]


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, pydantic.Field))
def value_object() -> Callable[[type[T]], type[T]]:
    """Make a class a validated frozen dataclass, which raises `InputError` for unknown names and wrong values."""

    def decorate(cls: type[T]) -> type[T]:
        config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
        value_class = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
        initialise = value_class.__init__
        names = [name for name in inspect.signature(value_class).parameters if name != "type"]

        @functools.wraps(initialise)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes that method
            try:
                initialise(self, *args, **kwargs)
            except pydantic.ValidationError as error:
                values = dict(zip(names, args, strict=False)) | kwargs
                fields = value_class.__pydantic_fields__
                inner = {name: _names_in(fields[name].annotation, values[name]) for name in fields.keys() & values}
                finding = explain(error, names, validated=values, inner=inner)
                raise InputError(f"{value_class.__name__}: {finding}") from None

        value_class.__init__ = __init__  # type: ignore[method-assign]
        return cast(type[T], value_class)

    return decorate


def accept_former_names(cls: type, names: Mapping[str, str]) -> None:
    """Set a class's attributes under present names too, and warn of former ones. `names`: present names by former."""
    for former, name in names.items():
        if former in vars(cls):
            warnings.warn(f"{cls.__name__}.{former} is now called {name}", DeprecationWarning, stacklevel=3)
            setattr(cls, name, vars(cls)[former])

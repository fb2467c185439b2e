"""Parsing of users' TOML files, with an InputError of one sentence for every fault, and formatting of TOML values."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkernel.ground.errors import InputError

MOST_LEVELS = 50  # maximum depth of nested tables and lists


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Parse a TOML text. Raises InputError, with the file's path, if it is malformed or nested too deeply."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        raise InputError(f"{path} is not valid TOML: {error}") from None
    level: list[Any] = [table]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        level = [value for value in level if isinstance(value, dict | list)]
    if level:
        raise _too_deep(path)
    return table


def _too_deep(path: str | Path) -> InputError:
    return InputError(f"{path} has tables or lists nested too deeply; allowed: {MOST_LEVELS} levels")


def toml_value(value: Any) -> str:
    """Format plain data as a TOML value, a mapping as an inline table."""
    if isinstance(value, Mapping):
        keys = {key: key if re.fullmatch(r"[\w-]+", key, re.ASCII) else toml_value(key) for key in value}
        pairs = ", ".join(f"{keys[key]} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, str):
        escaped = "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in value.replace("\\", "\\\\"))
        return '"' + escaped.replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)

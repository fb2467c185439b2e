"""Parsing of users' TOML files, with an InputError of one sentence for every fault."""

import tomllib
from pathlib import Path
from typing import Any

from fedkernel.ground.errors import InputError

MOST_LEVELS = 50  # maximum depth of nested tables and lists


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Parse a TOML text; InputError, with the file's path, if malformed or nested too deeply."""
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

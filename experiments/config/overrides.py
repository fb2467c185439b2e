"""Changes to a configuration by dotted path, for ``--set`` and sweeps."""

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fedkernel.ground import InputError, parse_toml


def with_override(table: dict[str, Any], override: str) -> dict[str, Any]:
    """Return a copy of a configuration's table with the change ``key=value``."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {override!r} must have the form key=value, for instance partition.clients=10")
    value: Any = text.strip()
    with suppress(InputError):  # what is not TOML is a string
        value = parse_toml(f"value = {value}", "--set")["value"]
    return with_value(table, key.strip(), value, "--set")


def with_value(table: dict[str, Any], key: str, value: Any, source: str) -> dict[str, Any]:
    """Return a copy of a configuration's table with a value at a dotted path. ``*`` stands for all methods."""
    changed = copy.deepcopy(table)
    targets: list[Any] = [changed]
    *path, last = _split_key(key, changed)
    if path and path[0] in ("strategy", "baseline") and not changed.get(path[0]):
        raise InputError(f"{source} {key}: there is no [[{path[0]}]]")
    for place, step in enumerate(path):
        inside: list[Any] = []
        for target in targets:
            if isinstance(target, list):
                inside += _named_entries(target, step, f"{source} {key}")
            elif isinstance(target, dict):
                inside.append(target.setdefault(step, {}))
            else:
                raise InputError(f"{source} {key}: {'.'.join(path[:place])} is a value, with nothing inside")
        targets = inside
    for target in targets:
        if isinstance(target, list):
            raise InputError(
                f"{source} {key}: there may be several; name one, as in {'.'.join(path)}.NAME.{last}, or use * for all"
            )
        if not isinstance(target, dict):
            raise InputError(f"{source} {key}: {'.'.join(path)} is a value, with nothing inside")
        target[last] = value
    return changed


def _named_entries(tables: list[Any], name: str, where: str) -> list[dict[str, Any]]:
    entries = [entry for entry in tables if isinstance(entry, dict)]
    chosen = [entry for entry in entries if name in ("*", entry.get("name"))]
    if not chosen:
        names = ", ".join(repr(entry["name"]) for entry in entries if "name" in entry)
        raise InputError(f"{where}: there is no entry named {name!r}, only {names or 'entries without a name'}")
    return chosen


def _split_key(key: str, table: Mapping[str, Any]) -> list[str]:
    """Split a dotted path. A method's name may contain dots, and the part after ``sweep.`` is not split."""
    head, dot, rest = key.partition(".")
    if head == "sweep" and dot:
        return [head, rest]
    if head not in ("strategy", "baseline") or not dot:
        return key.split(".")
    entries = [entry for entry in table.get(head, []) if isinstance(entry, dict)]
    for name in sorted((str(entry.get("name", "")) for entry in entries), key=len, reverse=True):
        if name and rest.startswith(name + "."):
            return [head, name, *rest[len(name) + 1 :].split(".")]
    return key.split(".")


def by_path(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values of a table and its inner tables, by dotted path."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        values |= by_path(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return values

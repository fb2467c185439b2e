"""Reader of a configuration file, and changes by dotted path: ``--set``, sweeps, and the file's ``[quick]``."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.config.experiment import Experiment
from fedkernel.data import named_path
from fedkernel.ground import InputError, parse_toml


def read_config(path: Path, overrides: Sequence[str] = (), *, quick: bool = False) -> Experiment:
    """Read a configuration file, apply ``--set key=value`` overrides, and validate the result.

    With `quick` the changes of its table ``[quick]`` come before them.
    """
    table, text = read_table(path, overrides, quick=quick)
    return Experiment.from_table(table, str(path), text)


def read_table(path: Path, overrides: Sequence[str] = (), *, quick: bool = False) -> tuple[dict[str, Any], str]:
    """Read a configuration file as a table with its text, and apply ``--set key=value`` overrides.

    - Returns `table`: if there are relative paths in it, with the file's folder, their base, as ``folder``.
    - Returns `text`: the file, with the overrides as comments; if it has relative paths, that folder comes first.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 (byte {error.start})") from None
    table = parse_toml(text, path)
    if quick:
        table = _rehearsal(table, path)
        text = f"# A rehearsal: what [quick] says is changed.\n{text}"
    for override in overrides:
        table = with_override(table, override)
    if overrides:
        lines = "".join(f"#   {' '.join(override.split())}\n" for override in overrides)
        text = f"{text.rstrip()}\n\n# Changed on the command line:\n{lines}"
    if "folder" not in table and _has_relative_path(table):
        # the stored copy is read from another folder, and must mean the same files there
        table["folder"] = str(path.parent.resolve())
        text = f"folder = {json.dumps(table['folder'], ensure_ascii=False)} # of this file\n{text}"
    return table, text


def _rehearsal(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a configuration changed as its own table ``[quick]`` says."""
    changes = table.get("quick")
    if not isinstance(changes, dict) or not changes:
        raise InputError(f"{path} has no table [quick] with the changes by --quick")
    for key, value in changes.items():
        table = with_value(table, key, value, f"{path}: quick")
    return {**table, "quick": {}, "rehearsal": True}


def _has_relative_path(value: Any, key: str = "") -> bool:
    """Return whether a table, sweeps and cases included, names data by a relative path."""
    if isinstance(value, Mapping):
        return any(_has_relative_path(inner, str(name)) for name, inner in value.items())
    if isinstance(value, list):
        return any(_has_relative_path(entry, key) for entry in value)
    if not isinstance(value, str):
        return False
    path = Path(value).expanduser() if key.rpartition(".")[2] == "shards" else named_path(value)
    return path is not None and not path.is_absolute()


def with_override(table: dict[str, Any], override: str) -> dict[str, Any]:
    """Return a copy of a configuration's table with the change ``key=value``."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {override!r} must have the form key=value, for instance partition.clients=10")
    return with_value(table, key.strip(), _toml_value(value.strip()), "--set")


def with_value(table: dict[str, Any], key: str, value: Any, source: str) -> dict[str, Any]:
    """Return a copy of a configuration's table with a value at a dotted path.

    A method is addressed by its name, all of them by ``*``.
    """
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
    """Split a dotted path into its parts; a method's name may contain dots.

    The part after ``sweep.`` is a path by itself.
    """
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


def _toml_value(text: str) -> Any:
    """Parse an override's value as TOML, or else return it as a string."""
    try:
        return parse_toml(f"value = {text}", "--set")["value"]
    except InputError:
        return text


def by_path(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values of a table and its inner tables, by dotted path."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        values |= by_path(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return values

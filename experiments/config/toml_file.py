"""Reader of a configuration file, with overrides from the command line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkernel.data import named_path
from fedkernel.experiments.config.experiment import Experiment
from fedkernel.experiments.config.installed import locate
from fedkernel.experiments.config.overrides import with_override, with_value
from fedkernel.ground import InputError, parse_toml


def read_config(path: Path, overrides: Sequence[str] = (), *, quick: bool = False) -> Experiment:
    """Read and validate a configuration file or installed experiment, with overrides and its ``[quick]`` if `quick`."""
    table, text = read_table(path, overrides, quick=quick)
    return Experiment.from_table(table, str(path), text)


def read_table(path: Path, overrides: Sequence[str] = (), *, quick: bool = False) -> tuple[dict[str, Any], str]:
    """Read a configuration file as a table with its text, and apply ``--set key=value`` overrides.

    - Returns `table`: if there are relative paths in it, with the file's folder, their base, as ``folder``.
    - Returns `text`: the file, with the overrides as comments; if it has relative paths, that folder comes first.
    """
    path = locate(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 (byte {error.start})") from None
    table = parse_toml(text, path)
    if quick:
        if not isinstance(changes := table.get("quick"), dict) or not changes:
            raise InputError(f"{path} has no table [quick] with the changes by --quick")
        for key, value in changes.items():
            table = with_value(table, key, value, f"{path}: quick")
        table |= {"quick": {}, "rehearsal": True}
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

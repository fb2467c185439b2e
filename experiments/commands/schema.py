"""The command `fedkernel schema`: the JSON schema of an experiment's TOML file."""

import inspect
import json
import re
from typing import Any

from typer import echo


def schema_of_experiments() -> dict[str, Any]:
    """Return the JSON schema of an experiment's file; each key is described as in the docstring of its table."""
    from fedkernel.experiments.config import Experiment  # noqa: PLC0415 - imports pydantic, which the help does not wait for

    schema = Experiment.model_json_schema()
    for table in (schema, *schema["$defs"].values()):
        summary, *entries = re.split(r"^- (?=`)", inspect.cleandoc(table.get("description", "")), flags=re.MULTILINE)
        table["description"] = summary.strip()
        for entry in entries:
            names, _, text = entry.partition(": ")
            for name in re.findall(r"`(\w+)`", names):
                table.get("properties", {}).get(name, {})["description"] = " ".join(text.split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A fedkernel experiment"}


def schema() -> None:
    """Print the JSON schema of experiments' TOML files, for editors.

    An editor with taplo (Even Better TOML) reads it from the file that line 1 names: #:schema ./fedkernel.schema.json
    """
    echo(json.dumps(schema_of_experiments(), indent=2))

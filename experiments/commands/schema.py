"""The command `fedkernel schema`: the JSON schema of an experiment's TOML file."""

import inspect
import json
import re
from typing import Any

from fedkernel import data
from fedkernel.experiments import config
from fedkernel.experiments.commands.console import print_text


def schema_of_experiments() -> dict[str, Any]:
    """Return the JSON schema of an experiment's file. Keys are described as in the docstring of the table or a base."""
    from fedkernel.experiments.claims.along_rounds import Bounded  # noqa: PLC0415 - the help does not wait for pydantic

    schema = config.Experiment.model_json_schema()
    bases = [_described(str(kind.__doc__))[1] for kind in (*Bounded.__mro__[2:0:-1], data.SiteFile)]
    for table in (schema, *schema["$defs"].values()):
        table["description"], own = _described(table.get("description", ""))
        for described in (own, *bases):
            for name in described.keys() & table.get("properties", {}).keys():
                table["properties"][name].setdefault("description", described[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A fedkernel experiment"}


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the text before its list of names, and the description of each name."""
    summary, *entries = re.split(r"^- (?=`)", inspect.cleandoc(docstring), flags=re.MULTILINE)
    parts = [entry.partition(": ") for entry in entries]
    return summary.strip(), {
        name: " ".join(text.split()) for names, _, text in parts for name in re.findall(r"`(\w+)`", names)
    }


def schema() -> None:
    """Print the JSON schema of experiments' TOML files, for editors.

    Saved as fedkernel.schema.json, it serves editors with taplo (Even Better TOML) if an experiment's first line is:
    #:schema ./fedkernel.schema.json
    """
    print_text(f"{json.dumps(schema_of_experiments(), indent=2)}\n")

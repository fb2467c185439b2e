"""Pages of the site that have their source elsewhere, and links that lead from docs/ into the checkout."""

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkernel.data import datasets, partition
from fedkernel.experiments.commands.schema import schema_of_experiments

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PROJECT = {
    "README.md": "readme",
    "SECURITY.md": "security",
    "deploy/README.md": "deploy",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SUPPORT.md": "support",
    "CODE_OF_CONDUCT.md": "code-of-conduct",
}
"""Page in project/ of each file of the checkout that the site has, too."""
MODULES = {"DataSpec": datasets, "PartitionSpec": partition}
"""Modules whose docstrings say more of a table's keys."""
LINK = re.compile(r"(\[[^\]]*\])\(([^():#\s]+)(#[^()\s]*)?\)")


def on_site(text: str, folder: Path) -> str:
    """Return a page's text with links relative to `folder` as the site has them; those to other files are words."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups(default="")
        path = (folder / target).resolve()
        if not path.exists():
            return match[0]  # of which Sphinx warns
        name = path.relative_to(ROOT).as_posix()
        if name in PROJECT:
            return f"{words}(/project/{PROJECT[name]}.md{anchor})"
        return f"{words}(/{path.relative_to(DOCS)}{anchor})" if path.is_relative_to(DOCS) else words[1:-1]

    return LINK.sub(link, text)


def words_of(schema: Mapping[str, Any]) -> str:
    """Return the values that a key may have."""
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(dict.fromkeys(words_of(each) for each in choices if each.get("type") != "null"))
    if "$ref" in schema:
        return "table"
    if schema.get("type") == "array":
        of = words_of(schema["items"]) if schema.get("items") else "values"
        return "list of " + re.sub(r"\b(table|number)\b", r"\1s", of)
    names = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "object": "table"}
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    limits = [f"{word} {schema[key]:g}" for key, word in bounds.items() if schema.get(key, 2**63) < 2**63]
    return " ".join([names.get(schema.get("type", ""), schema.get("type", "any value")), *limits])


def table_of(schema: Mapping[str, Any]) -> str:
    """Return the rows of a table's keys."""
    lines = ["| key | value | by default | meaning |", "|---|---|---|---|"]
    for key, each in schema.get("properties", {}).items():
        default = "(needed)" if key in schema.get("required", ()) else ""
        if each.get("default") not in (None, "", [], {}) and not isinstance(each["default"], dict):
            default = f"`{json.dumps(each['default'])}`"
        meaning = each.get("description", "").replace("a table in docs/reference/configuration.md", "the table below")
        meaning = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", meaning)
        meaning = meaning.replace("None:", "left out:")  # TOML has no None
        cells = f"`{key}`", words_of(each), default, meaning
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def tables_within(schema: Any) -> Iterable[str]:
    """Yield the names of the tables that a key refers to."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield from [value.rpartition("/")[2]] if key == "$ref" else tables_within(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from tables_within(each)


def common_keys(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys that most of several tables have, and describe alike."""
    every = [item for table in tables for item in table.items()]
    return {key: each for key, each in every if 2 < len(tables) < 2 * every.count((key, each))}


def configuration() -> str:
    """Return the page of an experiment's TOML file, from its schema."""
    schema = schema_of_experiments()
    keys: dict[str, list[str]] = {}
    for key, each in schema["properties"].items():
        for name in tables_within(each):
            keys.setdefault(name, []).append(f"[[{key}]]" if each.get("type") == "array" else f"[{key}]")
    head = """# An experiment's TOML file

All keys of an experiment's file, from the schema that `fedkernel schema` prints for editors.
[Experiments](../how-to/experiments.md) shows how they are used. A dotted path is a key within a table, such as
`partition.clients`.

## Keys of the file

"""
    sections = [head + table_of(schema)]
    groups: dict[str, list[str]] = {}
    for name, of in keys.items():
        groups.setdefault("`, `".join(of), []).append(name)
    for of, names in groups.items():
        tables = {name: schema["$defs"][name] for name in names}
        common = common_keys([table["properties"] for table in tables.values()])
        of_all = set[str].intersection(*(set(table["properties"]) for table in tables.values()))
        if common:
            required = [key for table in tables.values() for key in table.get("required", ())]
            if checks := [table["properties"]["check"] for table in tables.values() if "check" in table["properties"]]:
                common["check"] = {"type": "string", "description": checks[0]["description"]}
            keys_of_all = table_of({"properties": common, "required": required})
            sections.append(f"## `{of}`: keys of several kinds\n\n{keys_of_all}")
        for name, table in tables.items():
            more = inspect.cleandoc(MODULES[name].__doc__).partition("\n")[2] if name in MODULES else ""
            own = {key: each for key, each in table["properties"].items() if common.get(key) != each}
            check = own.pop("check", None)
            title = name if check is None else f"`check` = {words_of(check)}"
            also = [f"`{key}`" for key in common if key in table["properties"] and key not in (*own, *of_all)]
            head = f"## `{of}`: {title}\n\n{table['description']}{' Also: ' if also else ''}{', '.join(also)}\n"
            sections.append("\n".join([head, table_of({**table, "properties": own}), f"{more}\n"]))
    return "\n".join(sections)


def write(page: Path, text: str) -> None:
    """Write a page if its text has changed, so that Sphinx reads it again only then."""
    page.parent.mkdir(exist_ok=True)
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def write_pages() -> None:
    """Write the experiment's configuration, and copies of the checkout's own pages."""
    write(DOCS / "reference" / "configuration.md", configuration())
    for name, page in PROJECT.items():
        text = on_site((ROOT / name).read_text(encoding="utf-8"), (ROOT / name).parent)
        write(DOCS / "project" / f"{page}.md", f"---\norphan: true\n---\n\n{text}")

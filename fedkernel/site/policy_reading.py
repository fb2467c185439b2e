"""Reading of a site's policy from a TOML file, or from the options of ``fedkernel join``."""

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pydantic

from fedkernel.data import file_errors
from fedkernel.ground import InputError, explain, parse_toml
from fedkernel.protocol import Guards
from fedkernel.site import policy_defaults as defaults
from fedkernel.site.policy import AllLimits, Policy, StudyRules, TableRules

MAXIMA = ("max-message", "max-memory", "max-seconds")
OPTIONS = ("min-rows", "min-sites", "share-rows", "given-seed", "peers-without-pins", "allow", "table-share", *MAXIMA)
"""Options of a node that a policy file replaces."""


def read_policy(path: str | Path) -> Policy:
    """Read a site's policy from a TOML file. Raises InputError, in one sentence, if it is invalid."""
    path = Path(path).expanduser()
    with file_errors(path, "a site's policy, a TOML file such as `fedkernel policy init` writes"):
        return _parsed(path, path.read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _parsed(path: Path, text: str) -> Policy:
    """Parse and validate a policy's TOML text; cached, since every message builds the site anew."""
    try:
        return Policy.model_validate(parse_toml(text, path))
    except pydantic.ValidationError as error:
        tables: dict[str, type[pydantic.BaseModel]]
        tables = {"table": TableRules, "study": StudyRules, "limits": AllLimits}
        inner = {name: list(kind.model_fields) for name, kind in tables.items()}
        inner["guards"] = [field.name for field in dataclasses.fields(Guards)]
        raise InputError(f"{path}: {explain(error, list(Policy.model_fields), inner=inner)}") from None


def flag(node: Mapping[str, Any], name: str) -> bool:
    """Return whether a node's configuration sets a flag to true."""
    return str(node.get(name, False)).lower() in ("true", "1", "yes")


def own_policy(node: Mapping[str, Any]) -> Policy:
    """Return a node's policy, from a file or from the node's `OPTIONS`. Raises InputError if both are given."""
    if "policy" not in node:
        pairs = node.get("allow")
        return Policy(
            table=TableRules(min_rows=int(node.get("min-rows", defaults.MIN_ROWS))),
            study=StudyRules(
                min_sites=int(node.get("min-sites", defaults.MIN_SITES)),
                pairs=None if pairs is None else tuple(name.strip() for name in str(pairs).split(",")),
                joint_seed="never" if flag(node, "given-seed") else "needed",
                peers="any" if flag(node, "peers-without-pins") else "pinned",
            ),
            limits=_own_limits(node),
            guards=Guards(table_share=float(node["table-share"])) if "table-share" in node else Guards(),
        )
    if both := [name for name in OPTIONS if name in node]:
        raise InputError(f"{both[0]} and policy are both given; a policy replaces {', '.join(OPTIONS)}")
    return read_policy(str(node["policy"]))


def _own_limits(node: Mapping[str, Any]) -> AllLimits:
    options = {"bytes": "max-message", "seconds": "max-seconds"}
    request = {name: node[option] for name, option in options.items() if option in node}
    run = {"memory": node["max-memory"]} if "max-memory" in node else {}
    total = {"rows": None if flag(node, "share-rows") else 0}
    try:
        return AllLimits.model_validate({"request": request, "run": run, "total": total})
    except pydantic.ValidationError as error:
        raise InputError(f"limits.{explain(error)} (--max-message, --max-memory, --max-seconds)") from None

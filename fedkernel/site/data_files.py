"""A site's own data files, named in its node's configuration: reading and fingerprints."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedkernel.data import SiteData, SiteFile, Version, is_text, read_raw, version_of
from fedkernel.ground import InputError
from fedkernel.site.policy import own_policy


@lru_cache(maxsize=8)
def read_file(file: SiteFile, version: Version) -> SiteData:
    """Read a site's own file; cached until the file changes, since every message builds the site anew."""
    return file.read()


@lru_cache(maxsize=8)
def _fingerprint(path: str, version: Version) -> str:
    """Return the SHA-256 of a file; cached until the file changes."""
    with Path(path).expanduser().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_of(paths: Sequence[str]) -> str:
    """Return the SHA-256 digests of files; only changed files are read again."""
    return " ".join(_fingerprint(path, version_of(path)) for path in paths)


def own_file(node: Mapping[str, Any]) -> tuple[SiteFile, Version]:
    """Return the file in a node's configuration, see `site_of_job`, and its version."""
    rules = own_policy(node).table
    file = SiteFile.of_node(node, rules.columns, rules.hidden)
    version = version_of(str(file.path))
    if rules.sha256 is not None and _fingerprint(str(file.path), version) != rules.sha256:
        raise InputError(f"{file.path} is not the file that the policy is for (table.sha256)")
    return file, version


def read_own_data(node: Mapping[str, Any]) -> SiteData:
    """Read the table in a node's configuration, see `site_of_job`; InputError if it is none."""
    return read_file(*own_file(node))


def own_shape(node: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Return a node's table shape, and the reason why the table needs preparation, or "".

    Raises InputError if no run can use the table, or most cells of a text column differ, as ids and free text do.
    """
    try:
        return read_own_data(node).X.shape, ""
    except InputError as error:
        raw = read_raw(own_file(node)[0])
        if any(is_text(column) and 2 * len(set(column)) > raw.rows for column in raw.columns.values()):
            raise
        return raw.shape, str(error)


def sha256_of(node: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the file in a node's configuration."""
    file, version = own_file(node)
    return _fingerprint(str(file.path), version)


def new_file(node: Mapping[str, Any], columns: Sequence[str]) -> SiteFile:
    """Return a node's file of new rows, with these columns; InputError if it has none, or none with ids."""
    if "new" not in node or "id" not in node:
        raise InputError(
            "new rows are to be projected, but there are none with ids; allowed: join --new FILE --id NAME"
        )
    return replace(own_file(node)[0], path=str(node["new"]), columns=columns or None, label=None, drop=())


def read_new_rows(node: Mapping[str, Any], own: SiteData) -> SiteData:
    """Read a node's new rows, with its table's columns; InputError if it has none with these and ids."""
    file = new_file(node, own.columns)
    fresh = read_file(file, version_of(str(file.path)))
    if fresh.X.shape[1] != own.X.shape[1]:
        raise InputError(f"{file.path} has {fresh.X.shape[1]} columns, but the table has {own.X.shape[1]}")
    return fresh

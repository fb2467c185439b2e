"""Reading and hashing of a site's own data files, which its node's configuration names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fedkernel.data import SiteData, SiteFile, Version, file_hash, is_text, read_raw, version_of
from fedkernel.ground import InputError
from fedkernel.site.policy import own_policy


@lru_cache(maxsize=8)
def read_file(file: SiteFile, version: Version) -> SiteData:
    """Read a site's own file; cached until the file changes, since every message builds the site anew."""
    return file.read()


def content_of(paths: Sequence[str]) -> str:
    """Return the SHA-256 digests of files, joined by spaces; only changed files are read again."""
    return " ".join(map(file_hash, paths))


def own_file(node: Mapping[str, Any]) -> tuple[SiteFile, Version]:
    """Return a site's data file, as its node's configuration describes it (`site_of_job`), and its version."""
    rules = own_policy(node).table
    file = SiteFile.of_node(node, rules.columns, rules.hidden)
    version = version_of(str(file.path))
    if rules.sha256 is not None and file_hash(file.path) != rules.sha256:
        raise InputError(f"{file.path} differs from the file that the policy is for (table.sha256)")
    return file, version


def read_own_data(node: Mapping[str, Any]) -> SiteData:
    """Read a site's table from the file in its node's configuration; InputError if it is no table."""
    return read_file(*own_file(node))


def own_shape(node: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Return the shape of a site's table, and why the table needs preparation (empty: it does not).

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
    """Return the SHA-256 of a site's data file."""
    return file_hash(own_file(node)[0].path)


def new_file(node: Mapping[str, Any], columns: Sequence[str]) -> SiteFile:
    """Return a site's file of new rows, with these columns; InputError without such a file or without ids."""
    if "new" not in node or "id" not in node:
        raise InputError("the run projects new rows, but the site has none with ids: join --new FILE --id NAME")
    return replace(own_file(node)[0], path=str(node["new"]), columns=columns or None, label=None, drop=())


def read_new_rows(node: Mapping[str, Any], own: SiteData) -> SiteData:
    """Read a site's new rows, with the columns of its table `own`; InputError if they do not fit."""
    file = new_file(node, own.columns)
    fresh = read_file(file, version_of(str(file.path)))
    if fresh.X.shape[1] != own.X.shape[1]:
        raise InputError(f"{file.path} has {fresh.X.shape[1]} columns, but the table has {own.X.shape[1]}")
    return fresh

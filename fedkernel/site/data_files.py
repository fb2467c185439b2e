"""Reading and hashing of the data files that a site's configuration names, cached for all messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from fedkernel.data import Prepare, SiteData, SiteFile, Version, file_hash, is_text, read_labels, read_raw, version_of
from fedkernel.ground import AnyArray, InputError, RefusedError
from fedkernel.preparing import TableToPrepare
from fedkernel.site.policy import Policy
from fedkernel.site.policy_reading import own_policy


@lru_cache(maxsize=8)
def read_file(file: SiteFile, version: Version) -> SiteData:
    """Read a site's own file. Cached until the file changes, since every message builds the site anew."""
    return file.read()


class OwnRaw(NamedTuple):
    """Raw table from a site's own file, with its column names and row ids."""

    X: TableToPrepare
    columns: tuple[str, ...]
    ids: tuple[str, ...] | None


@lru_cache(maxsize=4)
def own_raw_table(file: SiteFile, version: Version, prepare: Prepare) -> OwnRaw:
    """Read a site's own file as a raw table, cached until the file changes."""
    X = TableToPrepare(read_raw(file), prepare)
    return OwnRaw(X, X.raw.names, X.raw.ids)


def content_of(paths: Sequence[str]) -> str:
    """Return the SHA-256 digests of files, joined by spaces; only changed files are read again."""
    return " ".join(map(file_hash, paths))


def own_file(node: Mapping[str, Any]) -> tuple[SiteFile, Version]:
    """Return the data file that a node's configuration describes (`site_of_job`), and the file's version."""
    rules = own_policy(node).table
    file = SiteFile.of_node(node, rules.columns, rules.hidden)
    version = version_of(str(file.path))
    if rules.sha256 is not None and file_hash(file.path) != rules.sha256:
        raise InputError(f"{file.path} differs from the file that the policy is for (table.sha256)")
    return file, version


def read_own_data(node: Mapping[str, Any]) -> SiteData:
    """Read a site's table from the file in a node's configuration. Raises InputError if the file is no table."""
    return read_file(*own_file(node))


def own_shape(node: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Return the shape of a site's table, and the reason why it needs preparation, empty if it needs none.

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
    """Return a site's file of new rows, with these columns. Raises InputError without such a file or without ids."""
    if "new" not in node or "id" not in node:
        raise InputError("the run projects new rows, but the site has none with ids: join --new FILE --id NAME")
    return replace(own_file(node)[0], path=str(node["new"]), columns=columns or None, label=None, drop=())


def read_new_rows(node: Mapping[str, Any], own: SiteData) -> SiteData:
    """Read a site's new rows. Raises InputError if their columns do not fit those of the table `own`."""
    file = new_file(node, own.columns)
    fresh = read_file(file, version_of(str(file.path)))
    if fresh.X.shape[1] != own.X.shape[1]:
        raise InputError(f"{file.path} has {fresh.X.shape[1]} columns, but the table has {own.X.shape[1]}")
    return fresh


@lru_cache(maxsize=8)
def labels_of_file(file: SiteFile, version: Version) -> AnyArray | None:
    """Return the labels of a file's rows, or None if it has none. Cached until the file changes."""
    return read_labels(file)


def check_labels_may_be_used(file: SiteFile, policy: Policy, who: str) -> None:
    """Raise RefusedError unless the operator lists the allowed clients and does not hide the labels."""
    if policy.study.pairs is None:
        raise RefusedError("study.pairs", f"{who}: labels are released only to clients listed in --allow (study.pairs)")
    if any(fnmatchcase(label, pattern) for label in file.labels for pattern in file.hidden):
        raise RefusedError("table.hidden", f"{who} hides its labels (table.hidden)")

"""Version stamp and hash of a data file, which show that the file has changed."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from fedkernel.data.block_tables import file_errors

Version = tuple[int, int, int]
"""Modification time in nanoseconds, size in bytes, and inode, which changes if the file is replaced."""


def version_of(path: str | os.PathLike[str]) -> Version:
    """Return the current version of a file; InputError if it cannot be read."""
    with file_errors(path, "a file with the site's data"):
        stat = Path(path).expanduser().stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def file_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's content; an unchanged file is not read again."""
    return _hash_of_version(str(path), version_of(path))


@lru_cache(maxsize=64)
def _hash_of_version(path: str, version: Version) -> str:
    with Path(path).expanduser().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

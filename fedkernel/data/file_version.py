"""Version stamp of a data file, which invalidates cached results when the file changes."""

import os
from pathlib import Path

from fedkernel.data.block_tables import file_errors

Version = tuple[int, int, int]
"""Modification time in nanoseconds, size in bytes, and inode, which changes if the file is replaced."""


def version_of(path: str | os.PathLike[str]) -> Version:
    """Return the current version of a file; InputError if it cannot be read."""
    with file_errors(path, "a file with the site's data"):
        stat = Path(path).expanduser().stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

"""By what a file that was read is known again, so that what was made of it is kept until the file is changed."""

import os
from pathlib import Path

from fedkernel.data.tables import readable

Version = tuple[int, int, int]
"""When a file was changed last, in nanoseconds, its size in bytes, and its inode, another where it was replaced."""


def version_of(path: str | os.PathLike[str]) -> Version:
    """Return the version of a file as it is now; InputError if it cannot be read."""
    with readable(path, "a file with the site's data"):
        stat = Path(path).expanduser().stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

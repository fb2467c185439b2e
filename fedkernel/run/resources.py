"""What a site's process may take of its machine."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkernel.errors import RefusedError

PROC = Path("/proc/self/statm")

LEAST_MEMORY = 2**28
"""Bytes: the stacks and buffers that threads reserve are counted, too."""


@contextmanager
def memory_within(most: int | None) -> Iterator[None]:
    """Let this process have no more than so many bytes beyond what it has; None: as many as there are.

    Raises
    ------
    RefusedError
        Where something needs more.
    """
    if most is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(PROC.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGESIZE")
    limit = size + most if hard == resource.RLIM_INFINITY else min(size + most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    except MemoryError:
        rule = "limits.run.memory"
        raise RefusedError(rule, f"what was asked takes more than the {most:,} bytes allowed ({rule})") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

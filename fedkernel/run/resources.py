"""What a site's process may take of its machine, and a request of its time."""

import ctypes
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fedkernel.archives import MEMORY
from fedkernel.errors import RefusedError
from fedkernel.run.limits import LEAST_MEMORY

T = TypeVar("T")

PROC = Path("/proc/self/statm")

USUAL_MEMORY = MEMORY // 2
"""Bytes beyond what a site's process has, where its operator names no other number."""

_lock = threading.Lock()
_before: list[tuple[int, int]] = []
_inside: list[int] = []


def most_memory(said: int | None) -> int | None:
    """Return how many bytes a request may take beyond what the process has; None: it cannot be limited here."""
    usual = USUAL_MEMORY if PROC.exists() and USUAL_MEMORY >= LEAST_MEMORY else None
    return usual if said is None else said


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
    size = int(PROC.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGESIZE")
    with _lock:
        if not _before:  # sites that are threads of one process limit it all the same, and the last of them undoes it
            _before.append(resource.getrlimit(resource.RLIMIT_AS))
        _inside.append(most)
        _, hard = _before[0]
    limit = min(size + most, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        yield
    except MemoryError:
        rule = "limits.run.memory"
        raise RefusedError(rule, f"what was asked takes more than the {most:,} bytes allowed ({rule})") from None
    finally:
        with _lock:
            _inside.remove(most)
            if not _inside:
                resource.setrlimit(resource.RLIMIT_AS, _before.pop())


AGAIN = 1.0
"""Seconds after which a computation that was to end, and goes on, is made to raise again."""


class _TooLong(BaseException):  # or a client's code could take it for one of its own
    """What a computation meets that is to end."""


def within_seconds(most: float | None, act: Callable[[], T]) -> T:
    """Return what a function returns, which may compute for so many seconds by the clock; None: as long as it takes.

    A thread cannot be ended from outside. It is made to raise, which it does as soon as it is in Python's code again: a
    single product or decomposition is waited for, whose size the memory bounds. Code that swallows that meets it again,
    every `AGAIN` seconds.

    Raises
    ------
    RefusedError
        If it took longer.
    """
    if most is None:
        return act()
    lock, thread, over, woken = threading.Lock(), threading.get_ident(), False, threading.Event()

    def interrupt() -> None:
        seconds = min(most, threading.TIMEOUT_MAX)
        while not over and not woken.wait(seconds):
            with lock:
                if not over:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TooLong))
            seconds = AGAIN

    def end() -> None:
        nonlocal over
        over = True
        woken.set()
        with lock:  # what has not been raised yet never is
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    timer = threading.Thread(target=interrupt, name="limit-of-seconds", daemon=True)
    try:
        timer.start()
        try:
            return act()
        finally:
            end()
    except _TooLong:
        end()  # if it was raised before the end was noted
        rule = "limits.request.seconds"
        raise RefusedError(rule, f"what was asked takes longer than the {most:g} s allowed ({rule})") from None

"""Limits on the memory of a site's process and on the wall-clock time of a request."""

import ctypes
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fedkernel.ground import MACHINE_BYTES, RefusedError
from fedkernel.site.policy_defaults import LEAST_MEMORY

T = TypeVar("T")

PROC = Path("/proc/self/statm")

USUAL_MEMORY = MACHINE_BYTES // 2  # default memory limit in bytes, beyond the present size of the process

_lock = threading.Lock()
_former_limits: list[tuple[int, int]] = []
_limits_in_force: list[int] = []


def memory_limit(configured: int | None) -> int | None:
    """Return a request's memory limit in bytes, by default `USUAL_MEMORY`, or None where none can be set."""
    usual = USUAL_MEMORY if PROC.exists() and USUAL_MEMORY >= LEAST_MEMORY else None
    return usual if configured is None else configured


@contextmanager
def memory_within(most: int | None) -> Iterator[None]:
    """Limit this process to `most` bytes beyond its present size (None: any). Raises RefusedError if it needs more."""
    if most is None:
        yield
        return
    size = int(PROC.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGESIZE")
    with _lock:
        if not _former_limits:  # several sites may be threads of this process; the last one removes the limit
            _former_limits.append(resource.getrlimit(resource.RLIMIT_AS))
        _limits_in_force.append(most)
        _, hard = _former_limits[0]
    limit = min(size + most, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        yield
    except MemoryError:
        rule = "limits.run.memory"
        raise RefusedError(rule, f"the request needs more than the {most:,} bytes of memory allowed ({rule})") from None
    finally:
        with _lock:
            _limits_in_force.remove(most)
            if not _limits_in_force:
                resource.setrlimit(resource.RLIMIT_AS, _former_limits.pop())


REPEAT_SECONDS = 1.0  # seconds until an interrupted computation that goes on is interrupted again


class _TooLong(BaseException):  # an Exception could be caught by a client's code
    """Exception raised in a thread whose computation exceeds its time limit."""


class _TimeLimits:
    """Watchdog thread that raises `_TooLong` in threads beyond their time limits. It sleeps until the earliest one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # entered in one bytecode step; an interrupt comes between two
        self._changed = threading.Condition(self._lock)
        self._ends: dict[int, float] = {}
        self._wakes = math.inf
        self._process = 0

    def begin(self, thread: int, seconds: float) -> None:
        """Limit a thread to some seconds. After these it is interrupted every `REPEAT_SECONDS`."""
        with self._lock:
            if self._process != os.getpid():  # a forked process has no watch thread
                self._process, self._wakes = os.getpid(), math.inf
                self._ends.clear()
                threading.Thread(target=self._interrupt_late, name="limit-of-seconds", daemon=True).start()
            self._ends[thread] = end = time.monotonic() + seconds
            if end < self._wakes:
                self._changed.notify()

    def end(self, thread: int) -> None:
        """Remove a thread's limit and cancel its pending interrupt."""
        with self._lock:
            self._ends.pop(thread, None)
            _raise_in_thread(thread, None)

    def _interrupt_late(self) -> None:
        with self._lock:
            while True:
                now = time.monotonic()
                for thread in [thread for thread, end in self._ends.items() if end <= now]:
                    _raise_in_thread(thread, _TooLong)
                    self._ends[thread] = now + REPEAT_SECONDS
                self._wakes = min(self._ends.values(), default=math.inf)
                self._changed.wait(min(self._wakes - now, threading.TIMEOUT_MAX))


def _raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


_time_limits = _TimeLimits()


def within_seconds(most: float | None, act: Callable[[], T]) -> T:
    """Call a function with a wall-clock limit in seconds (None: no limit). Raises RefusedError if it took longer.

    The thread is interrupted once it runs Python code again, not within a single product or decomposition.
    """
    if most is None:
        return act()
    thread = threading.get_ident()
    try:
        _time_limits.begin(thread, most)
        try:
            return act()
        finally:
            _time_limits.end(thread)
    except _TooLong:
        _time_limits.end(thread)  # raised before `end` was called
        rule = "limits.request.seconds"
        raise RefusedError(rule, f"the request takes longer than the {most:g} s allowed ({rule})") from None

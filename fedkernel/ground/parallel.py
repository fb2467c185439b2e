"""Parallel execution of blocks of work on idle cores, with the same bits on any number of cores.

A computing thread reserves its core with `reserve_core`; the remaining cores help `for_each` and `map_in_order`. The
bits are the same if blocks depend on the problem's shape only, use one BLAS thread each and are summed in order.
Outside `reserve_core` (a direct call, or one site's own process) the calling thread does everything.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def usable_cores() -> int:
    """Count the cores that this process may use, at most OMP_NUM_THREADS if set, as nproc does."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    most = os.environ.get("OMP_NUM_THREADS", "")
    return min(count, int(most)) if most.isdecimal() and int(most) > 0 else count


class _Thread(threading.local):
    """State of a thread: whether it has a core and may have helpers, and the helpers' processor seconds."""

    at_work = False
    helped = False
    seconds = 0.0


class _Cores:
    """Number of busy cores in this process, and the pool of helper threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def take(self, most: int) -> int:
        """Reserve up to `most` idle cores and return their number."""
        with self._lock:
            taken = max(0, min(most, self.count - self.busy))
            self.busy += taken
            return taken

    def change(self, by: int) -> None:
        with self._lock:
            self.busy += by

    def submit(self, work: Callable[[], float]) -> "Future[float]":
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max(1, self.count - 1), thread_name_prefix="idle-core")
            return self._pool.submit(work)


_here = _Thread()
_cores = _Cores(usable_cores())


def _renew() -> None:
    global _cores  # noqa: PLW0603 - a fork has the counts and the pool, but none of the threads
    _cores = _Cores(usable_cores())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def reserve_core(threads: int = 1) -> Iterator[None]:
    """Reserve a core for this thread within the context. With more than one BLAS thread it gets no helpers."""
    if _here.at_work:
        yield
        return
    cores = _cores
    _here.at_work, _here.helped = True, threads == 1
    cores.change(1)
    try:
        yield
    finally:
        cores.change(-1)
        _here.at_work = _here.helped = False


def computing_seconds() -> float:
    """Return the processor seconds of the calling thread and its helpers; only differences are meaningful."""
    return time.thread_time() + _here.seconds


def for_each(work: Callable[[T], object], blocks: Iterable[T], most: int | None = None) -> None:
    """Call a function with every block, on idle cores if there are any; results are discarded.

    The calling thread takes blocks, too. A nested call uses one thread. `work` must write only where no other block
    does. `blocks` should take some 0.1 ms each, the time to wake a helper. `most`: threads at once.
    """
    left = deque(blocks)
    wanted = min(len(left), most or len(left)) - 1
    helpers = _cores.take(wanted) if wanted > 0 and _here.helped else 0
    if helpers == 0:
        for block in left:
            work(block)
        return
    cores, futures = _cores, []
    _here.helped = False
    try:
        for number in range(helpers):
            try:
                # keeps the caller's context, for instance np.errstate
                futures.append(cores.submit(partial(copy_context().run, _help, cores, work, left)))
            except BaseException:
                cores.change(number - helpers)  # started helpers release their own core
                raise
        _take_blocks(work, left, lambda: True)
    finally:
        left.clear()  # after an error no thread begins another block
        wait(futures)
        _here.helped = True
    _here.seconds += sum(future.result() for future in futures)


def _help(cores: _Cores, work: Callable[[T], object], left: deque[T]) -> float:
    """Work on blocks until none is left or the core is needed; return the processor seconds."""
    began = time.thread_time()
    try:
        _take_blocks(work, left, lambda: cores.busy <= cores.count)
    finally:
        cores.change(-1)
    return time.thread_time() - began


def _take_blocks(work: Callable[[T], object], left: deque[T], going_on: Callable[[], bool]) -> None:
    while going_on():
        try:
            block = left.popleft()
        except IndexError:  # the others have taken the rest
            return
        work(block)


def map_in_order(
    work: Callable[[T], R], blocks: Iterable[T], *, ahead: int = 1, most: int | None = None
) -> Iterator[R]:
    """Yield results in the blocks' order, computed on idle cores. `ahead`: results held per thread. `most`: threads."""
    left = iter(blocks)
    while group := list(islice(left, ahead * (1 + idle) if (idle := _idle(most)) else 1)):
        if len(group) == 1:
            yield work(group[0])
            continue
        results: dict[int, R] = {}

        def keep(number: int, group: list[T] = group, results: dict[int, R] = results) -> None:
            results[number] = work(group[number])

        for_each(keep, range(len(group)), most)
        for number in range(len(group)):
            yield results.pop(number)


def _idle(most: int | None) -> int:
    idle = _cores.count - _cores.busy if most is None else min(most - 1, _cores.count - _cores.busy)
    return max(0, idle) if _here.helped else 0

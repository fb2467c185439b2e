"""The cores that nobody else is using: a computation cut into blocks takes them, and gives the same bits without.

Who computes says so with `at_work`; what is left of the cores helps whoever calls `each` or `in_order`. The blocks
must depend on the shape of the problem only, each by one BLAS thread, and sums be taken in the order of the blocks:
then the number of threads decides nothing but the time. Where nobody has said `at_work` (a function called on its own,
a site in a process of its own, beside others perhaps) the calling thread does everything.
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
    """Count the cores as nproc does: those this process may run on, but OMP_NUM_THREADS at most where that is set."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    most = os.environ.get("OMP_NUM_THREADS", "")
    return min(count, int(most)) if most.isdecimal() and int(most) > 0 else count


class _Thread(threading.local):
    """Whether the calling thread may be helped, and the processor seconds of those who have."""

    at_work = False
    helped = False
    seconds = 0.0


class _Cores:
    """How many threads are at work in this process, helpers included, and the pool that helpers come from."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def take(self, most: int) -> int:
        """Take up to so many idle cores."""
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
def at_work(threads: int = 1) -> Iterator[None]:
    """Say that the calling thread computes, on a core of its own.

    `threads`: BLAS threads that it has. With more than one these take the idle cores, and nobody helps.
    """
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
    """Return the processor seconds of the calling thread and of those who have helped it: differences are of use."""
    return time.thread_time() + _here.seconds


def each(work: Callable[[T], object], blocks: Iterable[T], most: int | None = None) -> None:
    """Do the work of every block, on as many cores as are idle; what it returns is dropped.

    The calling thread takes blocks too, so that nobody waits for a core. Work within work is done by one thread.

    `work`: is given a block, and writes where no other block does. `blocks`: worth some 0.1 ms each: it takes as long
    to wake a helper. `most`: threads at once, where each needs memory.
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
                # with the caller's np.errstate, say
                futures.append(cores.submit(partial(copy_context().run, _help, cores, work, left)))
            except BaseException:
                cores.change(number - helpers)  # those that were started give their own core back
                raise
        _take_blocks(work, left, lambda: True)
    finally:
        left.clear()  # after an error nobody begins another block
        wait(futures)
        _here.helped = True
    _here.seconds += sum(future.result() for future in futures)


def _help(cores: _Cores, work: Callable[[T], object], left: deque[T]) -> float:
    """Do the work of blocks until none is left, or somebody else needs the core; return the processor seconds."""
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


def in_order(work: Callable[[T], R], blocks: Iterable[T], *, ahead: int = 1, most: int | None = None) -> Iterator[R]:
    """Yield what the work of every block returns, in their order, done on as many cores as are idle.

    `ahead`: how many results each thread may have waiting: memory holds that many for each, and blocks are begun in
    groups of as many. Where nobody helps there is one. `most`: threads at once.
    """
    left = iter(blocks)
    while group := list(islice(left, ahead * (1 + idle) if (idle := _idle(most)) else 1)):
        if len(group) == 1:
            yield work(group[0])
            continue
        results: dict[int, R] = {}

        def keep(number: int, group: list[T] = group, results: dict[int, R] = results) -> None:
            results[number] = work(group[number])

        each(keep, range(len(group)), most)
        for number in range(len(group)):
            yield results.pop(number)


def _idle(most: int | None) -> int:
    idle = _cores.count - _cores.busy if most is None else min(most - 1, _cores.count - _cores.busy)
    return max(0, idle) if _here.helped else 0

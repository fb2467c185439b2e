"""Limits on the numbers of BLAS and OpenMP threads, which affect speed and the last bits of results."""

import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Literal, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

from fedkernel.ground.parallel import reserve_core

YieldT = TypeVar("YieldT")
SendT = TypeVar("SendT")
ReturnT = TypeVar("ReturnT")


@cache
def _loaded(kind: Literal["blas", "openmp"], scikit_learn: bool) -> ThreadpoolController:
    import scipy.linalg  # noqa: F401, PLC0415 - loads its own BLAS before the look-up

    # Looking up the libraries takes milliseconds, as long as a round: once per process is enough. Leaving a limit
    # resets all libraries of its controller, also those without a limit: so each kind has its own controller.
    return ThreadpoolController().select(user_api=kind)


def _controller(kind: Literal["blas", "openmp"]) -> ThreadpoolController:
    # OpenMP comes with scikit-learn, which may be imported after the first look-up
    return _loaded(kind, kind == "openmp" and hasattr(sys.modules.get("sklearn.cluster"), "KMeans"))


class _BlasLimit:
    """Process-wide limit of BLAS threads: the one entered last among those not left yet, else the original."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: list[int] = []
        self._before: Any = None

    def enter(self, count: int) -> None:
        with self._lock:
            if self._counts[-1:] != [count]:  # setting it costs as much as a small round
                with _control():
                    limit = _controller("blas").limit(limits=count)
                if not self._counts:
                    self._before = limit
            self._counts.append(count)

    def leave(self, count: int) -> None:
        with self._lock:
            held = self._counts[-1]
            self._counts.reverse()
            self._counts.remove(count)  # the last of equal ones
            self._counts.reverse()
            if self._counts[-1:] == [held]:
                return
            with _control():
                if self._counts:
                    _controller("blas").limit(limits=self._counts[-1])
                else:
                    self._before.restore_original_limits()


@contextmanager
def _control() -> Iterator[None]:
    """Let the calling thread set OpenBLAS' limit, which threadpoolctl grants to the first thread only."""
    OpenBLASController.clear_controlling_thread(force=True)
    try:
        yield
    finally:
        OpenBLASController.clear_controlling_thread(force=True)


_blas = _BlasLimit()


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Limit BLAS (whole process) and OpenMP (calling thread) to ``count`` threads within the context."""
    with openmp_threads(count):
        _blas.enter(count)
        try:
            yield
        finally:
            _blas.leave(count)


class _OpenMP(threading.local):
    """Last OpenMP limit of the calling thread, with the controller of its libraries."""

    limit: tuple[ThreadpoolController, int] | None = None


_openmp = _OpenMP()


@contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Limit OpenMP in the calling thread to ``count`` threads within the context."""
    before, controller = _openmp.limit, _controller("openmp")
    if before == (controller, count):
        yield
        return
    with controller.limit(limits=count):
        _openmp.limit = controller, count
        try:
            yield
        finally:
            _openmp.limit = before


def limit_steps(count: int, steps: Generator[YieldT, SendT, ReturnT]) -> Generator[YieldT, SendT, ReturnT]:
    """Wrap a generator so that every step runs within `blas_threads` and `reserve_core`."""
    advance = steps.__next__
    while True:
        with blas_threads(count), reserve_core(count):
            try:
                item = advance()
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
        advance = partial(steps.send, (yield item))

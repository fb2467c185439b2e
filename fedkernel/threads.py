"""How many threads the linear algebra may use: set in one place, since it decides speed and the last bits."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Looking the loaded libraries up takes milliseconds, a round only a few: once per process is enough.
    return ThreadpoolController()


def blas_threads(count: int) -> AbstractContextManager[object]:
    """Limit BLAS and OpenMP to ``count`` threads within the context.

    The limit holds for the whole process: where clients share one, the engine sets it around the whole round.
    """
    limit: AbstractContextManager[object] = _controller().limit(limits=count)
    return limit


def one_openmp_thread() -> AbstractContextManager[object]:
    """Keep scikit-learn's own loops, in the calling thread, from adding up in an order that differs from run to run."""
    limit: AbstractContextManager[object] = _controller().limit(limits=1, user_api="openmp")
    return limit

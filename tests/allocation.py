"""Bytes that a computation allocates at the most, as Python counts them."""

import tracemalloc


def peak_of(compute):
    """Return the most bytes that were allocated at a time, and what was computed."""
    tracemalloc.start()
    try:
        result = compute()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()

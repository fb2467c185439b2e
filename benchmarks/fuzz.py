"""Messages that cannot be right, by the hundred thousand, for everything that reads what others sent: `make bench`.

Valid messages of every class are changed at random, by a seed: bytes flipped, cut and inserted, records missing, too
many and of another kind, headers of arrays that announce what is not there, numbers of other sizes, texts of a
megabyte, deep JSON. Each must be read or refused in a sentence; anything else is shown, and is a failure in the end. So
is a message for which more than twice its bytes, and `CONSTANT`, are allocated, or that takes longer than `SECONDS` of
a processor. Not a test: it takes an hour or two. tests/wire/test_fuzz.py does a little of it.
"""

import argparse
import logging
import random
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzzing import CONSTANT, DECODERS, SECONDS, RefusedMessage, corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="for each decoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decoder", action="append", choices=list(DECODERS), help="by default all")
    arguments = parser.parse_args()
    table = Table(
        "decoder", "messages", "refused", "read", "worst bytes beyond twice", "slowest, ms", "seconds", box=None
    )
    logging.disable()  # of refusals
    valid, failures = corpus(), 0
    for name in arguments.decoder or DECODERS:
        rng, counts, began = random.Random(arguments.seed), Counter[str](), time.monotonic()  # noqa: S311 - not secret
        beyond, slowest = 0, 0.0
        generate, decode = DECODERS[name](valid)
        tracemalloc.start()
        for number in range(arguments.messages):
            sent, size = generate(rng)
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.thread_time()
            try:
                decode(sent)
                counts["read"] += 1
            except RefusedMessage:
                counts["refused"] += 1
            except Exception as error:
                counts["failed"] += 1
                print(f"{name}, message {number}: {type(error).__name__}: {str(error)[:300]}")
            took = time.thread_time() - started
            more = tracemalloc.get_traced_memory()[1] - before - 2 * size
            if more > CONSTANT or took > SECONDS:
                counts["failed"] += 1
                print(f"{name}, message {number}: {size:,} bytes took {more:,} beyond twice, {took:.2f} s")
            beyond, slowest = max(beyond, more), max(slowest, took)
        tracemalloc.stop()
        failures += counts["failed"]
        numbers = [arguments.messages, counts["refused"], counts["read"], beyond]
        table.add_row(
            name,
            *(f"{number:,}" for number in numbers),
            f"{1000 * slowest:.0f}",
            f"{time.monotonic() - began:.0f}",
        )
    Console(width=120).print(table)
    if failures:
        sys.exit(f"{failures} messages were neither read nor refused as they must")


if __name__ == "__main__":
    main()

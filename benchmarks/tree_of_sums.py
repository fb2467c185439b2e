"""Sums of 10,000 members over a tree of relays, against the sums that a coordinator makes alone.

    python benchmarks/tree_of_sums.py [--members 10000] [--fan-in 100]

CentroidKMeans runs on the local engine with so many members, each a table of 40 rows; replies of its summed rounds are
kept on their way. Then each round's sum is made in fixed point, as masked sums are: once of all replies in turn, and
once by relays, each of which adds up the replies of `fan-in` members, or sums of so many relays. Both must be equal bit
for bit, whatever the shape of the tree; a sum of float64 depends on the order. With masks the same holds, since these
cancel in the sum over all: shown with fewer members, as each pair of them has a key of its own.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel import RBF
from fedkernel.numerics.fixed_point import WORDS, add_words, from_fixed_point, to_fixed_point
from fedkernel.protocol import Summed
from fedkernel.strategies import CentroidKMeans
from fedkernel.wire.masked_sums import mask_label, simulated_keys, sum_masked

Words = Any


def recorded_rounds(members: int) -> tuple[list[list[Summed]], float]:
    """Return the replies of the summed rounds of a run, and its seconds."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((5, 10))
    tables = [centers[rng.integers(5, size=40)] + rng.standard_normal((40, 10)) for _ in range(members)]
    rounds: list[list[Summed]] = []
    plain = Summed.__dict__["sum_of"].__func__

    def kept(kind: type[Summed], replies: Sequence[Summed]) -> Summed:
        rounds.append(list(replies))
        summed: Summed = plain(kind, replies)
        return summed

    Summed.sum_of = classmethod(kept)  # type: ignore[assignment, method-assign]
    began = time.perf_counter()
    CentroidKMeans(5, kernel=RBF(width="columns")).fit(tables, sums="plain")
    return rounds, time.perf_counter() - began


def words_of(reply: Summed, members: int) -> Words:
    """Return a reply's numbers in fixed point, one after the other."""
    numbers = np.concatenate([np.ravel(array) for array in reply.arrays().values()])
    return to_fixed_point(numbers, members, whole=False).reshape(-1)


def added(parts: Sequence[Words], wide: int) -> Words:
    """Return the sum of parts, each of `wide` numbers of three words, and then words of whole numbers."""
    total = np.zeros_like(parts[0])
    for part in parts:
        add_words(total, part, wide)
    return total


def by_relays(parts: Sequence[Words], wide: int, fan_in: int) -> tuple[Words, int, float]:
    """Return the sum over a tree, its levels, and the seconds of the slowest way from a leaf to the root."""
    levels, slowest = 0, 0.0
    while len(parts) > 1:
        sums, most = [], 0.0
        for first in range(0, len(parts), fan_in):
            began = time.perf_counter()
            sums.append(added(parts[first : first + fan_in], wide))
            most = max(most, time.perf_counter() - began)
        parts, levels, slowest = sums, levels + 1, slowest + most
    return parts[0], levels, slowest


def masked_sums_agree(members: int, fan_in: int, replies: Sequence[Summed]) -> bool:
    """Return whether sums of masked replies over a tree cancel the masks as the sum of all does, to the same bits."""
    label, kind = mask_label("tree", 1, "SumCells"), type(replies[0])
    masked = [simulated_keys(at, members, "tree").mask(replies[at], label, b"") for at in range(members)]
    summed = sum_masked(kind, masked, label)
    names = [name for name in replies[0].arrays() if name not in kind.whole_numbers()]
    wide = sum(replies[0].arrays()[name].size for name in names)
    total, _, _ = by_relays([reply.words.view(np.uint64) for reply in masked], wide, fan_in)
    numbers = np.concatenate([np.ravel(summed.arrays()[name]) for name in names])
    return bool(np.array_equal(from_fixed_point(total[: WORDS * wide].reshape(WORDS, wide)), numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--fan-in", type=int, default=100)
    arguments = parser.parse_args()
    members, fan_in = arguments.members, arguments.fan_in
    rounds, seconds = recorded_rounds(members)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{members:,} members, CentroidKMeans on the local engine: {seconds:.1f} s, peak memory {peak:.2f} GB")
    print(f"{'round':<14} {'numbers':>8} {'levels':>7} {'alone s':>9} {'tree s':>9} {'equal':>6} {'float64 equal':>14}")
    for replies in rounds:
        parts = [words_of(reply, members) for reply in replies]
        wide = len(parts[0]) // WORDS
        began = time.perf_counter()
        alone = added(parts, wide)
        alone_seconds = time.perf_counter() - began
        total, levels, slowest = by_relays(parts, wide, fan_in)
        floats = [np.concatenate([np.ravel(array) for array in reply.arrays().values()]) for reply in replies]
        in_tree = np.sum([np.sum(floats[at : at + fan_in], axis=0) for at in range(0, members, fan_in)], axis=0)
        same, same_floats = np.array_equal(alone, total), np.array_equal(np.sum(floats, axis=0), in_tree)
        print(
            f"{type(replies[0]).__name__:<14} {wide:>8,} {levels:>7} {alone_seconds:>9.3f} {slowest:>9.4f} "
            f"{'yes' if same else 'NO':>6} {'yes' if same_floats else 'no':>14}"
        )
    few = min(members, 64)
    print(f"masked, {few} members, relays of 4: {'equal' if masked_sums_agree(few, 4, rounds[-1]) else 'NOT EQUAL'}")


if __name__ == "__main__":
    main()

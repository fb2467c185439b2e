"""Fixed-point numbers, whose sums over sites are exact and so the same in any order.

A number v is the integer nearest to v 2^80, modulo 2^192, as three 64-bit words: rounded by 2^-81, about 4e-25, and
below 2^111 over the number of sites: 2e32 among 10, 2e30 among 1,000. Whole numbers, such as counts, take one word and
are exact. Words are added with their carries, so that a sum tells nothing of its addends but their sum: sums of single
words would tell of carries, and by these of signs.
"""

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError

Words = npt.NDArray[np.uint64]

FRACTION_BITS, WORDS, WORD_BITS = 80, 3, 64


def words_of(*, whole: bool) -> int:
    """Return the number of 64-bit words that a number takes."""
    return 1 if whole else WORDS


def to_fixed_point(values: FloatArray, sites: int, *, whole: bool) -> Words:
    """Convert finite numbers (...) to words (1 or 3, ...), the highest first. Raises InputError if one is too large."""
    largest = 2.0 ** (WORD_BITS * words_of(whole=whole) - 1 - (0 if whole else FRACTION_BITS)) / sites
    if not -largest < values.min(initial=0.0) <= values.max(initial=0.0) < largest:
        raise InputError(
            f"a number in it is not below {largest:.0e}, the bound of sums over {sites} sites in fixed point; allowed: "
            "smaller ones, as in a larger unit"
        )
    if whole:
        return np.rint(values).astype(np.int64).view(np.uint64)[np.newaxis]
    words = np.empty((WORDS, *values.shape), np.uint64)
    rest = np.abs(values) * 2.0 ** (FRACTION_BITS - WORD_BITS * (WORDS - 1))  # exact, as is all but the last rounding
    for place in range(WORDS - 1):
        words[place] = rest  # cut off
        rest -= words[place]
        rest *= 2.0**WORD_BITS
    words[-1] = np.rint(rest)
    return _negated(words, values < 0)


def from_fixed_point(words: Words) -> FloatArray:
    """Convert summed words (1 or 3, ...) to numbers (...), each rounded to float64 at most thrice."""
    if len(words) == 1:
        return np.asarray(words[0].view(np.int64), dtype=np.float64)
    is_negative = words[0].view(np.int64) < 0
    value: FloatArray = np.zeros(words.shape[1:])
    for word in _negated(words, is_negative):
        value = value * 2.0**WORD_BITS + word
    return np.where(is_negative, -value, value) * 2.0**-FRACTION_BITS


def add_words(total: Words, words: Words, wide: int) -> None:
    """Add words (m,) to a total in place. Those of `wide` numbers (3, wide) come first, then those of whole numbers."""
    end, carry = WORDS * wide, np.zeros(wide, dtype=bool)
    for place in range(WORDS - 1, -1, -1):
        part, added = (it[:end].reshape(WORDS, wide)[place] for it in (total, words))
        part += added
        wrapped = part < added
        part += carry
        carry = wrapped | (part < carry)
    total[end:] += words[end:]


def _negated(words: Words, where: npt.NDArray[np.bool_]) -> Words:
    """Return words (3, ...) with the numbers negated where `where` is true, modulo 2^192."""
    negated, ones = np.where(where, ~words, words), np.zeros_like(words)
    ones[-1] = where
    add_words(negated.reshape(-1), ones.reshape(-1), where.size)
    return negated

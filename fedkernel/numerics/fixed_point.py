"""Fixed-point form of numbers, whose sums over sites are exact and so the same in any order.

A number v is the integer nearest to v 2^80, written as three signed digits to a base 2^w: so small that digits of all
sites add up within 64 bits, without carries. Numbers are rounded by 2^-81, about 4e-25, and must be below 2^(3 w - 80):
2e28 among 10 sites, 7e22 among 1,000. Whole numbers, such as counts, take one digit and are exact.
"""

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError

Words = npt.NDArray[np.int64]

FRACTION_BITS, DIGITS = 80, 3


def digits_of(*, whole: bool) -> int:
    """Return the number of 64-bit words that a number takes."""
    return 1 if whole else DIGITS


def digit_bits(sites: int) -> int:
    """Return w: digits below 2^w of so many sites add up to less than 2^62."""
    return 62 - sites.bit_length()


def to_fixed_point(values: FloatArray, sites: int, *, whole: bool) -> Words:
    """Return the digits (1 or 3, ...) of finite numbers (...), the highest first; InputError if one is too large."""
    bits = digit_bits(sites)
    largest = 2.0 ** (bits if whole else DIGITS * bits - FRACTION_BITS)
    if not -largest < values.min(initial=0.0) <= values.max(initial=0.0) < largest:
        raise InputError(
            f"a number in it is not below {largest:.0e}, the bound of sums over {sites} sites in fixed point; allowed: "
            "smaller ones, as in a larger unit"
        )
    words, rest = np.empty((digits_of(whole=whole), *values.shape), np.int64), values
    if not whole:
        rest = values * 2.0 ** (FRACTION_BITS - bits * (DIGITS - 1))  # exact, as is all but the last rounding
        for place in range(DIGITS - 1):
            words[place] = rest  # cut off
            rest -= words[place]
            rest *= 2.0**bits
    words[-1] = np.rint(rest)
    return words


def from_fixed_point(words: Words, sites: int) -> FloatArray:
    """Return the numbers (...) of summed digits (1 or 3, ...), each rounded to float64 once or twice."""
    if len(words) == 1:
        return np.asarray(words[0], dtype=np.float64)
    bits, digits = digit_bits(sites), words.copy()
    for place in range(DIGITS - 1, 0, -1):  # digits of one sign and half the base at most, so that none cancel
        carry = (digits[place] + (1 << (bits - 1))) >> bits
        digits[place] -= carry << bits
        digits[place - 1] += carry
    value: FloatArray = np.zeros(words.shape[1:])
    for digit in digits:
        value = value * 2.0**bits + digit
    return value * 2.0**-FRACTION_BITS

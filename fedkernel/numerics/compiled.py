"""Cosines and sines, and Hadamard transforms, in machine code, by numba: see `trigonometry` and `structured`.

The extra `fast` installs numba.

The angle x loses the nearest multiple n of pi, which leaves r in [-pi/2, pi/2] (Cody and Waite: pi is a sum
of three parts, and n times each of the first two is exact); cos x = (-1)^n cos r, of which a polynomial in r^2 gives
the rest. There is no fused multiplication and addition, and the order is written down: an entry has the same bits
wherever it stands, on every machine.
"""

import math
from typing import Any

import numba

LARGEST = 2.0**20
"""Up to this angle a multiple of pi is taken away exactly; the C library computes what is beyond, infinite or NaN."""
_CHUNK = 512
_PER_PI = 1 / math.pi
_ROUNDS = 1.5 * 2.0**52  # added and taken away again, it leaves the nearest integer
_PI = (float.fromhex("0x1.921fb544p+1"), float.fromhex("0x1.0b4611a6p-33"), float.fromhex("0x1.3198a2e037073p-68"))

# Interpolants of (cos sqrt(y) - 1) / y and (sin sqrt(y) / sqrt(y) - 1) / y in 8 Chebyshev points of [0, 2.468],
# computed in rational numbers, highest power first: off by 2e-17 at most on [-pi/2, pi/2], before rounding.
_COS = (
    *(4.627639704973203e-14, -1.1464686975686311e-11, 2.087663077626505e-09, -2.7557317765914347e-07),
    *(2.4801587292435168e-05, -0.001388888888886067, 0.04166666666666634, -0.5),
)
_SIN = (
    *(2.7314256159111054e-15, -7.643968760703259e-13, 1.6058977264345972e-10, -2.5052107616253936e-08),
    *(2.7557319221957402e-06, -0.00019841269841254952, 0.008333333333333316, -0.16666666666666666),
)


def _compiled(function: Any, **options: Any) -> Any:
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # there is no folder that it could write to: compiled anew in each process
        return numba.njit(nogil=True, **options)(function)


def _near(angles: Any) -> bool:
    beyond = 0
    for i in range(angles.size):
        beyond += not abs(angles[i]) <= LARGEST
    return beyond == 0


def _reduced(x: float) -> tuple[float, float]:
    n = (x * _PER_PI + _ROUNDS) - _ROUNDS
    odd = n - 2.0 * ((n * 0.5 + _ROUNDS) - _ROUNDS)  # -1, 0 or 1
    return ((x - n * _PI[0]) - n * _PI[1]) - n * _PI[2], 1.0 - 2.0 * odd * odd


def _cosine(r: float) -> float:
    y = r * r
    value = _COS[0]
    for coefficient in _COS[1:]:
        value = value * y + coefficient
    return value * y + 1.0


def _sine(r: float) -> float:
    y = r * r
    value = _SIN[0]
    for coefficient in _SIN[1:]:
        value = value * y + coefficient
    return r * (value * y) + r


_near, _reduced, _cosine, _sine = (_compiled(function) for function in (_near, _reduced, _cosine, _sine))


def _cosines(angles: Any, factor: float) -> None:
    for first in range(0, angles.size, _CHUNK):
        chunk = angles[first : first + _CHUNK]
        if _near(chunk):
            for i in range(chunk.size):
                r, sign = _reduced(chunk[i])
                chunk[i] = factor * (sign * _cosine(r))
        else:
            for i in range(chunk.size):
                r, sign = _reduced(chunk[i])
                chunk[i] = factor * (sign * _cosine(r) if abs(chunk[i]) <= LARGEST else math.cos(chunk[i]))


def _cosines_and_sines(angles: Any, out: Any, factor: float) -> None:
    m = angles.shape[1]
    for row in range(angles.shape[0]):
        for first in range(0, m, _CHUNK):
            last = min(first + _CHUNK, m)
            chunk, c, s = angles[row, first:last], out[row, first:last], out[row, m + first : m + last]
            if _near(chunk):
                for i in range(chunk.size):
                    r, sign = _reduced(chunk[i])
                    c[i] = factor * (sign * _cosine(r))
                    s[i] = factor * (sign * _sine(r))
            else:
                for i in range(chunk.size):
                    x = chunk[i]
                    r, sign = _reduced(x)
                    near = abs(x) <= LARGEST
                    c[i] = factor * (sign * _cosine(r) if near else math.cos(x))
                    s[i] = factor * (sign * _sine(r) if near else math.sin(x))


cosines = _compiled(_cosines)
"""Replace the angles of a contiguous array (n,) by their cosines times a factor."""
cosines_and_sines = _compiled(_cosines_and_sines)
"""Write cosines and sines of angles (n, m), times a factor, beside each other into an array (n, 2 m)."""


def _hadamard(Z: Any, signs: Any) -> None:
    p = Z.shape[1]
    for row in range(Z.shape[0]):
        z = Z[row]
        for i in range(p):
            z[i] *= signs[i]
        for i in range(0, p, 4):  # two steps at a time take half of the loads and stores
            s, t, u, v = z[i] + z[i + 1], z[i] - z[i + 1], z[i + 2] + z[i + 3], z[i + 2] - z[i + 3]
            z[i], z[i + 1], z[i + 2], z[i + 3] = s + u, t + v, s - u, t - v
        h = 4
        while 4 * h <= p:
            for first in range(0, p, 4 * h):
                A, B = z[first : first + h], z[first + h : first + 2 * h]
                C, D = z[first + 2 * h : first + 3 * h], z[first + 3 * h : first + 4 * h]
                for j in range(h):
                    s, t, u, v = A[j] + B[j], A[j] - B[j], C[j] + D[j], C[j] - D[j]
                    A[j], B[j], C[j], D[j] = s + u, t + v, s - u, t - v
            h *= 4
        if h < p:
            for j in range(h):
                z[j], z[h + j] = z[j] + z[h + j], z[j] - z[h + j]


hadamard = _compiled(_hadamard)
"""Replace each row of a contiguous array (n, p) by the Hadamard transform of it times signs (p,); p = 4, 8, 16, ...."""

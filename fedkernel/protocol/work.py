"""How much arithmetic a run takes, by the few kinds whose speeds a calibration measures on a machine."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache

from fedkernel.arrays import Precision
from fedkernel.numerics import lanczos_width

DOUBLE = 8
"""Bytes."""

CALLS_OF_SCIKIT_LEARN = 7e6
"""Bytes in whose time scikit-learn gets through its own checks and set-up: about 0.9 ms."""

CALLS_OF_A_MESSAGE = 6e5
"""Bytes in whose time a request is answered and the answer checked, beside what an echo takes: about 0.1 ms."""

CALLS_OF_A_LETTER = 2.5e6
"""Bytes in whose time a letter of next to nothing gets to a peer: about 0.3 ms."""

CALLS_OF_A_STEP = 2e6
"""Bytes in whose time the distributed Lanczos algorithm takes a step, but for what grows: about 0.3 ms."""

SMALL = 400
"""Rows whose cube a small eigenproblem takes beside its own; see `all_eigenpairs`."""


@dataclass(frozen=True)
class Work:
    """Amounts of arithmetic.

    Attributes
    ----------
    products : float
        Floating point operations of products of matrices.
    passes : float
        Bytes of arrays that are read or written where little is computed on each.
    exponentials, cosines : float
        Entries of which exp is taken; sin or cos, of random features in float64.
    eigen : float
        Dense symmetric eigenproblems, see `all_eigenpairs`.
    """

    products: float = 0.0
    passes: float = 0.0
    exponentials: float = 0.0
    cosines: float = 0.0
    eigen: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(own + more for own, more in zip(self.amounts, other.amounts, strict=True)))

    def __mul__(self, times: float) -> "Work":
        return Work(*(times * own for own in self.amounts))

    @property
    def amounts(self) -> tuple[float, ...]:
        """All amounts, in the order of the fields."""
        return self.products, self.passes, self.exponentials, self.cosines, self.eigen


def most_of(works: Iterable[Work]) -> Work:
    """Return the most of each kind."""
    return Work(*map(max, zip(*(work.amounts for work in works), strict=True)))


@dataclass(frozen=True)
class Computing:
    """What a run computes, and where.

    Attributes
    ----------
    sites : Work
        All clients together.
    site : Work
        The most that one client has to do, of each kind.
    coordinator : Work
    """

    sites: Work = field(default_factory=Work)
    site: Work = field(default_factory=Work)
    coordinator: Work = field(default_factory=Work)

    @classmethod
    def of(cls, works: Iterable[Work], coordinator: Work | None = None) -> "Computing":
        """Return that of clients which each have some work to do."""
        each = list(works)
        return cls(sum(each, Work()), most_of(each), coordinator or Work())

    def __add__(self, other: "Computing") -> "Computing":
        return Computing(self.sites + other.sites, self.site + other.site, self.coordinator + other.coordinator)


def largest_computing(several: Iterable[Computing]) -> Computing:
    """Return the most of each kind at each place."""
    each = list(several)
    parts = ([getattr(one, part.name) for one in each] for part in fields(Computing))
    return Computing(*map(most_of, parts))


@dataclass(frozen=True)
class Speeds:
    """What a machine takes, with all its cores at work, each on its own.

    Attributes
    ----------
    product, passing, eigen : float
        Seconds of 1e9 operations, bytes and n^3; see `Work`.
    exponential, cosine : float
        Seconds of 1e6 entries.
    round, message : float
        Seconds that the local engine adds for a round, and for each client in it.
    cores : int
    """

    product: float
    passing: float
    exponential: float
    cosine: float
    eigen: float
    round: float
    message: float
    cores: int

    def seconds(self, work: Work) -> float:
        """Return how long one core takes."""
        units = (
            self.product / 1e9,
            self.passing / 1e9,
            self.exponential / 1e6,
            self.cosine / 1e6,
            self.eigen / 1e9,
        )
        return sum(unit * amount for unit, amount in zip(units, work.amounts, strict=True))

    def computing(self, computing: Computing, *, at_once: float | None) -> float:
        """Return how long a run's arithmetic takes: of so many clients at once on this machine; None: each has one."""
        own = self.seconds(computing.site)
        clients = own if at_once is None else max(own, self.seconds(computing.sites) / at_once)
        return clients + self.seconds(computing.coordinator)


def multiplied(rows: float, columns: float, vectors: float) -> Work:
    """Return the product of a table with a few vectors; of blocks in a cache a third of the bytes is saved."""
    entries = rows * columns + (rows + columns) * vectors
    return Work(products=2 * rows * columns * vectors, passes=0.65 * DOUBLE * entries)


def kernel_matrix(rows: float, others: float, columns: float) -> Work:
    """Return inner products, distances from them in about four passes, and exp of each entry, in blocks of rows."""
    entries = rows * others
    return Work(products=2 * entries * columns, passes=4 * DOUBLE * entries, exponentials=entries)


def whole_kernel_matrix(rows: float, columns: float) -> Work:
    """Return that of all rows with each other, which no cache holds: half of the products and of exp, then copied."""
    entries = rows**2
    return Work(products=entries * columns, passes=6.5 * DOUBLE * entries, exponentials=entries / 2)


def centred(rows: float) -> Work:
    """Return a symmetric matrix' centring, for which it is read twice and written."""
    return Work(passes=2.0 * DOUBLE * rows**2)


def cosines(entries: float, precision: Precision = "float64") -> Work:
    """Return those of random features; NumPy's of float32 take, with numba or without, as long as 16 bytes' passing."""
    return Work(cosines=entries) if precision == "float64" else Work(passes=16 * entries)


def letter(floats: float) -> Work:
    """Return a letter from peer to peer: made, sealed, carried, opened and checked; about as 40 passes over it."""
    return Work(passes=CALLS_OF_A_LETTER + 40 * DOUBLE * floats)


def orthonormalised(rows: float, vectors: float) -> Work:
    """Return LAPACK's QR: each Householder vector passes over those that are left, and again for the basis."""
    return Work(passes=DOUBLE * rows * vectors * (2.9 + 0.45 * vectors))


def all_eigenpairs(size: float) -> Work:
    """Return LAPACK's divide and conquer, of which small matrices take more than the cube says."""
    return Work(eigen=size**2 * (size + SMALL))


def singular(rows: float, columns: float) -> Work:
    """Return a singular value decomposition by LAPACK, of the smaller side's square after a QR."""
    long, short = max(rows, columns), min(rows, columns)
    return Work(products=4.0 * long * short**2) + all_eigenpairs(short) * 4


def lanczos_blocks(pairs: int, width: int) -> int:
    """Return about how many blocks of so many vectors settle the leading pairs of an RBF kernel matrix.

    By docs/solvers.md's table and kernel matrices of some columns: 3 products with a vector for each pair, and 9 with
    each vector of a block, less a third to more by half; where eigenvalues fall slowly, as in a Wishart matrix, several
    times as many.
    """
    return math.ceil(3 * pairs / width) + 9


@cache
def leading(size: int, pairs: int) -> Work:
    """Return the leading eigenpairs of a dense symmetric matrix, as `fedkernel.numerics.leading_eigenpairs` does it."""
    width = lanczos_width(size, pairs)
    if not width:
        return all_eigenpairs(size) * min(1.0, 0.43 + 3.2 * pairs / size)
    # The basis grows by a block at a time and restarts with some of its vectors where it is full, as in `block_lanczos`
    most, fewest = 2 * pairs + 6 * width, pairs + 2 * width
    product = Work(products=2.0 * size**2 * width, passes=0.35 * DOUBLE * size**2)
    block = product + orthonormalised(size, width) * 2
    work, vectors = Work(), 0
    for _ in range(lanczos_blocks(pairs, width)):
        if vectors + width > most:
            work += all_eigenpairs(vectors) + Work(products=4.0 * size * vectors * fewest)
            vectors = fewest
        vectors += width
        # What the product adds to the matrix on the basis, what it has along that, and once more for what rounding left
        work += block + multiplied(size, vectors, width) * 4
    # Some looks at the matrix on the basis, about half way on average; then the vectors, and their products as a check
    looks = all_eigenpairs(pairs + 4 * width) * 4
    return work + looks + multiplied(size, vectors, pairs) + product * (pairs / width)


def leading_bytes(size: int, pairs: int) -> int:
    """Return the most bytes that finding these takes, the matrix included.

    Lanczos has its basis, the products with that and what a restart makes of both; LAPACK a copy of the matrix, where
    all pairs are wanted its divide and conquer four.
    """
    width = lanczos_width(size, pairs)
    if width:
        return DOUBLE * size * (size + 6 * pairs + 18 * width)
    return DOUBLE * size * (2 * (size + pairs) if pairs < size else 5 * size)


def clustering(rows: float, clusters: int, dimensions: float, restarts: int = 1) -> Work:
    """Return k-means++ and Lloyd's iterations by scikit-learn, as often as it is restarted.

    The start weighs 2 + log k candidates for each centre. Of iterations runs have taken about 2.7 times the cube root
    of the rows, from 13 to 30 for 500 rows, 24 to 79 for 4000, and 42 to 141 for 50000; it takes 300 at most.
    """
    candidates, iterations = 2 + math.log(clusters), min(300.0, 2.7 * rows ** (1 / 3))
    products = 2 * clusters * dimensions * (iterations + candidates)
    entries = iterations * (dimensions + 2 * clusters) + clusters * (dimensions + 4 * candidates)
    return Work(products=rows * products, passes=DOUBLE * rows * entries + CALLS_OF_SCIKIT_LEARN) * restarts


def assigned(rows: float, clusters: int, dimensions: float) -> Work:
    """Return each row's nearest centre, by scikit-learn."""
    return multiplied(rows, dimensions, clusters) + Work(passes=CALLS_OF_SCIKIT_LEARN)

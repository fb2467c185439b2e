"""Base class of clients whose rows are projected onto the span of landmarks, with its requests and replies.

Source: the paper of `fedkernel.strategies.diskpca`, algorithm 3 (disLR).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.data import Table, as_table, rows_from_arrays, rows_to_arrays
from fedkernel.ground import (
    FloatArray,
    Positions,
    Precision,
    ProtocolError,
    Rows,
    ShareableError,
    all_finite,
    row_blocks,
    stack_rows,
    sum_in_order,
)
from fedkernel.numerics import Kernel, RowSketch, pack_symmetric, unpack_symmetric
from fedkernel.protocol import (
    Answers,
    CarriesRows,
    Count,
    Done,
    KernelClient,
    PackedSemidefinite,
    Reply,
    ReplyT,
    Request,
    Shape,
    State,
    Summed,
    bounded_rows,
    check_share,
    each_alone,
)


class Products(Summed):
    """Upper triangle of products summed over the site's rows, row after row: c (c + 1) / 2 floats.

    Reveals sums of products of smooth functions of a row: of c sketched random features, or of c kernel values against
    the landmarks. With a narrow kernel and a landmark near a row, that row's value is all of the sum. With a linear
    kernel and unit vectors as landmarks, a row that alone is not 0 in some column is seen. If a table has fewer
    entries than the triangle, a search finds all rows. If the number of components is chosen, the sums of these
    values are sent too, c floats more.
    """

    exact: ClassVar = True  # or rounding, divided by short directions of the landmarks' span, would be components
    upper: Annotated[FloatArray, Shape("packed"), PackedSemidefinite()]
    sums: Annotated[FloatArray | None, Shape("Y")] = None

    @property
    def product(self) -> FloatArray:
        """Square matrix of the products, of shape (c, c)."""
        return unpack_symmetric(self.upper)


class Sketch(Reply):
    """Columns that represent the site's rows: c q floats, or c (c + 1) / 2 of few rows.

    Reveals sums over the site's rows of smooth functions of a row, or of their products, as `Products` does. A sketch
    has q sums, each over n_m / q rows in the mean, at least two, but some over a single one. The coordinator knows the
    rows of each sum, and their signs, so that sketches under a few seeds give every row's functions, and of a linear
    kernel the rows. A site with fewer than 2 q rows sends products over all of them. If the number of components is
    chosen, the sums of the kernel values over all rows are sent too, c floats more.
    """

    exact: ClassVar = True  # as `Products`
    factor: Annotated[FloatArray | None, Shape("c", "q_m")] = None
    upper: Annotated[FloatArray | None, Shape("packed_m"), PackedSemidefinite()] = None
    sums: Annotated[FloatArray | None, Shape("c")] = None

    def dimensions(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the size of every named dimension; c also follows from the length of a triangle."""
        sizes = super().dimensions(known)
        if self.factor is None and self.upper is not None:
            c = (math.isqrt(8 * self.upper.size + 1) - 1) // 2
            if sizes.setdefault("c", c) != c:
                raise ValueError(f"upper is a triangle with c = {c}, but c = {sizes['c']}")
        return sizes

    @property
    def product(self) -> FloatArray:
        """Product F F^T of the sketch F, of shape (c, c)."""
        if self.upper is not None:
            return unpack_symmetric(self.upper)
        return np.empty((0, 0)) if self.factor is None else np.asarray(self.factor @ self.factor.T)


class SketchRequest(Request[Sketch]):
    """Base of requests for a sketch or, from a site with few rows, for products."""

    sketched: ClassVar = "columns"
    seeded: ClassVar = True
    columns: Count

    def check_reply(self, reply: Sketch) -> None:
        """Check also that a sketch or products are sent, with at most the requested columns."""
        super().check_reply(reply)
        if (reply.upper is None) == (reply.factor is None):
            raise ValueError("the reply must have exactly one of factor and upper")
        if reply.factor is not None and reply.factor.shape[1] > self.columns:
            raise ValueError(f"factor has {reply.factor.shape[1]} columns, but must have at most {self.columns}")


class LandmarkRequest(CarriesRows, Request[ReplyT], Generic[ReplyT]):
    """Base of requests with the other sites' last drawn landmarks. The site already has its own.

    `before`: number of these rows before the site's own, in the order common to all.
    """

    before: Annotated[int, Field(ge=0, lt=2**63)]
    kernel: Kernel
    precision: Precision
    tol: Annotated[float, Field(ge=0, lt=1)]

    def known_dimensions(self) -> dict[str, int]:
        """Return no sizes, since the rows sent are only a part of the landmarks."""
        return {}


class TakeLandmarks(LandmarkRequest[Done]):
    """Request to store the landmarks, and nothing more."""


class MultiplyKernel(LandmarkRequest[Products]):
    """Request for the products k(Y, X_m) k(X_m, Y) (|Y|, |Y|) of kernel values. `sums`: also for the values' sums.

    `basis` R, with phi(Y) R orthonormal: of a run with noise, for products (r, r) and sums of the coordinates
    k(X_m, Y) R in place of the values', since coordinates have a bound.
    """

    sums: bool = False
    basis: Annotated[FloatArray | None, Shape("Y", "r")] = None

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return bounds of a row's coordinates and of their products, from the largest k(x, x) of any row."""
        length = self.most_length(radius)
        return {"upper": length**2} | ({"sums": length} if self.sums else {})

    def most_length(self, radius: float) -> float:
        """Return the bound of lengths in feature space for rows no longer than `radius`. Images are shortened to it."""
        row = np.zeros((1, self.width))
        row[0, 0] = radius
        with np.errstate(over="ignore", invalid="ignore"):
            largest = float(np.abs(self.kernel.diag(row)[0]))
        return math.sqrt(min(max(1e-9, largest), 1e18))  # sums of all rows are then below the bound of fixed point

    def check_reply(self, reply: Products) -> None:
        """Check also that sums are sent if requested, one for each landmark."""
        super().check_reply(reply)
        _check_sums(reply.sums, wanted=self.sums)
        if reply.sums is not None and reply.upper.size != len(reply.sums) * (len(reply.sums) + 1) // 2:
            raise ValueError(
                f"sums has {len(reply.sums)} entries, one for each landmark, but upper has {reply.upper.size} products"
            )

    def check_table(self, reply: Products, sizes: Mapping[str, int]) -> None:
        """Check also that (sum k)^2 <= n sum k^2."""
        super().check_table(reply, sizes)
        if reply.sums is not None:
            most = sizes["n_m"] * np.diag(reply.product)
            if np.any(np.square(reply.sums) > (1 + reply.rounding) * most + reply.rounding * most.max()):
                raise ValueError(f"sums are too large for {sizes['n_m']} values with these squares")


class SketchKernel(LandmarkRequest[Sketch], SketchRequest):
    """Request for the kernel values k(Y, X_m) (|Y|, n_m), sketched to w columns. Under 2 w rows, products are sent.

    `sums`: also for the values' sums.
    """

    setting: ClassVar = "projection_size"
    sums: bool = False

    def check_reply(self, reply: Sketch) -> None:
        """Check also that sums are sent if requested."""
        super().check_reply(reply)
        _check_sums(reply.sums, wanted=self.sums)


def _check_sums(sums: FloatArray | None, *, wanted: bool) -> None:
    if wanted != (sums is not None):
        raise ValueError(f"sums must be {'sent, as' if wanted else 'absent unless'} requested")


class TakeComponents(Request[Done]):
    """Request to store the coefficients C of the components phi(Y) C. Rows X have the coordinates k(X, Y) C."""

    once: ClassVar = True
    coefficients: Annotated[FloatArray, Shape("Y", "k")]
    kernel: Kernel
    precision: Precision
    embed: bool


class SquaredLengths(Summed):
    """Squared lengths of the site's rows and of their projections on the components' span: 2 floats.

    Reveals the sums of the rows' squared lengths in feature space, and of those of their projections.
    """

    sums: Annotated[FloatArray, Shape("two")]


class MeasureCaptured(Request[SquaredLengths]):
    """Request for the squared lengths of the rows and of their projections on the components."""

    kernel: Kernel

    def known_dimensions(self) -> dict[str, int]:
        """Return 2 for the number of sums."""
        return {"two": 2}

    def check_reply(self, reply: SquaredLengths) -> None:
        """Check also that captured <= total unless the kernel is indefinite."""
        super().check_reply(reply)
        if self.kernel.semidefinite:
            check_share(reply.sums[1:], float(reply.sums[0]), reply.rounding)


@dataclass(frozen=True)
class DrawnPositions(State):
    """Positions of the last drawn rows, until they are stored as landmarks."""

    positions: Positions


@dataclass(frozen=True)
class Landmarks(State):
    """Landmarks so far, as the arrays that `rows_to_arrays` makes of dense or sparse rows."""

    dense: FloatArray | None = None
    values: FloatArray | None = None
    indices: npt.NDArray[np.int32] | None = None
    starts: npt.NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Coefficients(State):
    """Coefficients C of the components phi(Y) C, of shape (|Y|, k)."""

    C: FloatArray


class LandmarkClient(KernelClient):
    """Base of clients that compute kernel values against landmarks. A table of any kind is read a block at a time.

    Memory between rounds: the landmarks.
    """

    answers: ClassVar[Answers] = (TakeLandmarks, SketchKernel, MultiplyKernel, TakeComponents, MeasureCaptured)

    X: Table

    @staticmethod
    def table(X: npt.ArrayLike | Table, what: str) -> Table:
        """Convert a table of any kind, without copying it into memory."""
        return as_table(X, what)

    def take_landmarks(self, ask: TakeLandmarks) -> Done:
        """Store the delivered landmarks with the site's own."""
        self._add_landmarks(ask, ask.before)
        return Done()

    def sketch_kernel(self, ask: SketchKernel) -> Sketch:
        """Compute kernel values against the landmarks, and sketch them."""
        sketch, sums = self._sketch_kernel(ask, ask.columns)
        return Sketch(**sketch_fields(sketch), sums=sums)

    def multiply_kernel(self, ask: MultiplyKernel) -> Products:
        """Compute kernel values against the landmarks, and multiply them."""
        sketch, sums = self._sketch_kernel(ask, None)
        return Products(upper=pack_symmetric(sketch_product(sketch)), sums=sums)

    def _sketch_kernel(
        self, ask: SketchKernel | MultiplyKernel, columns: int | None
    ) -> tuple[RowSketch, FloatArray | None]:
        """Return the kernel values' sketch and, if requested, their sums over the rows."""
        self._add_landmarks(ask, ask.before)
        values = self._values(ask)
        sketch, totals = RowSketch(len(self.X), columns, None if columns is None else self.rng("right sketch")), []
        for _, block in self._blocks(ask.precision):
            sketch.add(own := values(block))
            totals.append(own.sum(axis=0, dtype=np.float64) if ask.sums else None)
        return sketch, sum_in_order([total for total in totals if total is not None]) if ask.sums else None

    def _values(self, ask: SketchKernel | MultiplyKernel) -> Callable[[Rows], FloatArray]:
        """Return a function from a block of rows to kernel values or, with noise, to coordinates in `ask.basis`."""
        values, privacy = ask.kernel.against(self._landmarks(), ask.precision), self.privacy
        if privacy is None:
            return values
        if not isinstance(ask, MultiplyKernel) or (R := ask.basis) is None:
            raise ProtocolError(f"{type(ask).__name__} needs a basis in a run with noise")
        most = ask.most_length(privacy.radius)

        def coordinates(block: Rows) -> FloatArray:
            rows = bounded_rows(block, privacy.radius)
            # R may enlarge last bits
            return np.asarray(bounded_rows(each_alone(lambda row: np.asarray(values(row) @ R), rows), most))

        return coordinates

    def take_components(self, ask: TakeComponents) -> Done:
        """Store the coefficients and, if requested, the rows' coordinates of shape (n_m, k) at the site."""
        Coefficients(ask.coefficients).save(self.memory)
        if ask.embed:
            self.outputs["embedding"] = self._embed(ask.kernel, ask.precision)
        return Done()

    def measure_captured(self, ask: MeasureCaptured) -> SquaredLengths:
        """Sum squared lengths of the rows and of their projections."""
        coordinates = self._coordinates(ask.kernel, "float64")
        total = captured = 0.0
        for _, block in self._blocks("float64"):
            total += float(ask.kernel.diag(block).sum())
            captured += float(np.square(coordinates(block)).sum())
        return SquaredLengths(sums=np.array([total, captured]))

    def _blocks(self, precision: Precision) -> Iterator[tuple[slice, Rows]]:
        if self.privacy is not None:  # else a number too large for float32 would be refused, without noise
            precision = "float64"
        for rows in row_blocks(len(self.X)):
            yield rows, self.X.block(rows.start, rows.stop, precision)

    def _bounded_blocks(self) -> Iterator[Rows]:
        """Yield blocks of rows for sums. In a run with noise, the rows are shortened to a bounded length."""
        for _, block in self._blocks("float64"):
            yield block if self.privacy is None else bounded_rows(block, self.privacy.radius)

    def _add_landmarks(self, ask: CarriesRows, before: int) -> None:
        """Add the last drawn landmarks to the earlier ones. The site's own go between those of the other sites."""
        drawn, others = DrawnPositions.known(self.memory), ask.rows
        own = [self.X.take(DrawnPositions.load(self.memory).positions)] if drawn else []
        DrawnPositions.forget(self.memory)
        landmarks = [self._landmarks()] if Landmarks.known(self.memory) else []
        news = [part for part in (others[:before], *own, others[before:]) if part.shape[0]]
        Landmarks(**rows_to_arrays(stack_rows([*landmarks, *news]))).save(self.memory)

    def _landmarks(self) -> Rows:
        arrays = vars(Landmarks.load(self.memory))
        return rows_from_arrays({name: part for name, part in arrays.items() if part is not None}, self.X.shape[1])

    def _coordinates(self, kernel: Kernel, precision: Precision) -> Callable[[Rows], FloatArray]:
        values = kernel.against(self._landmarks(), precision)
        with np.errstate(over="ignore"):
            C = Coefficients.load(self.memory).C.astype(precision)
        return lambda block: np.asarray(values(block) @ C)

    def _embed(self, kernel: Kernel, precision: Precision) -> FloatArray:
        coordinates = self._coordinates(kernel, precision)
        whole = np.empty((len(self.X), Coefficients.load(self.memory).C.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, block in self._blocks(precision):
                whole[rows] = coordinates(block) if self.privacy is None else each_alone(coordinates, block)
        if self.privacy is not None:  # the coordinates stay here, but a refusal would tell of a row
            return np.where(np.isfinite(whole), whole, 0.0)
        if not all_finite(whole):
            raise ShareableError(
                f"the coefficients give coordinates too large for {precision}; allowed: finite coordinates"
            )
        return whole


def sketch_product(sketch: RowSketch) -> FloatArray:
    """Return the rows' product (c, c), or an empty array if the rows were sketched."""
    return np.empty((0, 0)) if sketch.product is None else sketch.product


def sketch_fields(sketch: RowSketch) -> dict[str, FloatArray | None]:
    """Return the fields of a reply that carry a sketch, or products of few rows."""
    product = sketch.product
    return {"factor": sketch.factor} if product is None else {"upper": pack_symmetric(product)}

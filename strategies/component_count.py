"""Automatic choice of the number of components by the eigengap."""

import dataclasses
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from fedkernel.ground import FloatArray, InputError, check_at_most
from fedkernel.models import Choice, KernelPCA, LandmarkPCA
from fedkernel.numerics import above_rounding, value_ratios

AUTO_COMPONENTS = 10
"""Default upper limit of a chosen number of components."""

NumberOfComponents = Annotated[int, Field(ge=1)] | Literal["auto"]
MostComponents = Annotated[int, Field(ge=1)] | None

LEAST_CLEAR_FALL = 1.5
"""Fall of eigenvalues below which a choice reports that no fall is clear."""

NO_AUTO_AMONG_PEERS = '"auto" is not available among peers, since nobody sees all eigenvalues; give a number'
NO_AUTO_BUT_EIGENGAP = '"auto" is not available; set eigengap = true, and n_components to the largest number'
"""Error texts of `refuse_auto` for peers, and for `FKKMeans`."""

Components = TypeVar("Components", KernelPCA, LandmarkPCA)


def refuse_auto(sentence: str) -> BeforeValidator:
    """Return a pydantic validator for a field that needs a number. It refuses "auto" with the given sentence."""

    def check(number: object) -> object:
        if number == "auto":
            raise ValueError(sentence)
        return number

    return BeforeValidator(check)


class ChoosesComponents:
    """Base of strategies that can choose the number of components. "auto": from 1 to `max_components`."""

    n_components: NumberOfComponents
    max_components: MostComponents

    @property
    def most_components(self) -> int:
        """Number of components k, or the upper limit if k is chosen."""
        if self.n_components == "auto":
            return AUTO_COMPONENTS if self.max_components is None else self.max_components
        return self.n_components

    def check_components(self, limit: int | None = None, limit_name: str = "the number of rows, ") -> None:
        """Raise InputError if both a number and its limit are set, or there are more components than `limit`."""
        if self.n_components != "auto" and self.max_components is not None:
            raise InputError(f'max_components = {self.max_components} has a meaning only with n_components = "auto"')
        if limit is not None:
            name = "max_components" if self.n_components == "auto" else "n_components"
            check_at_most(name, self.most_components, limit, limit_name)

    def comparable(self, reference: Components, model: Components) -> Components:
        """Return the reference, cut to as many components as the model has if the model chose that number."""
        choose_components = self.n_components == "auto" and model.n_components < reference.n_components
        return reference.first(model.n_components) if choose_components else reference


def beyond_rank(values: FloatArray, rows: int) -> tuple[str, ...]:
    """Return the finding that some eigenvalues are not above rounding, if so. Their matrix has `rows` rows."""
    rank = int(np.count_nonzero(above_rounding(values, rows))) if values.size else 0
    few = f"only {rank} of {values.size} components have an eigenvalue above rounding; the others have any direction"
    return (few,) if rank < values.size else ()


def choose_components(
    model: Components, most: int, rows: int, centred: FloatArray | None = None, omitted: float = 0.0
) -> Components:
    """Return a model's leading components, with their number by the eigengap (`fedkernel.numerics.value_ratios`).

    The model has one component more than the most, if there are so many, of a matrix with so many `rows`; ``centred``
    are as many of its eigenvalues once it is centred, None: it is. By ``omitted``, the sum that clients left out,
    eigenvalues may be larger. The gap is the centred spectrum's, since another falls the most after the direction of
    the mean. One component more is returned if that direction stands out as those before the gap do: if more
    eigenvalues are above the middle of the gap, by one at most, since taking the mean off is of rank 1.
    """
    values = model.eigenvalues_ if centred is None else centred
    ratios = value_ratios(values, most, rows, omitted)
    n = D = 1 + int(np.argmax(ratios))
    after, mean = f"number {D}", ""
    if centred is not None:
        after = f"number {D} of the centred matrix"
        middle = np.sqrt(values[D - 1] * values[D]) if ratios.size > 1 else values[0] / 2
        if most > D and np.count_nonzero(model.eigenvalues_ > middle) > D:
            n, mean = D + 1, ", and the mean has a direction of its own"
    listed = ", ".join(f"{number}: {ratio:.3g}" for number, ratio in enumerate(ratios, start=1))
    why = f"the eigenvalues fall the most after {after} (falls{', at least' if omitted > 0 else ''}: {listed}){mean}"
    if ratios.max() < LEAST_CLEAR_FALL:
        why = f"{why}; no fall is clear, by a factor of {LEAST_CLEAR_FALL} or more"
    if ratios.size < most:
        count = np.count_nonzero(above_rounding(values, rows))
        why = f"{why}; only {count} eigenvalues differ from 0 by more than rounding"
    if n == most:
        why = f"{why}; that is the limit (max_components)"
    return dataclasses.replace(model.first(n), choice_=Choice("n_components", n, f"n_components = {n}: {why}"))

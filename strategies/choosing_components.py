"""How many components there are, where that is left to a run."""

import dataclasses
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import Choice, KernelPCA, LandmarkPCA
from fedkernel.numerics import above_rounding, falls
from fedkernel.validation import check_at_most

AUTO_COMPONENTS = 10
"""Where the number of components is chosen: the most, by default."""

NumberOfComponents = Annotated[int, Field(ge=1)] | Literal["auto"]
MostComponents = Annotated[int, Field(ge=1)] | None

FAINT = 1.5
"""A fall of eigenvalues below which a choice says that no number stands out."""

AMONG_PEERS = '"auto" is not for peers, of whom nobody sees eigenvalues; give a number, or let DKPCA or DisKPCA choose'
BY_EIGENGAP = '"auto" is eigengap = true here, with a number, the most'
"""What `no_choice` says of them, and of `FKKMeans`."""

Components = TypeVar("Components", KernelPCA, LandmarkPCA)


def no_choice(sentence: str) -> BeforeValidator:
    """Return what refuses "auto" in a sentence where a number is needed."""

    def check(number: object) -> object:
        if number == "auto":
            raise ValueError(sentence)
        return number

    return BeforeValidator(check)


def most_components(n_components: int | Literal["auto"], max_components: int | None) -> int:
    """Return the number of components, or the most where it is chosen; InputError if the two do not fit together."""
    if n_components == "auto":
        return AUTO_COMPONENTS if max_components is None else max_components
    if max_components is not None:
        raise InputError(f'max_components = {max_components} has a meaning only with n_components = "auto"')
    return n_components


def check_components(
    n_components: int | Literal["auto"], most: int, limit: int, what: str = "the number of rows, "
) -> None:
    """Raise InputError if there are, or may be, more components than the number of something allows."""
    check_at_most("max_components" if n_components == "auto" else "n_components", most, limit, what)


def chosen(
    model: Components, most: int, rows: int, centred: FloatArray | None = None, omitted: float = 0.0
) -> Components:
    """Return a model's leading components, as many as the eigengap says (`fedkernel.numerics.falls`).

    A spectrum that is not centred falls the most after the direction of the mean, which says nothing of how the rows
    differ: the gap is that of the centred one. The model has one component more than are before that gap where the
    mean's own direction, orthogonal to theirs, stands out as they do. Of eigenvalues, that is how many are above the
    middle of the gap: taking the mean off is of rank 1, so that at most one more is.

    Parameters
    ----------
    model : KernelPCA or LandmarkPCA
        Of one component more than the most, where there are so many.
    most : int
    rows : int
        Of the matrix whose eigenvalues they are.
    centred : ndarray, optional
        As many eigenvalues of the matrix once it is centred; None: it is.
    omitted : float
        By how much these may be larger, by what clients left out.
    """
    values = model.eigenvalues_ if centred is None else centred
    ratios = falls(values, most, rows, omitted)
    n = D = 1 + int(np.argmax(ratios))
    after, mean = "that one", ""
    if centred is not None:
        after = f"{D}, once centred"
        middle = np.sqrt(values[D - 1] * values[D]) if ratios.size > 1 else values[0] / 2
        if most > D and np.count_nonzero(model.eigenvalues_ > middle) > D:
            n, mean = D + 1, ", and the mean has a direction of its own"
    listed = ", ".join(f"{number}: {ratio:.3g}" for number, ratio in enumerate(ratios, start=1))
    factor = f"by a factor of {'at least ' if omitted > 0 else ''}({listed})"
    why = f"of 1 to {ratios.size} the eigenvalues fall the most after {after}, {factor}{mean}"
    if ratios.max() < FAINT:
        why = f"{why}; no number stands out, by a factor of {FAINT} or more"
    if ratios.size < most:
        count = np.count_nonzero(above_rounding(values, rows))
        why = f"{why}; only {count} eigenvalues are told from 0"
    if n == most:
        why = f"{why}; that is the most that there may be (max_components)"
    return dataclasses.replace(model.first(n), choice_=Choice("n_components", n, f"n_components = {n}: {why}"))


def comparable(reference: Components, model: Components) -> Components:
    """Return as many of a reference's components, which are the most that there may be, as a model has chosen."""
    return reference.first(model.n_components) if model.n_components < reference.n_components else reference

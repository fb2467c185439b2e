"""How many components there are, where that is left to a run."""

import dataclasses
import itertools
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from fedkernel.errors import InputError
from fedkernel.models import Choice, KernelPCA, LandmarkPCA
from fedkernel.numerics import above_rounding, components_by_gap
from fedkernel.validation import check_at_most

AUTO_COMPONENTS = 10
"""Where the number of components is chosen: the most, by default."""

NumberOfComponents = Annotated[int, Field(ge=1)] | Literal["auto"]
MostComponents = Annotated[int, Field(ge=1)] | None

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


def chosen(model: Components, most: int, rows: int) -> Components:
    """Return a model's leading components, as many as the eigengap says (`fedkernel.numerics.components_by_gap`).

    Parameters
    ----------
    model : KernelPCA or LandmarkPCA
        Of one component more than the most, where there are so many.
    most : int
    rows : int
        Of the matrix whose eigenvalues they are.
    """
    D, candidates = components_by_gap(model.eigenvalues_, most, rows)
    values = model.eigenvalues_[above_rounding(model.eigenvalues_, rows)]
    ratios = enumerate(itertools.pairwise(values.tolist()), start=1)
    listed = ", ".join(f"{number}: {last / following:.3g}" for number, (last, following) in ratios)
    why = f"of 1 to {candidates} the eigenvalues fall the most after that one, by a factor of ({listed})"
    if candidates < most:
        why = f"{why}; only {values.size} eigenvalues are told from 0"
    return dataclasses.replace(model.first(D), choice_=Choice("n_components", D, f"n_components = {D}: {why}"))


def comparable(reference: Components, model: Components) -> Components:
    """Return as many of a reference's components, which are the most that there may be, as a model has chosen."""
    return reference.first(model.n_components) if model.n_components < reference.n_components else reference

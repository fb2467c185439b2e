"""How many components there are, where that is left to a run."""

import dataclasses
import itertools
from typing import Annotated, Literal

from pydantic import Field

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import Choice, KernelPCA
from fedkernel.numerics import above_rounding, components_by_gap
from fedkernel.validation import check_at_most

AUTO_COMPONENTS = 10
"""Where the number of components is chosen: the most, by default."""

NumberOfComponents = Annotated[int, Field(ge=1)] | Literal["auto"]
MostComponents = Annotated[int, Field(ge=1)] | None


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


def chosen(model: KernelPCA, n_components: int | Literal["auto"], most: int, rows: int) -> KernelPCA:
    """Return a model's leading components: as many as are wanted or, where that is open, as the eigengap says.

    Parameters
    ----------
    model : KernelPCA
        Of the components wanted or, to choose, of one more than the most, where there are so many.
    n_components : int or "auto"
    most : int
        How many are wanted, at most where that is chosen.
    rows : int
        Of the matrix whose eigenvalues they are.
    """
    if n_components != "auto":
        return model.first(most)
    D, candidates = components_by_gap(model.eigenvalues_, most, rows)
    values = model.eigenvalues_[above_rounding(model.eigenvalues_, rows)]
    why = (
        f"n_components = {D}: of 1 to {candidates} the next eigenvalue is smallest beside its last ({_ratios(values)})"
    )
    if values.size < 2:
        why = "n_components = 1: there are not two eigenvalues above 0 to compare"
    return dataclasses.replace(model.first(D), choice_=Choice("n_components", D, why))


def _ratios(values: FloatArray) -> str:
    """Write the ratios of neighbouring eigenvalues, by the number of those before."""
    pairs = enumerate(itertools.pairwise(values.tolist()), start=1)
    return ", ".join(f"{D}: {last / following:.3g}" for D, (last, following) in pairs)

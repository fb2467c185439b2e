"""Choice of the number of components by a run."""

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

FAINT = 1.5
"""Fall of eigenvalues below which a choice reports that no number stands out."""

AMONG_PEERS = '"auto" is not for peers, of whom nobody sees eigenvalues; give a number, or let DKPCA or DisKPCA choose'
BY_EIGENGAP = '"auto" is eigengap = true here, with a number, the most'
"""Error texts of `no_choice` for peers, and for `FKKMeans`."""

Components = TypeVar("Components", KernelPCA, LandmarkPCA)


def no_choice(sentence: str) -> BeforeValidator:
    """Return a validator that refuses "auto", with a sentence, for a field that needs a number."""

    def check(number: object) -> object:
        if number == "auto":
            raise ValueError(sentence)
        return number

    return BeforeValidator(check)


class ChoosesComponents:
    """Base of strategies whose number of components may be "auto": of 1 to `max_components`."""

    n_components: NumberOfComponents
    max_components: MostComponents

    @property
    def most_components(self) -> int:
        """Number of components k, or its upper limit if it is chosen."""
        if self.n_components == "auto":
            return AUTO_COMPONENTS if self.max_components is None else self.max_components
        return self.n_components

    def check_components(self, limit: int | None = None, what: str = "the number of rows, ") -> None:
        """Raise InputError if both a number and its limit are set, or if more components than `limit` are."""
        if self.n_components != "auto" and self.max_components is not None:
            raise InputError(f'max_components = {self.max_components} has a meaning only with n_components = "auto"')
        if limit is not None:
            name = "max_components" if self.n_components == "auto" else "n_components"
            check_at_most(name, self.most_components, limit, what)

    def comparable(self, reference: Components, model: Components) -> Components:
        """Return the reference with as many of its components as the model has chosen."""
        chosen = self.n_components == "auto" and model.n_components < reference.n_components
        return reference.first(model.n_components) if chosen else reference


def chosen(
    model: Components, most: int, rows: int, centred: FloatArray | None = None, omitted: float = 0.0
) -> Components:
    """Return a model's leading components, as many as the eigengap says (`fedkernel.numerics.value_ratios`).

    A spectrum that is not centred falls the most after the direction of the mean, which says nothing of the rows'
    differences: the gap is that of the centred one. The model has one component more than are before that gap if the
    mean's own direction, orthogonal to theirs, stands out as they do. Their number is that of the eigenvalues above the
    middle of the gap: taking the mean off is of rank 1, so that at most one more is.

    The model has one component more than the most, if there are so many, and is of a matrix with so many `rows`;
    ``centred`` are as many of its eigenvalues once it is centred, None: it is. By ``omitted``, the sum that clients
    left out, eigenvalues may be larger.
    """
    values = model.eigenvalues_ if centred is None else centred
    ratios = value_ratios(values, most, rows, omitted)
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

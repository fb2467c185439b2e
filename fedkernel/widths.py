"""Kernel widths by rule: the table of a kernel may say ``width = "median"`` in place of a number."""

from collections.abc import Callable, Mapping
from typing import Any

from fedkernel.errors import InputError
from fedkernel.kernels import dimension_sigma, fk_gamma, median_sigma
from fedkernel.linalg import FloatArray

WIDTHS: dict[str, Callable[[FloatArray], dict[str, float]]] = {
    "median": lambda X: {"sigma": median_sigma(X)},
    "mean": lambda X: {"gamma": fk_gamma(len(X), X.sum(axis=0), float((X * X).sum()))},
    "dimension": lambda X: {"sigma": dimension_sigma(X.shape[1])},
}
"""Rules by name: the median pairwise distance, the mean one (federated kernel k-means), sqrt(d)/3 (DKPCA)."""


def with_width(kernel: Mapping[str, Any], X: FloatArray) -> dict[str, Any]:
    """Return a kernel's table with its rule replaced by the number that the rule gives on the rows X (n, d)."""
    table = dict(kernel)
    if (rule := table.pop("width", None)) is None:
        return table
    if "type" not in table:
        raise InputError("kernel.type is required: kernel.width is for rbf and laplacian kernels")
    if table["type"] not in ("rbf", "laplacian"):
        raise InputError(f"kernel.width is for rbf and laplacian kernels, not for type = {table['type']!r}")
    if not isinstance(rule, str) or rule not in WIDTHS:
        raise InputError(f"kernel.width = {rule!r}, but must be one of {', '.join(WIDTHS)}")
    if given := {"gamma", "sigma"} & set(table):
        raise InputError(f"kernel.width and kernel.{min(given)} are the same thing; give only one of them")
    width = WIDTHS[rule](X)
    if table["type"] == "laplacian" and "sigma" in width:
        # exp(-||x - y||_1 / sigma): the Laplacian's own reading of a width.
        width = {"gamma": 1.0 / width["sigma"]}
    return {**table, **width}

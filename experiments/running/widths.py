"""Kernel widths by rule of the methods of an experiment, where the clients' tables are all here."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedkernel.addresses import names
from fedkernel.arrays import Rows, stack_rows
from fedkernel.errors import InputError
from fedkernel.numerics import KERNELS, with_width


class Widths:
    """Kernel widths by rule, computed once for each data set, division of it, and seed."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def resolved(
        self, parameters: Mapping[str, Any], shards: Sequence[Rows], divided: str, data: str
    ) -> dict[str, Any]:
        """Replace each kernel's ``width = "rule"`` by the number that the rule gives on the pooled data.

        Parameters
        ----------
        parameters : mapping
            A method's; kernels of methods within it count too, such as ``components.kernel``.
        shards : sequence of ndarray or CSR array
            None where sites hold their own: rules stay, and strategies settle them across the sites.
        divided : {"vertical", "horizontal"}
        data : str
            The shards' name: the same for the same shards only.
        """
        resolved = dict(parameters)
        for name, value in parameters.items():
            if name == "kernel" and isinstance(value, Mapping) and _is_ruled(value):
                if not shards:  # sites hold them, and settle it as the run begins
                    continue
                key = repr((sorted(value.items(), key=str), divided, data))
                if key not in self._known:
                    self._known[key] = with_width(value, _pooled(shards, divided))
                resolved[name] = self._known[key]
            elif isinstance(value, Mapping):
                resolved[name] = self.resolved(value, shards, divided, data)
        return resolved


def _is_ruled(kernel: Mapping[str, Any]) -> bool:
    """Tell whether a kernel's table may say a width by rule; fields of somebody else's kernel are its own."""
    name = str(kernel.get("type"))
    others = ":" in name or name in names("kernels").keys() - KERNELS.keys()
    return not others and bool({"width", "factor"} & kernel.keys())


def _pooled(shards: Sequence[Any], divided: str) -> Rows:
    axis, shared = (1, "rows") if divided == "vertical" else (0, "columns")
    sizes = [shard.shape[1 - axis] for shard in shards]
    if len(set(sizes)) > 1:
        raise InputError(
            f"the clients have {', '.join(map(str, sizes))} {shared}: "
            f"with a {divided} partition all must have the same {shared}"
        )
    return np.hstack(shards) if divided == "vertical" else stack_rows(shards)

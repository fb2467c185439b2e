"""Construction of strategies by their name or address."""

from collections.abc import Mapping
from typing import Any

from fedkernel.ground import load_class
from fedkernel.numerics import import_kernels
from fedkernel.strategy.kernel_strategy import KernelStrategy


def strategy_of(name: str, parameters: Mapping[str, Any], what: str = "strategy") -> KernelStrategy[Any]:
    """Build a strategy from its name or address and a table of parameters, importing both.

    Raises InputError if there is no such strategy, called `what` in the text, or if it refuses the parameters.
    """
    kind: type[KernelStrategy[Any]] = load_class(name, KernelStrategy, "pairs", what)
    import_kernels(parameters)
    return kind(**parameters)

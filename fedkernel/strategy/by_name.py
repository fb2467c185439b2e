"""Construction of strategies from their name or address and a table of parameters."""

from collections.abc import Mapping
from typing import Any

from fedkernel.ground import load_class
from fedkernel.numerics import import_kernels
from fedkernel.strategy.kernel_strategy import KernelStrategy


def strategy_of(name: str, parameters: Mapping[str, Any], what: str = "strategy") -> KernelStrategy[Any]:
    """Build a strategy from its name or address, and a table of parameters; kernels are imported, too.

    Raises InputError for an unknown strategy or invalid parameters; `what` names the strategy in the text.
    """
    kind: type[KernelStrategy[Any]] = load_class(name, KernelStrategy, "pairs", what)
    import_kernels(parameters)
    return kind(**parameters)

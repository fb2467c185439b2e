"""Base classes of strategies: declaration of a method, order of a run, evaluation, and Flower's interface."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.strategy.evaluation import Measures, Rival
    from fedkernel.strategy.kernel_strategy import KernelStrategy, strategy_of
    from fedkernel.strategy.method import Tags
    from fedkernel.strategy.phases import check_phases, settled_privacy
    from fedkernel.strategy.simulation import check_tables, simulated_sites
else:
    __getattr__, __all__ = lazily(__name__)

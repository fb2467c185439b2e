"""Base classes of strategies: declaration of a method, order of a run, evaluation, and Flower's interface."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .evaluation import Measures, Rival
    from .kernel_strategy import KernelStrategy, strategy_of
    from .method import Tags
    from .phases import check_phases, settled_privacy
    from .simulation import check_tables, simulated_sites
else:
    __getattr__, __all__ = lazily(__name__)

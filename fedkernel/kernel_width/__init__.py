"""Sub-protocol that computes kernel widths by rules such as the median distance, before a strategy's protocol."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .client import WidthClient
    from .kernel_replacement import ruled_kernels, with_kernels
    from .width_rounds import settle_widths, width_forecast, width_plan
else:
    __getattr__, __all__ = lazily(__name__)

"""Sub-protocol that computes rule-based kernel widths, before a strategy's own protocol."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.kernel_width.client import WidthClient
    from fedkernel.kernel_width.kernel_replacement import ruled_kernels, with_kernels
    from fedkernel.kernel_width.width_rounds import settle_widths, width_forecast, width_plan
else:
    __getattr__, __all__ = lazily(__name__)

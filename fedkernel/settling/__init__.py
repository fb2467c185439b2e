"""Kernel widths by rule where sites hold the rows: the sub-protocol that settles them before a strategy's begins."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.settling.client import WidthClient
    from fedkernel.settling.kernels import ruled_kernels, with_kernels
    from fedkernel.settling.widths import settle_widths, width_forecast, width_plan
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "WidthClient",
    "ruled_kernels",
    "settle_widths",
    "width_forecast",
    "width_plan",
    "with_kernels",
]

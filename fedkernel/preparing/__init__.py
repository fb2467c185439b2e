"""Raw tables, prepared across sites before a method sees them: by sums, with differences between sites named."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.preparing.client import PrepareClient
    from fedkernel.preparing.here import prepared_here
    from fedkernel.preparing.protocol import Outcome, forecast, plan, prepare_tables
    from fedkernel.preparing.shards import tables_to_prepare
    from fedkernel.preparing.table import TableToPrepare, from_text, to_text
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "Outcome",
    "PrepareClient",
    "TableToPrepare",
    "forecast",
    "from_text",
    "plan",
    "prepare_tables",
    "prepared_here",
    "tables_to_prepare",
    "to_text",
]

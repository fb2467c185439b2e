"""Raw tables, prepared across sites before a method sees them: by sums, with differences between sites named."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.preparing.client import PrepareClient
    from fedkernel.preparing.pooled import prepared_here
    from fedkernel.preparing.protocol import Outcome, forecast, plan, prepare_tables
    from fedkernel.preparing.python_tables import tables_to_prepare
    from fedkernel.preparing.scaling import fitted
    from fedkernel.preparing.table import TableToPrepare, from_text, to_text
else:
    __getattr__, __all__ = lazily(__name__)

"""Joint preparation of the sites' raw tables by sums, with a report of columns that differ between sites."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .client import PrepareClient
    from .preparation_rounds import Outcome, forecast, plan, prepare_centrally, prepare_tables
    from .raw_table import TableToPrepare, from_text, tables_to_prepare, to_text
    from .scaling import fitted
else:
    __getattr__, __all__ = lazily(__name__)

"""What the commands say and do; what they share is imported as it is first used, so that their help waits for none."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from experiments.commands.collection import is_collection, report_folder, run_folder
    from experiments.commands.forecast import read_shape, show_forecast
    from experiments.commands.outcomes import end, show_results
    from experiments.commands.tables import open_finished, print_summaries
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "end",
    "is_collection",
    "open_finished",
    "print_summaries",
    "read_shape",
    "report_folder",
    "run_folder",
    "show_forecast",
    "show_results",
]

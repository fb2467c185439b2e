"""What the commands say and do; what they share is imported as it is first used, so that their help waits for none."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from experiments.commands.advising import print_advice
    from experiments.commands.applying import apply_received, predict_rows, transform_rows
    from experiments.commands.attending import attend
    from experiments.commands.collection import is_collection, report_folder, run_folder
    from experiments.commands.forecast import read_shape, show_forecast
    from experiments.commands.metrics import serving_metrics
    from experiments.commands.outcomes import end, show_results
    from experiments.commands.policies import forecast_of, messages_of, show_shares
    from experiments.commands.projecting import projection_of
    from experiments.commands.studies import answers_of, read_study, show_study
    from experiments.commands.tables import compare_folders, open_finished, print_summaries
else:
    __getattr__, __all__ = lazily(__name__)

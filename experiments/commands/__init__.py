"""Commands of the command line; shared functions are imported at first use, so that help is fast."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .advice_output import print_advice
    from .batch import is_collection, report_folder, run_folder
    from .experiment_tables import compare_folders, exit_if_failed, open_finished, print_summaries, show_results
    from .forecast_table import read_shape, show_forecast
    from .model_outputs import apply_received, predict_rows, transform_rows
    from .policy_for_study import forecast_of, messages_of, show_shares
    from .projection_study import projection_of
    from .prometheus import serving_metrics
    from .site_session import serve_site
    from .study_text import answers_of, read_study, show_study
else:
    __getattr__, __all__ = lazily(__name__)

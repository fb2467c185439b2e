"""Commands of the command line; shared functions are imported at first use, so that help is fast."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.experiments.commands.advice_output import print_advice
    from fedkernel.experiments.commands.batch import is_collection, report_folder, run_folder
    from fedkernel.experiments.commands.experiment_tables import (
        compare_folders,
        exit_if_failed,
        open_finished,
        print_summaries,
        show_results,
    )
    from fedkernel.experiments.commands.forecast_table import read_shape, show_forecast
    from fedkernel.experiments.commands.model_outputs import apply_received, predict_rows, transform_rows
    from fedkernel.experiments.commands.policy_for_study import forecast_of, messages_of, show_shares
    from fedkernel.experiments.commands.projection_study import projection_of
    from fedkernel.experiments.commands.prometheus import serving_metrics
    from fedkernel.experiments.commands.site_session import serve_site
    from fedkernel.experiments.commands.study_text import answers_of, read_study, show_study
else:
    __getattr__, __all__ = lazily(__name__)

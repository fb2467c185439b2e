"""Execution of experiments: planning, runs, claims, and the output folder."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .execution import Outcome, conclude, environment, outcome_of, run_experiment, unfinished
    from .folder import read_folder
    from .parallel_experiments import experiments_in, run_all
    from .planning import PRESENTATION_SECTIONS, Planned, plan, study_of
else:
    __getattr__, __all__ = lazily(__name__)

"""From an experiment to its runs: the plan, the runs, the folder they are kept in."""

from experiments.running.carrying_out import Outcome, conclude, run_experiment
from experiments.running.folder import read_folder
from experiments.running.planning import Planned, plan, study_of

__all__ = [
    "Outcome",
    "Planned",
    "conclude",
    "plan",
    "read_folder",
    "run_experiment",
    "study_of",
]

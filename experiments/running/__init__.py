"""From an experiment to its runs: the plan, the runs, the folder they are kept in."""

from experiments.running.folder import OURS, open_folder, read_folder
from experiments.running.planning import Planned, plan, points, run_id
from experiments.running.runner import Outcome, conclude, run_experiment

__all__ = [
    "OURS",
    "Outcome",
    "Planned",
    "conclude",
    "open_folder",
    "plan",
    "points",
    "read_folder",
    "run_experiment",
    "run_id",
]

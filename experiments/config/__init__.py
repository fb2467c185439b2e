"""What a TOML file says: its sections, their rules, what the command line overrides."""

from experiments.config.experiment import Experiment
from experiments.config.overrides import with_value
from experiments.config.reading import read_config, read_table
from experiments.config.sections import Method, ReportOptions, Shards, Sites

__all__ = [
    "Experiment",
    "Method",
    "ReportOptions",
    "Shards",
    "Sites",
    "read_config",
    "read_table",
    "with_value",
]

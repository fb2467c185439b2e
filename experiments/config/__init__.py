"""Configuration files of experiments: sections, rules, and overrides from the command line."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.experiments.config.experiment import Experiment
    from fedkernel.experiments.config.installed import locate, shipped
    from fedkernel.experiments.config.overrides import by_path, with_value
    from fedkernel.experiments.config.sections import Method, ReportOptions, Shards, Sites
    from fedkernel.experiments.config.toml_file import read_config, read_table
else:
    __getattr__, __all__ = lazily(__name__)

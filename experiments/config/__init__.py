"""Configuration files of experiments: sections, rules, and overrides from the command line."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .experiment import Experiment
    from .installed import locate, shipped
    from .overrides import by_path, with_value
    from .sections import Method, ReportOptions, Shards, Sites
    from .toml_file import read_config, read_table
else:
    __getattr__, __all__ = lazily(__name__)

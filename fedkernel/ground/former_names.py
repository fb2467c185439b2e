"""Acceptance of class attributes under their former names, with a warning, for one version."""

import warnings
from collections.abc import Mapping


def accept_former_names(cls: type, names: Mapping[str, str]) -> None:
    """Set the present attributes of a class that defines former ones, and warn of each; `names`: by former name."""
    for former, name in names.items():
        if former in vars(cls):
            warnings.warn(f"{cls.__name__}.{former} is now called {name}", DeprecationWarning, stacklevel=3)
            setattr(cls, name, vars(cls)[former])

"""ServerApp, which runs the strategy with the parameters in the run configuration."""

from fedkernel.flower_apps import server as app

__all__ = ["app"]

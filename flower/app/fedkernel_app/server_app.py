"""ServerApp, which runs the method that the run configuration names."""

from fedkernel.flower_apps import server as app

__all__ = ["app"]

"""ClientApp, which answers for its site's part of the data set."""

from fedkernel.flower_apps import client as app

__all__ = ["app"]

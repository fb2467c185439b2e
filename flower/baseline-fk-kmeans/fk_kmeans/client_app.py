"""ClientApp, which answers for its part of the data set with `fedkernel.clients.fk_kmeans.FKKMeansClient`."""

from fedkernel.flower_apps import client as app

__all__ = ["app"]

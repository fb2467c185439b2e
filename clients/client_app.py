"""The ClientApp of the Flower app bundle."""

from clients import REGISTRY
from fedkernel.site import client_app, site_of_job

app = client_app(REGISTRY, site_of_job)

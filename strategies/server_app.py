"""The ServerApp of the Flower app bundle."""

from fedkernel.coordinator import server_app
from strategies import REGISTRY

app = server_app(REGISTRY)

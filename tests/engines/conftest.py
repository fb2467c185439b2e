"""A hub without a network, by a clock that a test turns."""

import pytest
from counting import Told

from fedkernel.engines.grpc.stream_grid import StreamGrid


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def hub(now):
    """Its sentences are `hub.told`."""
    told = Told()
    told.hub = hub = StreamGrid(["a", "b"], report=told, clock=lambda: now[0])
    hub.told = told
    return hub

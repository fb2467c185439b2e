"""Check the pair of `my_lab`, in this folder, and fit it on some engines: ``python fit.py local grpc``."""

import sys

import numpy as np
from my_lab.kernels import Rational
from my_lab.models import Centre
from my_lab.pairs import WeightedCentre

from fedkernel.testing import check_pair

shards = np.split(np.random.default_rng(0).exponential(size=(30, 4)), [8, 17])
strategy = WeightedCentre(kernel=Rational(width=2.0))
weights = [[np.mean([1 / (1 + sum((x - y) ** 2) / 2) for y in X]) for x in X] for X in shards]
expected = np.average(np.vstack(shards), axis=0, weights=np.concatenate(weights))
for engine in sys.argv[1:]:
    result = strategy.fit(shards, engine=engine)
    assert isinstance(result.model, Centre)
    np.testing.assert_allclose(result.model.point, expected, rtol=1e-12)
    print(f"my_lab.pairs:WeightedCentre on {engine}: {result.model.point.round(3)}")
print("check_pair left out:", ", ".join(check_pair(strategy, shards)))

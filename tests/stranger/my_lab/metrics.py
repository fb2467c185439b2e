"""A metric."""

import numpy as np


def eccentricity(model, shards):
    """Distance of the centre from the rows' plain mean."""
    return float(np.linalg.norm(model.point - np.vstack(shards).mean(axis=0)))

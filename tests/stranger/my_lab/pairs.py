"""A pair: the mean of all rows, weighted by their likeness to the rows of their own site."""

from typing import Annotated

import numpy as np

from fedkernel import (
    FloatArray,
    Kernel,
    KernelClient,
    KernelStrategy,
    Request,
    Shape,
    Summed,
    Tags,
    once,
    to_sum,
    value_object,
)
from my_lab.models import Centre


class Sums(Summed):
    """Reveals the weighted sums of the site's columns, and the weights' sum."""

    values: Annotated[FloatArray, Shape("d")]
    weight: Annotated[float, Shape()]


class SumWeighted(Request[Sums]):
    """Asks for the columns' sums, each row weighted by its mean kernel value."""

    kernel: Kernel
    fail: bool = False


class CentreClient(KernelClient):
    """Weighs its rows and adds them up."""

    answers = (SumWeighted,)

    def sum_weighted(self, ask: SumWeighted) -> Sums:
        if ask.fail:
            raise ZeroDivisionError("the third column's scale is 0")
        weights = ask.kernel.gram(self.X).mean(axis=1)
        return Sums(values=weights @ self.X, weight=float(weights.sum()))


@value_object()
class WeightedCentre(KernelStrategy[Centre]):
    """The mean of all rows, weighted."""

    client, partition = CentreClient, "horizontal"
    tags = Tags(alone=True, pooled=False)

    kernel: Kernel
    fail: bool = False

    def protocol(self, run):
        total = yield from to_sum(SumWeighted(kernel=self.kernel, fail=self.fail))
        return Centre(self.kernel, total.values / total.weight, total.weight, tuple(run.clients))

    def plan(self, clients, seed):
        """Say that each site is asked once."""
        return (once(SumWeighted, kernel=self.kernel, fail=self.fail),)

    def central(self, shards):
        """Return the same of all rows at one site."""
        total = CentreClient(np.vstack(shards)).sum_weighted(SumWeighted(kernel=self.kernel))
        return Centre(self.kernel, total.values / total.weight, total.weight, (0,))

    def judge(self, result, shards, reference=None):
        """Return how far the centre is from that of the reference."""
        return {} if reference is None else {"error": float(np.linalg.norm(result.model.point - reference.point))}

"""A pair: the mean of all rows, weighted by their likeness to the rows of their own site."""

from typing import Annotated

import numpy as np

from fedkernel import (
    FloatArray,
    Kernel,
    KernelClient,
    KernelStrategy,
    Reply,
    Request,
    Shape,
    Tags,
    to_all,
    value_object,
)
from my_lab.models import Centre


class Sums(Reply):
    """Reveals the weighted sums of the site's columns, and the weights' sum."""

    values: Annotated[FloatArray, Shape("d")]
    weight: Annotated[float, Shape()]


class WeightedSums(Request[Sums]):
    """Asks for the columns' sums, each row weighted by its mean kernel value."""

    kernel: Kernel
    fail: bool = False


class CentreClient(KernelClient):
    """Weighs its rows and adds them up."""

    answers = (WeightedSums,)

    def weighted_sums(self, ask: WeightedSums) -> Sums:
        if ask.fail:
            raise ZeroDivisionError("the third column's scale is 0")
        weights = ask.kernel.gram(self.X).mean(axis=1)
        return Sums(values=weights @ self.X, weight=float(weights.sum()))


@value_object()
class WeightedCentre(KernelStrategy[Centre]):
    """The mean of all rows, weighted."""

    client, partition = CentreClient, "horizontal"
    tags = Tags(pooled=False)

    kernel: Kernel
    fail: bool = False

    def protocol(self, run):
        replies = yield from to_all(WeightedSums(kernel=self.kernel, fail=self.fail))
        weight = sum(reply.weight for reply in replies)
        point = np.sum([reply.values for reply in replies], axis=0) / weight
        return Centre(self.kernel, point, weight, tuple(range(len(replies))))

"""
A pair of your own in 40 lines
==============================

A pair is a client, which says all that can leave a site, and a strategy, which says what the coordinator does with it.
This one finds the mean and the covariance of rows at several sites, in one round and by sums alone.
"""

from typing import Annotated

import matplotlib.pyplot as plt
import numpy as np

from fedkernel import FloatArray, KernelClient, KernelStrategy, Request, Shape, Summed, once, to_sum
from fedkernel.testing import check_pair


class Moments(Summed):
    """Reveals a site's number of rows, their sum and their products; the strategy gets the sums over the sites."""

    rows: Annotated[float, Shape()]
    sums: Annotated[FloatArray, Shape("d")]
    products: Annotated[FloatArray, Shape("d", "d")]


class SumMoments(Request[Moments]):
    """Asks for the moments."""


class MomentsClient(KernelClient):
    """Adds up its rows and their products."""

    answers = (SumMoments,)

    def sum_moments(self, ask: SumMoments) -> Moments:
        """Return the moments of the site's rows X (n, d)."""
        return Moments(rows=float(len(self.X)), sums=self.X.sum(axis=0), products=self.X.T @ self.X)


class FederatedCovariance(KernelStrategy[FloatArray]):
    """Finds mean and covariance of all rows, as rows of one array (1 + d, d)."""

    client, partition = MomentsClient, "horizontal"

    def plan(self, clients, seed):
        """Return the one request, so that a site can approve it."""
        return (once(SumMoments),)

    def protocol(self, run):
        """Ask for the sums, and divide them."""
        total = yield from to_sum(SumMoments())
        mean = total.sums / total.rows
        return np.vstack([mean, total.products / total.rows - np.outer(mean, mean)])


# %%
# Three sites see other parts of one cloud of points. The ellipse is that of all rows, and masks hide each site's sums
# from the coordinator.

rng = np.random.default_rng(0)
cloud = rng.normal(size=(300, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
sites = np.array_split(cloud[np.argsort(cloud[:, 0] + rng.normal(size=300))], 3)
result = FederatedCovariance().fit(sites, sums="masked")
print(result.model, result, sep="\n")

angles = np.linspace(0, 2 * np.pi, 100)
mean, covariance = result.model[0], result.model[1:]
ellipse = mean[:, np.newaxis] + 2 * np.linalg.cholesky(covariance) @ [np.cos(angles), np.sin(angles)]
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for number, (site, marker) in enumerate(zip(sites, "osD", strict=True)):
    axes.plot(*site.T, marker, ms=3, color=f"C{number}", label=f"site {number}")
axes.plot(*ellipse, color="black", lw=2, label="two deviations of all rows")
axes.set(xlabel="first column", ylabel="second column", aspect="equal")
axes.legend()
plt.show()

# %%
# The properties of every pair are tried on it: the same seed gives the same bits, the plan is kept, bad input is one
# sentence, and more. Those that do not apply are named with the reason.

left_out = check_pair(FederatedCovariance(), sites)

# %%
# ``fedkernel new MyPair`` writes such a pair with its test and an experiment: :doc:`/reference/commands`.

"""Base class for projecting new rows whose columns are divided between sites, along a model's components."""

from abc import abstractmethod
from collections.abc import Sequence

from fedkernel.clients.new_rows_base import TakeCoordinates
from fedkernel.data import Prepare, TableLike
from fedkernel.ground import FloatArray
from fedkernel.models import KernelPCA
from fedkernel.protocol import Plan, Protocol, Run, Step, once, to_all
from fedkernel.run import RunSettings
from fedkernel.strategy import KernelStrategy


class NewRowsStrategy(KernelStrategy[KernelPCA]):
    """Base of strategies of vertical partitions whose sites project new rows together, in one round."""

    @abstractmethod
    def _projection(self, model: KernelPCA) -> Protocol[FloatArray]:
        """Return a protocol of one round that results in the new rows' coordinates, (n_new, k)."""

    @abstractmethod
    def _projection_step(self) -> tuple[Step, int]:
        """Return the planned request of the projection's round, and the largest number of components k."""

    def projection(self, run: Run, model: KernelPCA, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Project the new rows at the clients: one round, (n_new, k) coordinates. No column leaves a client.

        With `to_sites`, one round more sends each client the coordinates, n_new k floats down.
        """
        coordinates = yield from self._projection(model)
        if to_sites:
            yield from to_all(TakeCoordinates(coordinates=coordinates))
        return coordinates

    def projection_plan(self, *, to_sites: bool) -> Plan | None:
        """Return the plan of the projection: one request and, with `to_sites`, the one that sends coordinates."""
        asks, components = self._projection_step()
        return (asks, once(TakeCoordinates, {"k": components})) if to_sites else (asks,)

    def transform(
        self,
        model: KernelPCA,
        shards: Sequence[TableLike],
        new_shards: Sequence[TableLike],
        *,
        seed: int = 0,
        deadline: float = 3600.0,
        prepare: Prepare | None = None,
    ) -> FloatArray:
        """Project new rows at simulated sites. Their columns are split between the sites like the training rows'.

        `shards`, `new_shards`: of each client, (N, d_m) and (n_new, d_m). `prepare`: as for `fit`, if tables are raw;
        more empty cells than it allows are refused, no row is dropped. Returns (n_new, k) in the space of the model's
        `embedding`; each method documents the kernel and the scale.
        """
        settings = RunSettings(seed=seed, clients=len(shards), deadline=deadline, prepare=prepare)
        return self.simulate(lambda run: self.projection(run, model), shards, new_shards, settings)[0]

"""Declaration of a method: its client, partition, protocol, forecast, plan and evaluation."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import pydantic

from fedkernel.ground import Division, FloatArray, InputError
from fedkernel.protocol import Forecast, KernelClient, Member, Plan, Protocol, Run
from fedkernel.strategy.evaluation import Judged
from fedkernel.strategy.result_properties import Tags

M = TypeVar("M")


class Method(Judged[M], ABC, Generic[M]):
    """Interface that a strategy's subclass implements: `protocol`, and optionally the methods after it.

    An instance is a value: its fields are the method's hyper-parameters; everything of a run is an argument.

    - `client`: the pair's `KernelClient`.
    - `partition`: whether sites hold columns of the same rows, or rows with the same columns.
    - `on_missing`: whether a client that fails or does not answer ends the run, or the run goes on without it.
    - `loses_first`: a run with a quorum may lose a client in the first round; the answer is then the others'.
    - `hands_out`: phases that only hand out the answer, so that a run with a quorum may lose a client there.
    - `needs_all`: why the other rounds need all clients, in a sentence.
    - `tags`: properties of the results, for `fedkernel.testing`.
    """

    client: ClassVar[type[KernelClient]]
    partition: ClassVar[Division]
    on_missing: ClassVar[Literal["fail", "continue"]] = "fail"
    loses_first: ClassVar[bool] = False
    hands_out: ClassVar[tuple[str, ...]] = ()
    needs_all: ClassVar[str] = ""
    tags: ClassVar[Tags] = Tags()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (partition := vars(cls).get("partition", "vertical")) not in ("vertical", "horizontal"):
            raise TypeError(f"{cls.__name__}: partition = {partition!r}, but must be vertical or horizontal")

    def __init__(self, *values: Any, **fields: Any) -> None:
        """Refuse hyper-parameters, since a class without `value_object` has none."""
        if values or fields:
            name = type(self).__name__
            raise TypeError(f"{name} takes no hyper-parameters; write @value_object() above its class if it has fields")

    @abstractmethod
    def protocol(self, run: Run) -> Protocol[M]:
        """Return the method as a generator of rounds whose result is the model."""

    def evaluation(self, run: Run, model: M) -> Protocol[dict[str, float]] | None:
        """Return a protocol that measures the model on the clients, mostly in one round; None if there is none.

        Its result may be `fedkernel.strategy.Measures`, which has warnings too.
        """
        return None

    def forecast(self, cohort: Sequence[Member]) -> Forecast | None:
        """Return the costs of a run with such clients, without `evaluation`; None if unknown."""
        return None

    def plan(self, clients: int, seed: int) -> Plan | None:
        """Return a run's requests to each client, without `evaluation`, for sites to approve beforehand.

        None: the method has no plan; sites then cannot check its requests against one.
        """
        return None

    def evaluation_plan(self) -> Plan:
        """Return the requests of `evaluation`."""
        return ()

    def comparison(self, run: Run, earlier: str) -> Protocol[dict[str, float]]:
        """Return a protocol that compares the clients' clusters with those they kept of an earlier run."""
        raise InputError(f"{type(self).__name__} cannot compare its results with those of run {earlier!r}")

    def comparison_plan(self, earlier: str) -> Plan:
        """Return the requests of `comparison`; empty if there is no such protocol."""
        return ()

    def projection(self, run: Run, model: M, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Return a protocol that projects the clients' new rows onto a model of a vertical partition.

        Its result is the coordinates, (n_new, k), which `to_sites` finally sends to the clients.
        """
        raise InputError(f"{type(self).__name__} cannot project new rows whose columns are at several sites")

    def projection_plan(self, *, to_sites: bool) -> Plan | None:
        """Return the requests of `projection`; None if there is no such protocol."""
        return None

    def peers(self, clients: int) -> Sequence[tuple[int, ...]]:
        """Return each client's peers for letters; by default none."""
        return [()] * clients

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Raise InputError if the clients' tables cannot be used together; subclasses add their fields' conditions."""
        axis: Literal["rows", "columns"] = "rows" if self.partition == "vertical" else "columns"
        first = cohort[0]
        for member in cohort[1:]:
            if getattr(member, axis) != getattr(first, axis):
                raise InputError(
                    f"{member.label} has {getattr(member, axis)} {axis}, but {first.label} has "
                    f"{getattr(first, axis)}: with a {self.partition} partition all must have the same {axis}"
                )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """All hyper-parameters as plain data, kernels as their tables."""
        if dataclasses.is_dataclass(self):
            return dict(pydantic.TypeAdapter(type(self)).dump_python(self, mode="json"))
        return {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters by name, for scikit-learn; kernels are values without parameters."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters in place, with a new strategy's checks, for scikit-learn's clones.

        Nothing else changes a strategy; do not use it on a dictionary's key.
        """
        for name, value in type(self)(**self.get_params() | params).get_params().items():
            object.__setattr__(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an equal strategy, for scikit-learn's `clone`."""
        return type(self)(**self.get_params())

"""Base class for declaring a method: client class, partition, protocol, forecast, plan and evaluation."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import pydantic

from fedkernel.ground import Division, FloatArray, InputError, accept_former_names
from fedkernel.protocol import Forecast, KernelClient, Member, Plan, Privacy, Protocol, Run
from fedkernel.strategy.evaluation import Evaluable


@dataclass(frozen=True)
class Tags:
    """Declared properties of a strategy's results. A test fails if one is set and does not hold, or holds unset.

    A class declares, as its attribute ``tags``, the properties of its default settings after its iterations have
    converged. A test of other settings replaces some: ``check_pair(strategy, shards,
    tags=dataclasses.replace(strategy.tags, rotations=False))``.

    - `components`: name of the array, with a row for each row of the tables, whose columns span the result: an
      attribute of the model, or of the sites' outputs (with a horizontal partition of their own rows). None: the result
      is the model's arrays, entry by entry.
    - `orthonormal`: the components, divided by the roots of the model's ``eigenvalues_`` if it has any, are
      orthonormal.
    - `same_bits`: two runs of one seed give the same bits; false where a site protects its rows by noise of its own.
    - `order`: another order of the clients gives the same; false where their numbers decide the edges between them.
    - `pooled`: with a horizontal partition, the result does not depend on the client that holds a row.
    - `draws`: where rows are drawn by client and position, the largest distance (sin-theta error) between results of
      different draws. 0: there is no such draw.
    - `signs`, `rotations`: the result does not depend on columns' signs, or on a rotation of a client's columns (with a
      horizontal partition, of all clients' alike).
    - `repeated`: purposes whose random numbers a client reuses in each round, because the method says so.
    - `peers`: clients write to each other, under keys of their own making.
    - `alone`: with all data at one client, the result is that of `central`.
    - `error`, `best`: metric of the strategy's comparison with `central`, and its value for equal results.
    """

    components: str | None = None
    orthonormal: bool = False
    same_bits: bool = True
    order: bool = True
    pooled: bool = True
    draws: float = 0.0
    signs: bool = False
    rotations: bool = False
    repeated: tuple[str, ...] = ()
    peers: bool = False
    alone: bool = False
    error: str = "error"
    best: float = 0.0


M = TypeVar("M")


class Method(Evaluable[M], ABC, Generic[M]):
    """Interface that a strategy's subclass implements: `protocol`, and optionally the methods after it.

    An instance is a value: its fields are the method's hyper-parameters; everything of a run is an argument.

    - `client`: the `KernelClient` class that answers the method's requests.
    - `partition`: whether sites hold columns of the same rows, or rows with the same columns.
    - `on_missing`: whether a client that fails or does not answer ends the run, or the run goes on without it.
    - `may_lose_client_in_first_round`: whether a run with a quorum may; its result is then the other clients'.
    - `distribution_phases`: phases that only distribute the result, so a run with a quorum may lose a client there.
    - `tags`: properties of the results, for `fedkernel.testing`.
    """

    client: ClassVar[type[KernelClient]]
    partition: ClassVar[Division]
    on_missing: ClassVar[Literal["fail", "continue"]] = "fail"
    may_lose_client_in_first_round: ClassVar[bool] = False
    distribution_phases: ClassVar[tuple[str, ...]] = ()
    tags: ClassVar[Tags] = Tags()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_names(cls, {"loses_first": "may_lose_client_in_first_round", "hands_out": "distribution_phases"})
        if (partition := vars(cls).get("partition", "vertical")) not in ("vertical", "horizontal"):
            raise TypeError(f"{cls.__name__}: partition = {partition!r}, but must be vertical or horizontal")

    def __init__(self, *values: Any, **fields: Any) -> None:
        """Raise TypeError for any hyper-parameter, since a class without `value_object` has none."""
        if values or fields:
            name = type(self).__name__
            raise TypeError(f"{name} takes no hyper-parameters; write @value_object() above its class if it has fields")

    @abstractmethod
    def protocol(self, run: Run) -> Protocol[M]:
        """Return the method's generator of rounds, whose result is the model."""

    def evaluation(self, run: Run, model: M) -> Protocol[dict[str, float]] | None:
        """Return a protocol that measures the model on the clients, perhaps as `Measures`, or None."""
        return None

    def forecast(self, cohort: Sequence[Member]) -> Forecast | None:
        """Return the forecast costs of a run with these clients, without `evaluation`, or None if they are unknown."""
        return None

    def plan(self, clients: int, seed: int) -> Plan | None:
        """Return a run's planned requests to each client, without `evaluation`. None: sites cannot check requests."""
        return None

    def noise_finding(self, cohort: Sequence[Member], privacy: Privacy) -> str:
        """Return a sentence on the loss to expect from noise on a run's sums, or an empty text if unknown."""
        return ""

    def evaluation_plan(self) -> Plan:
        """Return the planned requests of `evaluation`."""
        return ()

    def comparison(self, run: Run, earlier: str) -> Protocol[dict[str, float]]:
        """Return a protocol that compares the clients' clusters with those stored from an earlier run."""
        raise InputError(f"{type(self).__name__} cannot compare its results with those of run {earlier!r}")

    def comparison_plan(self, earlier: str) -> Plan:
        """Return the planned requests of `comparison`, empty without such a protocol."""
        return ()

    def projection(self, run: Run, model: M, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Return a protocol for the coordinates (n_new, k) of new rows. `to_sites`: clients get these, too."""
        raise InputError(f"{type(self).__name__} cannot project new rows whose columns are divided among sites")

    def projection_plan(self, *, to_sites: bool) -> Plan | None:
        """Return the planned requests of `projection`, or None without such a protocol."""
        return None

    def peers(self, clients: int) -> Sequence[tuple[int, ...]]:
        """Return the numbers of each client's peers for letters; by default none."""
        return [()] * clients

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Raise InputError if the clients' tables do not fit each other or, in subclasses, the hyper-parameters."""
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
        """All hyper-parameters as plain data for JSON and TOML, kernels as tables."""
        if dataclasses.is_dataclass(self):
            return dict(pydantic.TypeAdapter(type(self)).dump_python(self, mode="json"))
        return {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters by name, for scikit-learn; kernels are values without parameters."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters in place, with checks, for scikit-learn's clones. Never change a dictionary's key."""
        for name, value in type(self)(**self.get_params() | params).get_params().items():
            object.__setattr__(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an equal strategy, for scikit-learn's `clone`."""
        return type(self)(**self.get_params())

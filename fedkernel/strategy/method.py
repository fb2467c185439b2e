"""What a method declares: its client and partition, what a run of it asks and takes, how clients measure a model."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import pydantic

from fedkernel.ground import Divided, FloatArray, InputError
from fedkernel.protocol import Forecast, KernelClient, Member, Plan, Protocol, Run
from fedkernel.strategy.evaluation import Judged
from fedkernel.strategy.tags import Tags

M = TypeVar("M")


class Method(Judged[M], ABC, Generic[M]):
    """The part of a strategy that a subclass writes: `protocol`, and where it can what follows it here.

    It is a value: its fields are the method's hyper-parameters, and what belongs to a run is an argument.

    Attributes
    ----------
    client : type
        The `KernelClient` this strategy is paired with.
    partition : {"vertical", "horizontal"}
        Whether sites hold columns of the same rows, or rows with the same columns.
    on_missing : {"fail", "continue"}
        What a client that fails or keeps silent means: the run fails with one cause named; or it goes on, for good,
        with the clients that are left.
    loses_first, hands_out : bool, tuple of str
        With a quorum, a run goes on without a client that is lost in the first round, whose answer is then that of the
        others; and in these phases, which only hand out the answer. By default in none.
    needs_all : str
        Why the other rounds need all clients, in a sentence.
    tags : Tags
        What holds of the results, for `fedkernel.testing`.
    """

    client: ClassVar[type[KernelClient]]
    partition: ClassVar[Divided]
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
        """Take no hyper-parameters, as a class without `value_object` has none."""
        if values or fields:
            name = type(self).__name__
            raise TypeError(f"{name} takes no hyper-parameters; write @value_object() above its class if it has fields")

    @abstractmethod
    def protocol(self, run: Run) -> Protocol[M]:
        """Return the method as a generator of rounds whose result is the model."""

    def evaluation(self, run: Run, model: M) -> Protocol[dict[str, float]] | None:
        """Return a protocol that measures the model on the clients, where there is such a measure; most take one round.

        Its result may be `fedkernel.strategy.Measures`, which has warnings too.
        """
        return None

    def forecast(self, cohort: Sequence[Member]) -> Forecast | None:
        """Return what a run with such clients will take, without a measurement of the model; None: it is not known."""
        return None

    def plan(self, clients: int, seed: int) -> Plan | None:
        """Return what a run of so many clients will ask of each, without `evaluation`, for sites that approve it first.

        None: the strategy does not say; sites then have nothing to hold its requests to.
        """
        return None

    def evaluation_plan(self) -> Plan:
        """Return what `evaluation` asks."""
        return ()

    def comparison(self, run: Run, earlier: str) -> Protocol[dict[str, float]]:
        """Return a protocol that compares the clients' clusters with those that they kept of the run of that id."""
        raise InputError(f"{type(self).__name__} cannot compare its results with those of run {earlier!r}")

    def comparison_plan(self, earlier: str) -> Plan:
        """Return what `comparison` asks; empty: the strategy has no such protocol."""
        return ()

    def projection(self, run: Run, model: M, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Return a protocol that projects rows which are new at the clients onto a model of a vertical partition.

        Its result are the coordinates, (n_new, k), which with `to_sites` the clients are told in the end.
        """
        raise InputError(f"{type(self).__name__} cannot project new rows whose columns are at several sites")

    def projection_plan(self, *, to_sites: bool) -> Plan | None:
        """Return what `projection` asks; None: the strategy has no such protocol."""
        return None

    def peers(self, clients: int) -> Sequence[tuple[int, ...]]:
        """Return with whom each client exchanges letters; by default with nobody, but only with the coordinator."""
        return [()] * clients

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Raise InputError if the clients' tables cannot be used together; a subclass adds what its fields demand."""
        axis: Literal["rows", "columns"] = "rows" if self.partition == "vertical" else "columns"
        first = cohort[0]
        for member in cohort[1:]:
            if getattr(member, axis) != getattr(first, axis):
                raise InputError(
                    f"{member.called} has {getattr(member, axis)} {axis}, but {first.called} has "
                    f"{getattr(first, axis)}: with a {self.partition} partition all must have the same {axis}"
                )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """All hyper-parameters as plain data, kernels as their tables."""
        if dataclasses.is_dataclass(self):
            return dict(pydantic.TypeAdapter(type(self)).dump_python(self, mode="json"))
        return {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters by name, as scikit-learn asks for them; kernels within are values."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters in place, checked as by a new strategy, as scikit-learn does to its own clones.

        That is the one way in which a strategy changes: one that is a key of a dictionary must not be.
        """
        for name, value in type(self)(**self.get_params() | params).get_params().items():
            object.__setattr__(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an equal strategy of its own, which scikit-learn's `clone` asks for."""
        return type(self)(**self.get_params())

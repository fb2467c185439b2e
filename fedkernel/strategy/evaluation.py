"""What can be said of a method and of its results where all tables are in one place."""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fedkernel.data import without_names
from fedkernel.ground import Divided, InputError, stack_rows
from fedkernel.kernel_width import ruled_kernels, with_kernels
from fedkernel.models import check_same_kernel, over_clients, without_flattery
from fedkernel.numerics import with_width
from fedkernel.run import Result

M = TypeVar("M")
T = TypeVar("T")

ON_TABLES = ("central", "judge", "judge_alone", "judge_steps")
"""Methods of strategies that take the clients' tables."""


class Measures(dict[str, float]):
    """Figures of a model that the clients measured, by name, and what they say in words.

    Attributes
    ----------
    details : dict of str to float
        More of them, that no table of results is to show: they stand in the history's last round.
    warnings : list of str
        Sentences.
    """

    def __init__(
        self, figures: Mapping[str, float], details: Mapping[str, float] | None = None, warnings: Sequence[str] = ()
    ) -> None:
        super().__init__(figures)
        self.details, self.warnings = dict(details or {}), list(warnings)


def _without_frames(name: str, method: Callable[..., T]) -> Callable[..., T]:
    """Give a method arrays in place of frames, and kernels whose widths by rule are settled on all rows.

    A reference of another kernel than the model's is refused, and figures that flatter are left out. The base class has
    ``shards`` among its arguments.
    """
    signature = inspect.signature(method)
    place = list(inspect.signature(getattr(Judged, name)).parameters).index("shards")
    names = list(signature.parameters)  # a subclass may call them otherwise
    shards = names[place]

    @functools.wraps(method)
    def on_arrays(self: "Judged[Any]", *arguments: Any, **named: Any) -> T:
        call = signature.bind(self, *arguments, **named)
        call.arguments[shards] = without_names(call.arguments[shards], self.partition)
        judged: Any = call.arguments[names[1]].model if name == "judge" else None
        check_same_kernel(judged, call.arguments.get(names[-1]))
        call.arguments[next(iter(signature.parameters))] = self.settled_on(call.arguments[shards])
        outcome: Any = method(*call.args, **call.kwargs)
        return without_flattery(outcome, judged, centred=self.centres)  # type: ignore[no-any-return]

    return on_arrays


class Rival(ABC, Generic[M]):
    """What somebody else computes where all data are in one place, to compare a strategy's `rivals` with it.

    The baseline is named by the class and the method, as in ``Nystroem kernel k-means``. A subclass is a value object
    whose fields are parameters of the baseline beside the strategy's; its docstring says what the baseline is.
    """

    @abstractmethod
    def check(self, strategy: Any, rows: int) -> None:
        """Raise InputError if it cannot be had of so many rows: before `find` would."""

    @abstractmethod
    def find(self, strategy: Any, shards: Sequence[Any], seed: int) -> M:
        """Return a model of the same kind as the strategy's `central`."""


class Judged(Generic[M]):
    """The part of a strategy that knows its exact answer, and how far off a result is; nothing of it is needed to run.

    `central` and `judge` say it all for most methods; the others follow from these unless a method knows better:

    ===============  =====================================================  ==================================
    ``central``      what the method finds with all tables in one place     there is no such answer
    ``judge``        what a result is worth, and how far off it is          nothing is said
    ``judge_steps``  how far off the estimates of its steps are             there are none
    ``for_site``     what a site can use by itself: `alone` is its          the method as it is
                     ``central``
    ``judge_alone``  what that is worth                                     the mean of ``judge`` over the sites
    ===============  =====================================================  ==================================

    Attributes
    ----------
    central_fields : tuple of str, optional
        The hyper-parameters that `central` depends on, by dotted path, declared by the class that defines `central`;
        None: all of them.
    counterparts : mapping of str to mapping
        What the method is called where nothing is federated, as in the baseline ``central KPCA``; and with each name
        the parameters that a baseline has by default otherwise than a run. Not inherited.
    places : tuple of str
        The baselines that there are of these: ``central``, ``isolated``, and ``pooled`` for what a site finds in its
        rows and its neighbours'.
    rivals : tuple of type
        And those that somebody else computes.
    """

    partition: ClassVar[Divided]  # as `KernelStrategy` says
    central_fields: ClassVar[tuple[str, ...] | None] = None
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    places: ClassVar[tuple[str, ...]] = ("central", "isolated")
    rivals: ClassVar[tuple[type[Rival[Any]], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give the methods that have all tables in one place frames as arrays that fit together, as `fit` does."""
        super().__init_subclass__(**kwargs)
        for name in ON_TABLES:
            if name in vars(cls):
                setattr(cls, name, _without_frames(name, vars(cls)[name]))

    def settled_on(self, shards: Sequence[Any]) -> Self:
        """Return the method with kernel widths by rule settled on all shards in one place."""
        if not (kernels := ruled_kernels(self)):
            return self
        X = np.hstack(list(shards)) if self.partition == "vertical" else stack_rows(list(shards))
        return with_kernels(self, {kernel: with_width(kernel, X) for kernel in kernels})

    def central(self, shards: Sequence[Any]) -> M:
        """Return what the method would find if all shards were in one place."""
        raise NotImplementedError(f"{type(self).__name__} has no central counterpart")

    @property
    def centres(self) -> bool:
        """Whether the rows' mean is taken off in feature space: as `center` says, where there is such a field."""
        return getattr(self, "center", False) in (True, "columns")

    @property
    def central_key(self) -> str:
        """What tells central answers apart: strategies with an equal one have the same `central` of the same shards."""
        central = type(self).central
        # declared for the `central` of a class; that of a subclass with one of its own may depend on more
        declares = next(cls for cls in type(self).__mro__ if {"central", "central_fields"} & vars(cls).keys())
        names = vars(declares).get("central_fields")
        if names is None:
            names = [name for name in vars(self) if not name.startswith("_")]
        read = {name: attrgetter(name)(self) for name in names}
        return f"{central.__module__}.{central.__qualname__}{read}"

    @classmethod
    def has_central(cls) -> bool:
        """Return whether there is an exact answer."""
        return cls.central is not Judged.central

    def for_site(self, rows: int) -> Self:
        """Return the method as a site with so many rows can use it by itself, or raise InputError if it cannot."""
        return self

    def alone(self, shard: Any) -> M:
        """Return what a site would find by itself."""
        return self.for_site(shard.shape[0]).central([shard])

    def judge(self, result: Result[M], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return all that can be said of a result where all shards are in one place.

        Parameters
        ----------
        result : Result
            Of a simulated run; or ``Result(model)``, of which nothing is said that only a run has.
        shards : sequence of tables
        reference : optional
            The exact answer, as `central` returns it: with it, also how far off the result is.
        """
        if reference is not None:
            raise InputError(f"{type(self).__name__} has no `judge` that compares a result with a reference: write one")
        return {}

    def judge_alone(self, models: Sequence[M], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return what can be said of models that the sites found alone, one each: means, and the worst error."""
        return over_clients([self.judge(Result(model), shards, reference) for model in models])

    def judge_steps(self, result: Result[M], shards: Sequence[Any], reference: Any) -> dict[str, list[float]]:
        """Return named errors of the estimates after each step, where the model, or what the sites kept, has them."""
        return {}

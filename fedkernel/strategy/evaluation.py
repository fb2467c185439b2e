"""Base class for comparing a strategy's results with its exact answer on the pooled tables."""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fedkernel.data import aligned_arrays
from fedkernel.ground import Division, InputError, stack_rows
from fedkernel.kernel_width import ruled_kernels, with_kernels
from fedkernel.models import check_same_kernel, drop_misleading_figures, mean_over_clients
from fedkernel.numerics import with_width
from fedkernel.run import Result

M = TypeVar("M")
T = TypeVar("T")


class Measures(dict[str, float]):
    """Metrics by name, with `details` for the history's last round and `warnings` for the findings."""

    def __init__(
        self, figures: Mapping[str, float], details: Mapping[str, float] | None = None, warnings: Sequence[str] = ()
    ) -> None:
        super().__init__(figures)
        self.details, self.warnings = dict(details or {}), list(warnings)


def _on_arrays(name: str, method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method on tables to accept frames, compute rule-based widths, and refuse references of other kernels."""
    signature = inspect.signature(method)
    place = list(inspect.signature(getattr(Evaluable, name)).parameters).index("shards")
    names = list(signature.parameters)  # a subclass may use other names
    shards = names[place]

    @functools.wraps(method)
    def on_arrays(self: "Evaluable[Any]", *arguments: Any, **named: Any) -> T:
        call = signature.bind(self, *arguments, **named)
        call.arguments[shards] = aligned_arrays(call.arguments[shards], self.partition)
        model: Any = call.arguments[names[1]].model if name == "judge" else None
        check_same_kernel(model, call.arguments.get(names[-1]))
        call.arguments[next(iter(signature.parameters))] = self.settled_on(call.arguments[shards])
        outcome: Any = method(*call.args, **call.kwargs)
        return drop_misleading_figures(outcome, model, centred=self.centres)  # type: ignore[no-any-return]

    return on_arrays


class Rival(ABC, Generic[M]):
    """Centralised baseline of another method, for comparison with a strategy.

    Its name is made of the class and the method, as in ``Nystroem kernel k-means``. A subclass is a value object whose
    fields are the baseline's own parameters; its docstring describes the baseline.
    """

    @abstractmethod
    def check(self, strategy: Any, rows: int) -> None:
        """Raise InputError if the baseline cannot be computed from this number of rows."""

    @abstractmethod
    def find(self, strategy: Any, shards: Sequence[Any], seed: int) -> M:
        """Compute the baseline's model on the shards, of the same class as the strategy's `central`."""


class Evaluable(Generic[M]):
    """Interface of a strategy for its exact answer and for metrics of its results; a run needs none of this.

    Most methods define `central` and `judge`; the others have defaults based on these. `judge_steps` has no default,
    `for_site` returns the method unchanged, and `judge_alone` the mean of `judge` over the sites.

    - `central_fields`: hyper-parameters that `central` depends on, by dotted path, declared by its class; None: all.
    - `counterparts`: names of the unfederated method, as in the baseline ``central KPCA``, each with the parameters for
      which a baseline's default differs from a run's. Not inherited.
    - `places`: the counterparts' baselines: ``central``, ``isolated``, and ``pooled`` for a site's rows with its
      neighbours'.
    - `rivals`: centralised baselines of other methods.
    """

    partition: ClassVar[Division]  # as `KernelStrategy` says
    central_fields: ClassVar[tuple[str, ...] | None] = None
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    places: ClassVar[tuple[str, ...]] = ("central", "isolated")
    rivals: ClassVar[tuple[type[Rival[Any]], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap a subclass's methods that take all tables, so that they accept frames as `fit` does."""
        super().__init_subclass__(**kwargs)
        for name in ("central", "judge", "judge_alone", "judge_steps"):
            if name in vars(cls):
                setattr(cls, name, _on_arrays(name, vars(cls)[name]))

    def settled_on(self, shards: Sequence[Any]) -> Self:
        """Return the strategy with rule-based kernel widths replaced by those of the pooled shards."""
        if not (kernels := ruled_kernels(self)):
            return self
        X = np.hstack(list(shards)) if self.partition == "vertical" else stack_rows(list(shards))
        return with_kernels(self, {kernel: with_width(kernel, X) for kernel in kernels})

    def central(self, shards: Sequence[Any]) -> M:
        """Compute the method's exact answer on the pooled shards."""
        raise NotImplementedError(f"{type(self).__name__} has no central counterpart")

    @property
    def centres(self) -> bool:
        """True if the method centres rows in feature space, by its field `center`."""
        return getattr(self, "center", False) in (True, "columns")

    @property
    def central_key(self) -> str:
        """Cache key of `central`: strategies with equal keys have the same exact answer on the same shards."""
        central = type(self).central
        # `central_fields` holds only for its own class's `central`; an overridden one may depend on more fields
        declares = next(cls for cls in type(self).__mro__ if {"central", "central_fields"} & vars(cls).keys())
        names = vars(declares).get("central_fields")
        if names is None:
            names = [name for name in vars(self) if not name.startswith("_")]
        read = {name: attrgetter(name)(self) for name in names}
        return f"{central.__module__}.{central.__qualname__}{read}"

    @classmethod
    def has_central(cls) -> bool:
        """Return whether the strategy defines `central`, its exact answer."""
        return cls.central is not Evaluable.central

    def for_site(self, rows: int) -> Self:
        """Return the strategy for a single site with `rows` rows; InputError if it cannot be used there."""
        return self

    def alone(self, shard: Any) -> M:
        """Compute a single site's own model, from its shard alone."""
        return self.for_site(shard.shape[0]).central([shard])

    def judge(self, result: Result[M], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Compute metrics of a result on the pooled shards.

        `result`: of a simulated run; or ``Result(model)``, without the metrics of a run. `reference`: the exact answer,
        from `central`, for metrics of the result's error.
        """
        if reference is not None:
            raise InputError(f"{type(self).__name__} cannot compare a result with a reference: it defines no `judge`")
        return {}

    def judge_alone(self, models: Sequence[M], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Compute metrics of the sites' own models, one per site, as means over the sites and the worst error."""
        return mean_over_clients([self.judge(Result(model), shards, reference) for model in models])

    def judge_steps(self, result: Result[M], shards: Sequence[Any], reference: Any) -> dict[str, list[float]]:
        """Compute errors after each iteration, by name, if the model or the sites' outputs hold the estimates."""
        return {}

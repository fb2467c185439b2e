"""What a run will ask of each client, before it does: which requests, in which order, how often, with which parameters.

It is plain data: a strategy writes it, a site that has approved it holds every request to it, and that site needs not
one class of the strategy's for that.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from pydantic import FailFast, Field

from fedkernel.ground import InputError
from fedkernel.numerics import KERNELS, Kernel
from fedkernel.protocol.messages import Message, Request, Summed

AT_MOST = "at most"
"""What a number is called that a parameter may not exceed, in place of the parameter's value."""


@dataclass(frozen=True)
class AtMost:
    """A parameter that is a number, this large at most; None is not."""

    number: float


class PlannedRequest(pydantic.BaseModel):
    """One type of request.

    Attributes
    ----------
    request : str
        The class.
    fields : dict
        Parameters, as JSON has them, that are settled; in an inner table only those that stand there. A table
        ``{"at most": number}`` bounds one. Others are free.
    sizes : dict of str to tuple of int or None
        The largest shapes of its arrays, of those that are bounded; None: along this axis not.
    reply : str
        The class of what leaves.
    reveals : str
        What that tells, in a sentence.
    arrays : dict of str to str
        The reply's arrays and their dimensions, such as ``N x k``.
    summed : bool
        Whether coordinators only sum the replies up.
    seeded : bool
        Whether the answer depends on numbers that the site draws from the run's seed.
    posts : dict of str to str
        What letters to peers tell, by their class.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    request: str
    fields: dict[str, Any] = {}
    sizes: dict[str, tuple[int | None, ...]] = {}
    reply: str
    reveals: str
    arrays: dict[str, str] = {}
    summed: bool = False
    seeded: bool = False
    posts: dict[str, str] = {}


class Step(pydantic.BaseModel):
    """Requests that come together, again and again, before the run goes on to its next step.

    Attributes
    ----------
    requests : tuple of PlannedRequest
    times : int
        How often a client gets each of them, at most.
    instead_of : int
        How many of the steps after it are left out once it has begun.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    requests: Annotated[tuple[PlannedRequest, ...], FailFast(), Field(min_length=1)]
    times: Annotated[int, Field(ge=1)] = 1
    instead_of: Annotated[int, Field(ge=0)] = 0


Plan = tuple[Step, ...]
"""The steps of a run, each of which may be left out; none comes again once a later one has begun."""


def ask(
    kind: type[Request[Any]],
    sizes: Mapping[str, int] | None = None,
    posts: Sequence[type[Message]] | None = None,
    **fields: Any,
) -> PlannedRequest:
    """Return what a request of a class will be.

    Parameters
    ----------
    kind : type
    sizes : mapping of str to int, optional
        The largest sizes of named dimensions of its arrays.
    posts : sequence of type, optional
        Those of its letters that are written with these fields; by default all that its class has.
    **fields
        Values that its fields will have; `AtMost`; or tables as JSON has them, in which what is left out is left open,
        such as `any_width` makes them.
    """
    if unknown := [name for name in fields if name not in kind.model_fields or name in kind.shapes()]:
        raise TypeError(f"{kind.__name__} has no parameter {unknown[0]}")
    bounded, dimensions = sizes or {}, {array: shape.dimensions for array, shape in kind.shapes().items()}
    if strange := bounded.keys() - {name for names in dimensions.values() for name in names}:
        raise TypeError(f"{kind.__name__} has no dimension {min(strange)}")
    bounds = {name: {AT_MOST: value.number} for name, value in fields.items() if isinstance(value, AtMost)}
    tables = {name: dict(value) for name, value in fields.items() if isinstance(value, Mapping)}
    values = {name: value for name, value in fields.items() if name not in bounds | tables}
    settled = _open_widths(kind.model_construct(**values).model_dump(mode="json", include=set(values)))
    reply = kind.reply_type
    return PlannedRequest(
        request=kind.__name__,
        fields=settled | tables | bounds,
        sizes={
            array: tuple(bounded.get(name) for name in names)
            for array, names in dimensions.items()
            if bounded.keys() & set(names)
        },
        reply=reply.__name__,
        reveals=reveals(reply),
        arrays={name: " x ".join(shape.dimensions) or "1" for name, shape in reply.shapes().items()},
        summed=issubclass(reply, Summed),
        seeded=kind.seeded,
        posts={letter.__name__: reveals(letter) for letter in (kind.posts if posts is None else posts)},
    )


def most_of(fields: Mapping[str, Any], path: str) -> int | None:
    """Return a whole number among a planned request's fields, or the most that it may be; None: it is open.

    Parameters
    ----------
    fields : mapping
    path : str
        Its name, after those of the tables that it stands in: ``features.n_features``.
    """
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    value = value.get(AT_MOST) if isinstance(value, Mapping) else value
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def once(kind: type[Request[Any]], sizes: Mapping[str, int] | None = None, **more: Any) -> Step:
    """Return the step of one request that comes once, as `ask` describes it."""
    return Step(requests=(ask(kind, sizes, **more),))


def repeated(times: int, *requests: PlannedRequest) -> Step:
    """Return the step of requests that come so often at most."""
    return Step(requests=requests, times=times)


def instead(step: Step, others: Plan) -> Plan:
    """Return the plan of a step or, in its place, of others, where the data decide which: never of both."""
    return (step.model_copy(update={"instead_of": len(others)}), *others)


def any_width(kernel: Kernel, make: Callable[[Any], Any] = lambda kernel: kernel) -> dict[str, Any]:
    """Return a kernel, or what is made of it and has it as its field ``kernel``, as JSON has it.

    A width that is left to the data, or to a rule, is left open; `make` is then called with one of some width.
    """
    value = make(kernel if kernel.gamma is not None else kernel.with_gamma(1.0))
    kind = Kernel if isinstance(value, Kernel) else type(value)
    table: dict[str, Any] = pydantic.TypeAdapter(kind).dump_python(value, mode="json")
    if kernel.gamma is None:
        table.get("kernel", table).pop("gamma")
    return table


def _open_widths(table: Any) -> Any:
    """Return a table in which the kernels that have a rule in place of a width say neither: it is left open."""
    if isinstance(table, list):
        return [_open_widths(value) for value in table]
    if not isinstance(table, Mapping):
        return table
    is_ruled = table.get("type") in KERNELS and table.get("width") not in (None, "columns")
    without = ("gamma", "width", "factor") if is_ruled else ()
    return {name: _open_widths(value) for name, value in table.items() if name not in without}


def reveals(message: type[pydantic.BaseModel]) -> str:
    """Return the sentences of a message's docstring that say what it tells: from the word "Reveals" on, or the first.

    They end with the paragraph.
    """
    text = " ".join(inspect.cleandoc(message.__doc__ or "").split("\n\nAttributes")[0].split())
    for word in ("Reveals", "reveals"):
        if word in text:
            return f"Reveals{text.partition(word)[2]}"
    return text


def is_seeded(plan: Plan | None) -> bool:
    """Return whether answers depend on what sites draw from the run's seed; where there is no plan, they may."""
    return plan is None or any(planned.seeded for step in plan for planned in step.requests)


@dataclass(frozen=True)
class Place:
    """Where in a plan a client is.

    Attributes
    ----------
    step : int
        The last whose requests came; -1: none has.
    times : mapping of str to int
        How often each of its requests came.
    """

    step: int = -1
    times: Mapping[str, int] = field(default_factory=dict)


def advance(
    plan: Plan,
    place: Place,
    request: str,
    fields: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    *,
    seeds: tuple[int, int] | None = None,
) -> Place:
    """Return where in a plan a client is once it gets a request.

    Parameters
    ----------
    plan : tuple of Step
    place : Place
        Where it is before.
    request : str
        Its class.
    fields : mapping
        Its parameters, as JSON has them.
    shapes : mapping of str to sequence of int
        Of its arrays.
    seeds : (int, int), optional
        The run's seed as the plan has it, and the one that was drawn since: what a parameter ``seed`` must be then.

    Raises
    ------
    InputError
        If that is not what comes next: one sentence that begins with the request.
    """
    gone = place.step + 1 + (plan[place.step].instead_of if place.step >= 0 else 0)
    exhausted, different = "", ""
    for number in [*range(max(place.step, 0), place.step + 1), *range(gone, len(plan))]:
        planned = next((planned for planned in plan[number].requests if planned.request == request), None)
        if planned is None:
            continue
        times = dict(place.times) if number == place.step else {}
        if times.get(request, 0) >= plan[number].times:
            exhausted = f"{request} came {times[request]} times, as often as the plan has it"
        elif difference := _difference(planned, fields, shapes, seeds):
            different = different or difference
        else:
            return Place(number, times | {request: times.get(request, 0) + 1})
    past = any(planned.request == request for step in plan[:gone] for planned in step.requests)
    late = "comes too late: the run is past that step of the plan"
    why = "; then ".join(filter(None, (exhausted, different)))
    raise InputError(why or f"{request} {late if past else 'is not in the plan'}")


def check_plan(plan: Plan, answers: Sequence[type[Request[Any]]]) -> None:
    """Raise InputError unless a plan says of each request what its class says, here, of it and of its reply.

    Who reads a plan would else read what its author likes. Sentences may differ between versions: those that are here
    are to be shown.

    Parameters
    ----------
    plan : tuple of Step
    answers : sequence of type
        The requests that a client answers.
    """
    kinds = {kind.__name__: kind for kind in answers}
    for planned in (planned for step in plan for planned in step.requests):
        if planned.request not in kinds:
            raise InputError(f"the plan has {planned.request}, which its client does not answer")
        kind = kinds[planned.request]
        own, parameters = ask(kind), kind.model_fields.keys() - kind.shapes().keys()
        for name in ("reply", "arrays", "summed", "seeded"):
            if getattr(planned, name) != getattr(own, name):
                raise InputError(
                    f"the plan says of {planned.request}: {name} = {getattr(planned, name)}, but it is "
                    f"{getattr(own, name)}"
                )
        if unknown := sorted(planned.posts.keys() - own.posts.keys()):
            raise InputError(f"the plan says that {unknown[0]} is posted with {planned.request}, which it has not")
        if own.posts and not planned.posts:
            raise InputError(
                f"the plan says that {planned.request} posts no letters, but it posts {', '.join(own.posts)}"
            )
        if strange := sorted(planned.fields.keys() - parameters):
            raise InputError(f"the plan has {planned.request} with {strange[0]}, which is no parameter of it")


def _difference(
    planned: PlannedRequest,
    fields: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    seeds: tuple[int, int] | None,
) -> str:
    """Return how a request differs from what was to be asked; empty: not at all."""
    for path, value_planned, value in _pairs("", planned.fields, fields):
        is_seed = seeds is not None and path.rpartition(".")[2] == "seed" and value_planned == seeds[0]
        settled = seeds[1] if is_seed and seeds else value_planned
        if isinstance(settled, Mapping) and settled.keys() == {AT_MOST}:
            if not isinstance(value, int | float) or not value <= settled[AT_MOST]:
                return f"{planned.request} has {path} = {value!r}, but the plan at most {settled[AT_MOST]:g}"
        elif settled != value:
            return f"{planned.request} has {path} = {value!r}, but the plan {settled!r}"
    for name, largest in planned.sizes.items():
        shape = shapes.get(name, ())
        if any(most is not None and size > most for size, most in zip(shape, largest, strict=False)):
            bound = " x ".join("any" if most is None else str(most) for most in largest)
            return f"{planned.request} has {name} of shape {' x '.join(map(str, shape))}, but the plan at most {bound}"
    return ""


def _pairs(path: str, planned: Mapping[str, Any], fields: Mapping[str, Any]) -> Sequence[tuple[str, Any, Any]]:
    """Return what is settled beside what there is, by dotted names."""
    pairs: list[tuple[str, Any, Any]] = []
    for name, value in planned.items():
        where, there = f"{path}{name}", fields.get(name)
        if isinstance(value, Mapping) and value.keys() != {AT_MOST} and isinstance(there, Mapping):
            pairs += _pairs(f"{where}.", value, there)
        else:
            pairs.append((where, value, there))
    return pairs

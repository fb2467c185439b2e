"""Plan of a run: the requests to each client, with their order, number and parameters.

It is plain data: a strategy writes it, and an approving site checks requests against it without the strategy's code.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from pydantic import FailFast, Field

from fedkernel.ground import InputError
from fedkernel.numerics import KERNELS, Kernel
from fedkernel.protocol.messages import Message, Request, Summed

AT_MOST = "at most"
"""Key of a parameter's upper bound, in place of its value."""


@dataclass(frozen=True)
class AtMost:
    """Upper bound of a numeric parameter; None does not satisfy it."""

    number: float


class PlannedRequest(pydantic.BaseModel, extra="forbid", frozen=True):
    """Planned request: its class, its fixed or bounded parameters, and the facts that its reply reveals.

    - `request`, `reply`: their classes.
    - `fields`: fixed parameters, as JSON; of an inner table only the entries there are fixed. A table ``{"at most":
      number}`` bounds one. Others are free.
    - `sizes`: the largest shapes of its bounded arrays; None: an axis without bound.
    - `reveals`: the facts that the reply reveals, in a sentence; `posts`: the same of letters to peers, by their class.
    - `arrays`: the reply's arrays and their dimensions, such as ``N x k``.
    - `summed`: coordinators only sum the replies up.
    - `seeded`: the answer depends on numbers that the site draws from the run's seed.
    """

    request: str
    fields: dict[str, Any] = {}
    sizes: dict[str, tuple[int | None, ...]] = {}
    reply: str
    reveals: str
    arrays: dict[str, str] = {}
    summed: bool = False
    seeded: bool = False
    posts: dict[str, str] = {}


class Step(pydantic.BaseModel, extra="forbid", frozen=True):
    """Step of a plan: requests that each come at most `times` times. `instead_of`: number of next steps replaced."""

    requests: Annotated[tuple[PlannedRequest, ...], FailFast(), Field(min_length=1)]
    times: Annotated[int, Field(ge=1)] = 1
    instead_of: Annotated[int, Field(ge=0)] = 0


Plan = tuple[Step, ...]
"""Steps of a run, in order, each optional; none comes again once a later one has begun."""


def ask(
    kind: type[Request[Any]],
    sizes: Mapping[str, int] | None = None,
    posts: Sequence[type[Message]] | None = None,
    **fields: Any,
) -> PlannedRequest:
    """Build the planned request for a request class, with its fixed or bounded parameters.

    - `sizes`: the largest sizes of named dimensions of its arrays.
    - `posts`: letter classes written with these fields; by default all of the request class.
    - `**fields`: values of its fields; `AtMost`; or JSON tables, as from `any_width`, with missing entries free.
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


def planned_limit(fields: Mapping[str, Any], path: str) -> int | None:
    """Return the planned value or upper bound of an integer, if any. `path`: such as ``features.n_features``."""
    value: Any = fields
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    value = value.get(AT_MOST) if isinstance(value, Mapping) else value
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def once(kind: type[Request[Any]], sizes: Mapping[str, int] | None = None, **more: Any) -> Step:
    """Build the step of a single request that comes once, from the arguments of `ask`."""
    return Step(requests=(ask(kind, sizes, **more),))


def repeated(times: int, *requests: PlannedRequest) -> Step:
    """Build the step of requests that each come at most `times` times."""
    return Step(requests=requests, times=times)


def instead(step: Step, others: Plan) -> Plan:
    """Build a plan of two alternatives, a step or the other steps. The data decide which of them comes."""
    return (step.model_copy(update={"instead_of": len(others)}), *others)


def any_width(kernel: Kernel, make: Callable[[Any], Any] = lambda kernel: kernel) -> dict[str, Any]:
    """Return the JSON of a kernel, or of the object that `make` builds with it. A width set by a rule is left out."""
    value = make(kernel if kernel.gamma is not None else kernel.with_gamma(1.0))
    kind = Kernel if isinstance(value, Kernel) else type(value)
    table: dict[str, Any] = pydantic.TypeAdapter(kind).dump_python(value, mode="json")
    if kernel.gamma is None:
        table.get("kernel", table).pop("gamma")
    return table


def _open_widths(table: Any) -> Any:
    """Return a table without the widths that rules set for kernels, and without these rules."""
    if isinstance(table, list):
        return [_open_widths(value) for value in table]
    if not isinstance(table, Mapping):
        return table
    is_ruled = table.get("type") in KERNELS and table.get("width") not in (None, "columns")
    without = ("gamma", "width", "factor") if is_ruled else ()
    return {name: _open_widths(value) for name, value in table.items() if name not in without}


def reveals(message: type[pydantic.BaseModel]) -> str:
    """Return the facts that a message reveals: its docstring from "Reveals" to the list of fields, or all of it."""
    text = " ".join(inspect.cleandoc(message.__doc__ or "").split("\n\nAttributes")[0].split())
    text = re.split(rf"(?<=[.:]) (?:- )?(?=`(?:{'|'.join(message.model_fields)})`)", text)[0]
    for word in ("Reveals", "reveals"):
        if word in text:
            return f"Reveals{text.partition(word)[2]}"
    return text


def is_seeded(plan: Plan | None) -> bool:
    """Return whether replies depend on numbers that sites draw from the run's seed; True without a plan."""
    return plan is None or any(planned.seeded for step in plan for planned in step.requests)


@dataclass(frozen=True)
class PlanPosition:
    """Position in a plan. `step`: the last one begun, or -1. `times`: how often each request of that step came."""

    step: int = -1
    times: Mapping[str, int] = field(default_factory=dict)


def advance(
    plan: Plan,
    place: PlanPosition,
    request: str,
    fields: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    *,
    seeds: tuple[int, int] | None = None,
) -> PlanPosition:
    """Return the client's position in a plan after a request.

    `place`: the position before. `request`, `fields`, `shapes`: its class, its parameters as JSON, and its arrays'
    shapes. `seeds`: the plan's seed, and the run's seed drawn later, the required value of a parameter ``seed``. Raises
    InputError if the plan has another request next: one sentence that begins with the request.
    """
    gone = place.step + 1 + (plan[place.step].instead_of if place.step >= 0 else 0)
    exhausted, different = "", ""
    for number in [*range(max(place.step, 0), place.step + 1), *range(gone, len(plan))]:
        planned = next((planned for planned in plan[number].requests if planned.request == request), None)
        if planned is None:
            continue
        times = dict(place.times) if number == place.step else {}
        if times.get(request, 0) >= plan[number].times:
            exhausted = f"{request} came {times[request]} times, as often as the plan allows"
        elif difference := _difference(planned, fields, shapes, seeds):
            different = different or difference
        else:
            return PlanPosition(number, times | {request: times.get(request, 0) + 1})
    past = any(planned.request == request for step in plan[:gone] for planned in step.requests)
    late = "comes too late: the run has passed that step of the plan"
    why = "; then ".join(filter(None, (exhausted, different)))
    raise InputError(why or f"{request} {late if past else 'is not in the plan'}")


def check_plan(plan: Plan, answers: Sequence[type[Request[Any]]]) -> None:
    """Raise InputError unless a plan describes each request and its reply as their classes do.

    Otherwise a reader of the plan would see whatever its author wrote. Sentences may differ between versions: show
    those of the classes here. `answers`: the requests that a client answers.
    """
    kinds = {kind.__name__: kind for kind in answers}
    for planned in (planned for step in plan for planned in step.requests):
        if planned.request not in kinds:
            raise InputError(f"the plan has {planned.request}, which its client does not answer")
        kind = kinds[planned.request]
        own, parameters = ask(kind), kind.model_fields.keys() - kind.shapes().keys()
        for name in ("reply", "arrays", "summed", "seeded"):
            if getattr(planned, name) != getattr(own, name):
                differing = f"{name} = {getattr(planned, name)}, but its class has {getattr(own, name)}"
                raise InputError(f"the plan has {planned.request} with {differing}")
        if unknown := sorted(planned.posts.keys() - own.posts.keys()):
            raise InputError(f"the plan lists letter {unknown[0]} for {planned.request}, but that class has none")
        if own.posts and not planned.posts:
            raise InputError(f"the plan lists no letters for {planned.request}, but it posts {', '.join(own.posts)}")
        if strange := sorted(planned.fields.keys() - parameters):
            raise InputError(f"the plan lists parameter {strange[0]} for {planned.request}, but that class has none")


def _difference(
    planned: PlannedRequest,
    fields: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    seeds: tuple[int, int] | None,
) -> str:
    """Return the first difference between a request and the planned one as a clause, or an empty text."""
    for path, value_planned, value in _fixed_fields("", planned.fields, fields):
        is_seed = seeds is not None and path.rpartition(".")[2] == "seed" and value_planned == seeds[0]
        settled = seeds[1] if is_seed and seeds else value_planned
        if isinstance(settled, Mapping) and settled.keys() == {AT_MOST}:
            if not isinstance(value, int | float) or not value <= settled[AT_MOST]:
                return f"{planned.request} has {path} = {value!r}, but the plan allows at most {settled[AT_MOST]:g}"
        elif settled != value:
            return f"{planned.request} has {path} = {value!r}, but the plan has {settled!r}"
    for name, largest in planned.sizes.items():
        shape = shapes.get(name, ())
        if any(most is not None and size > most for size, most in zip(shape, largest, strict=False)):
            bound = " x ".join("any" if most is None else str(most) for most in largest)
            size = " x ".join(map(str, shape))
            return f"{planned.request} has {name} of shape {size}, but the plan allows at most {bound}"
    return ""


def _fixed_fields(path: str, planned: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the planned and the actual value of each fixed parameter, by dotted name."""
    for name, value in planned.items():
        where, there = f"{path}{name}", fields.get(name)
        if isinstance(value, Mapping) and value.keys() != {AT_MOST} and isinstance(there, Mapping):
            yield from _fixed_fields(f"{where}.", value, there)
        else:
            yield where, value, there

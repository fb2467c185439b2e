"""What a run will ask of each client, before it does: which requests, in which order, how often, with which parameters.

It is plain data: a strategy writes it, a site that has approved it holds every request to it, and that site needs not
one class of the strategy's for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from pydantic import Field

from fedkernel.errors import InputError
from fedkernel.protocol.messages import Request

AT_MOST = "at most"
"""What a number is called that a parameter may not exceed, in place of the parameter's value."""


@dataclass(frozen=True)
class AtMost:
    """A parameter that is a number, this large at most; None is not."""

    number: float


class Asked(pydantic.BaseModel):
    """One type of request.

    Attributes
    ----------
    request : str
        The class.
    fields : dict
        Parameters, as JSON has them, that are settled; in an inner table only those that stand there. A table
        ``{"at most": number}`` bounds one. Others are free.
    sizes : dict of str to int
        Named dimensions of the request's arrays that are bounded: their largest sizes.
    reply : str
        The class of what leaves.
    reveals : str
        What that tells, in a sentence.
    arrays : dict of str to str
        The reply's arrays and their dimensions, such as ``N x k``.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    request: str
    fields: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    reply: str
    reveals: str
    arrays: dict[str, str] = {}


class Step(pydantic.BaseModel):
    """Requests that come together, again and again, before the run goes on to its next step.

    Attributes
    ----------
    requests : tuple of Asked
    times : int
        How often a client gets each of them, at most.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    requests: Annotated[tuple[Asked, ...], Field(min_length=1)]
    times: Annotated[int, Field(ge=1)] = 1


Plan = tuple[Step, ...]
"""The steps of a run, each of which may be left out; none comes again once a later one has begun."""


def ask(kind: type[Request[Any]], sizes: Mapping[str, int] | None = None, **fields: Any) -> Asked:
    """Return what a request of a class will be.

    Parameters
    ----------
    kind : type
    sizes : mapping of str to int, optional
        The largest sizes of named dimensions of its arrays.
    **fields
        Values that its fields will have, or `AtMost`; what is None inside of a value is left open, such as a width
        that follows from the number of columns.
    """
    if unknown := [name for name in fields if name not in kind.model_fields or name in kind.shapes()]:
        raise TypeError(f"{kind.__name__} has no parameter {unknown[0]}")
    dimensions = {name for shape in kind.shapes().values() for name in shape.dimensions}
    if unknown := [name for name in sizes or {} if name not in dimensions]:
        raise TypeError(f"{kind.__name__} has no dimension {unknown[0]}")
    bounds = {name: {AT_MOST: value.number} for name, value in fields.items() if isinstance(value, AtMost)}
    values = {name: value for name, value in fields.items() if name not in bounds}
    settled = kind.model_construct(**values).model_dump(mode="json", include=set(values))
    reply = kind.reply_type
    return Asked(
        request=kind.__name__,
        fields={name: _without_none(value) for name, value in settled.items()} | bounds,
        sizes=dict(sizes or {}),
        reply=reply.__name__,
        reveals=reveals(reply),
        arrays={name: " x ".join(shape.dimensions) or "1" for name, shape in reply.shapes().items()},
    )


def once(kind: type[Request[Any]], sizes: Mapping[str, int] | None = None, **fields: Any) -> Step:
    """Return the step of one request that comes once, as `ask` describes it."""
    return Step(requests=(ask(kind, sizes, **fields),))


def repeated(times: int, *requests: Asked) -> Step:
    """Return the step of requests that come so often at most."""
    return Step(requests=requests, times=times)


def _without_none(value: Any) -> Any:
    """Return a value of JSON without what is None inside of it."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_none(inner) for key, inner in value.items() if inner is not None}


def reveals(message: type[pydantic.BaseModel]) -> str:
    """Return the sentences of a message's docstring that say what it tells: from the word "Reveals" on, or the first.

    They end with the paragraph.
    """
    text = " ".join((message.__doc__ or "").strip().split("\n\nAttributes")[0].split())
    for word in ("Reveals", "reveals"):
        if word in text:
            return f"Reveals{text.partition(word)[2]}"
    return text


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


def advance(plan: Plan, place: Place, request: str, fields: Mapping[str, Any], sizes: Mapping[str, int]) -> Place:
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
    sizes : mapping of str to int
        Of the named dimensions of its arrays.

    Raises
    ------
    InputError
        If that is not what comes next: one sentence that begins with the request.
    """
    why = ""
    for number in range(max(place.step, 0), len(plan)):
        asked = next((asked for asked in plan[number].requests if asked.request == request), None)
        if asked is None:
            continue
        times = dict(place.times) if number == place.step else {}
        if times.get(request, 0) >= plan[number].times:
            why = f"{request} came {times[request]} times, as often as the plan has it"
        elif not (why := _difference(asked, fields, sizes)):
            return Place(number, times | {request: times.get(request, 0) + 1})
    past = any(asked.request == request for step in plan[: max(place.step, 0)] for asked in step.requests)
    late = "comes too late: the run is past that step of the plan"
    raise InputError(why or f"{request} {late if past else 'is not in the plan'}")


def _difference(asked: Asked, fields: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """Return how a request differs from what was to be asked; empty: not at all."""
    for path, planned, value in _pairs("", asked.fields, fields):
        if isinstance(planned, Mapping) and planned.keys() == {AT_MOST}:
            if not isinstance(value, int | float) or not value <= planned[AT_MOST]:
                return f"{asked.request} has {path} = {value!r}, but the plan at most {planned[AT_MOST]:g}"
        elif planned != value:
            return f"{asked.request} has {path} = {value!r}, but the plan {planned!r}"
    for name, most in asked.sizes.items():
        if sizes.get(name, 0) > most:
            return f"{asked.request} has arrays of {name} = {sizes[name]}, but the plan at most {most}"
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

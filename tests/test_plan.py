"""A plan says what a run will ask; a request that it does not hold is refused."""

from typing import Annotated

import numpy as np
import pytest
from pydantic import Field

from fedkernel import RBF
from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.numerics import Kernel
from fedkernel.protocol import AtMost, Reply, Request, Shape, ask, once, repeated
from fedkernel.protocol.plan import Place, advance, reveals


class Totals(Reply):
    """Sums over the rows: d floats. Reveals the mean row,
    and nothing else."""

    sums: Annotated[FloatArray, Shape("d", "b")]


class AddUp(Request[Totals]):
    """Asks for sums."""

    kernel: Kernel
    size: Annotated[int, Field(ge=1)]
    weights: Annotated[FloatArray | None, Shape("n", "b")] = None


class Finish(Request[Totals]):
    """Asks for the last."""


PLAN = (
    once(AddUp, kernel=RBF(), size=2),
    repeated(3, ask(AddUp, {"b": 4}, kernel=RBF(gamma=0.1), size=AtMost(5)), ask(Finish)),
    once(Finish),
)


def fields(gamma=0.1, size=2):
    return {"kernel": {"type": "rbf", "gamma": gamma}, "size": size}


def walk(*requests, sizes=None):
    place = Place()
    for request in requests:
        place = advance(PLAN, place, *request, sizes or {})
    return place


def test_a_plan_says_what_leaves_and_what_that_tells():
    asked = PLAN[1].requests[0]
    assert asked.fields == {"kernel": {"type": "rbf", "gamma": 0.1}, "size": {"at most": 5}}
    assert (asked.reply, asked.arrays) == ("Totals", {"sums": "d x b"})
    assert asked.reveals == "Reveals the mean row, and nothing else."
    assert PLAN[0].requests[0].fields["kernel"] == {"type": "rbf"}, "its width is left open"
    assert reveals(Request) == "What may be asked of a site; generic in the reply that answers it."


def test_requests_come_in_the_order_of_the_steps_each_so_often_at_most():
    second = ("AddUp", fields(size=5))
    assert walk(("AddUp", fields(gamma=7.0)), *[second] * 3, *[("Finish", {})] * 4) == Place(2, {"Finish": 1})
    assert walk(second) == Place(1, {"AddUp": 1}), "a step may be left out"
    with pytest.raises(InputError, match="AddUp came 3 times, as often as the plan has it"):
        walk(*[second] * 4)
    with pytest.raises(InputError, match="AddUp comes too late: the run is past that step of the plan"):
        walk(*[("Finish", {})] * 4, second)
    with pytest.raises(InputError, match="Steal is not in the plan"):
        walk(("Steal", {}))


@pytest.mark.parametrize(
    ("request_", "sizes", "sentence"),
    [
        (("AddUp", fields(size=6)), {}, "AddUp has size = 6, but the plan at most 5"),
        (("AddUp", fields(size=None)), {}, "AddUp has size = None, but the plan at most 5"),
        (("AddUp", fields(gamma=1e6, size=5)), {}, "AddUp has kernel.gamma = 1000000.0, but the plan 0.1"),
        (
            ("AddUp", {"kernel": {"type": "linear", "gamma": 0.1}, "size": 5}),
            {},
            "AddUp has kernel.type = 'linear', but the plan 'rbf'",
        ),
        (("AddUp", {"kernel": "rbf", "size": 5}), {}, "AddUp has kernel = 'rbf', but the plan"),
        (("AddUp", fields(size=5)), {"b": 40}, "AddUp has arrays of b = 40, but the plan at most 4"),
    ],
)
def test_a_request_with_other_parameters_is_refused(request_, sizes, sentence):
    with pytest.raises(InputError) as caught:
        advance(PLAN, Place(), *request_, sizes)
    assert str(caught.value).startswith(sentence)


def test_a_plan_of_parameters_that_no_request_has_is_none():
    with pytest.raises(TypeError, match="AddUp has no parameter weights"):
        ask(AddUp, weights=np.ones((1, 1)))
    with pytest.raises(TypeError, match="AddUp has no dimension c"):
        ask(AddUp, {"c": 1})

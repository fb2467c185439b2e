"""The shipped properties, as a stranger uses them: his pair passes, and each fault is told by property and strategy."""

import copy
import dataclasses
import subprocess
import sys
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest

from fedkernel import FloatArray, InputError, KernelClient, KernelStrategy, Reply, Request, Shape, Tags, to_all
from fedkernel.protocol import Forecast, once
from fedkernel.run import Result
from fedkernel.strategies import VFedPCA
from fedkernel.testing import CHECKS, Pair, check_pair

TABLES = np.array_split(np.random.default_rng(0).standard_normal((12, 4)) + 1, 3)


class Sums(Reply):
    """Reveals the sums of the site's columns."""

    values: Annotated[FloatArray, Shape("d")]


class ColumnSums(Request[Sums]):
    """Asks for them."""


class SumClient(KernelClient):
    answers = (ColumnSums,)

    def column_sums(self, ask: ColumnSums) -> Sums:
        return Sums(values=self.X.sum(axis=0))


class Mean(KernelStrategy[FloatArray]):
    """The mean row."""

    client, partition = SumClient, "horizontal"
    tags = Tags(alone=True)
    rows = 12

    def protocol(self, run):
        replies = yield from to_all(ColumnSums())
        return sum(reply.values for reply in replies) / self.rows

    def forecast(self, cohort):
        return Forecast(1, sum(member.columns for member in cohort), 0, 8)

    def plan(self, clients, seed):
        return (once(ColumnSums),)

    def central(self, shards):
        return np.vstack(shards).mean(axis=0)

    def judge(self, result, shards, reference=None):
        return {} if reference is None else {"error": float(np.abs(result.model - reference).max())}

    def __repr__(self):
        return f"{type(self).__name__}()"


def test_a_stranger_s_pair_has_every_property_that_it_can_have(caplog):
    left_out = check_pair(Mean(), TABLES)
    reason = "tags.components = None: there are no components that could be orthonormal"
    assert left_out.pop("components_are_orthonormal") == reason
    assert left_out.keys() <= {"what_is_saved_is_loaded"}  # where a plain array is no model
    assert "components_are_orthonormal was not checked for Mean: tags.components = None" in caplog.text
    with pytest.raises(InputError, match=r"^shards has 1 tables, but a test needs at least 2"):
        check_pair(Mean(), TABLES[:1])
    tags = dataclasses.replace(Mean.tags, order=False)
    with pytest.raises(AssertionError, match=r"another_order_of_the_clients, Mean, .*, but tags.order = False"):
        check_pair(Mean(), TABLES, tags=tags)


def test_a_pair_for_several_sites_with_a_metric_of_its_own():
    def judge(self, result, shards, reference=None):
        return {"gap": 1.0}

    with pytest.raises(AssertionError, match=r"judge returns no 'error', but gap; tags.error names the metric$"):
        check_pair(type("Other", (Mean,), {"judge": judge})(), TABLES)

    def protocol(self, run):
        replies = yield from to_all(ColumnSums())
        if len(replies) < 2:
            raise fault("a single site")
        return total(replies) / 12

    Several, fault = type("Several", (Mean,), {"tags": Tags(), "protocol": protocol}), InputError
    assert check_pair(Several(), TABLES)["one_client_alone_is_central"] == "it refuses a single client: a single site"
    fault = ZeroDivisionError
    with pytest.raises(ZeroDivisionError) as caught:
        check_pair(Several(), TABLES)
    assert caught.value.__notes__ == ["while one_client_alone_is_central was checked for Several"]


def test_it_needs_nothing_that_is_for_development_only():
    code = "import sys, fedkernel.testing, strategies; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def client(answer):
    """Make the client that answers so."""

    class Faulty(SumClient):
        answers = (ColumnSums,)

        def column_sums(self, ask: ColumnSums) -> Sums:
            return Sums(values=answer(self))

    return Faulty


def drawing_twice(self):
    again = self.rng("noise").standard_normal(4) - self.rng("noise").standard_normal(4)
    return self.X.sum(axis=0) + again


def counting(self):
    type(self).calls = getattr(type(self), "calls", 0) + 1
    return self.X.sum(axis=0) * type(self).calls


class Careless(SumClient):
    answers = (ColumnSums,)

    @staticmethod
    def table(X, what):
        return np.nan_to_num(np.asarray(X))


def returning(found):
    """Make the protocol that returns what is found in the replies."""

    def protocol(self, run):
        return found((yield from to_all(ColumnSums())))

    return protocol


def total(replies):
    return sum(reply.values for reply in replies)


FAULTS = {
    "same_seed_same_bits": {"client": client(lambda self: np.random.default_rng().standard_normal(4))},
    "a_generator_serves_one_draw": {"client": client(drawing_twice)},
    "another_order_of_the_clients": {"protocol": returning(lambda replies: replies[0].values)},
    "rows_in_another_order": {"client": client(lambda self: self.X[0] + self.X[1])},
    "signs_of_columns": {"client": client(lambda self: (self.X**2).sum(axis=0))},
    "rotated_columns": {"client": client(lambda self: np.full(4, np.square(self.X).sum()))},
    "everything_is_finite": {"protocol": returning(lambda replies: np.array([np.inf]))},
    "components_are_orthonormal": {
        "protocol": returning(lambda replies: SimpleNamespace(found=np.ones((12, 2)))),
        "tags": Tags("found", orthonormal=True),
    },
    "a_run_takes_what_was_forecast": {"forecast": lambda self, cohort: Forecast(1, 11, 0, 8)},
    "requests_are_those_of_the_plan": {"plan": lambda self, clients, seed: ()},
    "rows_that_leave_are_counted": {"client": client(lambda self: self.X[0])},
    "messages_are_the_same_through_the_wire": {"client": client(counting)},
    "bad_input_is_one_sentence": {"client": Careless},
    "one_client_alone_is_central": {"tags": Tags(alone=False)},
    "together_closer_than_alone": {"rows": 1},
}


TOLD = {
    "everything_is_finite": (
        lambda replies: {"sums": replies[0].values},
        "model.value holds no numbers: a protocol must return an array, or",
    ),
    "another_order_of_the_clients": (
        lambda replies: total(replies) + 1e-6 * replies[0].values,
        r" \(neither equal, 1e-16, nor different, 1e-08: ",
    ),
    "rows_in_another_order": (
        lambda replies: replies[0].values * total(replies[1:]),
        r"moving rows between clients .*, but tags.pooled = True and tags.draws = 0$",
    ),
}


def similarity(self, result, shards, reference=None):
    return {} if reference is None else {"similarity": 1.0 - float(np.abs(result.model - reference).max())}


CASES = [
    (
        "together_closer_than_alone",
        {"rows": 6, "judge": similarity, "tags": Tags(error="similarity", best=1.0)},
        r"^together_closer_than_alone, .*similarity is 1\.\d+ from its best, but each client alone 0\.\d+ in the mean$",
    ),
    *((name, fields, rf"^{name}, Faulty, Faulty\(\): ") for name, fields in FAULTS.items()),
    *((name, {"protocol": returning(found)}, says) for name, (found, says) in TOLD.items()),
]


@pytest.mark.parametrize(("name", "fields", "says"), CASES)
def test_a_fault_is_told_by_its_property_and_strategy_and_what_to_look_at(name, fields, says):
    (check,) = [check for check in CHECKS if check.__name__ == name]
    with pytest.raises(AssertionError, match=says):
        check(Pair(type("Faulty", (Mean,), fields)(), TABLES))


def test_a_model_that_is_not_loaded_as_it_was_saved_is_told(monkeypatch):
    (check,) = [check for check in CHECKS if check.__name__ == "what_is_saved_is_loaded"]
    pair, load = Pair(VFedPCA(2), np.array_split(np.vstack(TABLES), 2, axis=1)), Result.load
    check(pair)

    def altered(folder):
        result = load(folder)
        model = copy.copy(result.model)
        vars(model)["eigenvectors_"] = np.nextafter(model.eigenvectors_, 1)
        return dataclasses.replace(result, model=model)

    monkeypatch.setattr(Result, "load", altered)
    with pytest.raises(AssertionError, match="the loaded model differs from the saved one"):
        check(pair)

"""Property tests for any strategy with its client class, a "strategy-client pair".

    from fedkernel.testing import check_pair

    def test_my_pair():
        check_pair(MyStrategy(n_components=2), shards)

or, a test for each property, with pytest::

    @parametrize_with_pairs([Pair(MyStrategy(n_components=2), shards)])
    def test_my_pair(pair, check):
        check(pair)

The strategy's `tags` declare which properties hold (see `fedkernel.strategy.method`).
"""

import functools
import itertools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError, ProtocolError, all_finite, listed
from fedkernel.kernel_width import WidthClient
from fedkernel.models import RESULT_FIELDS
from fedkernel.numerics import orthonormal_basis, sin_theta_error
from fedkernel.peers import Letter, Mailbox
from fedkernel.protocol import (
    KernelClient,
    Member,
    Message,
    Plan,
    PlanPosition,
    Reply,
    Request,
    Step,
    advance,
    decode,
    encode,
)
from fedkernel.run import Result, RunSettings
from fedkernel.strategy import KernelStrategy, Tags, check_tables, simulated_sites
from fedkernel.wire import shares_rows

log = logging.getLogger(__name__)

SAME, OTHER = 1e-16, 1e-8
"""Errors, squared sines or relative differences, below which results are equal, and above which they differ."""

CENTRAL = 1e-8  # largest distance of a metric from its best value that counts as zero
ABOUT = 1.6  # largest factor by which a forecast of kind "about" may be wrong


class NotApplicable(Exception):  # noqa: N818 - it is no error
    """Reason why a property has no meaning for a strategy-client pair."""


@dataclass(frozen=True)
class Exchange:
    """Request to a client in one round, the client's reply, and its letters to other clients."""

    request: Request[Any]
    reply: Reply
    letters: Sequence[Letter]


@dataclass(frozen=True)
class Recording:
    """Recorded run: result, each client's exchanges, and requests that drew random numbers, by client and purpose."""

    result: Result[Any]
    exchanges: Mapping[int, Sequence[Exchange]]
    purposes: Mapping[tuple[int, str], Sequence[str]]

    def outside(self, plan: Plan) -> str:
        """Describe the first recorded request that a plan does not contain; empty: it contains all."""
        for client, exchanges in self.exchanges.items():
            place = PlanPosition()
            for request in (exchange.request for exchange in exchanges):
                fields = request.model_dump(mode="json", exclude=set(request.shapes()))
                shapes = {name: array.shape for name, array in request.arrays().items()}
                try:
                    place = advance(plan, place, type(request).__name__, fields, shapes)
                except InputError as error:
                    return f"client {client}: {error}"
        return ""


class Pair:
    """Strategy-client pair under test, with tables to test it on and its expected properties.

    - `shards`: a table per client, at least two: (N, d_m) with a vertical partition, (n_m, d) with a horizontal one.
      Some dozen rows are enough, and none should be at two clients.
    - `tags`, `name`: by default the strategy's own, and its class.
    - `y`: labels (n_m,) of each client's rows, for a client that needs them.
    """

    def __init__(
        self,
        strategy: KernelStrategy[Any],
        shards: Sequence[npt.ArrayLike],
        tags: Tags | None = None,
        name: str | None = None,
        y: Sequence[npt.ArrayLike] | None = None,
    ) -> None:
        self.strategy = strategy
        self.tables = [np.asarray(shard, dtype=np.float64) for shard in shards]
        self.tags = strategy.tags if tags is None else tags
        self.name = name or type(strategy).__name__
        if len(self.tables) < 2:
            raise InputError(f"shards has {len(self.tables)} tables, but a test needs at least 2")
        self.axis = 1 if strategy.partition == "vertical" else 0
        self.y = None if y is None else [np.asarray(labels) for labels in y]

    def __str__(self) -> str:
        return self.name

    def fit(
        self,
        tables: Sequence[npt.ArrayLike],
        *,
        order: Sequence[int] | None = None,
        rows: npt.NDArray[np.intp] | None = None,
        **settings: Any,
    ) -> Result[Any]:
        """Run the strategy on tables whose clients (`order`) or rows (`rows`) are permuted, with matching labels."""
        y = self.y
        if y is not None and order is not None:
            y = [y[number] for number in order]
        if y is not None and (rows is not None or len(tables) == 1):
            order_of_rows = slice(None) if rows is None else rows
            together = [y[0]] * len(tables) if self.axis == 1 else [np.concatenate(y)]
            ends = np.cumsum([np.shape(table)[0] for table in tables])[:-1]
            parts = [labels[order_of_rows] for labels in together]
            y = parts if self.axis == 1 else np.split(parts[0], ends)
        return self.strategy.fit(tables, y=y, **settings)

    def fit_serialised(self) -> Result[Any]:
        """Run the strategy on its tables with serialised messages, as between machines."""
        client, share_rows = self.strategy.client, shares_rows(self.strategy.hyperparameters)
        tables = check_tables(self.tables, "shards", client.table)
        sites = simulated_sites(client, tables, y=self.y, share_rows=share_rows, serialised=True)
        with sites as (grid, outputs):
            result = self.strategy.run(grid, RunSettings(clients=len(tables)))
        result.outputs = outputs
        return result

    @property
    def whole(self) -> FloatArray:
        """All clients' tables, concatenated along the divided axis."""
        return np.concatenate(self.tables, axis=self.axis)

    def divided(self, whole: FloatArray) -> list[FloatArray]:
        """Divide a whole table into parts with the sizes of the clients' tables."""
        ends = np.cumsum([table.shape[self.axis] for table in self.tables])
        return np.split(whole, ends[:-1], axis=self.axis)

    @functools.cached_property
    def recording(self) -> Recording:
        """Recorded run with seed 0, computed once."""
        return _recorded(self)

    def outcome(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return a run's components (`Tags.components`) as orthonormal bases; client c held table ``order[c]``.

        Bases (N, k): one, or one per vertical client that keeps its own; without components the model's arrays.
        """
        if self.tags.components is None:
            if not (arrays := _arrays(result.model)):
                raise NotApplicable("tags.components = None, and the model has no arrays that could be compared")
            return list(arrays.values())
        return [orthonormal_basis(part) for part in self.components(result, order)]

    def components(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return the arrays that `Tags.components` names: the model's, or else the sites' outputs."""
        name = str(self.tags.components)
        if isinstance(of_model := getattr(result.model, name, None), np.ndarray):
            return [of_model]
        holders = np.argsort(range(len(self.tables)) if order is None else order)
        if not all(name in result.outputs[client] for client in holders):
            text = f"neither the model nor every site's outputs have {name!r}, as tags.components says"
            self.fail("components", text)
        parts = [result.outputs[int(client)][name] for client in holders]
        return parts if self.axis == 1 else [np.vstack(parts)]

    def error(self, result: Result[Any], order: Sequence[int] | None = None, rows: Any = None) -> float:
        """Return the distance of a run's result to the recorded one; `rows`: permutation of the rows in this run."""
        before, after = self.outcome(self.recording.result), self.outcome(result, order)
        if self.tags.components is not None and rows is not None:
            before = [basis[rows] for basis in before]
        if [array.shape for array in before] != [array.shape for array in after]:
            return math.inf
        distance = _squared_difference if self.tags.components is None else sin_theta_error
        return max(distance(*arrays) for arrays in zip(before, after, strict=True))

    def central(self, tables: Sequence[FloatArray], result: Result[Any]) -> Any:
        """Compute the strategy's `central` at a run's kernel widths; NotApplicable if it has none."""
        try:
            return self.strategy.as_run(result).central(tables)
        except NotImplementedError as error:
            raise NotApplicable(str(error)) from None

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise the AssertionError of a failed property."""
        raise AssertionError(f"{check}, {self.name}, {self.strategy!r}: {text}")

    def require(self, holds: bool, check: str, text: str) -> None:
        """Raise the AssertionError of a property unless the property holds."""
        if not holds:
            self.fail(check, text)

    def require_promised(self, check: str, what: str, tag: str, error: float) -> None:
        """Raise AssertionError unless an error is small where its tag is true, and large where it is false."""
        promised = getattr(self.tags, tag)
        if promised and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but tags.{tag} = True")
        if not promised and error < OTHER:
            self.fail(check, f"{what} {_changes(error)} only, but tags.{tag} = False")

    def require_same_or_drawn(self, check: str, what: str, error: float, tag: str | None = None) -> None:
        """Raise AssertionError unless two results are equal or, with drawn rows, differ by `Tags.draws` at most."""
        draws, promised = self.tags.draws, f"tags.{tag} = True and " if tag else ""
        if draws and not OTHER < error <= draws:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = {draws:g} says up to that")
        if not draws and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = 0")


def same_seed_same_bits(pair: Pair) -> None:
    """Check that two runs of the same seed, one serialised, give the same bits of model, outputs and ledger."""
    first, second = pair.recording.result, pair.fit_serialised()
    arrays = _arrays(first.model)
    same = _bits(arrays) == _bits(_arrays(second.model)) and first.outputs.keys() == second.outputs.keys()
    same = same and all(_bits(first.outputs[client]) == _bits(second.outputs[client]) for client in first.outputs)
    text = f"two runs of the same seed {'are equal' if same else 'differ'}, but tags.same_bits = {pair.tags.same_bits}"
    pair.require(same == pair.tags.same_bits, "same_seed_same_bits", text)
    same = first.ledger == second.ledger
    pair.require(same, "same_seed_same_bits", "the ledgers of two runs of the same seed differ")


def a_generator_serves_one_draw(pair: Pair) -> None:
    """Check that a client draws the random numbers of a purpose once in a run, or in one request (`Tags.repeated`)."""
    for (client, purpose), requests in pair.recording.purposes.items():
        holds = len(requests) == 1 or (purpose in pair.tags.repeated and len(set(requests)) == 1)
        text = f"client {client} takes the same random numbers, rng({purpose!r}), in {len(requests)} requests"
        mend = "use different purposes, or list this one in tags.repeated"
        names = ", ".join(sorted(set(requests)))
        pair.require(holds, "a_generator_serves_one_draw", f"{text} ({names}); {mend}")


def a_request_says_that_its_answer_is_drawn(pair: Pair) -> None:
    """Check that requests with drawn answers are ``seeded``, or a coordinator could choose their seed."""
    answers = (*pair.strategy.client.answers, *WidthClient.answers)
    seeded = {request.__name__: request.seeded for request in answers}
    for (client, purpose), requests in pair.recording.purposes.items():
        for request in set(requests):
            text = f"client {client} takes random numbers, rng({purpose!r}), to answer {request}, which must declare it"
            holds = seeded.get(request, True)
            pair.require(holds, "a_request_says_that_its_answer_is_drawn", f"{text}: seeded: ClassVar = True")


def another_order_of_the_clients(pair: Pair) -> None:
    """Check that permuting the clients changes nothing (`Tags.order`), except for draws (`Tags.draws`)."""
    clients = len(pair.tables)
    orders = [list(range(clients))[::-1], [*range(1, clients, 2), *range(0, clients, 2)]]
    runs = [pair.fit([pair.tables[number] for number in order], order=order) for order in orders]
    errors = [pair.error(run, order) for run, order in zip(runs, orders, strict=True)]
    what = "another order of the clients"
    if not pair.tags.order:
        pair.require_promised("another_order_of_the_clients", what, "order", max(errors))
        return
    for error in errors:
        pair.require_same_or_drawn("another_order_of_the_clients", what, error, "order")


def rows_in_another_order(pair: Pair) -> None:
    """Check that permuting the rows permutes the result; with `Tags.pooled` rows also move between clients."""
    check, rng = "rows_in_another_order", np.random.default_rng(1)
    whole = pair.whole
    permutation = rng.permutation(len(whole))
    if pair.axis == 1 or pair.tags.pooled:
        error = pair.error(pair.fit(pair.divided(whole[permutation]), rows=permutation), rows=permutation)
        what, tag = ("another order of the rows", None) if pair.axis == 1 else ("moving rows between clients", "pooled")
        pair.require_same_or_drawn(check, what, error, tag)
        return
    ends = np.cumsum([0, *(len(table) for table in pair.tables)])
    within = np.concatenate([start + rng.permutation(end - start) for start, end in itertools.pairwise(ends)])
    error = pair.error(pair.fit(pair.divided(whole[within]), rows=within), rows=within)
    pair.require_same_or_drawn(check, "another order of each client's rows", error)
    error = pair.error(pair.fit(pair.divided(whole[permutation]), rows=permutation), rows=permutation)
    pair.require_promised(check, "moving rows between clients", "pooled", error)


def signs_of_columns(pair: Pair) -> None:
    """Check that changing the signs of some columns changes nothing (`Tags.signs`)."""
    whole = pair.whole
    signs = np.random.default_rng(0).choice([-1.0, 1.0], whole.shape[1])
    signs[:2] = [-1.0, 1.0][: len(signs)]  # not all changed: cosines would stay and sines change sign
    error = pair.error(pair.fit(pair.divided(whole * signs)))
    pair.require_promised("signs_of_columns", "changing signs of columns", "signs", error)


def rotated_columns(pair: Pair) -> None:
    """Check that rotating a client's columns, or all rows alike, changes nothing (`Tags.rotations`)."""
    rng = np.random.default_rng(0)
    whole = [pair.whole] if pair.axis == 0 else pair.tables
    rotated = [table @ np.linalg.qr(rng.standard_normal((table.shape[1],) * 2))[0] for table in whole]
    error = pair.error(pair.fit(rotated if pair.axis == 1 else pair.divided(rotated[0])))
    pair.require_promised("rotated_columns", "rotating columns", "rotations", error)


def everything_is_finite(pair: Pair) -> None:
    """Check that the model and the sites' outputs hold numbers, all finite."""
    result = pair.recording.result
    named = {f"model.{name}": array for name, array in _arrays(result.model).items()}
    for client, arrays in result.outputs.items():
        named |= {f"outputs[{client}].{name}": array for name, array in arrays.items()}
    pair.require(bool(named), "everything_is_finite", "neither the model nor a site's outputs hold an array")
    for name, array in named.items():
        a_model = "a protocol must return an array, or an object with arrays as attributes, such as a dataclass"
        pair.require(not array.dtype.hasobject, "everything_is_finite", f"{name} holds no numbers: {a_model}")
        holds = array.dtype.kind not in "fc" or all_finite(array)
        pair.require(holds, "everything_is_finite", f"{name} has entries that are not finite")


def components_are_orthonormal(pair: Pair) -> None:
    """Check that components have a row per table row and orthonormal columns (`Tags.orthonormal`)."""
    check, result, name = "components_are_orthonormal", pair.recording.result, pair.tags.components
    values = getattr(result.model, "eigenvalues_", None)
    if values is not None:
        ordered = values.ndim == 1 and bool(np.all(np.diff(values) <= 1e-12 * abs(values[0])))
        pair.require(ordered, check, f"eigenvalues_ increase: {values}")
    if name is None:
        raise NotApplicable("tags.components = None: there are no components that could be orthonormal")
    bases = pair.components(result)
    if values is not None and name not in _arrays(result.model):
        bases = [H / np.sqrt(values) for H in bases]
    shapes = [V.shape for V in bases]
    holds = all(len(shape) == 2 and shape[0] == len(pair.whole) for shape in shapes)
    pair.require(holds, check, f"{name} of {len(pair.whole)} rows has the shapes {shapes}")
    error = max(float(np.abs(V.T @ V - np.eye(V.shape[1])).max()) for V in bases)
    if pair.tags.orthonormal != (error < 1e-12):
        pair.fail(check, f"{name} is {error:.1e} from orthonormal, but tags.orthonormal = {pair.tags.orthonormal}")


def history_and_ledger_agree(pair: Pair) -> None:
    """Check that the history's rounds add up to the ledger's totals, and their seconds to the run's at most."""
    check, result = "history_and_ledger_agree", pair.recording.result
    for name in ("floats_up", "floats_down", "bytes_up", "bytes_down", "rows_up"):
        added, total = sum(row[name] for row in result.history), getattr(result.ledger, name)
        pair.require(added == total, check, f"the rounds of the history have {added} {name}, but the ledger {total}")
    rounds = sum(row["round"] > 0 for row in result.history)  # joining is round 0
    pair.require(rounds == result.ledger.rounds, check, f"{rounds} rounds, but the ledger has {result.ledger.rounds}")
    seconds = sum(row["seconds"] for row in result.history)
    pair.require(seconds <= result.seconds, check, f"the rounds take {seconds} s of {result.seconds} s")


def a_run_takes_what_was_forecast(pair: Pair) -> None:
    """Check the run's rounds and floats against `forecast`, by its meaning: exact, at most, or about."""
    check = "a_run_takes_what_was_forecast"
    cohort = [Member(number, number, len(table), table.shape[1], 0) for number, table in enumerate(pair.tables)]
    forecast = pair.strategy.forecast_of_run(cohort)
    if forecast is None:
        raise NotApplicable("forecast returns None: the costs of a run are unknown")
    for name in ("rounds", "floats_up", "floats_down"):
        expected, took = getattr(forecast, name), getattr(pair.recording.result.ledger, name)
        about = took / ABOUT <= expected <= took * ABOUT
        holds = {"exact": expected == took, "at most": expected >= took, "about": about}[forecast.meaning]
        pair.require(holds, check, f"{expected} {name} were forecast ({forecast.meaning}), but the run took {took}")
    pair.require(forecast.memory > 0, check, "forecast.memory is 0, but a client that answers needs some")


def requests_are_those_of_the_plan(pair: Pair) -> None:
    """Check that `plan` and `evaluation_plan` contain all requests, and survive a round trip through JSON."""
    check, strategy = "requests_are_those_of_the_plan", pair.strategy
    plan = strategy.plan_of_run(len(pair.tables), 0, evaluate=True)
    if plan is None:
        raise NotApplicable("plan returns None: the requests of a run are unknown")
    for step in plan:
        restored = Step.model_validate_json(step.model_dump_json())
        pair.require(restored == step, check, f"a step changes when it is written to JSON and read again: {step}")
    measures = type(strategy).evaluation is not KernelStrategy.evaluation
    recording = _recorded(pair, evaluate=True) if measures else pair.recording
    outside = recording.outside(plan)
    pair.require(not outside, check, f"a request is not in the plan: {outside}")
    posted = {planned.request: planned.posts.keys() for step in plan for planned in step.requests}
    for client, exchanges in recording.exchanges.items():
        for exchange in exchanges:
            for letter in exchange.letters:
                request, kind = type(exchange.request).__name__, type(letter).__name__
                text = f"client {client} sends letter {kind} with {request}, which must declare posts = ({kind},)"
                pair.require(kind in posted.get(request, ()), check, text)


def rows_that_leave_are_counted(pair: Pair) -> None:
    """Check that replies and letters count unchanged rows in `disclosed`, and the ledger sums these up."""
    check = "rows_that_leave_are_counted"
    disclosed = 0
    for client, exchanges in pair.recording.exchanges.items():
        table = pair.tables[client]
        for exchange in exchanges:
            reply = exchange.reply
            disclosed += reply.disclosed
            name = type(reply).__name__
            for message in (*exchange.letters, reply):
                shown = _rows_shown(table, message)
                text = f"{type(message).__name__} contains {shown} unchanged rows of client {client}"
                pair.require(shown <= message.disclosed, check, f"{text}, but its disclosed is {message.disclosed}")
                pair.require(shown <= reply.disclosed, check, f"{text}, but disclosed of {name} is {reply.disclosed}")
    counted = pair.recording.result.ledger.rows_up
    pair.require(counted == disclosed, check, f"the replies disclose {disclosed} rows, but the ledger counts {counted}")


def messages_are_the_same_through_the_wire(pair: Pair) -> None:
    """Check that messages survive encoding and, without `Tags.peers`, that a bare client answers with the same bits."""
    check = "messages_are_the_same_through_the_wire"
    for exchanges in pair.recording.exchanges.values():
        for message in (message for exchange in exchanges for message in (exchange.request, exchange.reply)):
            decoded: Message = decode(type(message), *encode(message))
            same = _bits(decoded.arrays()) == _bits(message.arrays()) and decoded.model_dump_json(
                exclude=set(decoded.shapes())
            ) == message.model_dump_json(exclude=set(message.shapes()))
            pair.require(same, check, f"{type(message).__name__} changes when it is encoded and decoded")
    if pair.tags.peers:
        return
    number = len(pair.tables) - 1
    labels: dict[str, Any] = {} if pair.y is None else {"y": pair.y[number]}
    client = pair.strategy.client(pair.tables[number], client=number, seed=0, share_rows=True, **labels)
    width_client = WidthClient(pair.tables[number], client=number)
    for exchange in pair.recording.exchanges[number]:
        arrays, scalars = encode(exchange.request)
        answers = width_client if isinstance(exchange.request, WidthClient.answers) else client
        answered, _, answered_scalars = answers.fit(arrays, scalars)
        expected, expected_scalars = encode(exchange.reply)
        same = [array.tobytes() for array in answered] == [array.tobytes() for array in expected]
        text = f"a bare client's answer to {type(exchange.request).__name__} differs from that on the engine"
        pair.require(same and answered_scalars == expected_scalars, check, text)


def what_is_saved_is_loaded(pair: Pair) -> None:
    """Check that a saved and loaded result has the same model, ledger and history."""
    check, result = "what_is_saved_is_loaded", pair.recording.result
    with TemporaryDirectory(prefix="fedkernel-") as folder:
        try:
            result.save(folder)
        except InputError as error:
            raise NotApplicable(str(error)) from None
        loaded = Result.load(folder)
    same = type(loaded.model) is type(result.model) and _bits(_arrays(loaded.model)) == _bits(_arrays(result.model))
    models = loaded.model, result.model
    same = same and len({repr(model) for model in models}) == 1
    same = same and all(getattr(models[0], name, None) == getattr(models[1], name, None) for name in RESULT_FIELDS)
    pair.require(same, check, "the loaded model differs from the saved one")
    same_account = loaded.ledger == result.ledger and loaded.history == result.history
    pair.require(same_account, check, "the loaded ledger or history differs from the saved one")


def bad_input_is_one_sentence(pair: Pair) -> None:
    """Check that invalid tables and settings raise an `InputError` of one line; late NaN also a `ProtocolError`."""
    holed = [pair.tables[0].copy(), *pair.tables[1:]]
    holed[0][0, 0] = np.nan
    uneven = [np.delete(pair.tables[0], 0, axis=1 - pair.axis), *pair.tables[1:]]
    bad: dict[str, Callable[[], object]] = {
        "no tables": lambda: pair.fit([]),
        "NaN in a table": lambda: pair.fit(holed),
        "a table with one axis": lambda: pair.fit([np.ones(3), *pair.tables[1:]]),
        f"tables with {'rows' if pair.axis == 1 else 'columns'} that others lack": lambda: pair.fit(uneven),
        "a negative seed": lambda: pair.fit(pair.tables, seed=-1),
        "an engine that there is not": lambda: pair.fit(pair.tables, engine="steam"),
    }
    for what, act in bad.items():
        text = None
        try:
            act()
        except InputError as error:
            text = str(error)
        except ProtocolError as error:
            text = str(error) if act is bad["NaN in a table"] else None
        except Exception as error:
            pair.fail("bad_input_is_one_sentence", f"{what}: {type(error).__name__} in place of an InputError: {error}")
        pair.require(bool(text), "bad_input_is_one_sentence", f"{what}: accepted, or refused without a word")
        pair.require("\n" not in str(text), "bad_input_is_one_sentence", f"{what}: several lines: {text}")


def one_client_alone_is_central(pair: Pair) -> None:
    """Check that a single client with all data finds the result of `central` (`Tags.alone`)."""
    whole = [pair.whole]
    try:
        result = pair.fit(whole)
    except InputError as refusal:
        if pair.tags.alone:
            raise
        raise NotApplicable(f"it refuses a single client: {refusal}") from None
    reference = pair.central(whole, result)
    error = _distance(pair, pair.strategy.judge(result, whole, reference), "one_client_alone_is_central")
    if pair.tags.alone != (error < CENTRAL):
        text = f"{pair.tags.error} is {error:.1e} from that of central, but tags.alone = {pair.tags.alone}"
        pair.fail("one_client_alone_is_central", text)


def together_closer_than_alone(pair: Pair) -> None:
    """Check that all clients together come closer to `central` than each client alone, in the mean.

    The result of each client alone is `central` of its table, or the metric with the suffix ``_alone`` from `judge`.
    """
    result, name, best = pair.recording.result, pair.tags.error, pair.tags.best
    reference, strategy = pair.central(pair.tables, result), pair.strategy.as_run(result)
    metrics = strategy.judge(result, pair.tables, reference)
    together = _distance(pair, metrics, "together_closer_than_alone")
    if f"{name}_alone" in metrics:
        alone = abs(metrics[f"{name}_alone"] - best)
    else:
        models = [strategy.alone(table) for table in pair.tables]
        figures = [_judged_alone(pair, model, reference) for model in models]
        alone = float(np.mean(np.abs(np.array(figures) - best)))
    text = f"{name} is {together:.3g} from its best, but each client alone {alone:.3g} in the mean"
    pair.require(together < alone, "together_closer_than_alone", text)


Check = Callable[[Pair], None]

CHECKS: tuple[Check, ...] = (
    everything_is_finite,
    same_seed_same_bits,
    a_generator_serves_one_draw,
    a_request_says_that_its_answer_is_drawn,
    another_order_of_the_clients,
    rows_in_another_order,
    signs_of_columns,
    rotated_columns,
    components_are_orthonormal,
    history_and_ledger_agree,
    a_run_takes_what_was_forecast,
    requests_are_those_of_the_plan,
    rows_that_leave_are_counted,
    messages_are_the_same_through_the_wire,
    what_is_saved_is_loaded,
    bad_input_is_one_sentence,
    one_client_alone_is_central,
    together_closer_than_alone,
)
"""The properties, in order."""


def check_pair(
    strategy: KernelStrategy[Any],
    shards: Sequence[npt.ArrayLike],
    *,
    tags: Tags | None = None,
    y: Sequence[npt.ArrayLike] | None = None,
) -> dict[str, str]:
    """Check every property of a strategy with its client class in this process, by some fifteen runs.

    Parameters are those of `Pair`. Returns the properties without a meaning for this pair, each with the reason, also
    logged as a warning. Raises AssertionError, which names it, for the first property that fails; a note on any other
    error names it, too.
    """
    pair, left_out = Pair(strategy, shards, tags, y=y), {}
    for check in CHECKS:
        try:
            check(pair)
        except NotApplicable as reason:
            log.warning("%s was not checked for %s: %s", check.__name__, pair, reason)
            left_out[check.__name__] = str(reason)
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(f"while {check.__name__} was checked for {pair}")
            raise
    return left_out


def parametrize_with_pairs(pairs: Iterable[Pair]) -> Any:
    """Return a pytest decorator for a test of every pair and property, called as ``check(pair)``.

    A property that has no meaning for a pair is skipped with the reason.
    """
    import pytest  # noqa: PLC0415 - nothing else here needs it

    def skipping(check: Check) -> Check:
        @functools.wraps(check)
        def tried(pair: Pair) -> None:
            try:
                check(pair)
            except NotApplicable as reason:
                pytest.skip(f"{check.__name__} was not checked for {pair}: {reason}")

        return tried

    cases = [(pair, skipping(check)) for pair in pairs for check in CHECKS]
    return pytest.mark.parametrize(("pair", "check"), cases, ids=[f"{check.__name__}-{pair}" for pair, check in cases])


def _recorded(pair: Pair, *, evaluate: bool = False) -> Recording:
    """Run a strategy with seed 0, and record its clients' exchanges and draws of random numbers."""
    exchanges: dict[int, list[Exchange]] = defaultdict(list)
    purposes: dict[tuple[int, str], list[str]] = defaultdict(list)
    letters: dict[int, list[Letter]] = defaultdict(list)
    pending: dict[int, str] = {}
    respond, rng, write = KernelClient._respond, KernelClient.rng, Mailbox.write

    def noting_answers(self: KernelClient, answer: Any, request: Request[Any], config: Any) -> Reply:
        pending[self.client] = type(request).__name__
        reply = respond(self, answer, request, config)
        exchanges[self.client].append(Exchange(request, reply, letters.pop(self.client, [])))
        return reply

    def noting_draws(self: KernelClient, purpose: str) -> np.random.Generator:
        purposes[self.client, purpose].append(pending[self.client])
        return rng(self, purpose)

    def noting_letters(self: Mailbox, peer: int, letter: Letter) -> None:
        letters[self._client].append(letter)
        write(self, peer, letter)

    with (
        mock.patch.object(KernelClient, "_respond", noting_answers),
        mock.patch.object(KernelClient, "rng", noting_draws),
        mock.patch.object(Mailbox, "write", noting_letters),
    ):
        return Recording(pair.fit(pair.tables, evaluate=evaluate), exchanges, purposes)


def _arrays(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Return a model's arrays by name; a model without attributes is itself the array."""
    if model is None:
        return {}
    if isinstance(model, np.ndarray) or not hasattr(model, "__dict__"):
        return {"value": np.asarray(model)}
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def _distance(pair: Pair, metrics: Mapping[str, float], check: str) -> float:
    """Return the error metric's distance from its best value; AssertionError if `judge` does not have it."""
    if (name := pair.tags.error) not in metrics:
        names = listed(list(metrics)) or "nothing"
        pair.fail(check, f"judge returns no {name!r}, but {names}; tags.error names the metric")
    return abs(metrics[name] - pair.tags.best)


def _judged_alone(pair: Pair, model: Any, reference: Any) -> float:
    """Return the error metric of one site's model, from `judge_alone` if it has the metric, else `judge`."""
    name = pair.tags.error
    figures = pair.strategy.judge_alone([model], pair.tables, reference)
    return figures[name] if name in figures else pair.strategy.judge(Result(model), pair.tables, reference)[name]


def _bits(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def _changes(error: float) -> str:
    between = f" (neither equal, {SAME:g}, nor different, {OTHER:g}: try other tables or settings)"
    return f"changes the result by {error:.1e}" + (between if SAME < error < OTHER else "")


def _squared_difference(first: FloatArray, second: FloatArray) -> float:
    size = max(float(np.square(first).max(initial=0.0)), float(np.finfo(np.float64).tiny))
    return float(np.square(first - second).max(initial=0.0)) / size


def _rows_shown(table: FloatArray, message: Message) -> int:
    """Return the number of nonzero rows of a table that a message's arrays contain unchanged."""
    rows, width = {row.tobytes() for row in table if row.any()}, table.shape[1]
    if width == 1:
        return 0  # equal numbers do not identify a row
    shown = set()
    for array in message.arrays().values():
        if array.dtype == np.float64 and array.size and array.shape[-1:] == (width,):
            shown |= rows & {row.tobytes() for row in array.reshape(-1, width)}
    return len(shown)

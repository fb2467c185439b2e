"""The properties that every pair has, whatever its paper: for the tests of whoever writes one.

    from fedkernel.testing import check_pair

    def test_my_pair():
        check_pair(MyStrategy(n_components=2), shards)

or, a test for each property, with pytest::

    @parametrize_with_pairs([Pair(MyStrategy(n_components=2), shards)])
    def test_my_pair(pair, check):
        check(pair)

What a property needs to know of a method, the strategy's `tags` say (see `fedkernel.strategy.tags`).
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

from fedkernel.ground import FloatArray, InputError, ProtocolError, all_finite
from fedkernel.kernel_width import WidthClient
from fedkernel.models import BESIDE
from fedkernel.numerics import orthonormal_basis, sin_theta_error
from fedkernel.peers import Letter, Mailbox
from fedkernel.protocol import KernelClient, Member, Message, Place, Plan, Reply, Request, Step, advance, decode, encode
from fedkernel.run import Result, RunSettings
from fedkernel.strategy import KernelStrategy, Tags, check_tables, simulated_sites
from fedkernel.wire import shares_rows

log = logging.getLogger(__name__)

SAME, OTHER = 1e-16, 1e-8
"""Errors (sums of squared sines, or of squared relative differences) below which two results are the same, and above
which they are not; what lies between is neither."""

CENTRAL = 1e-8
"""How near to its best value a metric is where there is no difference."""

ABOUT = 1.6
"""How far off a forecast of about so much may be."""


class NotApplicable(Exception):  # noqa: N818 - it is no error
    """A property has no meaning for a pair; the text says why."""


@dataclass(frozen=True)
class Exchange:
    """What a client was asked in one round, what it answered, and the letters that it wrote to others."""

    request: Request[Any]
    reply: Reply
    letters: Sequence[Letter]


@dataclass(frozen=True)
class Recording:
    """A run, and what happened at each client: its exchanges, and which requests took random numbers for a purpose."""

    result: Result[Any]
    exchanges: Mapping[int, Sequence[Exchange]]
    purposes: Mapping[tuple[int, str], Sequence[str]]

    def outside(self, plan: Plan) -> str:
        """Return in a sentence what the first client was asked that a plan does not entail; empty: nothing."""
        for client, exchanges in self.exchanges.items():
            place = Place()
            for request in (exchange.request for exchange in exchanges):
                fields = request.model_dump(mode="json", exclude=set(request.shapes()))
                shapes = {name: array.shape for name, array in request.arrays().items()}
                try:
                    place = advance(plan, place, type(request).__name__, fields, shapes)
                except InputError as error:
                    return f"client {client}: {error}"
        return ""


class Pair:
    """A strategy with its client, tables to try it on, and what holds of it there.

    Parameters
    ----------
    strategy : KernelStrategy
    shards : sequence of ndarray
        One table per client, at least two: (N, d_m) with a vertical partition, (n_m, d) with a horizontal one. Some
        dozen rows are enough, and none should be at two clients.
    tags : Tags, optional
        By default the strategy's own.
    name : str, optional
        What tests call it; by default the strategy's class.
    y : sequence of ndarray of shape (n_m,), optional
        Labels of each client's rows, for a client that needs them.
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
            raise InputError(f"shards: {len(self.tables)} tables, but a pair is tried on two or more")
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
        """Run the pair on tables, of its clients in some order or of its rows in some order, with their labels."""
        y = self.y
        if y is not None and order is not None:
            y = [y[number] for number in order]
        if y is not None and (rows is not None or len(tables) == 1):
            anyhow = slice(None) if rows is None else rows
            together = [y[0]] * len(tables) if self.axis == 1 else [np.concatenate(y)]
            ends = np.cumsum([np.shape(table)[0] for table in tables])[:-1]
            parts = [labels[anyhow] for labels in together]
            y = parts if self.axis == 1 else np.split(parts[0], ends)
        return self.strategy.fit(tables, y=y, **settings)

    def fit_serialised(self) -> Result[Any]:
        """Run the pair on its tables where messages are serialised, as between machines."""
        client = self.strategy.client
        tables = check_tables(self.tables, "shards", client.table)
        sites = simulated_sites(
            client, tables, y=self.y, share_rows=shares_rows(self.strategy.hyperparameters), serialised=True
        )
        with sites as (grid, outputs):
            result = self.strategy.run(grid, RunSettings(clients=len(tables)))
        result.outputs = outputs
        return result

    @property
    def whole(self) -> FloatArray:
        """All tables in one."""
        return np.concatenate(self.tables, axis=self.axis)

    def divided(self, whole: FloatArray) -> list[FloatArray]:
        """Divide a table among the clients as theirs are."""
        ends = np.cumsum([table.shape[self.axis] for table in self.tables])
        return np.split(whole, ends[:-1], axis=self.axis)

    @functools.cached_property
    def recording(self) -> Recording:
        """The run with seed 0 that properties look at."""
        return _recorded(self)

    def outcome(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return what a run has found, as `Tags.components` says; client c held table ``order[c]``.

        Returns
        -------
        list of ndarray
            Orthonormal bases, (N, k), of which vertical clients that keep what they found have one each; without
            components the model's arrays.
        """
        if self.tags.components is None:
            if not (arrays := _arrays(result.model)):
                raise NotApplicable("tags.components = None, and the model has no arrays that could be compared")
            return list(arrays.values())
        return [orthonormal_basis(part) for part in self.components(result, order)]

    def components(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return the arrays that `Tags.components` names: the model's; else what each site keeps, or all rows of it."""
        name = str(self.tags.components)
        if isinstance(of_model := getattr(result.model, name, None), np.ndarray):
            return [of_model]
        holders = np.argsort(range(len(self.tables)) if order is None else order)
        if not all(name in result.outputs[client] for client in holders):
            self.fail(
                "components", f"neither the model nor every site's outputs have {name!r}, as tags.components says"
            )
        parts = [result.outputs[int(client)][name] for client in holders]
        return parts if self.axis == 1 else [np.vstack(parts)]

    def error(self, result: Result[Any], order: Sequence[int] | None = None, rows: Any = None) -> float:
        """Return how far what a run has found is from the first run's; ``rows``: whose rows are now in this order."""
        before, after = self.outcome(self.recording.result), self.outcome(result, order)
        if self.tags.components is not None and rows is not None:
            before = [basis[rows] for basis in before]
        if [array.shape for array in before] != [array.shape for array in after]:
            return math.inf
        distance = _squared_difference if self.tags.components is None else sin_theta_error
        return max(distance(*arrays) for arrays in zip(before, after, strict=True))

    def central(self, tables: Sequence[FloatArray], result: Result[Any]) -> Any:
        """Return the exact answer at the widths of a run, or raise NotApplicable where the method has none."""
        try:
            return self.strategy.as_run(result).central(tables)
        except NotImplementedError as error:
            raise NotApplicable(str(error)) from None

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise the error of a property that does not hold."""
        raise AssertionError(f"{check}, {self.name}, {self.strategy!r}: {text}")

    def require(self, holds: bool, check: str, text: str) -> None:
        """Raise that error unless the property holds."""
        if not holds:
            self.fail(check, text)

    def require_promised(self, check: str, what: str, tag: str, error: float) -> None:
        """Raise unless an error is as small as a tag promises, or as large as it admits."""
        promised = getattr(self.tags, tag)
        if promised and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but tags.{tag} = True")
        if not promised and error < OTHER:
            self.fail(check, f"{what} {_changes(error)} only, but tags.{tag} = False")

    def require_same_or_drawn(self, check: str, what: str, error: float, tag: str | None = None) -> None:
        """Raise unless two results are the same or, where rows are drawn, different and as near as the tags say."""
        draws, promised = self.tags.draws, f"tags.{tag} = True and " if tag else ""
        if draws and not OTHER < error <= draws:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = {draws:g} says up to that")
        if not draws and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = 0")


def same_seed_same_bits(pair: Pair) -> None:
    """Demand that two runs of the same seed give the same model, outputs and account, to the last bit.

    Of the second all messages are serialised, as they are between machines.
    """
    first, second = pair.recording.result, pair.fit_serialised()
    arrays = _arrays(first.model)
    same = _bits(arrays) == _bits(_arrays(second.model)) and first.outputs.keys() == second.outputs.keys()
    same = same and all(_bits(first.outputs[client]) == _bits(second.outputs[client]) for client in first.outputs)
    if pair.tags.same_bits and not same:
        pair.fail("same_seed_same_bits", "two runs of the same seed differ, but tags.same_bits = True")
    if not pair.tags.same_bits and same:
        pair.fail("same_seed_same_bits", "two runs of the same seed are equal, but tags.same_bits = False")
    pair.require(
        first.ledger == second.ledger, "same_seed_same_bits", "the ledgers of two runs of the same seed differ"
    )


def a_generator_serves_one_draw(pair: Pair) -> None:
    """Demand that a client takes the random numbers of a purpose once in a run: two uses would have the same numbers.

    Purposes that `Tags.repeated` names may serve one kind of request again in every round.
    """
    for (client, purpose), requests in pair.recording.purposes.items():
        pair.require(
            len(requests) == 1 or (purpose in pair.tags.repeated and len(set(requests)) == 1),
            "a_generator_serves_one_draw",
            f"client {client} takes the same random numbers, rng({purpose!r}), in {len(requests)} requests "
            f"({', '.join(sorted(set(requests)))}); name the purposes apart, or in tags.repeated",
        )


def a_request_says_that_its_answer_is_drawn(pair: Pair) -> None:
    """Demand that requests which a client draws numbers for say so, or sites would let a coordinator choose these."""
    answers = (*pair.strategy.client.answers, *WidthClient.answers)
    seeded = {request.__name__: request.seeded for request in answers}
    for (client, purpose), requests in pair.recording.purposes.items():
        for request in set(requests):
            pair.require(
                seeded.get(request, True),
                "a_request_says_that_its_answer_is_drawn",
                f"client {client} takes random numbers, rng({purpose!r}), to answer {request}, which does not say so: "
                "seeded: ClassVar = True",
            )


def another_order_of_the_clients(pair: Pair) -> None:
    """Demand that it does not matter which client has which number (`Tags.order`), but to its draws (`Tags.draws`)."""
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
    """Demand that the order of the rows is the order of the result, and that it does not matter who holds them.

    With a horizontal partition rows also move between clients, where `Tags.pooled`; else only within each, and moving
    them is another problem.
    """
    check, rng = "rows_in_another_order", np.random.default_rng(1)
    whole = pair.whole
    anyhow = rng.permutation(len(whole))
    if pair.axis == 1 or pair.tags.pooled:
        error = pair.error(pair.fit(pair.divided(whole[anyhow]), rows=anyhow), rows=anyhow)
        what, tag = ("another order of the rows", None) if pair.axis == 1 else ("moving rows between clients", "pooled")
        pair.require_same_or_drawn(check, what, error, tag)
        return
    ends = np.cumsum([0, *(len(table) for table in pair.tables)])
    within = np.concatenate([start + rng.permutation(end - start) for start, end in itertools.pairwise(ends)])
    error = pair.error(pair.fit(pair.divided(whole[within]), rows=within), rows=within)
    pair.require_same_or_drawn(check, "another order of each client's rows", error)
    error = pair.error(pair.fit(pair.divided(whole[anyhow]), rows=anyhow), rows=anyhow)
    pair.require_promised(check, "moving rows between clients", "pooled", error)


def signs_of_columns(pair: Pair) -> None:
    """Demand that changing the signs of some columns changes nothing (`Tags.signs`)."""
    whole = pair.whole
    signs = np.random.default_rng(0).choice([-1.0, 1.0], whole.shape[1])
    signs[:2] = [-1.0, 1.0][: len(signs)]  # all of them changed, cosines would stay and sines change theirs
    error = pair.error(pair.fit(pair.divided(whole * signs)))
    pair.require_promised("signs_of_columns", "changing signs of columns", "signs", error)


def rotated_columns(pair: Pair) -> None:
    """Demand that rotating a client's columns, of rows those of all alike, changes nothing (`Tags.rotations`)."""
    rng = np.random.default_rng(0)
    whole = [pair.whole] if pair.axis == 0 else pair.tables
    rotated = [table @ np.linalg.qr(rng.standard_normal((table.shape[1],) * 2))[0] for table in whole]
    error = pair.error(pair.fit(rotated if pair.axis == 1 else pair.divided(rotated[0])))
    pair.require_promised("rotated_columns", "rotating columns", "rotations", error)


def everything_is_finite(pair: Pair) -> None:
    """Demand that the model and what the sites keep hold numbers, none of which is infinite or NaN."""
    result = pair.recording.result
    named = {f"model.{name}": array for name, array in _arrays(result.model).items()}
    named |= {
        f"outputs[{client}].{name}": array
        for client, arrays in result.outputs.items()
        for name, array in arrays.items()
    }
    pair.require(bool(named), "everything_is_finite", "neither the model nor a site's outputs hold an array")
    for name, array in named.items():
        a_model = "what a protocol returns is an array, or an object with arrays as attributes, such as a dataclass"
        pair.require(not array.dtype.hasobject, "everything_is_finite", f"{name} holds no numbers: {a_model}")
        holds = array.dtype.kind not in "fc" or all_finite(array)
        pair.require(holds, "everything_is_finite", f"{name} has entries that are not finite")


def components_are_orthonormal(pair: Pair) -> None:
    """Demand orthonormal columns with a row for each row (`Tags.orthonormal`), and eigenvalues in order."""
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
    """Demand that the rounds of the history add up to the ledger's totals, and take no longer than the run."""
    check, result = "history_and_ledger_agree", pair.recording.result
    for name in ("floats_up", "floats_down", "bytes_up", "bytes_down", "rows_up"):
        added, total = sum(row[name] for row in result.history), getattr(result.ledger, name)
        pair.require(added == total, check, f"the rounds of the history have {added} {name}, but the ledger {total}")
    rounds = sum(row["round"] > 0 for row in result.history)  # the clients' joining is none
    pair.require(rounds == result.ledger.rounds, check, f"{rounds} rounds, but the ledger has {result.ledger.rounds}")
    seconds = sum(row["seconds"] for row in result.history)
    pair.require(seconds <= result.seconds, check, f"the rounds take {seconds} s of {result.seconds} s")


def a_run_takes_what_was_forecast(pair: Pair) -> None:
    """Demand the rounds and floats of `forecast`: exactly, at most, or about so many, as it says itself."""
    check = "a_run_takes_what_was_forecast"
    cohort = [Member(number, number, len(table), table.shape[1], 0) for number, table in enumerate(pair.tables)]
    forecast = pair.strategy.forecast_of_run(cohort)
    if forecast is None:
        raise NotApplicable("forecast returns None: what a run will take is not known")
    for name in ("rounds", "floats_up", "floats_down"):
        expected, took = getattr(forecast, name), getattr(pair.recording.result.ledger, name)
        about = took / ABOUT <= expected <= took * ABOUT
        holds = {"exact": expected == took, "at most": expected >= took, "about": about}[forecast.meaning]
        pair.require(holds, check, f"{expected} {name} were forecast ({forecast.meaning}), but the run took {took}")
    pair.require(forecast.memory > 0, check, "forecast.memory is 0, but a client that answers needs some")


def requests_are_those_of_the_plan(pair: Pair) -> None:
    """Demand that `plan` entails what each client is asked, `evaluation_plan` what measures the model.

    And that both are the same after they were JSON, as sites get them.
    """
    check, strategy = "requests_are_those_of_the_plan", pair.strategy
    plan = strategy.plan_of_run(len(pair.tables), 0, evaluate=True)
    if plan is None:
        raise NotApplicable("plan returns None: what a run will ask is not known")
    for step in plan:
        again = Step.model_validate_json(step.model_dump_json())
        pair.require(again == step, check, f"a step is not what it was after it was JSON: {step}")
    measures = type(strategy).evaluation is not KernelStrategy.evaluation
    recording = _recorded(pair, evaluate=True) if measures else pair.recording
    outside = recording.outside(plan)
    pair.require(not outside, check, f"a client is asked what the plan does not entail: {outside}")
    posted = {planned.request: planned.posts.keys() for step in plan for planned in step.requests}
    for client, exchanges in recording.exchanges.items():
        for exchange in exchanges:
            for letter in exchange.letters:
                request, kind = type(exchange.request).__name__, type(letter).__name__
                text = (
                    f"client {client} posts {kind} with {request}, which does not say so: posts: ClassVar = ({kind},)"
                )
                pair.require(kind in posted.get(request, ()), check, text)


def rows_that_leave_are_counted(pair: Pair) -> None:
    """Demand that replies say how many rows leave with them as they are, in arrays or letters (`disclosed`).

    So must letters, and the ledger must add up what replies say.
    """
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
                own = f"{type(message).__name__} shows {shown} rows of client {client} as they are"
                pair.require(shown <= message.disclosed, check, f"{own}, but its disclosed is {message.disclosed}")
                pair.require(shown <= reply.disclosed, check, f"{own}, but disclosed of {name} is {reply.disclosed}")
    counted = pair.recording.result.ledger.rows_up
    pair.require(counted == disclosed, check, f"the replies disclose {disclosed} rows, but the ledger counts {counted}")


def messages_are_the_same_through_the_wire(pair: Pair) -> None:
    """Demand that messages come out of the wire as they were, and that a bare client answers the same bits.

    So a site that was restarted can be asked again for all of the run. A client that writes letters has keys of its
    own making (`Tags.peers`): of its messages only the first is checked.
    """
    check = "messages_are_the_same_through_the_wire"
    for exchanges in pair.recording.exchanges.values():
        for message in (message for exchange in exchanges for message in (exchange.request, exchange.reply)):
            again: Message = decode(type(message), *encode(message))
            same = _bits(again.arrays()) == _bits(message.arrays()) and again.model_dump_json(
                exclude=set(again.shapes())
            ) == message.model_dump_json(exclude=set(message.shapes()))
            pair.require(same, check, f"{type(message).__name__} is not what it was after encode and decode")
    if pair.tags.peers:
        return
    number = len(pair.tables) - 1
    labels: dict[str, Any] = {} if pair.y is None else {"y": pair.y[number]}
    client = pair.strategy.client(pair.tables[number], client=number, seed=0, share_rows=True, **labels)
    before = WidthClient(pair.tables[number], client=number)
    for exchange in pair.recording.exchanges[number]:
        arrays, scalars = encode(exchange.request)
        answers = before if isinstance(exchange.request, WidthClient.answers) else client
        answered, _, answered_scalars = answers.fit(arrays, scalars)
        expected, expected_scalars = encode(exchange.reply)
        same = [array.tobytes() for array in answered] == [array.tobytes() for array in expected]
        text = f"a bare client answers {type(exchange.request).__name__} otherwise than on the engine"
        pair.require(same and answered_scalars == expected_scalars, check, text)


def what_is_saved_is_loaded(pair: Pair) -> None:
    """Demand that a result that was saved and loaded has the same model, account and history."""
    check, result = "what_is_saved_is_loaded", pair.recording.result
    with TemporaryDirectory(prefix="fedkernel-") as folder:
        try:
            result.save(folder)
        except InputError as error:
            raise NotApplicable(str(error)) from None
        again = Result.load(folder)
    same = type(again.model) is type(result.model) and _bits(_arrays(again.model)) == _bits(_arrays(result.model))
    same = same and repr(again.model) == repr(result.model)
    same = same and all(getattr(again.model, name, None) == getattr(result.model, name, None) for name in BESIDE)
    pair.require(same, check, "the model that was loaded is not the one that was saved")
    account = again.ledger == result.ledger and again.history == result.history
    pair.require(account, check, "the account that was loaded is not the one that was saved")


def bad_input_is_one_sentence(pair: Pair) -> None:
    """Demand that tables and settings that no pair can use are refused with an `InputError` of one line.

    A client that reads its table block by block finds NaN only then: what it says is a `ProtocolError`.
    """
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
    """Demand what `central` finds, where all data are at one client (`Tags.alone`)."""
    whole = [pair.whole]
    result = pair.fit(whole)
    reference = pair.central(whole, result)
    error = abs(pair.strategy.judge(result, whole, reference)[pair.tags.error] - pair.tags.best)
    if pair.tags.alone != (error < CENTRAL):
        text = f"{pair.tags.error} is {error:.1e} from that of central, but tags.alone = {pair.tags.alone}"
        pair.fail("one_client_alone_is_central", text)


def together_closer_than_alone(pair: Pair) -> None:
    """Demand that clients come closer to what `central` finds than each with its own table, in the mean.

    What each finds alone is `central` of its table, or what `judge` itself says besides, as the metric with ``_alone``.
    """
    result, name, best = pair.recording.result, pair.tags.error, pair.tags.best
    reference, strategy = pair.central(pair.tables, result), pair.strategy.as_run(result)
    metrics = strategy.judge(result, pair.tables, reference)
    together = abs(metrics[name] - best)
    if f"{name}_alone" in metrics:
        alone = abs(metrics[f"{name}_alone"] - best)
    else:
        models = [strategy.alone(table) for table in pair.tables]
        figures = [_judged_alone(pair, model, reference) for model in models]
        alone = float(np.mean(np.abs(np.array(figures) - best)))
    text = f"{name} is {together:.3g} from its best, but in the mean {alone:.3g} of each alone"
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
"""The properties, in the order in which they are tried."""


def check_pair(
    strategy: KernelStrategy[Any],
    shards: Sequence[npt.ArrayLike],
    *,
    tags: Tags | None = None,
    y: Sequence[npt.ArrayLike] | None = None,
) -> dict[str, str]:
    """Try every property on a pair, in this process; some fifteen runs.

    Parameters
    ----------
    strategy, shards, tags, y
        As for `Pair`.

    Returns
    -------
    dict of str to str
        The properties that have no meaning for this pair, and why; each is logged as a warning besides.

    Raises
    ------
    AssertionError
        On the first property that does not hold; the text names it and the strategy.
    """
    pair, left_out = Pair(strategy, shards, tags, y=y), {}
    for check in CHECKS:
        try:
            check(pair)
        except NotApplicable as reason:
            log.warning("%s was not checked for %s: %s", check.__name__, pair, reason)
            left_out[check.__name__] = str(reason)
    return left_out


def parametrize_with_pairs(pairs: Iterable[Pair]) -> Any:
    """Return pytest's decorator that makes a test of every pair and every property, to be called as ``check(pair)``.

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

    trials = [(pair, skipping(check)) for pair in pairs for check in CHECKS]
    return pytest.mark.parametrize(
        ("pair", "check"), trials, ids=[f"{check.__name__}-{pair}" for pair, check in trials]
    )


def _recorded(pair: Pair, *, evaluate: bool = False) -> Recording:
    """Run a pair with seed 0, and note what happens at its clients."""
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
    """Return a model's arrays by name; of what is no object with fields, that itself."""
    if model is None:
        return {}
    if isinstance(model, np.ndarray) or not hasattr(model, "__dict__"):
        return {"value": np.asarray(model)}
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def _judged_alone(pair: Pair, model: Any, reference: Any) -> float:
    """Return how good a model is that a site found alone: by what is said of such ones, or as of any other."""
    name = pair.tags.error
    figures = pair.strategy.judge_alone([model], pair.tables, reference)
    return figures[name] if name in figures else pair.strategy.judge(Result(model), pair.tables, reference)[name]


def _bits(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def _changes(error: float) -> str:
    between = f" (neither the same, {SAME:g}, nor another, {OTHER:g}: try tables or settings that tell)"
    return f"changes the result by {error:.1e}" + (between if SAME < error < OTHER else "")


def _squared_difference(first: FloatArray, second: FloatArray) -> float:
    size = max(float(np.square(first).max(initial=0.0)), float(np.finfo(np.float64).tiny))
    return float(np.square(first - second).max(initial=0.0)) / size


def _rows_shown(table: FloatArray, message: Message) -> int:
    """Return how many rows of a table, of two entries or more, stand in a message's arrays as they are."""
    rows, width = {row.tobytes() for row in table if row.any()}, table.shape[1]
    if width == 1:
        return 0  # numbers that are alike say nothing
    shown = set()
    for array in message.arrays().values():
        if array.dtype == np.float64 and array.size and array.shape[-1:] == (width,):
            shown |= rows & {row.tobytes() for row in array.reshape(-1, width)}
    return len(shown)

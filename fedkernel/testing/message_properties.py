"""Properties of a pair's messages: draws, costs against the forecast, requests of the plan, rows counted, encoding."""

from typing import Any

import numpy as np

from fedkernel.ground import FloatArray
from fedkernel.kernel_width import WidthClient
from fedkernel.protocol import Member, Message, Step, decode, encode
from fedkernel.strategy import KernelStrategy
from fedkernel.testing.pair import NotApplicable, Pair, bits_of, record_run

ABOUT = 1.6  # largest factor by which a forecast of kind "about" may be wrong


def a_generator_serves_one_draw(pair: Pair) -> None:
    """Check that a client draws a purpose's random numbers once in a run. `Tags.repeated`: in one class of request."""
    for (client, purpose), requests in pair.recording.purposes.items():
        holds = len(requests) == 1 or (purpose in pair.tags.repeated and len(set(requests)) == 1)
        text = f"client {client} takes the same random numbers, rng({purpose!r}), in {len(requests)} requests"
        mend = "use different purposes, or list this one in tags.repeated"
        names = ", ".join(sorted(set(requests)))
        pair.require(holds, "a_generator_serves_one_draw", f"{text} ({names}); {mend}")


def a_request_says_that_its_answer_is_drawn(pair: Pair) -> None:
    """Check that requests are ``seeded`` if answers use random numbers. Else a coordinator could choose their seed."""
    answers = (*pair.strategy.client.answers, *WidthClient.answers)
    seeded = {request.__name__: request.seeded for request in answers}
    for (client, purpose), requests in pair.recording.purposes.items():
        for request in set(requests):
            text = f"client {client} takes random numbers, rng({purpose!r}), to answer {request}, which must declare it"
            holds = seeded.get(request, True)
            pair.require(holds, "a_request_says_that_its_answer_is_drawn", f"{text}: seeded: ClassVar = True")


def history_and_ledger_agree(pair: Pair) -> None:
    """Check that the history's rounds add up to the ledger's totals. Their seconds must not exceed the run's."""
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
    recording = record_run(pair, evaluate=True) if measures else pair.recording
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
            same = bits_of(decoded.arrays()) == bits_of(message.arrays()) and decoded.model_dump_json(
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

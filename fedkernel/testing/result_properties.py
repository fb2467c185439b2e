"""Properties of a pair's results: equal or different bits, symmetries, orthonormality, files, and refusals."""

import itertools
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedkernel.ground import InputError, ProtocolError, all_finite, listed
from fedkernel.models import RESULT_FIELDS
from fedkernel.run import Result
from fedkernel.testing.pair import NotApplicable, Pair, arrays_of, bits_of

CENTRAL = 1e-8  # largest distance of a metric from its best value that counts as zero


def everything_is_finite(pair: Pair) -> None:
    """Check that the model and the sites' outputs hold numbers, all finite."""
    result = pair.recording.result
    named = {f"model.{name}": array for name, array in arrays_of(result.model).items()}
    for client, arrays in result.outputs.items():
        named |= {f"outputs[{client}].{name}": array for name, array in arrays.items()}
    pair.require(bool(named), "everything_is_finite", "neither the model nor a site's outputs hold an array")
    for name, array in named.items():
        a_model = "a protocol must return an array, or an object with arrays as attributes, such as a dataclass"
        pair.require(not array.dtype.hasobject, "everything_is_finite", f"{name} holds no numbers: {a_model}")
        holds = array.dtype.kind not in "fc" or all_finite(array)
        pair.require(holds, "everything_is_finite", f"{name} has entries that are not finite")


def same_seed_same_bits(pair: Pair) -> None:
    """Check that two runs of the same seed, one serialised, give the same bits of model, outputs and ledger."""
    first, second = pair.recording.result, pair.fit_serialised()
    arrays = arrays_of(first.model)
    same = bits_of(arrays) == bits_of(arrays_of(second.model)) and first.outputs.keys() == second.outputs.keys()
    same = same and all(bits_of(first.outputs[client]) == bits_of(second.outputs[client]) for client in first.outputs)
    text = f"two runs of the same seed {'are equal' if same else 'differ'}, but tags.same_bits = {pair.tags.same_bits}"
    pair.require(same == pair.tags.same_bits, "same_seed_same_bits", text)
    same = first.ledger == second.ledger
    pair.require(same, "same_seed_same_bits", "the ledgers of two runs of the same seed differ")


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
    if values is not None and name not in arrays_of(result.model):
        bases = [H / np.sqrt(values) for H in bases]
    shapes = [V.shape for V in bases]
    holds = all(len(shape) == 2 and shape[0] == len(pair.whole) for shape in shapes)
    pair.require(holds, check, f"{name} of {len(pair.whole)} rows has the shapes {shapes}")
    error = max(float(np.abs(V.T @ V - np.eye(V.shape[1])).max()) for V in bases)
    if pair.tags.orthonormal != (error < 1e-12):
        pair.fail(check, f"{name} is {error:.1e} from orthonormal, but tags.orthonormal = {pair.tags.orthonormal}")


def what_is_saved_is_loaded(pair: Pair) -> None:
    """Check that a saved and loaded result has the same model, ledger and history."""
    check, result = "what_is_saved_is_loaded", pair.recording.result
    with TemporaryDirectory(prefix="fedkernel-") as folder:
        try:
            result.save(folder)
        except InputError as error:
            raise NotApplicable(str(error)) from None
        loaded = Result.load(folder)
    same = type(loaded.model) is type(result.model) and bits_of(arrays_of(loaded.model)) == bits_of(
        arrays_of(result.model)
    )
    models = loaded.model, result.model
    same = same and len({repr(model) for model in models}) == 1
    same = same and all(getattr(models[0], name, None) == getattr(models[1], name, None) for name in RESULT_FIELDS)
    pair.require(same, check, "the loaded model differs from the saved one")
    same_account = loaded.ledger == result.ledger and loaded.history == result.history
    pair.require(same_account, check, "the loaded ledger or history differs from the saved one")


def bad_input_is_one_sentence(pair: Pair) -> None:
    """Check that invalid tables and settings raise an `InputError` of one line. NaN may raise a `ProtocolError`."""
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


def _distance(pair: Pair, metrics: Mapping[str, float], check: str) -> float:
    """Return the error metric's distance from its best value; AssertionError if `judge` does not have it."""
    if (name := pair.tags.error) not in metrics:
        names = listed(list(metrics)) or "nothing"
        pair.fail(check, f"judge returns no {name!r}, but {names}; tags.error names the metric")
    return abs(metrics[name] - pair.tags.best)


def _judged_alone(pair: Pair, model: Any, reference: Any) -> float:
    """Return the error metric of one site's model, from `judge_alone` if that returns it, else from `judge`."""
    name = pair.tags.error
    figures = pair.strategy.judge_alone([model], pair.tables, reference)
    return figures[name] if name in figures else pair.strategy.judge(Result(model), pair.tables, reference)[name]

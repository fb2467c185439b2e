"""All properties of a pair in order, as one function or as pytest's cases."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy.typing as npt

from fedkernel.strategy import KernelStrategy, Tags
from fedkernel.testing.message_properties import (
    a_generator_serves_one_draw,
    a_request_says_that_its_answer_is_drawn,
    a_run_takes_what_was_forecast,
    history_and_ledger_agree,
    messages_are_the_same_through_the_wire,
    requests_are_those_of_the_plan,
    rows_that_leave_are_counted,
)
from fedkernel.testing.pair import NotApplicable, Pair
from fedkernel.testing.result_properties import (
    another_order_of_the_clients,
    bad_input_is_one_sentence,
    components_are_orthonormal,
    everything_is_finite,
    one_client_alone_is_central,
    rotated_columns,
    rows_in_another_order,
    same_seed_same_bits,
    signs_of_columns,
    together_closer_than_alone,
    what_is_saved_is_loaded,
)

log = logging.getLogger(__name__)

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
    logged as a warning. Raises AssertionError, which names it, for the first property that fails.
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

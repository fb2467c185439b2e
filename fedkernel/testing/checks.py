"""Check of all properties of a strategy-client pair, as one function or as pytest cases."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy.typing as npt

from fedkernel.strategy import KernelStrategy, Tags
from fedkernel.testing import message_properties as messages
from fedkernel.testing import result_properties as results
from fedkernel.testing.pair import NotApplicable, Pair

log = logging.getLogger(__name__)

Check = Callable[[Pair], None]

CHECKS: tuple[Check, ...] = (
    results.everything_is_finite,
    results.same_seed_same_bits,
    messages.a_generator_serves_one_draw,
    messages.a_request_says_that_its_answer_is_drawn,
    results.another_order_of_the_clients,
    results.rows_in_another_order,
    results.signs_of_columns,
    results.rotated_columns,
    results.components_are_orthonormal,
    messages.history_and_ledger_agree,
    messages.a_run_takes_what_was_forecast,
    messages.requests_are_those_of_the_plan,
    messages.rows_that_leave_are_counted,
    messages.messages_are_the_same_through_the_wire,
    results.what_is_saved_is_loaded,
    results.bad_input_is_one_sentence,
    results.one_client_alone_is_central,
    results.together_closer_than_alone,
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
    logged as a warning. Raises AssertionError, which names it, for the first property that fails; a note on any
    other error names it, too.
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

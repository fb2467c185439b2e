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

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .checks import CHECKS, Check, check_pair, parametrize_with_pairs
    from .message_properties import (
        a_generator_serves_one_draw,
        a_request_says_that_its_answer_is_drawn,
        a_run_takes_what_was_forecast,
        history_and_ledger_agree,
        messages_are_the_same_through_the_wire,
        requests_are_those_of_the_plan,
        rows_that_leave_are_counted,
    )
    from .pair import OTHER, SAME, Exchange, NotApplicable, Pair, Recording, arrays_of, bits_of
    from .result_properties import (
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
else:
    __getattr__, _ = lazily(__name__)

__all__ = [
    "CHECKS",
    "OTHER",
    "SAME",
    "Check",
    "Exchange",
    "NotApplicable",
    "Pair",
    "Recording",
    "a_generator_serves_one_draw",
    "a_request_says_that_its_answer_is_drawn",
    "a_run_takes_what_was_forecast",
    "another_order_of_the_clients",
    "arrays_of",
    "bad_input_is_one_sentence",
    "bits_of",
    "check_pair",
    "components_are_orthonormal",
    "everything_is_finite",
    "history_and_ledger_agree",
    "messages_are_the_same_through_the_wire",
    "one_client_alone_is_central",
    "parametrize_with_pairs",
    "requests_are_those_of_the_plan",
    "rotated_columns",
    "rows_in_another_order",
    "rows_that_leave_are_counted",
    "same_seed_same_bits",
    "signs_of_columns",
    "together_closer_than_alone",
    "what_is_saved_is_loaded",
]

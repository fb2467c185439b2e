"""Every attack recovers what it claims where nothing stops it, and nothing where something does."""

import re

import pytest
from cases import PAIRS

from attacks import cards
from attacks.table import ATTACKS, CASES, KEYED
from attacks.target import STUDIES
from fedkernel.strategy import strategy_of

SEARCHES = {
    *("pooled products of features", "products of few features", "products of an embedding"),
    *("means of features", "cells and products"),
}
"""Non-linear searches as others are, at seconds each."""
SAME = {"replays": ("ADMMKPCA", "DisKPCA", "FKKMeans", "VFedPCA"), "narrow width": ("CentroidKPCA", "SpectralKMeans")}
"""Attacks that do the same to any pair, and the pairs that are enough."""
# RFK k-means' requests are FK k-means'
MORE = {case for case in CASES if case[0] in SEARCHES or (case[1] == "RFKKMeans" and (case[0], "FKKMeans") in CASES)}
MORE |= {(name, pair) for name, pair in CASES if pair not in SAME.get(name, PAIRS)}
TRIED = [pytest.param(*case, marks=[pytest.mark.drill] if case in MORE else []) for case in CASES]


@pytest.mark.parametrize(("name", "pair"), TRIED)
def test_it_recovers_what_it_claims_where_nothing_stops_it_and_elsewhere_what_the_card_says(name, pair, tmp_path):
    attack = ATTACKS[name]
    figures = cards.written()[name, pair]
    for guarded, figure in ((False, figures[0]), (True, figures[1])):
        folder = tmp_path / str(guarded)
        folder.mkdir()
        outcome = attack.try_on(folder, pair, guarded=guarded)
        error = outcome.error
        assert guarded or error <= attack.below
        # of one digit, the last bit of which another machine's rounding may change
        assert cards.digit(error) == figure if figure in "01" else float(figure) / 2 < error < 2 * float(figure)
        if figure == "1":
            assert guarded
            assert outcome.rules or attack.guard == KEYED, "its operator reads of it; hashes under a key are no refusal"
    if attack.planned:
        assert figures[1] != "0", "who keeps to the plan has parts of the table"
    elif "malicious coordinator" in attack.adversary:
        assert figures[1] == "1", "none is left to who does not keep to an approved study"


def test_every_pair_has_its_card_and_the_page_is_that_of_the_table():
    assert {pair for _, pair in CASES} == set(PAIRS)
    assert cards.PAGE.read_text() == cards.page(cards.written())


def test_every_message_has_its_card_and_the_other_parts_of_the_page_are_those_of_the_code():
    page = cards.PRIVACY.read_text()
    assert page == cards.privacy_page()
    requests = {request for kind in PAIRS.values() for request in kind.client.answers}
    messages = {message.__name__ for request in requests for message in (request.reply_type, *request.posts)}
    assert messages <= set(re.findall(r"`(\w+)`", page.partition(f"## {cards.CARDS}\n")[2]))


LLOYD = {"clusters": "lloyd"}


@pytest.mark.parametrize(
    ("pair", "more"), [("CentroidKMeans", {}), ("CentroidKPCA", {}), ("FKKMeans", LLOYD), ("RFKKMeans", LLOYD)]
)
def test_pairs_that_need_nothing_but_sums_ask_for_nothing_else(pair, more):
    requests = [request for step in strategy_of(pair, STUDIES[pair] | more).plan(3, 0) for request in step.requests]
    assert all(request.summed or request.reply == "Done" for request in requests)

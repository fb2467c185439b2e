"""Every attack recovers what it claims where nothing stops it, and nothing where something does."""

import pytest
from cases import PAIRS

from attacks import cards
from attacks.algebra import EXACT
from attacks.table import ATTACKS, CASES, KEYED, NOTHING, OPENINGS
from attacks.target import WINE, Target
from fedkernel.run.outbox import read_outbox

STOPPED = [(name, pair) for name, pair in CASES if ATTACKS[name].guard is not None]


@pytest.mark.parametrize(("name", "pair"), CASES)
def test_it_recovers_what_it_claims_and_the_card_says_so(name, pair, tmp_path):
    attack = ATTACKS[name]
    error = attack.error(tmp_path, pair, attack.operator)
    assert error <= attack.below
    assert len(read_outbox(tmp_path / "out").departures) > 1
    figure = float(cards.written()[name, pair])
    # of one digit, the last bit of which another machine's rounding may change
    assert error < EXACT if figure == 0 else figure / 2 < error < 2 * figure


@pytest.mark.parametrize(("name", "pair"), STOPPED)
def test_what_stops_it_leaves_nothing(name, pair, tmp_path):
    attack = ATTACKS[name]
    assert attack.error(tmp_path, pair, attack.guard) > 0.9
    refusals = [line.refused for line in read_outbox(tmp_path / "out").departures if line.refused]
    assert refusals or attack.guard == KEYED, "the operator reads of every attempt; hashes under a key are no refusal"


def test_what_is_said_to_stop_an_attack_is_tried():
    for attack in ATTACKS.values():
        assert (attack.guard is None) == (attack.stops == NOTHING)
        assert not OPENINGS.keys() & (attack.guard or {}).keys()
        assert not attack.openings or attack.guard == {}


def test_every_pair_has_its_card_and_the_page_is_that_of_the_table():
    assert {pair for _, pair in CASES} == set(PAIRS)
    assert cards.PAGE.read_text() == cards.page(cards.written())


def test_a_site_that_is_asked_by_the_method_answers_and_counts(tmp_path):
    target = Target(tmp_path, "DKPCA", WINE)
    assert (target.answered, target.refused) == (1, 0)
    assert target.client == "DKPCAClient"

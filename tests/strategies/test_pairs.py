"""What must hold for every pair: the properties that are shipped, and those that need what its paper says."""

import numpy as np
import pytest
from cases import CASES, LONG_ONES, ONE_OF_EACH

from fedkernel.strategies import PeerVFedPCA
from fedkernel.testing import SAME, parametrize_with_pairs

each = pytest.mark.parametrize("case", CASES, ids=str)


@parametrize_with_pairs([case.pair for case in CASES if str(case) not in LONG_ONES])
def test_every_property_holds(pair, check):
    check(pair)


@pytest.mark.drill
@parametrize_with_pairs([case.pair for case in CASES if str(case) in LONG_ONES])
def test_every_property_holds_at_more_settings(pair, check):
    check(pair)


@each
def test_as_many_components_as_were_asked_for_are_found_by_the_paper_s_floats(case):
    for basis in case.pair.outcome(case.pair.recording.result):
        assert basis.shape[-1] == case.components  # a row for each of the tables, where tags.components says so
    values = getattr(case.pair.recording.result.model, "eigenvalues_", None)
    assert values is None or values.shape == (case.components,)
    result = case.pair.recording.result
    assert result.ledger.floats_up == case.floats_up(result)
    assert result.ledger.floats_down == case.floats_down(result)


@pytest.mark.parametrize("case", [case for case in ONE_OF_EACH if not isinstance(case.values[0].strategy, PeerVFedPCA)])
def test_float32_on_the_wire_finds_nearly_the_same_with_half_of_the_bytes(case):
    """What is exact on every wire, rows, counts and letters, takes as many; peers send nothing but letters."""
    double, single = case.pair.recording.result, case.strategy.fit(case.shards(), seed=0, wire="float32")
    assert case.pair.error(single) < 1e-10  # of squared sines: 1e-5 each
    if (values := getattr(double.model, "eigenvalues_", None)) is not None:
        np.testing.assert_allclose(single.model.eigenvalues_, values, rtol=0, atol=1e-6 * np.abs(values).max())
    assert single.wire == "float32"
    assert any("float32" in finding for finding in single.findings)
    if double.ledger.floats_up == single.ledger.floats_up:
        replies = [exchange.reply for own in case.pair.recording.exchanges.values() for exchange in own]
        arrays = [(reply, *own) for reply in replies for own in reply.arrays().items()]
        narrowed = sum(array.size for reply, name, array in arrays if name in reply.narrowed())
        assert double.ledger.bytes_up - single.ledger.bytes_up == pytest.approx(4 * narrowed, abs=2 * len(replies))


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_scaling_the_data_scales_the_kernel(case):
    for factor in (0.013, 87.0):
        assert case.pair.error(case.scaled(factor).fit(case.shards(factor))) < SAME

"""What must hold for every pair: the properties that are shipped, and those that need what its paper says."""

import pytest
from cases import CASES

from fedkernel.testing import SAME, parametrize_with_pairs

each = pytest.mark.parametrize("case", CASES, ids=str)


@parametrize_with_pairs([case.pair for case in CASES])
def test_every_property_holds(pair, check):
    check(pair)


@each
def test_as_many_components_are_found_as_were_asked_for(case):
    for basis in case.pair.outcome(case.pair.recording.result):
        assert basis.shape[-1] == case.components  # a row for each of the tables, where tags.components says so
    values = getattr(case.pair.recording.result.model, "eigenvalues_", None)
    assert values is None or values.shape == (case.components,)


@each
def test_floats_are_those_of_the_paper(case):
    result = case.pair.recording.result
    assert result.ledger.floats_up == case.floats_up(result)
    assert result.ledger.floats_down == case.floats_down(result)


@each
def test_scaling_the_data_scales_the_kernel(case):
    for factor in (0.013, 87.0):
        assert case.pair.error(case.scaled(factor).fit(case.shards(factor))) < SAME

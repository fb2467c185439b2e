"""Grids of cases, of which `make test` has some of every row and column, and `make drills` the others."""

import itertools

import pytest


def in_turn(*values, every):
    """Return the cases of a grid, all but one in so many of them as drills."""
    cases = [list(zip(*case, strict=True)) for case in itertools.product(*map(enumerate, values))]
    return [pytest.param(*case, marks=[pytest.mark.drill] * bool(sum(place) % every)) for place, case in cases]

"""The gallery's examples run."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("plot_*.py"))
LONG = {"a_million_rows", "digits_at_five_hospitals", "landmarks", "noise", "widths"}
CASES = [pytest.param(path, marks=[pytest.mark.drill] * (path.stem[5:] in LONG), id=path.stem) for path in EXAMPLES]


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES)
def test_an_example_draws_a_figure(path):
    runpy.run_path(str(path), run_name="__main__")
    assert plt.get_fignums()
    plt.close("all")

"""docs/results/faults.md, the table of `benchmarks/drills.py`: all drills, in the words of today."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHEAP = (
    "a site's certificate has expired",
    "the server's port is taken",
    pytest.param("a model that is handed out unpacks to 1 GiB (1 MB)", marks=pytest.mark.drill),
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sites")]


@pytest.fixture(scope="module")
def drills():
    sys.path.append(str(BENCHMARKS))
    try:
        import drills  # noqa: PLC0415 - which is no package's

        yield drills
    finally:
        sys.path.remove(str(BENCHMARKS))


def rows(drills):
    """Return the table's cells, without seconds, by fault."""
    assert drills.PAGE.read_text().startswith(drills.HEAD)
    lines = [line.strip("| ").split(" | ") for line in drills.known_rows().values()]
    assert all(float(cells[2]) >= 0 and all(cells) and len(cells) == 4 for cells in lines)
    return {cells[0]: cells[1:2] + cells[3:] for cells in lines}


def test_every_drill_has_its_row_and_no_row_is_of_none(drills):
    assert list(rows(drills)) == list(drills.DRILLS)


@pytest.mark.parametrize("fault", CHEAP)
def test_what_a_row_says_is_what_happens(drills, fault):
    cells = drills.play(fault).row(fault).strip("| ").split(" | ")
    assert cells[1:2] + cells[3:] == rows(drills)[fault]

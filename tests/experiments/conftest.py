"""Pictures of reports, which few tests look at."""

import pytest
from matplotlib.figure import Figure

SAVEFIG = Figure.savefig


@pytest.fixture(scope="module", autouse=True)
def _unrendered():
    """No picture is rendered: figures have their names, titles and captions all the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **options: path.touch())
        yield


@pytest.fixture
def rendered(monkeypatch):
    """Pictures as users have them."""
    monkeypatch.setattr(Figure, "savefig", SAVEFIG)

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


@pytest.fixture
def render(monkeypatch):
    """Sets by a pattern of their names which pictures are as users have them."""

    def choose(names):
        saved = lambda self, path, **to: SAVEFIG(self, path, **to) if path.match(names) else path.touch()  # noqa: E731
        monkeypatch.setattr(Figure, "savefig", saved)

    return choose

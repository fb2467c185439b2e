"""What holds of whatever is refused: it is said in one sentence, on one line."""

from contextlib import contextmanager

import pytest

from fedkernel.ground import InputError


@contextmanager
def refusing(*parts, error=InputError, start="", whole=None):
    """Demand an error whose text has these parts, begins so, or is this as a whole, and is one line."""
    with pytest.raises(error) as caught:
        yield caught
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(start)
    assert whole is None or text == whole
    for part in parts:
        assert part in text

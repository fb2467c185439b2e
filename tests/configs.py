"""A small configuration, changed by overrides and read, and the sentence that one is refused with."""

from pathlib import Path
from typing import Any

import pytest

from fedkernel.experiments.config import Experiment, read_table
from fedkernel.experiments.running import plan
from fedkernel.ground import InputError

TINY = """
name = "tiny"
seeds = [0, 1]
[data]
name = "iris"
[partition]
clients = 2
[[strategy]]
name = "a"
method = "DKPCA"
n_components = 2
[[strategy]]
name = "v1.5 of b, best"
method = "VFedPCA"
rounds = 2
[[baseline]]
name = "c"
method = "central PCA"
"""


def write(tmp_path: Path, text: str = TINY) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def table(tmp_path: Path, *overrides: str, text: str = TINY) -> dict[str, Any]:
    return read_table(write(tmp_path, text), overrides)[0]


def experiment(tmp_path: Path, *overrides: str, text: str = TINY) -> Experiment:
    return Experiment.from_table(table(tmp_path, *overrides, text=text), "tiny.toml")


def refusal(tmp_path: Path, *overrides: str, text: str = TINY) -> str:
    """Return the one sentence that reading, checking and planning end with."""
    with pytest.raises(InputError) as caught:
        plan(experiment(tmp_path, *overrides, text=text))
    message = str(caught.value)
    assert "\n" not in message
    return message

"""The README's Python examples print what stands below them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_five_examples():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=["library", "k-means", "landmarks", "peers", "own pair"])
def test_example_prints_what_the_readme_says(code, printed, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr

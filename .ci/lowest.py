"""Print what `make test-lowest` installs: of all that a user's installation may have, the lowest version allowed."""

import re
import tomllib
from pathlib import Path

TOOLS = {"hypothesis", "pandas", "polars", "pytest", "pytest-timeout", "pytest-xdist", "pyyaml", "ruff"}

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
users = {*project["dependencies"], *extras["metrics"], *extras["xlsx"]}
for requirement in sorted(users.union(extras["dev"])):
    name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,.*)?", requirement).groups()
    if requirement in users or name in TOOLS:
        print(f"{name}=={lowest}.*")

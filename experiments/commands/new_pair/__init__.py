"""The command `fedkernel new`: a new strategy with its client, test and experiment, from templates."""

import keyword
import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedkernel.experiments.commands.console import print_line
from fedkernel.ground import InputError

FILES = {
    "{module}/__init__.py": None,
    "{module}/client.py": "client.py.jinja",
    "{module}/strategy.py": "strategy.py.jinja",
    "test_{module}.py": "test.py.jinja",
    "{module}.toml": "experiment.toml.jinja",
}
"""Files of a pair and their templates; None: a docstring only."""

APP = {"{module}/apps.py": "apps.py.jinja", "pyproject.toml": "pyproject.toml.jinja"}  # further files of a Flower app


def write_pair(pair: str, folder: Path, *, app: bool = False) -> list[Path]:
    """Write client, strategy, test and experiment of a new pair into a folder, and return the files.

    `pair` is the strategy's class; its package is the same in small letters: MyPCA, my_pca. With `app` the pair is a
    Flower app, too. Raises InputError if the name cannot be a class, or one of the files exists.
    """
    if not re.fullmatch("[A-Z][A-Za-z0-9]*", pair) or keyword.iskeyword(pair):
        raise InputError(f"PAIR = {pair!r}, but must be the name of a class, such as MyPCA")
    module = re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", pair).lower()
    paths = {folder / name.format(module=module): template for name, template in (FILES | (APP if app else {})).items()}
    if existing := [path for path in paths if path.exists()]:
        raise InputError(f"{existing[0]} exists already; give another name, or --out another folder")
    import jinja2  # noqa: PLC0415 - no other command waits for it

    environment = jinja2.Environment(  # noqa: S701 - Python and TOML, which have no HTML to escape
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    for path, template in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "" if template is None else environment.get_template(template).render(pair=pair, module=module)
        path.write_text(text or f'"""The pair {pair}."""\n', encoding="utf-8")
    return list(paths)


def new(
    pair: Annotated[str, Argument(metavar="PAIR", help="The strategy's class, such as MyPCA.")],
    out: Annotated[Path, Option(help="Folder.")] = Path(),
    flower: Annotated[bool, Option("--app", help="Make it a Flower app, for flwr run.")] = False,
) -> None:
    """Write a pair of your own to start from: client, strategy, test and experiment."""
    for path in write_pair(pair, out, app=flower):
        print_line(path)

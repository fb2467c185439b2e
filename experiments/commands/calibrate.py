"""The command that measures how fast this machine computes, for the seconds that are forecast."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.commands.console import errors, output, say, show
from fedkernel.errors import InputError

if TYPE_CHECKING:
    from fedkernel.protocol import Speeds

MEANINGS = {
    "product": ("s", "1e9 floating point operations of a product of matrices, on one core"),
    "passing": ("s", "1e9 bytes read from memory, as by a product with a few vectors, on one core"),
    "exponential": ("s", "1e6 entries of exp, on one core"),
    "cosine": ("s", "1e6 entries of sin and cos, as random features, on one core"),
    "eigen": ("s", "all eigenpairs of a symmetric matrix with n = 880, on one core"),
    "round": ("s", "a round of the local engine"),
    "message": ("s", "a client in such a round"),
    "cores": ("", "cores that clients share"),
}


def calibrate(
    only_show: Annotated[
        bool, typer.Option("--show", help="Print the figures that there are, and measure nothing.")
    ] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Measure how fast this machine computes, in less than 20 seconds, for what `run --dry-run` forecasts.

    The figures are kept among this user's settings, with what tells machines apart: another one's are not used. Nothing
    else should run meanwhile.
    """
    with errors(debug):
        from experiments.running import calibration  # noqa: PLC0415 - imports SciPy, which the help does not wait for

        if only_show:
            if (speeds := calibration.load()) is None:
                raise InputError(
                    f"{calibration.file_of()} has no figures of this machine: `fedkernel calibrate` measures them"
                )
            show(_table(speeds))
            return
        figures = {}
        for name, figure in calibration.measured():
            say(f"{name}: {figure:.3g} s")
            figures[name] = figure
        speeds = calibration.speeds_of(figures)
        show(_table(speeds))
        output.print(f"wrote {calibration.save(speeds)}", highlight=False, markup=False, soft_wrap=True)


def _table(speeds: "Speeds") -> Table:
    table = Table("figure", "value", "what takes so long", box=None)
    for name, (unit, meaning) in MEANINGS.items():
        table.add_row(name, f"{getattr(speeds, name):.3g} {unit}".strip(), meaning)
    return table

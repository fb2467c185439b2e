"""Experiments that are installed with fedkernel, by name."""

import difflib
from pathlib import Path

from fedkernel.ground import InputError

INSTALLED = Path(__file__).parents[1]


def shipped() -> dict[str, Path]:
    """Return the files of all installed experiments by name, such as papers/dkpca_figure2a."""
    files = [*INSTALLED.glob("*.toml"), *sorted(INSTALLED.glob("papers/*.toml"))]
    files += sorted(INSTALLED.glob("which_method/*.toml"))
    return {path.relative_to(INSTALLED).with_suffix("").as_posix(): path for path in files}


def locate(path: Path) -> Path:
    """Return a path if it exists, else the path of the installed experiment or folder of that name."""
    if path.exists():
        return path
    known = shipped()
    known |= {file.parent.name: file.parent for file in known.values() if file.parent != INSTALLED}
    name = path.as_posix().removeprefix("experiments/").removesuffix(".toml")
    if name not in known:
        close = " or ".join(difflib.get_close_matches(name, known, n=3))
        hint = f"did you mean {close}?" if close else "fedkernel list experiments has all"
        raise InputError(f"there is no configuration file {path}, nor an experiment of that name; {hint}")
    return known[name]

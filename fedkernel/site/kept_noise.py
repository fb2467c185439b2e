"""Storage of a site's noise, so that a repeated request gets the same reply: another draw would give it away."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fedkernel.ground import AnyArray, ensure_writable_folder, open_npz, write_atomic

NOISE_FOLDER = "noise"

Noise = Mapping[str, AnyArray]


def kept_noise(folder: Path, run: str, name: str, draw: Callable[[], Noise]) -> Noise:
    """Return the noise kept under a name in a site's folder, or draw and keep it; `run`: its `Gate.key`."""
    path = folder / NOISE_FOLDER / run / f"{name}.npz"
    try:
        with open_npz(path) as file:
            return dict(file)
    except FileNotFoundError:
        noise = dict(draw())
        ensure_writable_folder(folder / NOISE_FOLDER, 0o700)
        ensure_writable_folder(path.parent, 0o700)
        write_atomic(path, lambda file: np.savez(file, allow_pickle=False, **noise), 0o600)
        return noise

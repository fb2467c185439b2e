"""Sites that write letters, killed at places of a run and started again: `make bench`. Not a test: it takes minutes.

Each run is of `fedkernel serve` and three of `fedkernel join`, with certificates, identities and pins. One site's
process is killed as soon as the record of what left it has some number of lines, and is started again by the same
command. What comes out must have the bits of a run in one process that was left in peace, and no keys may be left.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from fedkernel import RBF
from fedkernel.engines.grpc.certificates import make_certificates
from fedkernel.engines.grpc.coordinator import LOOPBACK
from fedkernel.peers import KeyPair
from fedkernel.peers.run_key_file import KEY_FOLDER
from fedkernel.run import Result
from fedkernel.site import OUTBOX
from fedkernel.strategies import ADMMKPCA, PeerVFedPCA
from fedkernel.strategy import KernelStrategy

SITES = ("a", "b", "c")
ROWS = load_digits().data[:150]
METHODS: dict[str, tuple[KernelStrategy[Any], list[Any], str]] = {
    "ADMMKPCA": (
        ADMMKPCA(2, RBF(0.0005), iterations=20, share_rows=True, tol=0.0),
        np.array_split(ROWS, 3),
        'n_components = 2\nkernel = { type = "rbf", gamma = 0.0005 }\niterations = 20\ntol = 0.0\nshare_rows = true',
    ),
    "PeerVFedPCA": (
        PeerVFedPCA(2, graph="ring"),
        np.array_split(ROWS, 3, axis=1),
        'n_components = 2\ngraph = "ring"',
    ),
}


def prepare(folder: Path, method: str) -> None:
    """Write what a server and its sites start with."""
    _, tables, settings = METHODS[method]
    config = f'name = "drill"\n[data]\nsites = {json.dumps(SITES)}\n'
    config += f'[[strategy]]\nname = "m"\nmethod = "{method}"\n{settings}\n'
    (folder / "run.toml").write_text(config)
    make_certificates(folder / "tls", [LOOPBACK], SITES)
    pins = ""
    for name, table in zip(SITES, tables, strict=True):
        np.save(folder / f"{name}.npy", table)
        own = KeyPair.new()
        own.write(folder / f"{name}.pem")
        pins += f'{name} = "{own.fingerprint}"\n'
    (folder / "pins.toml").write_text(pins)


LOOKING = 30.0
"""Seconds that a site which was started again may take to end once all others have."""


class Drill:
    """A server and its sites, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            self._address = f"{LOOPBACK}:{probe.getsockname()[1]}"

    def serve(self) -> "subprocess.Popen[bytes]":
        """Start the server."""
        own = ["--tls", "tls/server", "--out", "out", "--listen", self._address]
        own += ["--patience", "300"]  # a busy machine takes long to start a process
        return self._start("serve", "serve", "run.toml", *own)

    def join(self, name: str) -> "subprocess.Popen[bytes]":
        """Start a site, or start it again."""
        own = ["--name", name, "--data", f"{name}.npy", "--out", f"kept-{name}", "--tls", f"tls/{name}"]
        own += ["--identity", f"{name}.pem", "--pins", "pins.toml", "--approve", "any", "--share-rows"]
        return self._start(name, "join", self._address, *own)

    def _start(self, log: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{log}.log").open("ab") as sink:
            return subprocess.Popen(
                [sys.executable, "-m", "fedkernel", *arguments],
                cwd=self._folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=sink,
                stderr=subprocess.STDOUT,
            )


def restart(folder: Path, victim: str, lines: int) -> tuple[int, float]:
    """Kill a site when so many lines have left it; return how many had as it died, and the seconds of the whole run."""
    drill, began = Drill(folder), time.monotonic()
    server, sites = drill.serve(), {name: drill.join(name) for name in SITES}
    record = folder / f"kept-{victim}" / OUTBOX
    while server.poll() is None and _lines(record) < lines:
        time.sleep(0.001)
    sites[victim].kill()
    sites[victim].wait()
    died = _lines(record)
    sites[victim] = drill.join(victim)
    codes = [server.wait(), *(process.wait() for name, process in sites.items() if name != victim)]
    try:
        codes.append(sites[victim].wait(LOOKING))
    except subprocess.TimeoutExpired:  # it was killed after its last answer, and looks for a server that is gone
        sites[victim].kill()
        sites[victim].wait()
    if any(codes):
        raise SystemExit((folder / "serve.log").read_text() + (folder / f"{victim}.log").read_text())
    return died, time.monotonic() - began


def check(folder: Path, method: str) -> None:
    """Compare what came out with a run in this process."""
    strategy, tables, _ = METHODS[method]
    result = Result.load(folder / "out" / "results" / "m__seed=0")
    drawn = [row["values"]["seed"] for row in result.history if row["phase"] == "seed"]
    whole = strategy.fit(tables, seed=int(*drawn))
    for client, name in enumerate(SITES):
        with np.load(folder / f"kept-{name}" / "m__seed=0.npz") as outputs:
            for array, expected in whole.outputs[client].items():
                if outputs[array].tobytes() != expected.tobytes():
                    raise SystemExit(f"{method}: {array} of site {name} has other bits")
        if list((folder / f"kept-{name}" / KEY_FOLDER).glob("*")):
            raise SystemExit(f"{method}: keys of site {name} are left")


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--points", type=int, nargs="+", default=[1, 2, 3, 4, 5, 10, 20, 30, 40])
    arguments = parser.parse_args()
    table = Table("method", "killed after", "of", "seconds", "same bits", box=None)
    for method in arguments.methods:
        for place, point in enumerate(arguments.points):
            with TemporaryDirectory(prefix="fedkernel-drill-") as temporary:
                folder = Path(temporary)
                prepare(folder, method)
                victim = SITES[place % len(SITES)]
                died, seconds = restart(folder, victim, point)
                check(folder, method)
                replies = _lines(folder / f"kept-{SITES[(place + 1) % len(SITES)]}" / OUTBOX)
            table.add_row(method, str(died), str(replies), f"{seconds:.1f}", "yes")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())

"""A server and three sites as their operators start them: their files, certificates and processes, for drills."""

import csv
import multiprocessing
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from fedkernel.engines.grpc.certificates import make_certificates

SITES = ("a", "b", "c")
RUN = "slow__seed=0"
ROUNDS = 250
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "fedkernel.experiments.cli",
        "fedkernel.experiments.commands.projection_study",
        "fedkernel.experiments.commands.site_session",
    ]
)

VERTICAL = f"""name = "drill"
deadline = DEADLINE

[data]
sites = ["a", "b", "c"]
joint_seed = false

[[strategy]]
name = "slow"
method = "VFedPCA"
merge = "eigenvalue"
rounds = {ROUNDS}
"""
HORIZONTAL = """name = "drill"

[data]
sites = ["a", "b", "c"]
joint_seed = false

[[strategy]]
name = "clusters"
method = "FKKMeans"
n_clusters = 3
coreset_size = 30
"""

SCRUBBED = (
    (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME"),
    (r"(ipv4:)?127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\bE-[0-9a-f]{4}\b", "E-CODE"),
)
"""What differs from one time to the next, or from machine to machine."""


class Command:
    """A command in a process of its own, and what it prints; `largest` are the bytes of a file that it may write."""

    def __init__(self, place: Path, log: Path, arguments: Sequence[str], largest: int | None = None) -> None:
        self.place, self.log = place, log
        log.touch()
        self.process = PROCESSES.Process(target=_command, args=(place, log, list(arguments), largest))
        self.process.start()

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, words: str, seconds: float = 90.0) -> None:
        give_up = time.monotonic() + seconds
        while words not in self.text:
            if self.process.exitcode is not None or time.monotonic() > give_up:
                raise SystemExit(f"{self.log.name} does not say {words!r}:\n{self.text}")
            time.sleep(0.02)

    def end(self, seconds: float = 120.0) -> int:
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise SystemExit(f"{self.log.name} has not ended:\n{self.text}")
        return int(self.process.exitcode)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid or 0, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def says(self, words: str = "") -> str:
        """Return the first line that has these words, or the last one, without what is another each time."""
        lines = [line for line in self.text.splitlines() if words in line]
        if not lines:
            raise SystemExit(f"{self.log.name} does not say {words!r}:\n{self.text}")
        line = lines[0 if words else -1]
        for pattern, instead in SCRUBBED:
            line = re.sub(pattern, instead, line)
        return line.replace(f"{self.place}/", "")


def _command(place: Path, log: Path, arguments: list[str], largest: int | None) -> None:
    from fedkernel.experiments.cli import main  # noqa: PLC0415 - as the forked process has it

    os.chdir(place)
    with log.open("wb") as sink:
        for descriptor in (1, 2):
            os.dup2(sink.fileno(), descriptor)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.argv = ["fedkernel", *arguments]
    main()


class Stage:
    """Where a drill takes place: a folder, an address, and the commands that were started, which end with it.

    Parameters
    ----------
    place : Path
        An empty folder.
    deadline : float
        Seconds of a round.
    """

    def __init__(self, place: Path, deadline: float = 3600.0) -> None:
        self.place, self.started = place, list[Command]()
        (place / "run.toml").write_text(VERTICAL.replace("DEADLINE", str(deadline)))
        (place / "rows.toml").write_text(HORIZONTAL)
        self.tls = place / "tls"
        make_certificates(self.tls, ["127.0.0.1"], SITES)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        table = load_wine().data / load_wine().data.std(axis=0)
        for name, part in zip(SITES, np.array_split(table, 3, axis=1), strict=True):
            self.write(f"{name}.csv", part, [f"{name}{column}" for column in range(part.shape[1])])

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        for command in self.started:
            command.kill()

    def write(self, name: str, table: np.ndarray, columns: Sequence[str]) -> None:
        """Write a site's table, whose rows are known as p0, p1, ..."""
        with (self.place / name).open("w", newline="") as file:
            sheet = csv.writer(file)
            sheet.writerow(["patient", *columns])
            sheet.writerows([f"p{number}", *map(repr, row.tolist())] for number, row in enumerate(table))

    def start(self, *arguments: str, largest: int | None = None) -> Command:
        log = self.place / f"{len(self.started)}-{arguments[0]}.log"
        self.started.append(Command(self.place, log, arguments, largest))
        return self.started[-1]

    def serve(self, *more: str, config: str = "run.toml", largest: int | None = None) -> Command:
        own = ("--listen", self.address, "--tls", str(self.tls / "server"), "--out", "out")
        return self.start("serve", config, *own, *more, largest=largest)

    def join(self, name: str, *more: str, tls: Path | None = None, largest: int | None = None) -> Command:
        own = ["--name", name, "--tls", str(tls or self.tls / name), "--out", f"kept-{name}", "--approve", "any"]
        if "--data" not in more:
            own += ["--data", f"{name}.csv", "--id", "patient", "--ids-without-key"]
        own += ["--given-seed", "--table-share", "100"]  # 251 rounds of a narrow table
        return self.start("join", self.address, *own, *more, largest=largest)

    def under_way(self, *more: str, largest: int | None = None) -> tuple[Command, dict[str, Command]]:
        """Return a server and its sites in the midst of a run."""
        server = self.serve(*more, largest=largest)
        sites = {name: self.join(name) for name in SITES}
        server.until("phase IterateLocally")
        time.sleep(0.2)
        return server, sites

    @property
    def result(self) -> Path:
        """The folder of the run's result."""
        return self.place / "out" / "results" / RUN

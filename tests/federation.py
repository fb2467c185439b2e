"""Sites and a server as their operators would start them: their files, their configuration, their processes."""

import csv
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from multiprocessing.connection import wait

import numpy as np
from sklearn.datasets import load_wine

from fedkernel.engines.ray import free_port

FEDKERNEL = [sys.executable, "-m", "fedkernel"]
READY = multiprocessing.get_context("forkserver")
MODULES = "advise check_file join policy projection_study server_commands site_page site_session study_approval"
COMMANDS = [f"fedkernel.experiments.commands.{name}" for name in MODULES.split()]
REPORT = [f"fedkernel.experiments.report.{name}" for name in ("report_page", "plots")]
# four seconds of a core: commands, a report, and this file
READY.set_forkserver_preload([*REPORT, "sklearn.cluster", "sklearn.datasets", *COMMANDS])
NAMES = ("a", "b", "c")
WINE = load_wine().data / load_wine().data.std(axis=0)
PARTS = np.array_split(WINE, 3, axis=1)
KEPT = [np.sort(np.random.default_rng(seed).permutation(178)[:170]) for seed in range(3)]
COMMON = sorted(set(KEPT[0]) & set(KEPT[1]) & set(KEPT[2]))

CONFIG = """
name = "wine"

[data]
sites = ["a", "b", "c"]
share_model = true

[[strategy]]
name = "DKPCA"
method = "DKPCA"
n_components = 3
kernel = { type = "rbf", gamma = 0.05 }
local_components = 20
"""
SLOW = """
[[strategy]]
name = "slow"
method = "VFedPCA"
merge = "eigenvalue"
rounds = 100
"""


def furnish(folder, parts=PARTS):
    """Write a configuration and three sites' files, rows in orders of their own, some missing; NaN is an empty cell."""
    (folder / "run.toml").write_text(CONFIG)
    for seed, (name, part, kept) in enumerate(zip(NAMES, parts, KEPT, strict=True)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            sheet = csv.writer(file)
            sheet.writerow(["patient", *(f"{name}{column}" for column in range(part.shape[1]))])
            for row in np.random.default_rng(seed + 10).permutation(kept):
                cells = ("" if np.isnan(value) else repr(float(value)) for value in part[row])
                sheet.writerow([f"p{row:03}", *cells])
    return folder


class Ready:
    """A command in a process of its own, with everything imported: that takes four seconds, and tests start sixty."""

    def __init__(self, place, log, arguments):
        self._process = READY.Process(target=_command, args=(place, (log, log), [*map(str, arguments)]))
        self._process.start()
        self.pid, self.terminate, self.kill = self._process.pid, self._process.terminate, self._process.kill

    def poll(self):
        return self._process.exitcode

    def wait(self, seconds=None):
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("fedkernel", seconds)
        return self._process.exitcode


def _command(place, logs, arguments):
    from fedkernel.experiments.cli import main  # noqa: PLC0415 - as the forked process has it

    os.chdir(place)
    for descriptor, log in enumerate(logs, 1):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv = ["fedkernel", *arguments]
    main()


SHIM = """#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    link.sendall("\\0".join([str(os.getpid()), *sys.argv[1:]]).encode())
    link.shutdown(socket.SHUT_WR)
    sys.exit(int(link.recv(9) or 1))
"""


@contextmanager
def quick_fedkernel(folder):
    """Write a `fedkernel` for a shell's PATH, each call of which is a process that begins with everything imported."""
    address = f"\0fedkernel-{os.getpid()}"
    (folder / "fedkernel").write_text(SHIM.format(python=sys.executable, address=address))
    (folder / "fedkernel").chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        thread = threading.Thread(target=_answer, args=(server,))
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(address)
            thread.join()


def _answer(server):
    """Start what callers ask for, where they are and with their output, until one asks for nothing."""
    running = {}
    while True:
        for ready in wait([server, *running]):
            if ready is not server:
                process, caller = running.pop(ready)
                process.join()
                caller.sendall(str(process.exitcode).encode())
                caller.close()
                continue
            caller = server.accept()[0]
            with caller.makefile() as words:
                pid, *arguments = words.read().split("\0")
            if not pid:
                caller.close()
                return
            own = f"/proc/{pid}"
            process = READY.Process(target=_command, args=(f"{own}/cwd", [f"{own}/fd/{n}" for n in (1, 2)], arguments))
            process.start()
            running[process.sentinel] = process, caller


class Running:
    """A command under way, and what it prints."""

    def __init__(self, place, name, *arguments, within=()):
        self.log = place / f"{name}.log"
        self.log.write_text("")
        if not within:
            self.process = Ready(place, self.log, arguments)
            return
        # as in a shell, where Flower has not been imported yet, which sets it
        environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
        command = [*within, *FEDKERNEL, *arguments]
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(command, cwd=place, env=environment, stdout=sink, stderr=subprocess.STDOUT)

    @property
    def text(self):
        return self.log.read_text()

    def until(self, words, seconds=150):
        give_up = time.monotonic() + seconds
        while words not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < give_up, self.text
            time.sleep(0.02)

    def end(self, seconds=150):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended: {self.text}") from None

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def federation(place, tls):
    """Starts commands, and ends those that have not ended."""
    started = []

    def start(name, *arguments, within=()):
        started.append(Running(place, name, *arguments, within=within))
        return started[-1]

    address = f"127.0.0.1:{free_port()}"

    def serve(*more, name="serve", config="run.toml", within=()):
        own = ["--tls", str(tls / "server")] if "--insecure" not in more else []
        return start(name, "serve", config, "--listen", address, *own, "--out", "out", *more, within=within)

    def join(name, *more, log=None, within=(), take=True):
        own = ["--tls", str(tls / name)] if not {"--insecure", "--tls"} & set(more) else []
        data = ["--data", f"{name}.csv", "--id", "patient", "--ids-without-key"]
        own += [] if {"--data", "--rehearse"} & set(more) else data
        own += ["--out", f"kept-{name}", *(["--take-models"] if take else [])]
        if not {"--approve", "--policy"} & set(more):
            own += ["--approve", "any"]
        if not {"--table-share", "--policy"} & set(more):
            own += ["--table-share", "1000"]  # of tables that are small so that tests are quick
        return start(log or name, "join", address, "--name", name, *own, *more, within=within)

    serve.address = address
    try:
        yield serve, join
    finally:
        for one in started:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()

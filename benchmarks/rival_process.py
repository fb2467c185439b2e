"""Rivals' environments and processes: one environment a file, made once, and one process at a time for each."""

import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent / "rivals"
ENVIRONMENTS = HERE.parent.parent / "build" / "rivals"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MEMORY = 12e9
"""Bytes after which a run is ended."""

START = 120.0
"""Seconds that a process may take to import its library, or to prepare a job."""


class RivalError(Exception):
    """A rival that cannot be installed, started or run; its message is the table's cell."""


def requirements(path: Path) -> tuple[list[str] | None, list[str]]:
    """Return the Python and the system packages that a rival's header names; None without a header."""
    header = re.search(r"(?ms)^# /// script$\n(.*?)^# ///$", path.read_text(encoding="utf-8"))
    if header is None:
        return None, []
    written = tomllib.loads("\n".join(line.removeprefix("#")[1:] for line in header[1].splitlines()))
    return written["dependencies"], written.get("tool", {}).get("fedkernel", {}).get("apt", [])


def environment(path: Path) -> Path:
    """Return the Python that runs a rival, in an environment made at its first use; equal dependencies share one."""
    needed, _ = requirements(path)
    if needed is None:
        return Path(sys.executable)
    folder = ENVIRONMENTS / hashlib.sha256("\n".join(sorted(needed)).encode()).hexdigest()[:16]
    python, mark = folder / "bin" / "python", folder / "installed"
    if mark.exists():
        return python
    print(f"installing {', '.join(needed)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))  # Flower brings it
    make = [uv, "venv", "--quiet", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    install = (
        [uv, "pip", "install", "--quiet", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    )
    for command in ([*make, str(folder)], [*install, *needed]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or [f"rc {done.returncode}"]
            raise RivalError("not installed: " + re.sub(r"/\S*/", "", said[-1].strip())[:200])
    mark.write_text("\n".join(needed), encoding="utf-8")
    return python


def family(pid: int) -> list[int]:
    """Return a process and all its descendants that are alive, also those with sessions of their own."""
    found, waiting = list[int](), [pid]
    while waiting:
        found.append(one := waiting.pop())
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def resident(pid: int) -> int:
    """Return the bytes of memory that a process and its descendants hold, 0 where /proc is missing."""
    total = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


class Rival:
    """A rival's process, started at the first question and ended by `close`.

    Attributes
    ----------
    name : str
        The file's name.
    programs : list
        Task, name and settings of each program.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.name = path.stem
        self.log = folder / f"{self.name}.log"
        self.start()

    def start(self) -> None:
        """Start the process, at first or once more after it was ended."""
        environ = {**os.environ, **dict.fromkeys(THREADS, str(CORES)), "PYTHONPATH": str(HERE.parent.parent)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [environment(self.path), "-u", str(self.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                text=True,
                start_new_session=True,
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()
        self.programs = self._reply(START)["programs"]

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    def _reply(self, seconds: float) -> dict[str, Any]:
        """Wait for a line; watch time and memory meanwhile."""
        began = time.monotonic()
        self.peak = 0
        while True:
            try:
                line = self.lines.get(timeout=0.05)
            except queue.Empty:
                held = resident(self.process.pid)
                self.peak = max(self.peak, held)
                if held > MEMORY:
                    self.close()
                    raise RivalError(f"more than {MEMORY / 1e9:.0f} GB") from None
                if time.monotonic() - began > seconds:
                    self.close()
                    raise RivalError(f"more than {seconds:.0f} s") from None
                continue
            if line is None:
                said = self.log.read_text(errors="replace").strip().splitlines() or ["no word"]
                raise RivalError("ended: " + re.sub(r"/\S*/", "", said[-1])[:200])
            self.peak = max(self.peak, resident(self.process.pid))
            return dict(json.loads(line))

    def run(self, order: dict[str, Any], seconds: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Run a program; returns what it counted, with `seconds` and `peak_mb`, and the arrays of its answer."""
        answer = self.folder / f"{self.name}.npz"
        assert self.process.stdin  # noqa: S101
        with contextlib.suppress(OSError):  # the reply says why it ended
            self.process.stdin.write(json.dumps({**order, "answer": str(answer)}) + "\n")
            self.process.stdin.flush()
        reply = self._reply(START) or self._reply(seconds)  # the first, empty, when all is prepared
        if "failed" in reply:
            raise RivalError(re.sub(r"/\S*/", "", reply["failed"])[:200])  # no path of this machine on a page
        with np.load(answer) as arrays:
            return {**reply, "peak_mb": self.peak / 1e6}, {name: arrays[name] for name in arrays.files}

    def close(self) -> None:
        """End the process and its descendants."""
        if self.process.poll() is None:
            for one in family(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        self.process.wait()

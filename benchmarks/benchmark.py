"""Measure fedkernel against software that others wrote, on the same data, and write docs/results/benchmarks.md.

    python benchmarks/benchmark.py [--quick] [--only A] [--only "kernel PCA"] [--only growth]

For each problem every program first runs once with each of its settings (with a seed that is not used again); the
fastest of those as good as the best is then timed: programs take turns, so that what else the machine does meets them
all. On a table four times as large as an earlier one only the setting chosen there runs, or the first if that one
fails, and none if its time there says that it would take too long. A program far slower than the fastest is timed once,
but where labels are compared, which differ by seed. Measured rows and the output of the other scripts are kept in
benchmarks/history/benchmark.jsonl, from which `benchmark_page.py` writes the page. Rivals' environments lie in
build/rivals; with `--quick` history and page, too.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_page import PAGE, write_page
from performance import commit, machine
from rival_process import HERE, Rival, RivalError
from tasks import TASKS, Problem, Task

HISTORY = HERE.parent / "history" / "benchmark.jsonl"
SEARCH_SEED = 100
QUICK_SECONDS = 5.0
"""Seconds after which a run of `make benchmark QUICK=1` is ended."""
SLOW = {"nvflare_kmeans", "pykeops_eigsh", "pyspark_mllib", "substra_fedpca"}
"""Rivals left out then: of gigabytes, or slow to start or to compile."""

Row = dict[str, Any]


class Rivals:
    """Processes of all files with a program of a task, kept from problem to problem.

    Attributes
    ----------
    folder : Path
    running : list of Rival
    missing : dict
        Why a file's process did not start, by the file's name.
    largest : dict
        For each program the largest table so far: its `problem`, its `entries`, and the `setting` chosen and its
        `seconds`, or how it `failed`.
    """

    def __init__(self, task: Task, paths: list[Path], folder: Path) -> None:
        self.folder = folder
        self.running: list[Rival] = []
        self.missing: dict[str, str] = {}
        self.largest: dict[str, Row] = {}
        for path in paths:
            if f'"{task.name}"' in path.read_text(encoding="utf-8"):
                try:
                    self.running.append(Rival(path, folder))
                except RivalError as error:
                    self.missing[path.stem] = str(error)

    def close(self) -> None:
        """End all processes; a later job starts them again."""
        for rival in self.running:
            rival.close()


class Contest:
    """All programs of a task on one problem, each with its rows so far."""

    def __init__(self, task: Task, problem: Problem, rivals: Rivals) -> None:
        self.task, self.problem, self.rivals = task, problem, rivals
        self.data = rivals.folder / "data.npz"
        shown = {name: values for name, values in problem.arrays.items() if name != "y"}
        np.savez(self.data, **shown)
        self.rows = [self.row(name, name, failed=why) for name, why in rivals.missing.items()]

    def row(self, rival: str, program: str, **more: Any) -> Row:
        """Return a row without measurements."""
        named = {"letter": self.task.letter, "task": self.task.name, "problem": self.problem.name}
        return {**named, "rival": rival, "program": program, "quality": [], "seconds": [], **more}

    def measured(self, rival: Rival, program: str, setting: dict[str, Any], seed: int) -> Row:
        """Run a program once, and measure its answer."""
        parameters = {**self.problem.parameters, "seed": seed, "gamma": self.problem.gamma, "sites": self.problem.sites}
        if rival.process.poll() is not None:
            rival.start()
        order = {"task": self.task.name, "program": program, "data": str(self.data)}
        reply, answer = rival.run({**order, "parameters": parameters, "setting": setting}, self.task.seconds)
        try:
            return {**reply, "quality": self.task.quality(self.problem, answer)}
        except (KeyError, ValueError) as error:
            raise RivalError(f"its answer does not fit the task: {error}") from None

    def search(self, rival: Rival, program: str, settings: list[dict[str, Any]]) -> Row:
        """Return a row with the setting to time, and all tried ones.

        A program that took too long, or too much memory, is not tried on tables of half as many entries or more.
        """
        entries, limit = self.problem.arrays["X"].size, self.task.seconds
        earlier = self.rivals.largest.get(program, {"entries": np.inf})
        if "failed" in earlier and earlier["entries"] <= 2 * entries:
            return self.row(rival.name, program, failed=f"{earlier['failed']} on {earlier['problem']}")
        if is_much_larger := 4 * earlier["entries"] <= entries:
            settings = [earlier["setting"], settings[0]]
            if earlier["seconds"] * entries / earlier["entries"] > limit:
                why = f"more than {limit:.0f} s, as it took {earlier['seconds']:.0f} s on {earlier['problem']}"
                return self.row(rival.name, program, failed=why)
        tried: list[Row] = []
        failed = ""
        for setting in settings:
            if is_much_larger and tried:
                break
            try:
                tried.append({**self.measured(rival, program, setting, SEARCH_SEED), "setting": setting})
            except RivalError as error:
                failed = str(error)
                if rival.process.poll() is not None and not is_much_larger:
                    break  # more of the same would take as long
        if len(tried) > 1 and tried[0]["seconds"] < limit / 10:  # once more: at first it imports, too
            with contextlib.suppress(RivalError):
                tried[0] |= self.measured(rival, program, tried[0]["setting"], SEARCH_SEED)
        known = [one for one in tried if np.isfinite(one["quality"])]
        if not known:
            row = self.row(rival.name, program, failed=failed or "no finite answer", tried=tried)
            if failed.startswith("more than"):
                self.rivals.largest[program] = {**row, "entries": entries}
            return row
        best = (max if self.task.clusters else min)(one["quality"] for one in known)
        chosen = min((one for one in known if self.task.good(one["quality"], best)), key=lambda one: one["seconds"])
        if earlier["entries"] == np.inf or earlier["entries"] <= entries:
            kept = {"setting": chosen["setting"], "seconds": chosen["seconds"]}
            self.rivals.largest[program] = {**kept, "entries": entries, "problem": self.problem.name}
        return self.row(rival.name, program, setting=chosen["setting"], tried=tried)

    def run(self, repeats: int) -> Iterator[Row]:
        """Search settings, then time all programs in turn; yields each row when it is whole."""
        waiting: list[tuple[Rival, Row]] = []
        for rival in self.rivals.running:
            for task, program, settings in rival.programs:
                if task == self.task.name:
                    row = self.search(rival, program, settings if repeats > 1 else settings[:1])
                    self.rows.append(row)
                    if "failed" not in row:
                        waiting.append((rival, row))
        for seed in range(repeats):
            fastest = min((row["seconds"][0] for _, row in waiting if row["seconds"]), default=np.inf)
            for rival, row in waiting:
                if sum(row["seconds"]) > self.task.seconds / 2 or "failed" in row:
                    continue
                if seed and not self.task.clusters and row["seconds"][0] > max(5 * fastest, 3.0):
                    continue
                try:
                    one = self.measured(rival, row["program"], row["setting"], seed)
                except RivalError as error:
                    row["failed"] = str(error)
                    continue
                row["seconds"].append(round(one.pop("seconds"), 4))
                row["quality"].append(one.pop("quality"))
                row["peak_mb"] = max(round(one.pop("peak_mb")), row.get("peak_mb", 0))
                row.update(one)
        yield from self.rows


def said(row: Row) -> str:
    """Return a row as a line."""
    begin = f"{row['letter']}  {row['problem']:<32.32} {row['program']:<44.44} "
    if "failed" in row:
        return begin + row["failed"]
    quality = statistics.fmean(row["quality"])
    counted = f"{row['floats']:>12,} floats {row['rounds']:>4} rounds" if "floats" in row else ""
    return (
        begin
        + f"{quality:9.4f} {statistics.median(row['seconds']):9.3f} s {row['peak_mb']:>6} MB {counted} {row['setting']}"
    )


@dataclass(frozen=True)
class Part:
    """A script whose output is a section of the page; `quick`: empty where it is left out then."""

    name: str
    heading: str
    command: tuple[str, ...]
    quick: tuple[str, ...]


PARTS = (
    Part("networks", "Slow networks", ("networks.py",), ()),
    Part("rounds", "Rounds a second", ("site_rounds.py",), ()),
    Part("growth", "Growth", ("growth.py",), ("growth.py", "--quick", "--only", "rows")),
    Part("scale", "Past one machine", ("at_scale.py",), ("at_scale.py",)),
    Part("tree", "Sums over a tree", ("tree_of_sums.py",), ("tree_of_sums.py", "--members", "200", "--fan-in", "10")),
)


def measured_part(part: Part, *, quick: bool) -> Row:
    """Run a script, show what it prints as it comes, and return it."""
    command = part.quick if quick else part.command
    lines = []
    with subprocess.Popen(
        [sys.executable, "-u", str(HERE.parent / command[0]), *command[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        lines.append(f"ended with {process.returncode}")
    return {"name": part.name, "heading": part.heading, "command": " ".join(command), "lines": lines}


def measured_task(task: Task, paths: list[Path], *, quick: bool, problem_part: str) -> Iterator[Row]:
    """Measure a task's problems, those whose data are here; show each row when its problem is whole."""
    task = replace(task, seconds=min(task.seconds, QUICK_SECONDS)) if quick else task
    problems = [task.problems[at] for at in task.quick] if quick else task.problems
    here = [one for one in problems if problem_part in one.name and (one.public or "FEDKERNEL_DATA" in os.environ)]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Rivals(task, paths, Path(folder))) as rivals:
        entries = 0
        for problem in here:
            if 2 * problem.arrays["X"].size < entries:
                rivals.close()  # memory of the larger table is not the smaller one's
            entries = problem.arrays["X"].size
            for row in Contest(task, problem, rivals).run(1 if quick else task.repeats):
                print(said(row), flush=True)
                yield row
            problem.forget()


def main() -> None:
    names = sorted({name for task in TASKS for name in (task.letter, task.name)} | {part.name for part in PARTS})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one or two problems a task, one run of one setting")
    parser.add_argument("--only", action="append", choices=names, help="may be given more than once")
    parser.add_argument("--rival", action="append", help="a file of benchmarks/rivals; may be given more than once")
    parser.add_argument("--problem", default="", help="problems whose name has this in it")
    arguments = parser.parse_args()
    for stop in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored: what is whole is kept
        signal.signal(stop, signal.default_int_handler)
    began = time.perf_counter()
    only = set(arguments.only or names)
    paths = sorted(path for path in HERE.glob("*.py") if path.stem in (arguments.rival or [path.stem]))
    left_out = {"serve"} | (SLOW if arguments.quick and not arguments.rival else set())
    paths = [path for path in paths if path.stem not in left_out]
    rows: list[Row] = []
    parts: list[Row] = []
    try:
        for task in TASKS:
            if {task.letter, task.name} & only:
                print(f"\n{task.letter}. {task.heading}", flush=True)
                for row in measured_task(task, paths, quick=arguments.quick, problem_part=arguments.problem):
                    rows.append(row)
        for part in PARTS:
            if part.name in only and (part.quick or not arguments.quick):
                print(f"\n{part.heading}", flush=True)
                parts.append(measured_part(part, quick=arguments.quick))
    finally:
        folder = HERE.parent.parent / "build" if arguments.quick else HISTORY.parent
        entry = {"date": datetime.now(UTC).date().isoformat(), "commit": commit(), "machine": machine()}
        entry |= {"minutes": round((time.perf_counter() - began) / 60, 1), "rows": rows, "parts": parts}
        folder.mkdir(exist_ok=True)
        with (folder / HISTORY.name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    write_page(folder / HISTORY.name, folder / "benchmarks.md" if arguments.quick else PAGE)


if __name__ == "__main__":
    main()

"""Loop of a rival's process: reads jobs as lines of JSON, runs one program at a time, and answers a line for each.

A rival is a file beside this one that imports its library, marks functions as programs, and ends with ``serve()``. It
runs in an environment of its own, made of the dependencies that it names as a script does (PEP 723), and never imports
fedkernel.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Job = dict[str, Any]
"""Data and parameters of a task, see ``tasks.py``, and one of the program's settings."""

Answer = dict[str, Any]
"""Arrays by name, and numbers (floats up, rounds, epsilon, also seconds) that the program counted itself."""


@dataclass(frozen=True)
class Program:
    """A way to do a task.

    Attributes
    ----------
    task, name : str
    run : callable
        Takes a job and returns an answer; its seconds count.
    settings : list of dict
        Of which the best is searched before anything is timed.
    prepare : callable or None
        Brings data to where the library wants them, before the clock starts; `run` finds the outcome in
        ``job["prepared"]``.
    """

    task: str
    name: str
    run: Callable[[Job], Answer]
    settings: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    prepare: Callable[[Job], Any] | None = None


PROGRAMS: dict[tuple[str, str], Program] = {}
"""All programs of this process by task and name."""


def program(task: str, name: str, **options: Any) -> Callable[[Callable[[Job], Answer]], Callable[[Job], Answer]]:
    """Return a decorator that marks a function as a program, with `settings` and `prepare` of `Program`."""

    def mark(run: Callable[[Job], Answer]) -> Callable[[Job], Answer]:
        PROGRAMS[task, name] = Program(task, name, run, **options)
        return run

    return mark


def prepared(order: dict[str, Any]) -> Job:
    """Return the job of a program, with the data in a file, and with what it prepares."""
    chosen = PROGRAMS[order["task"], order["program"]]
    with np.load(order["data"]) as arrays:
        job = {name: arrays[name] for name in arrays.files}
    job |= {**order["parameters"], "setting": order["setting"]}
    if chosen.prepare:
        job["prepared"] = chosen.prepare(job)
    return job


def answer_job(order: dict[str, Any], job: Job) -> dict[str, Any]:
    """Run one program, and write the arrays of its answer to a file."""
    began = time.perf_counter()
    answer = PROGRAMS[order["task"], order["program"]].run(job)
    seconds = time.perf_counter() - began
    arrays = {name: np.asarray(value) for name, value in answer.items() if isinstance(value, (np.ndarray, list))}
    np.savez(order["answer"], **arrays)
    return {"seconds": seconds, **{name: value for name, value in answer.items() if name not in arrays}}


def serve() -> None:
    """Answer jobs until standard input ends; what a library prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(reply: dict[str, Any]) -> None:
        print(json.dumps(reply, default=lambda number: number.item()), file=replies, flush=True)

    send({"programs": [[one.task, one.name, one.settings] for one in PROGRAMS.values()]})
    for line in sys.stdin:
        try:
            job = prepared(order := json.loads(line))
            send({})  # the clock starts
            send(answer_job(order, job))
        except Exception as error:  # a rival's failure is a row of the table
            traceback.print_exc()
            send({"failed": f"{type(error).__name__}: {error}"})

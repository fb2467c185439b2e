"""The option `run --all`: all experiments of a folder, run in parallel and reported on one page."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from fedkernel.experiments.commands.console import FAILED, print_line, print_status, progress
from fedkernel.experiments.commands.experiment_tables import print_layouts
from fedkernel.experiments.config import locate, read_config
from fedkernel.experiments.report import Entry, Format, overview, write_index
from fedkernel.experiments.report.index import RESULTS, VERDICTS
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import environment, experiments_in, outcome_of, read_folder, run_all
from fedkernel.ground import InputError, and_more

PAGE = "report"  # folder of the page, beside those of the experiments
RUNS = "*/runs.jsonl"  # files of the experiments' finished runs


def run_folder(
    folder: Path, out: Path, overrides: Sequence[str], *, quick: bool, restart: bool, jobs: int | None
) -> None:
    """Run every unfinished experiment of a folder, and write the page of all. Exit with 1 if one failed."""
    experiments = [read_config(file, overrides, quick=quick) for file in experiments_in(locate(folder))]
    errors: dict[str, str | None] = {}
    with progress() as report_line:
        ended = run_all(experiments, out, jobs=jobs, restart=restart, progress=report_line)
        for number, (experiment, seconds, error) in enumerate(ended, start=1):
            errors[experiment.name] = error
            what = f"{seconds:.0f} s" if error is None else f"failed: {error}"
            print_status(f"{number} of {len(experiments)}: {experiment.name}, {what}")
    entries = []
    for experiment in experiments:
        own = out / experiment.name
        outcome = outcome_of(experiment, read_runs(own / "runs.jsonl"), own)
        entries.append(Entry(experiment, *outcome, own, errors[experiment.name]))
    changes = "".join(f' --set "{override}"' for override in overrides)
    _show(out, entries, f"fedkernel run {folder} --all{' --quick' if quick else ''}{changes}")
    if failed := [name for name, error in errors.items() if error is not None]:
        print_status(f"{len(failed)} of {len(errors)} failed: {', '.join(failed[:10])}{and_more(len(failed) - 10)}")
        raise typer.Exit(FAILED)


def is_collection(out: Path) -> bool:
    """Return whether a folder was written by `run_folder`, and is not that of one experiment."""
    return not (out / "config.json").exists() and (_results(out) is not None or any(out.glob(RUNS)))


def report_folder(out: Path, form: Format | None = None) -> None:
    """Rewrite the page from finished runs; with `form` print the existing page's table instead."""
    results = _results(out)
    if form is not None:
        if results is None:
            raise InputError(f"{out} has no page of its experiments yet; fedkernel report {out} writes it")
        print_layouts(form, [overview(results)])
        return
    entries = []
    for path in sorted(out.glob(RUNS)):
        experiment, runs = read_folder(path.parent)
        outcome = outcome_of(experiment, runs, path.parent)
        entries.append(Entry(experiment, *outcome, path.parent, outcome.summary or None))
    if not entries:
        raise InputError(f"{out} holds no finished runs of any experiment")
    _show(out, entries, "fedkernel run FOLDER --all" if results is None else results["command"])


def _results(out: Path) -> dict[str, Any] | None:
    """Return the page's content from a folder or its ``report``, or None if there is no page yet."""
    path = next((path for path in (out / RESULTS, out / PAGE / RESULTS) if path.exists()), None)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def _show(out: Path, entries: Sequence[Entry], command: str) -> None:
    page = write_index(out / PAGE, entries, command=command, environment=environment())
    counts = Counter(claim.verdict for entry in entries for claim in entry.claims)
    claims = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    print_line(f"Claims: {claims or 'none'}")
    print_line(f"Report: {page}")

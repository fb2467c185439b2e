"""Output folder of an experiment: created, recognised, emptied, and never mixed with a different experiment's."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedkernel.data import file_hash
from fedkernel.experiments.config import Experiment, Shards
from fedkernel.experiments.results import Failure, Run, read_failures, read_runs
from fedkernel.experiments.running.planning import run_fingerprints, run_ids
from fedkernel.ground import InputError, and_more, ensure_writable_folder, listed, write_atomic

RUNS, FAILURES = "runs.jsonl", "failures.jsonl"

CONFIGURATION_FILES = ("config.json", "config.toml", "data.json", "files.json")
EXPERIMENT_FILES = (*CONFIGURATION_FILES, RUNS, FAILURES, "results", "plots", "report.html")


def open_folder(out: Path, experiment: Experiment, restart: bool) -> list[Run]:
    """Create or recognise the output folder, and return the finished runs in it.

    Another configuration is accepted if it keeps all finished runs unchanged, such as one with more seeds, methods or
    settings, or with another report. Raises InputError if a client's file has changed since a finished run read it.
    """
    # in the table's own order, since a case's first value names it
    recorded, config = out / "config.json", json.dumps(experiment.table, indent=1, default=str) + "\n"
    if (blocking := next((path for path in (out, *out.parents) if path.exists()), out)).is_file():
        raise InputError(f"{out} cannot be a folder, since {blocking} is a file; choose another folder (--out)")
    if not _is_config(recorded):
        if out.exists() and any(out.iterdir()):
            raise InputError(f"{out} is not empty and holds no experiment; choose another folder (--out)")
    elif restart:
        for path in (out / name for name in EXPERIMENT_FILES):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    elif (before := recorded.read_text(encoding="utf-8")) != config:
        if others := _changed_runs(json.loads(before), experiment, read_runs(out / RUNS)):
            finished = f"{len(others)} finished runs, such as {others[0]}, are missing from this one or not the same"
            raise InputError(
                f"{out} holds an experiment with another configuration, of which {finished}; "
                "choose another folder (--out), or --restart to delete it"
            )
        # they show the former configuration, and are made again at the end
        for path in (out / "report.html", *(out / "plots").glob("*.png"), *(out / "plots").glob("*.svg")):
            path.unlink(missing_ok=True)
    shards = experiment.data.shards if isinstance(experiment.data, Shards) else ()
    runs, hashes = read_runs(out / RUNS), {path: file_hash(path) for path in shards}
    files = out / "files.json"
    if runs and files.exists() and (known := json.loads(files.read_text())) != [*hashes.values()]:
        changed = [path for path, now in hashes.items() if now not in known] or ["the files' number or order"]
        which = f"{listed(changed)}: changed since runs in {out} finished"
        raise InputError(f"{which}; choose another folder (--out), or --restart to delete them")
    ensure_writable_folder(out / "results")
    write_atomic(recorded, lambda file: file.write(config.encode()))
    write_atomic(out / "config.toml", lambda file: file.write(experiment.text.encode()))
    if hashes:
        write_atomic(files, lambda file: file.write(json.dumps([*hashes.values()]).encode()))
    (out / "results" / "error.json").unlink(missing_ok=True)
    return runs


def failures_in(out: Path, experiment: Experiment, finished: Iterable[Run]) -> list[Failure]:
    """Return an experiment's failed runs that have not finished since, in the experiment's order."""
    failed = {failure.id: failure for failure in read_failures(out / FAILURES, (run.id for run in finished))}
    return [failed[id_] for id_ in run_ids(experiment) if id_ in failed]


def read_folder(out: Path) -> tuple[Experiment, list[Run]]:
    """Return the experiment in an output folder, and its finished runs."""
    if out.is_file():
        raise InputError(f"{out} is a file, but must be the output folder of an experiment")
    if not (runs := read_runs(out / RUNS)):
        failed = read_failures(out / FAILURES)
        why = f"; run {failed[0].id} has failed{and_more(len(failed) - 1)}: {failed[0].cause}" if failed else ""
        raise InputError(f"{out} holds no finished runs of an experiment ({RUNS}){why}")
    try:
        text = (out / "config.toml").read_text(encoding="utf-8")
        table = json.loads((out / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{out} lacks the experiment's configuration: {error}") from None
    return Experiment.from_table(table, str(out / "config.json"), text), runs


def _changed_runs(before: Mapping[str, Any], experiment: Experiment, runs: Iterable[Run]) -> list[str]:
    """Return the ids of finished runs that an experiment lacks or defines differently."""
    try:
        were = run_fingerprints(Experiment.from_table(before, "config.json"))
    except InputError:  # the configuration of another version
        were = {}
    are = run_fingerprints(experiment)
    return [run.id for run in runs if run.id not in are or were.get(run.id) != are[run.id]]


def _is_config(path: Path) -> bool:
    """Return whether a config.json describes an experiment, so that its folder may be emptied."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and {"name", "data"} <= set(table) and bool({"strategy", "baseline"} & set(table))

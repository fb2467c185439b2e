"""Whether a rebuild changes a number: results of every case of tests/cases.py and of the quickstart, bit by bit.

    python benchmarks/same_results.py export FOLDER     # before, and again after into another one
    python benchmarks/same_results.py compare BEFORE AFTER

Arrays, figures and the ledger's floats must be the same to the last bit. Seconds are left out; bytes, which depend on
how messages are written, the names of requests, and what a model's file tells beside the model are counted as
differences of their own.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
CLOCKS = ("seconds", "slowest_seconds")
NAMES = ("phase",)
TRANSPORT = ("bytes_down", "bytes_up", "bytes")


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, strategy and shards of every case."""
    sys.path.insert(0, str(ROOT / "tests"))
    from cases import CASES  # noqa: PLC0415 - it lies among the tests

    for case in CASES:
        yield case.name, case.strategy, case.shards()


def export(folder: Path) -> None:
    """Write all results into a folder."""
    for name, strategy, shards in pairs():
        result = strategy.fit(shards, seed=3, evaluate=True)
        target = folder / name.replace(" ", "-")
        target.mkdir(parents=True)
        result.save(target)
        for client, outputs in result.outputs.items():
            np.savez(target / f"client-{client}.npz", **outputs)
        print(name, flush=True)
    command = [Path(sys.executable).with_name("fedkernel"), "run", ROOT / "experiments/quickstart.toml"]
    subprocess.run([*command, "--out", folder / "quickstart"], check=True, stdout=subprocess.DEVNULL)


def contents(path: Path) -> dict[str, Any]:
    """Return what a file of results says, by place."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            header = json.loads(str(file["header"])) if "header" in file.files else {}
            arrays = {name: file[name] for name in file.files if name != "header"}
        described = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
        return described | dict(leaves(header, "header"))
    text = path.read_text()
    tables = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    return dict(leaves(tables, ""))


def leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield every scalar of nested JSON with its place."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        yield place, value
        return
    for key, inner in entries:
        yield from leaves(inner, f"{place}/{key}")


def compare(before: Path, after: Path) -> int:
    """Print what differs between two exports; return how many numbers do."""

    def files(folder: Path) -> set[str]:
        wanted = ("**/*.npz", "**/result.json", "**/runs.jsonl")
        return {str(path.relative_to(folder)) for pattern in wanted for path in folder.glob(pattern)}

    numbers, wire, names, seen = 0, 0, 0, 0
    for name in sorted(files(before) ^ files(after)):
        print(f"{name}: in one of the two only")
        numbers += 1
    for name in sorted(files(before) & files(after)):
        old, new = contents(before / name), contents(after / name)
        for place in sorted(old.keys() | new.keys()):
            last = place.rsplit("/", 1)[-1]
            if last in CLOCKS or "seconds" in place or "/phases/" in place:
                continue
            seen += 1
            if repr(old.get(place)) == repr(new.get(place)):  # in which NaN is what it is
                continue
            if last in TRANSPORT:
                wire += 1
            elif last in NAMES or place.startswith("header/about/"):
                names += 1
            else:
                numbers += 1
                print(f"{name} {place}: differs")
    counts = f"{numbers} differ; {wire} counts of bytes and {names} names do"
    print(f"{len(files(before))} files, {seen} arrays and figures: {counts}")
    return numbers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export").add_argument("folder", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "export":
        export(arguments.folder)
    else:
        sys.exit(min(1, compare(arguments.before, arguments.after)))

"""Small mistakes put into the product, and the share of them that the tests find: `make mutants`.

Mutants are drawn by a seed, as many from each room: a comparison, an operator, a constant or a condition is changed, a
statement removed. Each is applied in a copy of the tree, never in the checkout. The test files of its subject run
first, which name what is changed, or what uses it, where few others do; then the quick tests, and all of the files that
come next. It is killed by a test that fails with it and passes without it. Verdicts are kept in
benchmarks/history/mutants.jsonl: a run that was stopped goes on, and a mutant is tried again once its file has changed
or the test that killed it is gone. cosmic-ray and mutmut neither choose tests by a mutant nor draw a sample by a seed.
"""

import argparse
import ast
import hashlib
import importlib
import json
import math
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import pytest
from mutants_equivalent import EQUIVALENT
from mutations import Changes, Mutant
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "benchmarks" / "history" / "mutants.jsonl"
PRODUCT = ("fedkernel", "clients", "strategies", "experiments")
NOT_DRAWN = re.compile(r"experiments/commands/new_pair/.*|.*/__init__\.py")
QUIET = ["-p", "no:cacheprovider", "-p", "no:anyio"]
SLOWLY_IMPORTED = ["flwr.serverapp", "grpc", "jinja2", "matplotlib.pyplot", "networkx", "numpy", "pandas", "pyarrow"]
SLOWLY_IMPORTED += ["scipy.stats", "sklearn.cluster", "sklearn.datasets", "sklearn.svm", "typer", "cryptography.x509"]


class Tests:
    """Which tests concern a mutant, by what their files name and import."""

    def __init__(self, sources: dict[str, bytes]):
        self.sources = {file: source.decode() for file, source in sources.items()}
        paths = sorted((ROOT / "tests").rglob("test_*.py"))
        self.texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        self.words = {file: _words(text) for file, text in self.texts.items()}
        self.named = Counter(word for words in self.words.values() for word in words)

    def ordered(self, mutant: Mutant) -> list[str]:
        """Return all test files: first those that name its function, or what uses it, where few others do."""
        own = self.sources[mutant.file]
        parts = {
            node.name: _words(ast.get_source_segment(own, node) or "")
            for node in ast.parse(own).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        # of a refusal, the words of its sentence
        changed = _words(own.encode()[mutant.start : mutant.end].decode()) - set(mutant.owners)
        score = {file: sum(2 / self.named[word] for word in changed & words) for file, words in self.words.items()}
        names, seen, depth = set(mutant.owners), set[str](), 0
        while names:
            seen, depth = seen | names, depth + 1
            for file, words in self.words.items():
                score[file] += sum(2 / self.named[name] for name in names & words) / depth**2
            names = {name for name, words in parts.items() if words & names} - seen
        module = re.compile(rf"\b{mutant.file[:-3].replace('/', '.')}\b")
        users = [file[:-3].replace("/", ".") for file, text in self.sources.items() if module.search(text)]
        for file, text in self.texts.items():
            score[file] += bool(module.search(text)) + sum(user in text for user in users) / (1 + len(users))
            score[file] += 0.3 * (module.pattern[2:-2].rpartition(".")[0] in text)
            stem, folder = Path(mutant.file).stem, Path(mutant.file).parent.name
            score[file] += 1.0 * (f"_{stem[:5]}" in file) + 0.3 * (f"/{folder}/" in file)
        return sorted(score, key=lambda file: (-score[file], file))

    def has(self, killer: str) -> bool:
        """Return whether there is still a test that killed a mutant."""
        file, _, names = killer.partition("::")
        return not names or all(name in self.words.get(file, ()) for name in names.partition("[")[0].split("::"))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


class Copy:
    """A copy of the tree in which tests run, each time in a process forked from one that has imported what is slow."""

    def __init__(self, folder: Path, limit: int):
        self.folder, self.limit, self.stamp = folder, limit, int(time.time())
        self.passing, self.red = set[str](), set[str]()
        command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
        for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def write(self, file: str, source: bytes) -> None:
        (self.folder / file).write_bytes(source)
        self.stamp += 1  # or a file of the same second and size would be taken for what was compiled of the other
        os.utime(self.folder / file, (self.stamp, self.stamp))

    def pytest(self, tests: list[str], *options: str) -> tuple[bool, list[str]]:
        """Run tests until one fails: whether one did, and which; tests that together take too long have not failed."""
        output = self.folder / "output"
        if (child := os.fork()) == 0:
            os.setsid()
            os.chdir(self.folder)
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.environ["PYTHONPATH"] = sys.path[0] = str(self.folder)
            status = 1
            try:
                status = pytest.main(["-qx", "-rfE", *QUIET, f"--timeout={self.limit}", *options, *tests])
            except BaseException:  # or this process would go on as one more worker
                traceback.print_exc()
            finally:
                os._exit(status)
        until = time.monotonic() + 5 * self.limit
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.05)
        with suppress(ProcessLookupError):  # those that a test started, too
            os.killpg(child, 9)
        if ended[0] == 0:
            os.waitpid(child, 0)
            return False, []
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", output.read_text(), re.MULTILINE)
        return os.waitstatus_to_exitcode(ended[1]) not in {0, 5}, failed  # 5: none was chosen

    def killer(self, mutant: Mutant, source: bytes, tests: list[str], *options: str) -> str | None:
        """Return the test that fails with a mutant and passes without."""
        while True:
            self.write(mutant.file, source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
            has_failed, failed = self.pytest(tests, *options, *(f"--deselect={test}" for test in self.red))
            self.write(mutant.file, source)
            if not has_failed:
                return None
            if not failed:  # what all tests share cannot be imported, say
                if self.pytest(tests, *options, "--collect-only")[0]:
                    raise RuntimeError(f"{tests} cannot be collected")
                return "none could be run"
            if failed[0] in self.passing or not self.pytest([failed[0]])[0]:
                self.passing.add(failed[0])
                return failed[0]
            self.red.add(failed[0])


class Worker:
    """One of the processes that try mutants, each in its own copy."""

    tests: "Tests"
    place: Copy
    files: tuple[int, int | None]

    @classmethod
    def begin(cls, tests: "Tests", folder: Path, limit: int, *files: int | None) -> None:
        cls.tests, cls.files = tests, files
        cls.place = Copy(Path(tempfile.mkdtemp(dir=folder)), limit)

    @classmethod
    def tried(cls, mutant: Mutant) -> dict[str, object]:
        """Return the verdict on a mutant: the test that kills it, if any."""
        began, source, tests = time.monotonic(), (ROOT / mutant.file).read_bytes(), cls.tests.ordered(mutant)
        files, quick_files = cls.files
        trials = (tests[:files], "--quick"), (tests[:files],), (tests[files:quick_files], "--quick")
        trials += ((tests[files : 4 * files],),)
        killer = next(filter(None, (cls.place.killer(mutant, source, *trial) for trial in trials if trial[0])), None)
        return {"killer": killer, "seconds": round(time.monotonic() - began, 1), "red": sorted(cls.place.red)}


def drawn(sources: dict[str, bytes], count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Draw mutants, one from each room in turn: fewer are the first of more, and stay where other lines change."""
    by_room: dict[str, list[tuple[bytes, Mutant]]] = defaultdict(list)
    for file, source in sources.items():
        lines = source.decode().splitlines()
        for mutant in Changes(file, source).all:
            place = f"{seed} {file} {lines[mutant.line - 1]} {mutant.before} {mutant.after}"
            by_room[mutant.room].append((hashlib.sha256(place.encode()).digest(), mutant))
    chosen = [sorted(by_room[room], key=itemgetter(0)) for room in sorted(by_room) if not rooms or room in rooms]
    turns = [mutants[turn][1] for turn in range(math.ceil(count / len(chosen))) for mutants in chosen]
    return turns[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", default=[], help="by default all")
    parser.add_argument("--files", type=int, default=5, help="test files of a subject")
    parser.add_argument("--quick-files", type=int, help="of which the quick tests run then; by default all")
    parser.add_argument("--limit", type=int, default=120, help="seconds of a test, and five times that of all")
    parser.add_argument("--copies", type=int, default=2, help="how many mutants are tried at a time")
    parser.add_argument("--again", action="store_true", help="try those that survived before")
    parser.add_argument("--show", action="store_true", help="only list what is drawn")
    parser.add_argument("--strict", action="store_true", help="fail below 90%% overall or 80%% in a room")
    arguments = parser.parse_args()
    files = [file.relative_to(ROOT).as_posix() for package in PRODUCT for file in (ROOT / package).rglob("*.py")]
    sources = {file: (ROOT / file).read_bytes() for file in sorted(files) if not NOT_DRAWN.fullmatch(file)}
    sample = drawn(sources, arguments.count, arguments.seed, arguments.room)
    tests = Tests(sources)
    lines = HISTORY.read_text(encoding="utf-8").splitlines() if HISTORY.exists() else []
    known = [verdict for verdict in map(json.loads, lines) if not verdict["killer"] or tests.has(verdict["killer"])]
    verdicts = {verdict["key"]: verdict for verdict in known}
    left = [] if arguments.show else [
        mutant for mutant in sample if not _equivalent(mutant, sources)
        and ((verdict := verdicts.get(mutant.key(sources))) is None or (arguments.again and not verdict["killer"]))
    ]  # fmt: skip
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    for name in SLOWLY_IMPORTED if left else ():
        importlib.import_module(name)
    with (
        tempfile.TemporaryDirectory() as temporary,
        HISTORY.open("a", encoding="utf-8") as file,
        ProcessPoolExecutor(
            arguments.copies, multiprocessing.get_context("fork"), Worker.begin,
            (tests, Path(temporary), arguments.limit, arguments.files, arguments.quick_files),
        ) as pool,
    ):  # fmt: skip
        waiting = {pool.submit(Worker.tried, mutant): mutant for mutant in left}
        for done in as_completed(waiting):
            mutant, verdict = waiting[done], done.result()
            key = mutant.key(sources)
            verdicts[key] = {"key": key, "file": mutant.file, "line": mutant.line, **verdict}
            file.write(json.dumps(verdicts[key]) + "\n")
            file.flush()
            print(f"{verdict['seconds']:6.1f} s  {_shown(mutant, sources)}")
            print(f"          {verdict['killer'] or 'survived'}", flush=True)
    ours = [verdict for mutant in sample if (verdict := verdicts.get(mutant.key(sources)))]
    for red in sorted({red for verdict in ours for red in verdict["red"]}):
        print(f"fails without any mutant: {red}")
    enough = _report(sample, sources, verdicts)
    sys.exit(arguments.strict and not enough)


def _equivalent(mutant: Mutant, sources: dict[str, bytes]) -> str | None:
    return EQUIVALENT.get((mutant.file, _line(mutant, sources), mutant.after))


def _line(mutant: Mutant, sources: dict[str, bytes]) -> str:
    return sources[mutant.file].decode().splitlines()[mutant.line - 1].strip()


def _shown(mutant: Mutant, sources: dict[str, bytes]) -> str:
    before = " ".join(mutant.before.split())
    return f"{mutant.file}:{mutant.line}  {before[:120]}  ->  {' '.join(mutant.after.split())[:120]}"


def _report(sample: list[Mutant], sources: dict[str, bytes], verdicts: dict[str, dict]) -> bool:
    """Print the share killed by room, and say whether it is enough."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in sample:
        reason, verdict = _equivalent(mutant, sources), verdicts.get(mutant.key(sources))
        kind = "equivalent" if reason else "open" if verdict is None else "killed" if verdict["killer"] else "survived"
        for room in (mutant.room, "all"):
            counts[room][kind] += 1
        if kind != "killed":
            print(f"{kind}: {_shown(mutant, sources)}" + (f": {reason}" if reason else ""))
    table, enough = Table("room", "mutants", "equivalent", "killed", "survived", "share", box=None), True
    for room in [*sorted(set(counts) - {"all"}), "all"]:
        count = counts[room]
        tried = count["killed"] + count["survived"]
        share = 100 * count["killed"] / max(1, tried)
        enough &= share >= (90 if room == "all" else 80)
        cells = sum(count.values()), count["equivalent"], count["killed"], count["survived"], f"{share:.0f}%"
        table.add_row(room, *map(str, cells))
    Console(width=160, highlight=False).print(table)
    return enough


if __name__ == "__main__":
    main()

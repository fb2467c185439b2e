"""Write docs/results/performance.md: tables of the other benchmarks, measured now, each with its command.

    python benchmarks/performance.py [--quick] [--only bare]

Rows are printed as they are measured; the page and a line of benchmarks/history/performance.jsonl are written in the
end. It takes about seven minutes, with `--quick` (smaller sizes, fewer engines) two. `--only` keeps the page's other
tables.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from fedkernel.ground import write_atomic
from fedkernel.ground.parallel import usable_cores

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "performance.md"
HISTORY = HERE / "history" / "performance.jsonl"
TITLE = """# Running times

Written by `make performance`, which measures all of it: no number here is kept by hand. Seconds are of one machine,
and of a busy one they are larger; ratios and slopes are what to read. {machine}
"""


@dataclass(frozen=True)
class Part:
    """A table of the page.

    Attributes
    ----------
    name, heading, text : str
    command : tuple of str
        The script and its options; `quick` are more of them, for a quick look.
    """

    name: str
    heading: str
    text: str
    command: tuple[str, ...]
    quick: tuple[str, ...] = ()


PARTS = (
    Part(
        "bare",
        "Against the bare arithmetic",
        "Each pair on the local engine against plain NumPy and SciPy that computes the same, and scikit-learn with\n"
        "all data in one place.",
        ("bare.py", "--repeat", "2"),
        ("--quick", "--repeat", "1"),
    ),
    Part(
        "rounds",
        "A round of the engines in this process",
        "A toy pair: nothing but the engine.",
        ("rounds.py",),
        ("--no-ray",),
    ),
    Part(
        "grpc",
        "A round between processes",
        "Over gRPC with mutual TLS, against Flower's messages alone and bare bytes.",
        ("grpc_rounds.py",),
        ("--small",),
    ),
)


def measured(part: Part, *, quick: bool) -> str:
    """Run a part's script, print what it prints as it comes, and return that."""
    command = [sys.executable, "-u", str(HERE / part.command[0]), *part.command[1:], *(part.quick if quick else ())]
    print(f"\n{part.heading}: {' '.join(command[2:])}", flush=True)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        raise SystemExit(f"{part.command[0]} ended with {process.returncode}: the page is as it was")
    return "\n".join(lines).strip("\n")


def section(part: Part, table: str, *, quick: bool) -> str:
    """Return what the page says of a part."""
    command = " ".join(("python", f"benchmarks/{part.command[0]}", *part.command[1:], *(part.quick if quick else ())))
    return f"<!-- {part.name} -->\n## {part.heading}\n\n{part.text}\n\n`{command}`\n\n```text\n{table}\n```\n"


def sections(page: str) -> dict[str, str]:
    """Return the sections of a page by the names of their parts."""
    pieces = re.split(r"(?m)^(?=<!-- \w+ -->$)", page)[1:]
    return {piece[5 : piece.index(" -->")]: piece.rstrip() + "\n" for piece in pieces}


def commit() -> str:
    """Return the commit that was measured, if git knows it."""
    command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, Any]:
    """Return what tells machines apart: the cores, the BLAS and its kernel."""
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    names = sorted({f"{info['internal_api']} {info['version']} {info.get('architecture', '')}" for info in libraries})
    return {"cores": usable_cores(), "blas": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--only", choices=[part.name for part in PARTS], help="measure this table anew")
    arguments = parser.parse_args()
    began = time.perf_counter()
    tables = {part.name: measured(part, quick=arguments.quick) for part in PARTS if arguments.only in (None, part.name)}
    here = machine()
    known = sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    anew = [part for part in PARTS if part.name in tables]
    known |= {part.name: section(part, tables[part.name], quick=arguments.quick) for part in anew}
    now = datetime.now(UTC).date().isoformat()
    described = f"{here['cores']} cores, {', '.join(here['blas'])}; {now}, commit {commit()}."
    text = "\n".join([TITLE.format(machine=described), *(known[part.name] for part in PARTS if part.name in known)])
    write_atomic(PAGE, lambda file: file.write(text.encode()))
    entry: dict[str, Any] = {"date": now, "commit": commit(), "machine": here, "quick": arguments.quick}
    entry["tables"] = {name: table.splitlines() for name, table in tables.items()}
    HISTORY.parent.mkdir(exist_ok=True)
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    print(f"\nwrote {PAGE} and a line of {HISTORY} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

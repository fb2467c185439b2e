"""Write docs/results/benchmarks.md and its figures from the newest rows of each problem in the history.

python benchmarks/benchmark_page.py
"""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from tasks import TASKS, Task

from fedkernel.ground import write_atomic

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "benchmarks" / "history" / "benchmark.jsonl"
PAGE = ROOT / "docs" / "results" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images" / "benchmarks"
OURS = "fedkernel"

Row = dict[str, Any]
Rows = list[Row]


def newest(history: Path) -> tuple[dict[str, Rows], dict[str, Row], Row]:
    """Return the newest rows of each task's problems by the task's name, the newest parts, and the last entry."""
    found: dict[tuple[str, str], Rows] = {}
    parts: dict[str, Row] = {}
    entry: Row = {}
    for line in history.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        anew: dict[tuple[str, str], Rows] = {}
        for row in entry["rows"]:
            anew.setdefault((row["task"], row["problem"]), []).append(row)
        found |= anew
        parts |= {part["name"]: part for part in entry["parts"]}
    tasks: dict[str, Rows] = {}
    for (task, _), rows in found.items():
        tasks.setdefault(task, []).extend(rows)
    return tasks, parts, entry


def ours(row: Row) -> bool:
    """Return whether a row is of this project."""
    return bool(row["rival"].startswith(OURS))


def mean(row: Row) -> float:
    """Return the mean quality of a row's runs."""
    return statistics.fmean(row["quality"])


def seconds(row: Row) -> float:
    """Return the median of a row's seconds."""
    return statistics.median(row["seconds"])


def best(task: Task, rows: Rows) -> float:
    """Return the best quality."""
    return (max if task.clusters else min)(map(mean, rows))


def equal(task: Task, rows: Rows, row: Row) -> Row | None:
    """Return the fastest of our rows that is as good as a row, or as our best, if none is as good."""
    known, wanted = [one for one in rows if ours(one) and one["seconds"]], mean(row)
    if known and not any(task.good(mean(own), wanted) for own in known):
        wanted = best(task, known)
    return min((own for own in known if task.good(mean(own), wanted)), key=seconds, default=None)


def setting(row: Row) -> str:
    """Return a row's setting as words."""
    return ", ".join(f"{name} {value}" for name, value in row.get("setting", {}).items())


def cells(task: Task, row: Row, rows: Rows) -> list[str]:
    """Return what a table of rows says of one of them."""
    named = f"**{row['program']}**" if ours(row) else row["program"]
    if not row["seconds"]:
        return [named, row.get("failed", "not run"), *[""] * 5]
    spread_ = f" ± {statistics.stdev(row['quality']):.3f}" if task.clusters and len(row["quality"]) > 1 else ""
    quality = f"{mean(row):.3f}{spread_}" if task.clusters else f"{mean(row):.2g}"
    span = f"{seconds(row):.3g} ({min(row['seconds']):.3g} to {max(row['seconds']):.3g})"
    ratio = f"{seconds(row) / seconds(first):.2g}" if (first := equal(task, rows, row)) else ""
    sent = f"{row['floats']:,} up, {row.get('floats_down', 0):,} down, {row['rounds']}" if "floats" in row else ""
    if row.get("rows"):
        sent += f", {row['rows']} rows"
    return [named, setting(row), quality, span, ratio, f"{row['peak_mb']:,}" if row["peak_mb"] else "", sent]


def table(task: Task, rows: Rows) -> Iterator[str]:
    """Yield the lines of a problem's table, the best first."""
    measure = "NMI" if task.clusters else "error above the least"
    head = ["program", "setting", measure, "seconds: median (span)", "times ours", "MB", "floats, rounds"]
    sent = any("floats" in row for row in rows)
    order = sorted(
        rows, key=lambda row: (not row["seconds"], (-1 if task.clusters else 1) * mean(row) if row["seconds"] else 0)
    )
    for line in (head, ["---"] * len(head), *(cells(task, row, rows) for row in order)):
        yield "| " + " | ".join(line if sent else line[:-1]) + " |"


def private_table(task: Task, rows: Rows) -> Iterator[str]:
    """Yield the lines of a table of quality by epsilon, for a set."""
    values = sorted({float(row["problem"].rpartition(" ")[2]) for row in rows})
    yield "| program | " + " | ".join(f"epsilon {value:g}" for value in values) + " | seconds |"
    yield "| --- " * (len(values) + 2) + "|"
    for program in dict.fromkeys(row["program"] for row in rows):
        its = {float(row["problem"].rpartition(" ")[2]): row for row in rows if row["program"] == program}
        shown = [
            (f"{mean(its[value]):.3f}" if task.clusters else f"{mean(its[value]):.2g}")
            if its[value]["seconds"]
            else its[value].get("failed", "")
            for value in values
            if value in its
        ]
        times = [seconds(row) for row in its.values() if row["seconds"]]
        named = f"**{program}**" if ours(next(iter(its.values()))) else program
        yield f"| {named} | " + " | ".join(shown) + f" | {statistics.median(times) if times else float('nan'):.3g} |"


def by_problem(rows: Rows) -> dict[str, Rows]:
    """Return rows by problem, in their order."""
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(row["problem"], []).append(row)
    return found


def by_set(rows: Rows) -> dict[str, Rows]:
    """Return rows by the set of their problem, all epsilons together."""
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(row["problem"].rpartition(", epsilon")[0], []).append(row)
    return found


MARKS = "osD^vP*X<>ph8dH"
COLORS = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#E69F00", "#882255", "#44AA99")
"""Okabe and Ito's palette; vermilion is ours."""


def looks(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return how each program is drawn: ours filled and vermilion, others open."""
    drawn: dict[str, dict[str, Any]] = {}
    programs = dict.fromkeys((row["program"], ours(row)) for row in rows)
    for at, (program, own) in enumerate(sorted(programs, key=lambda one: not one[1])):
        color = "#D55E00" if own else COLORS[at % len(COLORS)]
        drawn[program] = {"marker": MARKS[at % len(MARKS)], "color": color, "mfc": color if own else "none"}
    return drawn


def settings_of(row: Row, along: str) -> list[tuple[float, float]]:
    """Return the seconds, floats or rounds of each of a program's settings, and their quality."""
    if not row["quality"]:
        return []
    timed = [(seconds(row) if along == "seconds" else row[along], mean(row))] if along in row else []
    others = [one for one in row.get("tried", []) if one["setting"] != row["setting"] and along in one]
    return timed + [(one[along], one["quality"]) for one in others]


def scatter(task: Task, rows: Rows, images: Path, along: str, label: str) -> str:
    """Draw quality against seconds, floats or rounds, an axis for each problem; returns the figure's name."""
    problems = {
        name: its for name, its in by_problem(rows).items() if any(along in row and row["quality"] for row in its)
    }
    columns = min(len(problems), 3)
    lines = -(-len(problems) // 3)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4 * columns, 3.2 * lines + 1.2), squeeze=False, layout="constrained"
    )
    styles = looks([row for its in problems.values() for row in its])
    for axis, (name, its) in zip(axes.flat, problems.items(), strict=False):
        for row in its:
            points = settings_of(row, along)
            if points:
                x, y = zip(*sorted(points), strict=True)
                y = y if task.clusters else [max(value, 1e-6) for value in y]
                axis.plot(x, y, linestyle=":" if len(points) > 1 else "", lw=0.8, **styles[row["program"]])
        axis.set(title=name, xlabel=label, ylabel="NMI" if task.clusters else "error above the least", xscale="log")
        if not task.clusters:
            axis.set_yscale("log")
    for axis in list(axes.flat)[len(problems) :]:
        axis.axis("off")
    handles = [mpl.lines.Line2D([], [], linestyle="", label=program, **style) for program, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return saved(figure, images, f"{task.letter}-{task.name}-{along}")


def curves(task: Task, rows: Rows, images: Path) -> str:
    """Draw quality against epsilon, an axis for each set; returns the figure's name."""
    sets = by_set(rows)
    figure, axes = plt.subplots(1, len(sets), figsize=(4 * len(sets), 4), squeeze=False, layout="constrained")
    styles = looks(rows)
    for axis, (name, its) in zip(axes.flat, sets.items(), strict=True):
        for program, style in styles.items():
            points = [
                (float(row["problem"].rpartition(" ")[2]), row)
                for row in its
                if row["program"] == program and row["quality"]
            ]
            if points:
                x = [value for value, _ in points]
                spread_ = [statistics.stdev(row["quality"]) if len(row["quality"]) > 1 else 0 for _, row in points]
                axis.errorbar(x, [mean(row) for _, row in points], yerr=spread_, capsize=2, **style)
        axis.set(title=name, xlabel="epsilon", xscale="log", ylabel="NMI" if task.clusters else "error above the least")
        axis.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axis.minorticks_off()
        if not task.clusters:
            axis.set_yscale("log")
    handles = [mpl.lines.Line2D([], [], label=program, **style) for program, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return saved(figure, images, f"{task.letter}-{task.name}-epsilon")


def saved(figure: Any, images: Path, name: str) -> str:
    """Save a figure, without what changes at each run; returns its name."""
    images.mkdir(parents=True, exist_ok=True)
    file = images / f"{name.replace(', ', '-').replace(' ', '-')}.svg"
    with mpl.rc_context({"svg.hashsalt": "fedkernel", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
    return file.name


def section(task: Task, rows: Rows, images: Path, at: str) -> Iterator[str]:
    """Yield the lines of a task's section; `at`: the figures' folder, from the page."""
    yield f"## {task.letter}. {task.heading}\n"
    private = task.name.startswith("private")
    if private:
        yield f"![Quality against epsilon]({at}/{curves(task, rows, images)})\n"
    else:
        yield f"![Quality against seconds]({at}/{scatter(task, rows, images, 'seconds', 'seconds')})\n"
    if task.name.startswith("federated"):
        yield f"![Quality against floats]({at}/{scatter(task, rows, images, 'floats', 'floats that all sites send')})\n"
        yield f"![Quality against rounds]({at}/{scatter(task, rows, images, 'rounds', 'rounds')})\n"
    for name, its in (by_set(rows) if private else by_problem(rows)).items():
        yield f"**{name}**\n"
        yield from private_table(task, its) if private else table(task, its)
        yield ""


TEXT = """# Benchmarks

Written by `make benchmark`: no number here is kept by hand. Each table is the newest of its data, and
`python benchmarks/benchmark.py --only D --problem digits` measures some alone. The last run: {machine}

fedkernel (bold) beside software that others wrote, on the same standardised data, with the same kernel width and number
of components or clusters, on both cores. Each program first runs with each of its settings, and is timed with the
fastest that is as good as its best (on a table four times as large as another, with the one chosen there). Programs
take turns, so read ratios and not seconds: "times ours" is by the fastest of ours that is as good as the row, and above
1 where ours is faster. *Error above the least* is a share: .01 is 1 % more than the least error that so many components
can have; up to there, errors count as equal. *NMI*, the normalised mutual information with classes that no program
sees, counts as equal within .01. *MB* is the most memory that a program's process held, also what earlier programs
left there; empty if the run was too short to see. Rivals are files in `benchmarks/rivals`, each with its settings and
versions. Spambase, shuttle, fashion, mnist5k and satellite do not come with the project: they are measured, by the same
command, where `FEDKERNEL_DATA` is a folder that has them.
"""


ABOUT = {
    "networks": "Runs at five sites over links with such a round trip in ms and so many Mbit/s.",
    "rounds": "Rounds of `VFedPCA` with some 1 KB to and from each site.",
    "growth": "An exponent is the slope of logarithms over the two largest sizes: 1 is proportional. *Formula* is\n"
    "that of the method's arithmetic, or of its floats.",
    "scale": "Forecasts from measured seconds of a message and of a row. *Of pooling*: as a share of the entries of\n"
    "all tables. *Held*: by the coordinator. *Wall*: the most sites for which it needs at most 16 GB and a day.",
    "tree": "*Alone* the coordinator adds up all replies; in the *tree* relays add up those of 100 each, in fixed\n"
    "point.",
}
"""Descriptions of the parts that other scripts measure."""


def faster(task: Task, rows: Rows) -> Iterator[str]:
    """Yield rivals that take less time than each of our rows that is as good."""
    for row in rows:
        first = equal(task, rows, row) if row["seconds"] and not ours(row) else None
        if first and (share := seconds(row) / seconds(first)) < 1:
            yield f"{row['program']} ({row['problem']}: {share:.2g} of our time)"


def cheaper(task: Task, rows: Rows) -> Iterator[str]:
    """Yield rivals for which no program of ours is as good with fewer floats or rounds."""
    own = [row for row in rows if ours(row)]
    for row in rows:
        if ours(row) or "floats" not in row or not row["quality"]:
            continue
        ahead = any(
            cost < row[along] and task.good(quality, mean(row))
            for along in ("floats", "rounds")
            for one in own
            for cost, quality in settings_of(one, along)
        )
        if not ahead:
            yield f"{row['program']} ({row['problem']})"


def better(task: Task, rows: Rows) -> Iterator[str]:
    """Yield rivals that are better than our best."""
    own = [row for row in rows if ours(row) and row["quality"]]
    for row in rows:
        if not ours(row) and row["quality"] and not (own and task.good(best(task, own), mean(row))):
            yield f"{row['program']} ({row['problem']})"


def behind(factors: dict[str, float]) -> Callable[[Task, Rows], Iterator[str]]:
    """Return a goal: to be as good as rivals with these words in their names, in so many times their seconds."""

    def missed(task: Task, rows: Rows) -> Iterator[str]:
        for row in rows:
            factor = next((factor for word, factor in factors.items() if word in row["program"]), None)
            if factor is None or not row["seconds"] or not (first := equal(task, rows, row)):
                continue
            ratio = seconds(first) / seconds(row)
            if ratio > factor or not task.good(mean(first), mean(row)):
                yield f"{row['program']} ({row['problem']}: we take {ratio:.2g} of its time)"

    return missed


GOALS = (
    ("A", "at equal quality, no rival is faster, at any number of rows", faster),
    ("B", "ten times faster than tslearn and kernlab, NMI no lower", behind({"tslearn": 0.1, "kernlab": 0.1})),
    ("B", "at equal quality, no rival is faster", faster),
    ("C", "1.5 times dask's seconds at most, and ahead of Spark", behind({"dask": 1.5, "MLlib": 1})),
    ("C", "at equal quality, no rival is faster", faster),
    ("D", "at equal quality, fewer floats or rounds than each rival", cheaper),
    ("E", "no rival, each with all data in one place, is better at the same epsilon", better),
)


REASONS = {
    "disPCA": "Each site's leading eigenvectors in one message: not exact, and no sum that a mask could cover.",
    "mean of projectors": "The same, and the site's eigenvalues are dropped.",
    "k-FED": "Local centres in one message. Ours take four, and answer better for some more floats.",
    "averages": "Averages of the sites' centres, few rounds: good where sites are alike, and poor where they are not.",
    "FAISS PCAMatrix": "One covariance in one process. Ours is eight sites', whose messages are written and checked.",
    "scikit-learn PCA": "As FAISS.",
    "FAISS Kmeans": "All rows in one array, or a sample. Ours first cuts rows into groups, as no sum may be of few.",
    "scikit-learn KMeans": "As FAISS.",
    "scikit-learn MiniBatchKMeans": "As FAISS.",
    "dask-ml KMeans": "Sums of rows without groups.",
    "Nystroem": "Landmarks are rows, drawn at once. Ours are centres, of which fewer are as good, but which take time.",
}
"""Why rivals are ahead, by words of their programs' names."""


def reasons(missed: list[str]) -> Iterator[str]:
    """Yield a line for each rival that is ahead, and why."""
    for words, reason in REASONS.items():
        if any(words in text for text in missed):
            yield f"- {words}: {reason}"


def goals(tasks: dict[str, Rows]) -> Iterator[str]:
    """Yield a line for each goal: met, or by whom it is missed."""
    yield "| task | goal | missed by |\n| --- | --- | --- |"
    ahead: list[str] = []
    for letter, goal, missed_by in GOALS:
        missed, counted = [], 0
        for task in TASKS:
            for rows in by_problem(tasks.get(task.name, [])).values() if task.letter == letter else ():
                counted += sum(not ours(row) and bool(row["quality"]) for row in rows)
                missed += missed_by(task, rows)
        ahead += missed
        if counted:
            yield f"| {letter} | {goal} | {'; '.join(missed) or 'none'} (of {counted} comparisons) |"
    yield "\nWhy they are ahead:\n"
    yield from reasons(ahead)


def write_page(history: Path = HISTORY, page: Path = PAGE) -> None:
    """Write the page, and its figures beside those of the documentation, or beside a page elsewhere."""
    tasks, parts, entry = newest(history)
    images, at = (IMAGES, "../images/benchmarks") if page == PAGE else (page.parent / "figures", "figures")
    machine = entry["machine"]
    described = f"{machine['cores']} cores, {', '.join(machine['blas'])}; {entry['date']}, commit {entry['commit']}."
    lines = [*goals(tasks), ""]
    for task in TASKS:
        if task.name in tasks:
            lines += section(task, tasks[task.name], images, at)
    for part in parts.values():
        lines += [
            f"## {part['heading']}\n",
            f"{ABOUT[part['name']]}\n",
            f"`python benchmarks/{part['command']}`\n",
            "```text",
            *part["lines"],
            "```\n",
        ]
    text = TEXT.format(machine=described) + "\n" + "\n".join(lines)
    write_atomic(page, lambda file: file.write(text.encode()))
    print(f"wrote {page}")


if __name__ == "__main__":
    write_page()

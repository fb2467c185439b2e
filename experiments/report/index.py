"""Page of many experiments: all claims, and then each experiment's figures, the paper's setting, and costs."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkernel.experiments.claims import Claim, Verdict
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.report.cells import NOT_APPLICABLE, count, seconds
from fedkernel.experiments.report.table_formats import Layout
from fedkernel.experiments.report.templates import render
from fedkernel.experiments.results import Failure, Run, Spread, Summary, leading_metric, summarise
from fedkernel.ground import write_atomic
from fedkernel.models import metric_of

RESULTS = "results.json"  # the page's content for programs, from which `fedkernel report` prints a table
VERDICTS = (Verdict.HOLDS, Verdict.IDENTITY, Verdict.NOISE, Verdict.FAILS, Verdict.UNTESTABLE)


class Entry(NamedTuple):
    """Experiment on the page: results, missing and failed runs, folder, and error."""

    experiment: Experiment
    rows: list[Run]
    claims: list[Claim]
    missing: list[str]
    failed: list[Failure]
    folder: Path
    error: str | None = None


def write_index(out: Path, entries: Sequence[Entry], *, command: str, environment: Mapping[str, str]) -> Path:
    """Write the page as ``index.html`` and ``README.md``, with ``results.json`` and figures. Return index.html.

    `command` makes the whole page, ``--all`` of a folder; `environment` has versions and the machine.
    """
    figures = out / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    results: dict[str, Any] = {"command": command, "environment": dict(environment)}
    results["experiments"] = [_described(entry, figures) for entry in entries]
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    write_atomic(out / RESULTS, lambda file: file.write(text.encode()))
    for name, page in pages(results).items():
        write_atomic(out / name, lambda file, page=page: file.write(page.encode()))  # type: ignore[misc]
    return out / "index.html"


def pages(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of both pages, by file name, from the content of ``results.json``."""
    counts: dict[str, Counter[str]] = {}  # claims with each verdict, by paper
    for each in results["experiments"]:
        counts.setdefault(each["paper"] or "others", Counter()).update(claim["verdict"] for claim in each["claims"])
    values = {"results": results, "verdicts": VERDICTS, "counts": counts}
    templates = {"README.md": "index.md.jinja", "index.html": "index.html.jinja"}
    return {name: render(template, **values) for name, template in templates.items()}


def overview(results: Mapping[str, Any]) -> Layout:
    """Lay out the content of ``results.json``, a row for each experiment: claims by verdict, and seconds."""
    rows = []
    for each in results["experiments"]:
        verdicts = Counter(claim["verdict"] for claim in each["claims"])
        numbers = [str(verdicts[verdict] or "") for verdict in VERDICTS]
        rows.append([each["name"], each["title"], *numbers, str(each["seconds"])])
    return Layout(["experiment", "what it shows", *VERDICTS, "seconds"], rows, keys=2, words=2)


def _described(entry: Entry, figures: Path) -> dict[str, Any]:
    """Copy an experiment's figures for the page, and return its content."""
    experiment, summaries = entry.experiment, summarise(entry.rows)
    paper = {} if experiment.paper is None else experiment.paper.model_dump()
    drawn = {path.stem: path for path in sorted((entry.folder / "plots").glob("*.png"))}
    shown = [name for name in paper.get("plots", ()) if name in drawn] or list(drawn)[:1]  # by default the first
    copies = {name: figures / f"{experiment.name}-{name}.png" for name in shown}
    return {
        "name": experiment.name,
        "title": experiment.title or experiment.name,
        "paper": paper.get("name", ""),
        **{key: paper.get(key, "") for key in ("shows", "setting", "here")},
        "runs": len(entry.rows),
        "missing": len(entry.missing) + len(entry.failed),
        "error": entry.error,
        "seeds": len(experiment.seeds),
        "settings": len(experiment.settings),
        "seconds": round(sum(run.seconds for run in entry.rows)),
        "claims": [{"text": its.text, "verdict": its.verdict, "numbers": its.numbers} for its in entry.claims],
        "figures": [Path(shutil.copyfile(drawn[name], copy)).name for name, copy in copies.items()],
        "methods": _methods(summaries, experiment.report.metric),
    }


def _methods(summaries: Sequence[Summary], metric: str | None) -> dict[str, Any]:
    """Return a table row for each method, with the range of each figure over its settings."""
    metric = leading_metric(summaries, metric)
    rows: list[list[str]] = []
    for name in dict.fromkeys(s.name for s in summaries):
        mine = [s for s in summaries if s.name == name]
        measured = [spread for s in mine if metric and (spread := s.metrics.get(metric))]
        cells = [_span(measured, metric_of(metric).written)] if metric else []
        cells += [_span([s.floats_up for s in mine], count), _span([s.rounds for s in mine], count)]
        rows.append([name, *cells, _span([s.seconds for s in mine], seconds)])
    headings = [metric_of(metric).heading] if metric else []
    return {"headings": ["method", *headings, "floats up", "rounds", "seconds"], "rows": rows}


def _span(spreads: Iterable[Spread], write: Any) -> str:
    means = sorted(spread.mean for spread in spreads)
    ends = [write(means[0]), write(means[-1])] if means else [NOT_APPLICABLE]
    return " to ".join(dict.fromkeys(ends))

"""Page for a site's operator: rows, clusters, column figures, and totals of the outbox. It stays at the site."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fedkernel.data import NO_LABEL, contingency
from fedkernel.experiments.report.pictures import Panel, class_colours, draw_panels
from fedkernel.experiments.report.site_results import SiteRun
from fedkernel.experiments.report.templates import render
from fedkernel.ground import AnyArray, InputError, write_atomic
from fedkernel.models import METRICS, compare_classes
from fedkernel.run import MOST_ROWS, STYLE, rows_to_draw, two_coordinates
from fedkernel.site import OUTBOX, departures_of

MOST_COLUMNS = 30
MOST_KINDS = 30  # most different texts of a label that is coloured and counted


def write_site_page(path: Path, folder: Path, runs: Iterable[SiteRun]) -> Path:
    """Write the page of a folder's runs and outbox as one self-contained file that only its owner can read."""
    values = {"folder": folder, "runs": [_page_values(run) for run in runs], "left": _outbox_totals(folder)}
    page = render("site.html.jinja", **values)
    return write_atomic(path, lambda file: file.write(page.encode()), mode=0o600)


def _page_values(run: SiteRun) -> dict[str, Any]:
    labels, missing = run.labels, list[str]()
    own = {name: kinds for name, kinds in run.own.items() if 1 <= len(set(kinds.tolist())) <= MOST_KINDS}
    missing += [f"The label {name!r} has too many different values to colour by" for name in run.own.keys() - own]
    if not own.keys() - {"client"}:
        hint = "--data FILE --id COLUMN --label COLUMN colours them by a column"
        missing.append(f"Nothing else is known of the rows; {hint}")
    if labels is None:
        missing.append("There are no clusters: the method finds components, or the model that labels rows is not here")
    picture = _picture(run, labels, own)
    if picture is None:
        missing.append(
            "There is no picture: the site has not kept two coordinates of its rows; --model FILE gives them"
        )
    sizes, bars = [] if labels is None else np.bincount(labels).tolist(), []
    for (title, read), values in zip(_EXPLANATIONS.items(), (run.loadings(), run.importance()), strict=True):
        if isinstance(values, str):
            missing.append(values)
        else:
            bars.append((title, read, *_bars(values)))
    return {
        "name": run.name,
        "rows": len(next((known for known in (labels, run.coordinates) if known is not None), ())),
        "picture": picture,
        "sizes": [(str(cluster), f"{size:,}", f"{size / sum(sizes):.1%}") for cluster, size in enumerate(sizes)],
        "tables": [] if labels is None else [_contingency(name, kinds, labels) for name, kinds in own.items()],
        "bars": bars,
        "missing": missing,
    }


_EXPLANATIONS = {
    "Component loadings": "Unit directions of the first two components over the columns, the larger first: a row's "
    "coordinate grows with columns of a positive loading. The sign of a component is arbitrary.",
    "Importance of columns": "What permuting a column changes, mean of five permutations that are always the same: of "
    "clusters, the share of rows that get another one; of components, how far the coordinates move, 1 where nothing of "
    "them is left.",
}


def _picture(run: SiteRun, labels: AnyArray | None, own: dict[str, AnyArray]) -> dict[str, str] | None:
    """Draw the rows, once for each grouping. Return the picture as a data address, with a caption."""
    Z = run.coordinates
    points = None if Z is None else two_coordinates(Z, turn=labels is not None)
    if points is None:
        return None
    drawn = rows_to_draw(len(points))
    kinds = {} if labels is None else {"cluster": labels.astype(str)}
    kinds |= {name: column for name, column in own.items() if len(column) == len(points)}
    places = {of: {} if labels is None else class_colours(column, labels) for of, column in kinds.items()}
    panels = [Panel(f"by {of}", points[drawn], kinds[of][drawn], of, places=places[of]) for of in kinds]
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = draw_panels([panels or [Panel("", points[drawn])]])
        image = io.BytesIO()
        figure.savefig(image, dpi=150, format="png", metadata={"Software": None})
    what = "the first two principal components of the coordinates that the clusters were found in"
    caption = f"Each dot is a row, along {'the first two components' if labels is None else what}."
    if len(drawn) == MOST_ROWS < len(points):
        caption += f" {MOST_ROWS:,} of {len(points):,} rows are drawn, chosen at random."
    return {"source": "data:image/png;base64," + base64.b64encode(image.getvalue()).decode(), "caption": caption}


def _contingency(name: str, kinds: AnyArray, labels: AnyArray) -> dict[str, Any]:
    """Return the counts by cluster and class, and the agreement over rows with a label."""
    columns, counts = contingency(labels, kinds, int(labels.max()) + 1)
    rows = [(str(cluster), row) for cluster, row in enumerate(counts.tolist())]
    known = kinds != NO_LABEL
    agreement = compare_classes(labels[known], kinds[known]) if known.any() else {}
    figures = [
        f"{METRICS[figure].written(value)} {figure} ({METRICS[figure].meaning})" for figure, value in agreement.items()
    ]
    of = "" if known.all() else f" of the {known.sum():,} rows that have one"
    return {"name": name, "columns": columns, "rows": rows, "of": of, "agreement": "; ".join(figures)}


def _bars(values: dict[str, Any]) -> tuple[int, list[tuple[str, list[tuple[str, float]]]], int]:
    """Return the number of figures per column, the columns, largest first, and the number of columns left out."""
    rows = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    longest = max((abs(figure) for figures in rows.values() for figure in figures), default=0.0) or 1.0
    order = sorted(rows, key=lambda name: -max(map(abs, rows[name])))
    cells = [(name, [(f"{value:.3f}", 100 * value / longest) for value in rows[name]]) for name in order]
    return len(next(iter(rows.values()), ())), cells[:MOST_COLUMNS], max(0, len(cells) - MOST_COLUMNS)


def _outbox_totals(folder: Path) -> dict[str, Any] | None:
    if not (folder / OUTBOX).exists():
        return None
    runs: dict[str, list[int]] = {}
    damage = ""
    try:
        for line, _ in departures_of(folder):
            numbers = (int(not line.refused), line.floats, line.bytes, line.rows, int(bool(line.refused)))
            runs[line.run] = [a + b for a, b in zip(runs.get(line.run, [0] * 5), numbers, strict=True)]
    except InputError as error:
        damage = str(error)
    sums = [sum(column) for column in zip(*runs.values(), strict=True)] or [0] * 5
    lines = [(name, [f"{number:,}" for number in numbers]) for name, numbers in (*runs.items(), ("", sums))]
    return {"rows": lines[:-1], "total": lines[-1][1], "damage": damage}

"""Pages as a browser shows them: nothing is cut off, tables sort, figures open large, and nothing is loaded."""

import base64
import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from test_report import a_run, experiment

from experiments.claims import Claim, Verdict
from experiments.config import ReportOptions
from experiments.report import write_report
from experiments.report.site_page import write_site_page
from experiments.report.site_rows import SiteRun
from experiments.results import RowPicture, write_row_picture, write_shapes
from fedkernel.data import RawTable

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine's PATH to show the page in")
KEPT = Path(__file__).parent.parent / "docs" / "results" / "index.html"
VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report with long names, many metrics, groups, claims and figures."""
    folder = tmp_path_factory.mktemp("report")
    measures = ("nmi", "ari", "silhouette", "calinski_harabasz", "site_nmi", "stability")
    metrics = {"smallest_cluster": 120.0, "n_clusters": 3.0, "floats_up_per_iteration": 2850.0, "parallel_seconds": 0.1}
    runs = []
    for group in ("linear kernel, 5 components", "RBF kernel, 5 components"):
        for place, name in enumerate(("DKPCA", "VFedPCA with the merge of the paper", "isolated")):
            for seed in (0, 1):
                error = [3e-3, 1e-20, 0.5][place] * (seed + 1)
                named = f"{name}, {group[:3]}"
                took = {"floats_up": 24_662, "floats_down": 24_657, "bytes_up": 212_400, "bytes_down": 216_200}
                judged = dict.fromkeys(measures, (seed + 1) / (place + 3))
                took = {figure: number * (seed + 9) for figure, number in took.items()}
                runs.append(a_run(named, seed, group=group, metrics={"error": error, **metrics, **judged}, **took))
    rng = np.random.default_rng(0)
    for run in runs:
        clusters = rng.integers(0, 3, 30)
        write_row_picture(
            folder, run.id, RowPicture(rng.standard_normal((30, 2)), None, clusters, np.bincount(clusters))
        )
    write_shapes(folder, [(150, 3), (150, 1)])
    claims = [Claim("One round is enough for all of " + "very " * 20 + "many rows.", Verdict.HOLDS, "1 < 2")]
    text = "name = 'x' # " + "a long line " * 30
    studied = experiment("A title", text, ReportOptions())
    return write_report(folder, studied, runs, claims=claims, environment={"numpy": "2"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site's page of clusters of rows with labels of their own."""
    folder, rng = tmp_path_factory.mktemp("site"), np.random.default_rng(0)
    X, labels = rng.standard_normal((60, 9)), np.repeat([0, 1, 2], 20)
    table = RawTable.of_array(X, [f"a measurement with a long name {place}" for place in range(9)])
    own = {"diagnosis": np.repeat(["benign", "malignant", "unknown"], 20)}
    arrays = {"embedding": X[:, :2], "labels": labels}
    run = SiteRun("clusters__seed=0", arrays, own=own, table=table, linear=True)
    return write_site_page(folder / "page.html", folder, [run])


class Nesting(HTMLParser):
    """Follows the tags of a page; `open` are those that are not closed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.mark.parametrize("name", ["report", "site"])
def test_tags_are_nested_images_are_inline_and_nothing_is_outside(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name).read_text(encoding="utf-8")
    nesting = Nesting()
    nesting.feed(page)
    assert (nesting.open, nesting.faults) == ([], [])
    assert nesting.loads
    assert all(value.startswith(("data:", "#")) for value in nesting.loads)
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest", page)
    images = re.findall(r'src="data:image/(png|svg\+xml);base64,([^"]+)"', page)
    assert images
    assert all(base64.b64decode(content)[:4] in (b"\x89PNG", b"<?xm") for _, content in images)
    assert "{{" not in page


def seen(page: Path, width: int, folder: Path, script: str = "") -> dict[str, str]:
    """Show a page in a frame of a width, and return what a script there tells, by name; leave a screenshot."""
    copy, frame = folder / f"{page.stem}-{width}.html", folder / f"frame-{width}.html"
    tell = (
        "<script>addEventListener('load', () => { const told = {};"
        "told.width = document.documentElement.scrollWidth; told.window = innerWidth;"
        "told.cut = [...document.querySelectorAll('.scroll')].filter("
        "box => box.closest('details:not([open])') === null && box.scrollWidth > box.clientWidth + 1"
        ").map(box => box.getAttribute('aria-label') || 'claims').join('; ');"
        f"{script}"
        "parent.postMessage(told, '*'); });</script>"
    )
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{tell}</body>"), encoding="utf-8")
    frame.write_text(
        f"<body style='margin:0'><iframe src='{copy.as_uri()}' style='width:{width}px;height:2400px;border:0'></iframe>"
        "<script>addEventListener('message', event => { for (const name in event.data)"
        " document.body.setAttribute('told-' + name, event.data[name]); });</script>",
        encoding="utf-8",
    )
    assert BROWSER is not None
    common = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
    common += [f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, 500)},2400"]
    picture = folder / f"{page.stem}-{width}.png"
    done = subprocess.run(
        [*common, f"--screenshot={picture}", "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert picture.read_bytes().startswith(b"\x89PNG"), done.stderr
    assert picture.stat().st_size > 20_000  # not an empty page
    return {name: html.unescape(text) for name, text in re.findall(r'told-(\w+)="([^"]*)"', done.stdout)}


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "site", "kept"])
def test_nothing_is_cut_off_at_1400_pixels_and_a_narrow_page_is_no_wider_than_its_window(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = KEPT if name == "kept" else request.getfixturevalue(name)
    wide, narrow = (seen(page, width, tmp_path) for width in (1400, 400))
    assert (wide["width"], wide["window"], wide["cut"]) == ("1400", "1400", "")
    assert (narrow["width"], narrow["window"]) == ("400", "400")


@needs_browser
@pytest.mark.slow
def test_tables_sort_by_their_numbers_and_figures_open_large(report: Path, tmp_path: Path) -> None:
    measures = seen(
        report,
        1000,
        tmp_path,
        "const table = document.querySelector('table.sortable');"
        "const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent).join('; ');"
        "const button = table.tHead.querySelectorAll('button')[1];"
        "button.click(); told.up = column(); told.sort = button.parentElement.ariaSort;"
        "button.click(); told.down = column();"
        "document.querySelector('figure button').click();"
        "const dialog = document.getElementById('large');"
        "told.open = dialog.open; told.large = dialog.querySelector('img').src.slice(0, 14); dialog.close();"
        "document.querySelector('#rows button').click();"
        "told.rows = dialog.open && dialog.querySelector('img').src === document.querySelector('#rows img').src;",
    )
    up = measures["up"].split("; ")
    assert [cell.split()[0] for cell in up] == ["≤", "4.50e-03", "7.50e-01"]
    assert measures["down"].split("; ") == up[::-1]
    assert (measures["sort"], measures["open"], measures["large"]) == ("ascending", "true", "data:image/svg")
    assert measures["rows"] == "true"

"""Pages are well formed and load nothing."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from report_runs import a_run, experiment

from fedkernel.data import RawTable
from fedkernel.experiments.claims import Claim, Verdict
from fedkernel.experiments.config import ReportOptions
from fedkernel.experiments.report import write_report
from fedkernel.experiments.report.site_page import write_site_page
from fedkernel.experiments.report.site_results import SiteRun
from fedkernel.experiments.results import RowPicture, write_row_picture, write_shapes

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return a report with groups, claims, figures and pictures of rows."""
    folder, rng = tmp_path_factory.mktemp("report"), np.random.default_rng(0)
    runs = [
        a_run(f"{name}, {group[:3]}", seed, group=group, metrics={"error": error * (seed + 1), "nmi": 0.5})
        for group in ("linear kernel, 5 components", "RBF kernel, 5 components")
        for name, error in (("DKPCA", 3e-3), ("VFedPCA with the merge of the paper", 1e-20), ("isolated", 0.5))
        for seed in (0, 1)
    ]
    for run in runs:
        clusters = rng.integers(0, 3, 30)
        picture = RowPicture(rng.standard_normal((30, 2)), None, clusters, np.bincount(clusters))
        write_row_picture(folder, run.id, picture)
    write_shapes(folder, [(150, 3), (150, 1)])
    claims = [Claim("One round is enough.", Verdict.HOLDS, "1 < 2")]
    studied = experiment("A title", "name = 'x'", ReportOptions())
    return write_report(folder, studied, runs, claims=claims, environment={"numpy": "2"})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
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

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.mark.usefixtures("rendered")
@pytest.mark.parametrize("name", ["report", "site"])
def test_tags_are_nested_images_are_inline_and_nothing_is_outside(name, request):
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

"""Rendering of report pages from templates, with a style and a mark for each verdict."""

from pathlib import Path
from typing import Any

from fedkernel.experiments.claims import Verdict
from fedkernel.experiments.report.table_formats import plain_markdown

VERDICT_STYLES = {
    Verdict.HOLDS: ("holds", "✓ "),
    Verdict.NOISE: ("unsure", "≈ "),
    Verdict.FAILS: ("fails", "✗ "),
    Verdict.IDENTITY: ("kind", "= "),
    Verdict.UNTESTABLE: ("kind", ""),
}


def render(template: str, **values: Any) -> str:
    """Render a page of HTML, with values escaped, or of Markdown."""
    import jinja2  # noqa: PLC0415 - no other command waits for it

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=template.endswith(".html.jinja"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain_markdown"] = plain_markdown
    return environment.get_template(template).render(values, looks=VERDICT_STYLES)

"""Sphinx's configuration: `make docs` builds build/docs and stops at the first page with a broken link."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from site_pages import on_site, write_pages

import fedkernel

project = "fedkernel"
author = "The fedkernel authors"
copyright = author
version = release = fedkernel.__version__
language = "en"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["examples", "gallery/*.ipynb", "gallery/*.py"]
default_role = "py:obj"
templates_path = ["templates"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "reset_modules": ("matplotlib", "gallery_figures.take_style"),
    "reset_modules_order": "both",
    "image_scrapers": ("matplotlib", "gallery_figures.result_figures"),
    "ignore_repr_types": "Figure",
}

html_theme = "pydata_sphinx_theme"
html_title = "fedkernel"
html_static_path = ["static"]
html_css_files = ["fedkernel.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "fedkernel"},
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def turn_links(app, page, source):
    """Turn links that leave docs/ to the site's pages."""
    path = Path(app.env.doc2path(page))
    if path.suffix == ".md":
        source[0] = on_site(source[0], path.parent)


def mend_markup(app, what, name, obj, options, lines):
    """Make links of the pages that docstrings name, and bars of norms and sizes signs like others."""
    for number, line in enumerate(lines):
        parts = re.split(r"(``.*?``|`.*?`)", re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", line))
        lines[number] = "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def skip_generated(app, what, name, obj, skip, options):
    """Skip pydantic's specialised copies of generic messages, and scikit-learn's methods of routing."""
    return skip or "[" in name or name.endswith("_request")


def setup(app):
    """Write the pages whose source lies elsewhere, and connect what turns links."""
    write_pages()
    app.connect("source-read", turn_links)
    app.connect("autodoc-process-docstring", mend_markup)
    app.connect("autodoc-skip-member", skip_generated)

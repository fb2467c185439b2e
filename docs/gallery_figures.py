"""Look of the gallery's figures, and those of results, which pyplot does not hold."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

from fedkernel.run import HUES, STYLE


def take_style(gallery_conf: Mapping[str, Any], name: str) -> None:
    """Give an example's figures the style and colours of results' own."""
    plt.rcParams.update({**STYLE, "axes.prop_cycle": plt.cycler(color=HUES)})


def result_figures(block: Any, block_vars: Mapping[str, Any], gallery_conf: Mapping[str, Any]) -> str:
    """Save the figure that a cell ends with, as of ``result.plot()``, and return the page's lines for it."""
    last = block_vars["example_globals"].get("___")
    if not isinstance(last, Figure) or hasattr(last, "number"):  # pyplot numbers its own
        return ""
    last.number = 0  # saved: later cells without a last expression still have it
    path = next(block_vars["image_path_iterator"])
    last.savefig(path)
    return str(figure_rst([path], gallery_conf["src_dir"]))

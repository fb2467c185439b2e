"""Which swept setting a run's own measures recommend, without anybody's classes or a central reference."""

from collections.abc import Iterable

from experiments.results.rows import Run
from experiments.results.summaries import setting, summarise

RULE = "silhouette"
"""It compares across widths and numbers of clusters; an objective is smaller wherever the kernel is wider."""


def recommendations(runs: Iterable[Run]) -> list[str]:
    """Return for each strategy that was run at several settings the one with the largest mean silhouette, and why.

    The means are over seeds. Strategies that have no silhouette, as none has without ``evaluate = true``, are left out.
    """
    by_name: dict[str, list[tuple[float, str]]] = {}
    for summary in summarise(run for run in runs if run.kind == "strategy" and run.point):
        if (spread := summary.metrics.get(RULE)) is not None:
            by_name.setdefault(summary.name, []).append((spread.mean, setting(summary.point)))
    sentences = []
    for name, settings in by_name.items():
        if len(settings) < 2:
            continue
        value, best = max(settings, key=lambda pair: pair[0])
        others = "; ".join(f"{where}: {mean:.3f}" for mean, where in settings)
        sentences.append(
            f"{name}: {best} is recommended, with the largest mean silhouette on the coreset, {value:.3f}, which "
            f"compares across settings as the objective does not ({others})"
        )
    return sentences

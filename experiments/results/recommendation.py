"""What runs say in words: which swept setting their own measures recommend, what they chose, what they warn of."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

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


MOST_FINDINGS = 12
"""Sentences of runs that are told."""

NUMBER = re.compile(r"-?\d[\d.,]*(e[+-]?\d+)?")


def findings(runs: Sequence[Run]) -> list[str]:
    """Return what runs say in words: sentences of several runs that differ in numbers only are one, the first run's.

    What each says first comes first: what it chose, and what is told of its model before what is told of its data.
    """
    alike: dict[tuple[str, int], list[tuple[str, str]]] = {}
    times = Counter[tuple[str, str]]()  # a run says of two columns that differ in a number what is true of each
    for nth in itertools.zip_longest(*(run.findings for run in runs)):
        for run, sentence in zip(runs, nth, strict=True):
            if sentence is not None:
                words = NUMBER.sub("", sentence)
                alike.setdefault((words, times[run.id, words]), []).append((run.id, sentence))
                times[run.id, words] += 1
    sentences = [_as_one(said) for said in alike.values()]
    rest = len(sentences) - MOST_FINDINGS
    return sentences[:MOST_FINDINGS] + ([f"and {rest} more, in runs.jsonl"] if rest > 0 else [])


def _as_one(said: Sequence[tuple[str, str]]) -> str:
    """Return the first run's sentence, and how many other runs say it, perhaps of other numbers."""
    (run, sentence), *others = said
    if not others:
        return f"{run}: {sentence}"
    own = ", with numbers of their own" if any(other != sentence for _, other in others) else ""
    return f"{run} and {len(others)} more{own}: {sentence}"

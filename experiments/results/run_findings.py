"""Sentences about finished runs: recommended settings, automatic choices, and warnings."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from fedkernel.experiments.results.rows import Run
from fedkernel.experiments.results.summaries import setting, summarise

RECOMMENDATION_METRIC = "simplified_silhouette"
"""Metric for recommendations: comparable across widths and numbers of clusters, unlike an objective."""


def recommendations(runs: Iterable[Run]) -> list[str]:
    """Return a sentence on the best setting by simplified silhouette, for each strategy with several settings."""
    by_name: dict[str, list[tuple[float, str]]] = {}
    for summary in summarise(run for run in runs if run.kind == "strategy" and run.point):
        if (spread := summary.metrics.get(RECOMMENDATION_METRIC)) is not None:
            by_name.setdefault(summary.name, []).append((spread.mean, setting(summary.point)))
    sentences = []
    for name, settings in by_name.items():
        if len(settings) < 2:
            continue
        value, best = max(settings, key=lambda pair: pair[0])
        others = "; ".join(f"{where}: {mean:.3f}" for mean, where in settings)
        sentences.append(
            f"{name}: {best} is recommended, with the largest simplified silhouette, {value:.3f}, which "
            f"compares across settings as the objective does not ({others})"
        )
    return sentences


MOST_FINDINGS = 12
NUMBER = re.compile(r"-?\d[\d.,]*(e[+-]?\d+)?")


def findings(runs: Sequence[Run]) -> list[str]:
    """Return the runs' findings, all first ones ahead. Sentences that differ in numbers only are merged."""
    alike: dict[tuple[str, int], list[tuple[str, str]]] = {}
    times = Counter[tuple[str, str]]()  # one run may have a sentence twice, of columns whose names differ in a number
    for nth in itertools.zip_longest(*(run.findings for run in runs)):
        for run, sentence in zip(runs, nth, strict=True):
            if sentence is not None:
                words = NUMBER.sub("", sentence)
                alike.setdefault((words, times[run.id, words]), []).append((run.id, sentence))
                times[run.id, words] += 1
    sentences = [_merged_sentence(run_sentences) for run_sentences in alike.values()]
    rest = len(sentences) - MOST_FINDINGS
    return sentences[:MOST_FINDINGS] + ([f"and {rest} more, in runs.jsonl"] if rest > 0 else [])


def _merged_sentence(run_sentences: Sequence[tuple[str, str]]) -> str:
    """Return the first run's sentence, with the number of other runs that have it."""
    (run, sentence), *others = run_sentences
    if not others:
        return f"{run}: {sentence}"
    own = " with other values" if any(other != sentence for _, other in others) else ""
    return f"{run} and {len(others)} more runs{own}: {sentence}"

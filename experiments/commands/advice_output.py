"""Console output of `fedkernel advise`: suitable strategy-client pairs, costs, disclosures and a recommendation."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from fedkernel import protocol
from fedkernel.experiments.commands import advise_tables
from fedkernel.experiments.commands.advise import Partition
from fedkernel.experiments.commands.advise_candidates import CLUSTERS_ONLY, Advice, Situation, advise
from fedkernel.experiments.commands.advise_tables import SiteTable
from fedkernel.experiments.commands.console import print_line, print_status, print_table
from fedkernel.experiments.commands.forecast_table import cells_of
from fedkernel.experiments.report import NARROWEST, WideTable
from fedkernel.ground import Division, InputError, toml_value, write_atomic
from fedkernel.numerics import kernel_tables
from fedkernel.protocol import Done, Member, Plan, PlannedRequest
from fedkernel.strategies.kmeans_base import ClusteringStrategy
from fedkernel.strategy import KernelStrategy, strategy_of

WITH_NOISE: Mapping[str, Mapping[str, Any]] = {
    "CentroidKMeans": {"centroids": "shared"},
    "FKKMeans": {"n_features": 200, "iterations": 1, "clusters": "lloyd"},
    "RFKKMeans": {"n_features": 200, "clusters": "lloyd"},
}
"""Clusterings for differential privacy, with the parameters that it needs."""


def print_advice(
    tables: Sequence[str],
    reading: Mapping[str, Any],
    fields: Mapping[str, Any],
    *,
    partition: Partition | None,
    sites: int | None,
    bandwidth: float,
    toml: Path | None,
) -> None:
    """Print the pairs that suit the sites' tables, their costs and disclosures, and a recommendation.

    Parameters are options of `fedkernel advise`; `reading` has those for files, `fields` those of `Situation`.
    """
    form = {name: reading[name] for name in ("delimiter", "decimal", "encoding", "header")}
    out = (reading["label"], *(reading["drop"] or ()))
    parts = [advise_tables.read_site_table(table, reading["id"], out, **form) for table in tables]
    if sites is not None and len(parts) not in (1, sites):
        raise InputError(f"--sites {sites}, but {len(parts)} tables; allowed: one table, or as many as sites")
    if len(parts) == 1:
        if not advise_tables.is_shape(tables[0]):
            print_status(f"costs are for {sites or 3} sites with such a file each (--sites); divide one of all by site")
        parts *= sites or 3
    divided, suggested = infer_division(parts, partition)
    aside = advise_tables.unusable_columns(parts, divided)
    categories = advise_tables.categories_of(parts, [*aside])
    parts = advise_tables.as_prepared(parts, [*aside], categories)
    if divided == "vertical":
        parts = advise_tables.with_common_rows(parts)
    cohort = [Member(number, number, part.rows, part.columns, 0) for number, part in enumerate(parts)]
    situation = Situation(cohort, divided, no_trusted_coordinator=partition == "peers", **fields)
    advice = advise(situation)
    if suggested:
        print_line(suggested)
    for sentence in advise_tables.column_remarks(tables, parts, aside, categories):
        print_status(sentence)
    best = advice[0]
    if not best.refusal:
        print_table(_table([each for each in advice if not each.refusal], situation, bandwidth))
        _print_recommended(best, situation)
    for each in advice:
        if each.refusal:
            print_line(f"not {each.candidate.name}: {each.refusal}")
    if best.refusal:
        peers = " among peers" if situation.no_trusted_coordinator else ""
        allowed = "another --goal, or --share-rows where the lines above say so"
        raise InputError(f"no pair finds {situation.goal} of such tables{peers}; allowed: {allowed}")
    if toml is not None:
        files = [table for table in tables if not advise_tables.is_shape(table)]
        columns = {**reading, "drop": [*(reading["drop"] or ()), *aside] or None}
        prepare: dict[str, Any] = {"missing": "mean"} if any(part.empty for part in parts) else {}
        prepare |= {"categories": categories} if categories else {}
        text = starting_toml(best, situation, files, toml, columns, **prepare)
        write_atomic(toml, lambda file: file.write(text.encode()))
        more = "--dry-run: what it takes with its preparation"
        print_status(f"{toml}: an experiment to start with: fedkernel run {toml} ({more})")


def infer_division(parts: Sequence[SiteTable], partition: Partition | None) -> tuple[Division, str]:
    """Return the division, of rows or of columns, as stated or inferred from the tables, with the reason for it.

    Raises InputError if it is not stated and names and sizes do not decide it.
    """
    if partition is not None and partition != "peers":
        return partition, ""
    if all(part.names for part in parts) and len(parts) > 1:
        if len({frozenset(part.names) for part in parts}) == 1:
            return "horizontal", "The columns are the same in all files: rows are divided."
        together = [name for part in parts for name in part.names]
        if len(set(together)) == len(together):
            return "vertical", "No column is in two files: columns are divided."
        twice = next(name for name in together if together.count(name) > 1)
        single = next(name for name in together if together.count(name) < len(parts))
        allowed = "--drop for those, --partition vertical or horizontal, --id for the column of row ids"
        some = f"some columns are in several files, such as {twice!r}, and some are not in all, such as {single!r}"
        raise InputError(f"{some}; allowed: {allowed}")
    rows, columns = {part.rows for part in parts}, {part.columns for part in parts}
    if len(rows) == 1 and len(columns) > 1:
        return "vertical", "All tables have as many rows, and other columns: columns are divided."
    if len(columns) == 1 and len(rows) > 1:
        return "horizontal", "All tables have as many columns, and other rows: rows are divided."
    raise InputError(
        "the tables' sizes do not show whether rows or columns are divided; allowed: --partition vertical or "
        "horizontal, and for peers tables of which only the rows, or only the columns, are as many everywhere"
    )


def _table(fitting: Sequence[Advice], situation: Situation, bandwidth: float) -> WideTable:
    table = WideTable(1)
    table.add_column("Method", overflow="fold", min_width=NARROWEST)
    for heading in ("rounds", "floats up", "floats down", "per entry", "memory", "seconds"):
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    table.add_column("figures", no_wrap=True)
    table.add_column("what leaves a site", overflow="fold", min_width=NARROWEST)
    for fit in fitting:
        cells = ["unknown", *[""] * 6]
        if (forecast := fit.forecast) is not None:
            floats = forecast.floats_up + forecast.floats_down
            sending = 8e-6 * protocol.FLOAT * floats / len(situation.cohort) / bandwidth
            seconds = forecast.rounds * situation.round_overhead + sending
            *cells, meaning = cells_of(
                forecast, protocol.share_text(protocol.forecast_share(forecast, situation.cohort))
            )
            cells += [f"{seconds:,.1f}", meaning]
        table.add_row(*map(Text, (fit.candidate.name, *cells, _reply_names(fit.plan))))
    return table


def _print_recommended(best: Advice, situation: Situation) -> None:
    candidate, cohort, strategy = best.candidate, situation.cohort, best.candidate.strategy(situation)
    where = f", where {candidate.condition}" if candidate.condition else ""
    share = 0.0 if best.forecast is None else protocol.forecast_share(best.forecast, cohort)
    lines = [
        f"Of floats, {protocol.whole_table_text(protocol.pooled_floats(cohort, situation.divided))}.",
        f"Take {candidate.name} ({candidate.method}){where}: {candidate.reason}.",
    ]
    own, whole = (0 if forecast is None else forecast.rounds for forecast in (strategy.forecast(cohort), best.forecast))
    if own < whole:
        settling = f"{whole - own} settle{'s' if whole == own + 1 else ''} the kernel's width"
        named = bool(kernel_tables(candidate.parameters(situation)))
        pooled = "; a simulated experiment that names the kernel computes it in one place" if named else ""
        lines.append(f"Of its {whole} rounds, {settling}{pooled}.")
    if share > protocol.TABLE_SHARE:
        takes = f"{protocol.share_text(share)} numbers for each entry of a site's table"
        usual = f"of which sites allow {protocol.TABLE_SHARE:g} by default: each must say so ({protocol.LIMIT_ADVICE})"
        lines.append(f"It takes {takes}, {usual}.")
    lines.append(f"Shown by {candidate.experiment}, of which docs/results/which-method.md says more.")
    if situation.goal == "clusters" and situation.divided == "vertical":
        lines.append("Clusters: k-means of the coordinates, model.embedding(), at the coordinator; no round more.")
    lines += _with_noise(strategy, cohort)
    lines.append("Information about each site that the coordinator gets:")
    lines += [f"  {text}" for text in disclosures(best.plan or ())]
    lines.append(f"What its messages tell: docs/explanation/privacy.md, {candidate.method}.")
    for line in lines:
        print_line(line)


def _with_noise(strategy: KernelStrategy[Any], cohort: Sequence[Member]) -> list[str]:
    """Return lines about clusters under differential privacy, by epsilon. For other methods there are none."""
    if not isinstance(strategy, ClusteringStrategy) or find_spec("dp_accounting") is None:
        return []
    units = "units known without the rows, as [prepare] scale may state them"
    lines = [f"With noise ([privacy]) and {units}, for delta = 1e-5 of one row more or less:"]
    for method, options in WITH_NOISE.items():
        shared = strategy_of(method, {"n_clusters": strategy.n_clusters, **options})
        lines.append(f"  {method}, {', '.join(f'{name} = {toml_value(value)}' for name, value in options.items())}:")
        for epsilon in (1.0, 2.0, 4.0, 8.0):
            releases = protocol.count_releases(shared.plan(len(cohort), 0), shared.client.answers)
            settings = protocol.Privacy(epsilon=epsilon, radius=1.0, releases=releases)
            lines.append(f"    epsilon {epsilon:g}: {shared.noise_finding(cohort, settings)}")
    return lines


def _requests(plan: Plan) -> list[PlannedRequest]:
    """Return a plan's requests, one for each kind of reply."""
    return list({request.reply: request for step in plan for request in step.requests}.values())


def _reply_names(plan: Plan | None) -> str:
    if plan is None:
        return "not declared"
    requests = _requests(plan)
    kinds = [f"{it.reply}{' (summed)' if it.summed else ''}" for it in requests if it.reply != Done.__name__]
    return ", ".join([*kinds, *(f"letters: {letter}" for request in requests for letter in request.posts)])


def disclosures(plan: Plan) -> list[str]:
    """Return a line about each kind of reply and letter in a plan, with the information it reveals."""
    lines = []
    for request in _requests(plan):
        if request.reply != Done.__name__:
            summed = " (only summed over the sites)" if request.summed else ""
            lines.append(f"{request.reply}{summed}: {request.reveals}")
        lines += [f"{letter}, a sealed letter to a peer: {text}" for letter, text in request.posts.items()]
    return list(dict.fromkeys(lines))


def starting_toml(
    best: Advice,
    situation: Situation,
    files: Sequence[str],
    path: Path,
    reading: Mapping[str, str | Sequence[str] | None],
    **prepare: Any,
) -> str:
    """Return an experiment's TOML text with the recommended pair, over the files or over generated data.

    The files' columns are standardised, with the further preparation in `prepare`.
    """
    cohort = situation.cohort
    if files:
        folder = path.resolve().parent
        shards = [os.path.relpath(Path(file).expanduser().resolve(), folder) for file in files]
        data: dict[str, Any] = {"shards": shards} | {key: value for key, value in reading.items() if value is not None}
        sections: dict[str, dict[str, Any]] = {"data": data, "prepare": {"scale": "standard", **prepare}}
        if reading.get("label") and situation.goal == "clusters":
            sections["report"] = {"metric": "ari"}  # agreement of clusters with the label's classes
        elif best.candidate.goals == CLUSTERS_ONLY:
            sections["report"] = {"metric": "nmi_central"}  # with the clusters of all rows in one place
        note = "the sites' files; across sites: sites = [names] in place of all in this table, which join says"
    else:
        vertical = situation.divided == "vertical"
        n = cohort[0].rows if vertical else sum(member.rows for member in cohort)
        d = sum(member.columns for member in cohort) if vertical else cohort[0].columns
        options = {"n": n, "d": d, "centers": max(2, situation.components_or_clusters)}
        sizes = [member.columns if vertical else member.rows for member in cohort]
        sections = {"data": {"name": "blobs", "scale": "standard", "options": options}}
        sections["partition"] = {"kind": situation.divided, "method": "sizes", "sizes": sizes}
        note = "made-up data of the tables' sizes: a rehearsal of what it takes"
    name = path.stem if path.stem.isidentifier() else "study"
    lines = [f"# {best.candidate.name}: {best.candidate.reason}.", f"# Data: {note}.", f"name = {toml_value(name)}"]
    for section, entries in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {toml_value(value)}" for key, value in entries.items())]
    parameters: dict[str, Any] = {"name": best.candidate.name, "method": best.candidate.method}
    parameters |= best.candidate.parameters(situation)
    lines += ["", "[[strategy]]", *(f"{key} = {toml_value(value)}" for key, value in parameters.items())]
    return "\n".join(lines) + "\n"

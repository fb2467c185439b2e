"""Session of a site at a server: loads its table, has studies approved, and answers until the end."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedkernel import site
from fedkernel.data import SiteFile, read_raw
from fedkernel.engines import grpc
from fedkernel.experiments.commands.console import print_line
from fedkernel.experiments.commands.policy_for_study import forecasts_within
from fedkernel.experiments.commands.received_models import ReceivedModels
from fedkernel.experiments.commands.study_text import answers_of, show_study
from fedkernel.experiments.commands.table_options import guessed_format
from fedkernel.flower_apps import client as client_app
from fedkernel.ground import InputError, RefusedError, blas_threads, ensure_writable_folder
from fedkernel.peers import remove_key_files
from fedkernel.protocol import Guards
from fedkernel.wire import HASH_DIGITS, Job

CHECK_SECONDS = 0.5
"""Seconds between two checks for an approval."""

FORECAST_SECONDS = 5.0
"""Most seconds for forecasts of a study before its approval."""


def serve_site(
    server: str,
    tls: grpc.TLS | None,
    config: dict[str, str | int],
    rules: site.Policy,
    file: SiteFile,
    *,
    receiving: ReceivedModels,
    new: Path | None,
    patience: float,
) -> None:
    """Answer a server until the work is done, after all checks that need no connection.

    `config` has the site's settings, as a node's configuration, and `rules` is the policy from them; `new` are rows
    that came since; `patience` is the seconds of trying to reach the server at ``HOST:PORT``.
    """
    out, report_line = receiving.out, receiving.report_line
    (rows, width), fault = site.own_shape(config)
    if rows < rules.table.min_rows:
        least = f"{rules.table.min_rows} (--min-rows, table.min_rows)"
        raise InputError(f"{file.path} has {rows} rows; the policy requires at least {least}")
    rows_to_apply = replace(file, path=new or file.path, columns=None, label=None, drop=())
    if new is not None:
        read_raw(rows_to_apply)  # refuses invalid rows before the connection
    ensure_writable_folder(out, 0o700)
    site.check_outbox(out)
    with grpc.report_failed_handshakes(lambda text: None, report_line):  # the node explains them here
        if guessed := guessed_format(file):
            report_line(guessed)
        report_line(f"{file.path}: {rows:,} rows, {width:,} columns; looking for {server}")
        if fault:
            report_line(f"only runs that prepare their tables can use this file: {fault}")
        approves = str(config.get("approve", rules.study.approve))

        def store(name: str, content: bytes) -> None:
            """Store a model, and apply it to the new rows, or to all where the job only hands out models."""
            job = node.work
            handed_out = job is not None and job.study is None
            runs = [] if job is None or handed_out else approved_runs(job, approves, rules, out)
            receiving.store(name, content, rows_to_apply if new is not None or handed_out else None, runs)

        node = grpc.Node(
            client_app,
            str(config["name"]),
            config,
            report_line,
            store,
            partial(review_study, rules, approves, out, report_line, shape=(rows, width)),
            rules.limits.request.bytes,
        )
        try:
            with blas_threads(1):  # the usual setting of runs: else each request sets and restores it
                node.serve(server, tls, patience)
        finally:
            if node.ended:  # unfinished work still needs its keys
                remove_key_files(out)
            if receiving.apply:  # made-up rows of a rehearsal give no receipt
                site.write_receipts(out, str(config["name"]), site.read_own_keys(config).identity)
        if receiving.accept_models and not (out / "received").exists():
            report_line("no model came: the study shares none (share_model = true in its [data] does)")
        report_line(f"the work is done; what this site keeps is in {out}: fedkernel show {out} makes a page of it")
        report_line(f"what left it: fedkernel outbox show {out}")


def approved_runs(job: Job, approval: str, policy: site.Policy, out: Path) -> list[str]:
    """Return the ids of a job's runs, or none if its study is not approved. Models may complete these runs' results."""
    with suppress(RefusedError):
        site.check_approved({"approve": approval, "out": out}, policy, job)
        return [run.id for run in job.runs]
    return []


def ask_operator(question: str) -> str:
    """Ask the operator a question, on a line of its own on standard output, and return the answer.

    Python writes prompts on standard error, where `grpc.report_failed_handshakes` waits for the end of a line.
    """
    print_line(question)
    return sys.stdin.readline().strip()


def _ask_table_share(needed: float | None, allowed: float) -> float:
    """Ask at the terminal for the numbers that may leave per entry of the table."""
    usual = allowed if needed is None else max(needed, allowed)
    while True:
        answer = ask_operator(f"Limit per run: numbers sent per table entry [{usual:g}]")
        try:
            return Guards(table_share=float(answer or usual)).table_share
        except (InputError, ValueError):
            print_line(f"{answer!r} is not a number above 0")


def review_study(
    policy: site.Policy,
    approval: str,
    out: Path,
    report_line: Callable[[str], object],
    job: Job,
    *,
    shape: tuple[int, int] | None = None,
) -> None:
    """Show a job's study and have it approved; otherwise its requests are refused."""
    if (study := job.study) is None:
        return
    title = f"study {study.sha256[:HASH_DIGITS]}"
    policy, left = site.approved_policy(policy, out, study.sha256), site.check_outbox(out)
    forecasts = forecasts_within(FORECAST_SECONDS)
    ruled = [*site.verdicts(policy, study), *site.foreseen(policy, study, shape, answers_of, forecasts, left=left)]
    shares = [verdict for verdict in ruled if verdict.rule == site.TABLE and not verdict.allowed]
    needed = site.needed_share(policy, study, shape, answers_of, forecasts)
    if faults := [f"{it.text} ({it.rule})" for it in ruled if it.allowed is False and it.rule != site.TABLE]:
        report_line(f"{title} is refused by the policy: {'; '.join(faults)}")
        return
    with suppress(RefusedError):
        site.check_approved({"approve": approval, "out": out}, policy, job)
        report_line(f"{title} is {'allowed' if approval == 'any' else 'approved'}: {study.sha256}")
        for verdict in shares:
            report_line(f"{title}: {verdict.text}")
        return
    show_study(study)
    for verdict in shares:
        report_line(verdict.text)
    if approval == "ask" and sys.stdin.isatty():
        if ask_operator("Take part in this study? [y/N]").lower() in ("y", "yes"):
            site.approve(out, study.sha256, _ask_table_share(needed, policy.guards.table_share) if shares else None)
        return
    word = "" if needed is None else f" --table-share {needed:g}"
    report_line(f"{title} is not approved: fedkernel study approve {study.sha256} --out {out}{word}")
    if approval == "by hash":
        while not site.is_approved(out, study.sha256):
            time.sleep(CHECK_SECONDS)
        report_line(f"{title} is approved")

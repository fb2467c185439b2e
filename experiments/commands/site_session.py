"""What a site does as it joins: which rows it answers from and applies models to, which studies it takes part in."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.commands.console import print_line
from experiments.commands.policy_for_study import forecasts_within
from experiments.commands.receive_files import Receiving
from experiments.commands.study_text import answers_of, show_study
from experiments.commands.table_options import how_read
from fedkernel.data import SiteFile, read_raw
from fedkernel.engines import grpc
from fedkernel.flower_apps import client as client_app
from fedkernel.ground import InputError, RefusedError, blas_threads, check_folder
from fedkernel.peers import forget_keys
from fedkernel.protocol import Guards
from fedkernel.site import (
    TABLE,
    Policy,
    approve,
    approved_guards,
    check_approved,
    check_record,
    foreseen,
    is_approved,
    needed_share,
    own_shape,
    verdicts,
)
from fedkernel.wire import SHORT, Job

LOOK = 0.5
"""Seconds between two looks at what is approved."""

FORECAST = 5.0
"""Seconds that forecasts of a study may take, before it is approved."""


def attend(
    server: str,
    tls: grpc.TLS | None,
    config: dict[str, str | int],
    rules: Policy,
    file: SiteFile,
    *,
    receiving: Receiving,
    new: Path | None,
    patience: float,
) -> None:
    """Answer a server until the work is done, after all that can be refused before anything connects.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    tls : TLS or None
    config : dict of str to str or int
        What the site says of itself, as a node's configuration has it.
    rules : Policy
        That it amounts to.
    file : SiteFile
    receiving : Receiving
    new : Path, optional
        Rows that came since.
    patience : float
        Seconds for which the server is looked for.
    """
    out, tell = receiving.out, receiving.tell
    (rows, width), fault = own_shape(config)
    if rows < rules.table.min_rows:
        least = f"{rules.table.min_rows}; allowed: as many rows or more (--min-rows, table.min_rows)"
        raise InputError(f"{file.path} has {rows} rows, but answers from {least}")
    fresh = _new_rows(file, new)
    check_folder(out, 0o700)
    check_record(out)
    with grpc.report_failed_handshakes(lambda text: None, tell):  # the node tells what they mean here
        if guessed := how_read(file):
            tell(guessed)
        tell(f"{file.path}: {rows:,} rows, {width:,} columns; looking for {server}")
        if fault:
            tell(f"only runs that prepare their tables can use it: {fault}")
        approves = str(config.get("approve", rules.study.approve))
        node = grpc.Node(
            client_app,
            str(config["name"]),
            config,
            tell,
            lambda sent, content: receiving.take(sent, content, fresh(node.work), _runs_of(node.work)),
            partial(consider, rules, approves, out, tell, shape=(rows, width)),
            rules.limits.request.bytes,
        )
        try:
            with blas_threads(1):  # as runs mostly have it: else each request sets it and puts it back
                node.attend(server, tls, patience)
        finally:
            if node.ended:  # the keys of work that is left go on being kept
                forget_keys(out)
        tell(f"the work is done; what this site keeps is in {out}, what left it: fedkernel outbox show {out}")


def _new_rows(file: SiteFile, new: Path | None) -> Callable[[Job | None], SiteFile | None]:
    """Return which rows a model is applied to that comes with a job: the new ones, or where nothing is asked all.

    Raises
    ------
    InputError
        For new rows that `read_raw` refuses: before the server has been waited for.
    """
    rows = replace(file, path=new or file.path, columns=None, label=None, drop=())
    if new is not None:
        read_raw(rows)
    return lambda work: rows if new is not None or (work is not None and work.study is None) else None


def _runs_of(work: Job | None) -> Sequence[str]:
    """Return the ids of the runs that a site takes part in by a job; none where that hands models out."""
    return () if work is None or work.study is None else [run.id for run in work.runs]


def ask(question: str) -> str:
    """Return the answer to a question at the terminal.

    It has a line of its own on standard output: what is read from standard error waits for the end of a line
    (`fedkernel.engines.grpc.report_failed_handshakes`), and there Python writes prompts.
    """
    print_line(question)
    return sys.stdin.readline().strip()


def _asked_share(needed: float | None, allowed: float) -> float:
    """Ask at the terminal how many numbers may leave for each entry of the table, until that is a number above 0."""
    usual = allowed if needed is None else max(needed, allowed)
    while True:
        answer = ask(f"How many numbers may leave in each run for each entry of the table? [{usual:g}]")
        try:
            return Guards(table_share=float(answer or usual)).table_share
        except (InputError, ValueError):
            print_line(f"{answer!r} is no number above 0")


def consider(
    policy: Policy,
    approval: str,
    out: Path,
    tell: Callable[[str], object],
    job: Job,
    *,
    shape: tuple[int, int] | None = None,
) -> None:
    """Show a job's study and have it approved; what is not is refused, request by request."""
    if (study := job.study) is None:
        return
    known = f"study {study.sha256[:SHORT]}"
    policy = policy.model_copy(update={"guards": approved_guards(policy.guards, out, study.sha256)})
    forecasts = forecasts_within(FORECAST)
    held = [*verdicts(policy, study), *foreseen(policy, study, shape, answers_of, forecasts)]
    shares = [verdict for verdict in held if verdict.rule == TABLE and not verdict.allowed]
    needed = needed_share(policy, study, shape, answers_of, forecasts)
    refused = [verdict for verdict in held if verdict.allowed is False and verdict.rule != TABLE]
    if faults := [f"{verdict.text} ({verdict.rule})" for verdict in refused]:
        tell(f"{known} is refused by the policy: {'; '.join(faults)}")
        return
    with suppress(RefusedError):
        check_approved({"approve": approval, "out": out}, policy, job)
        tell(f"{known} is {'allowed' if approval == 'any' else 'approved'}: {study.sha256}")
        for verdict in shares:
            tell(f"{known}: {verdict.text}")
        return
    show_study(study)
    for verdict in shares:
        tell(verdict.text)
    if approval == "ask" and sys.stdin.isatty():
        if ask("Take part in this study? [y/N]").lower() in ("y", "yes"):
            approve(out, study.sha256, _asked_share(needed, policy.guards.table_share) if shares else None)
        return
    word = "" if needed is None else f" --table-share {needed:g}"
    tell(f"{known} is not approved: fedkernel study approve {study.sha256} --out {out}{word}")
    if approval == "by hash":
        while not is_approved(out, study.sha256):
            time.sleep(LOOK)
        tell(f"{known} is approved")

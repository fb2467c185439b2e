"""The commands `fedkernel run`, `fedkernel report` and `fedkernel compare` for experiments."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from fedkernel.engines import ENGINES
from fedkernel.experiments import commands, running
from fedkernel.experiments import config as configuration
from fedkernel.experiments.commands.console import FAILED, Debug, PrintLog, follow_failures, print_status, progress
from fedkernel.experiments.commands.table_options import Overrides
from fedkernel.experiments.report import Format
from fedkernel.ground import InputError


def run(  # noqa: PLR0917 - one option each
    config: Annotated[
        Path, Argument(help="A TOML file, or a name of `fedkernel list experiments`; with --all a folder.")
    ],
    engine: Annotated[str | None, Option(help=f"{', '.join(ENGINES)}; by default as in the file.")] = None,
    connection: Annotated[
        str | None, Option(metavar="NAME", help="With engine superlink: its name in Flower's configuration.")
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, Option(help="Output folder; by default runs/NAME or runs/NAME-ENGINE.")] = None,
    restart: Annotated[bool, Option(help="First delete the experiment in the output folder.")] = False,
    every: Annotated[bool, Option("--all", help="Run all experiments of the folder CONFIG into one report.")] = False,
    jobs: Annotated[
        int | None, Option(min=1, help="With --all: experiments at a time; by default one per processor.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Rehearse in seconds, by the file's table \\[quick].")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the forecast costs, and run nothing.")] = False,
    shape: Annotated[
        str | None, Option(metavar="ROWSxCOLUMNS", help="With --dry-run: size of each site's own table.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run an experiment, or its unfinished runs, and print and write its report."""
    changes = [*(overrides or []), *([f"engine={engine}"] if engine else [])]
    if every != configuration.locate(config).is_dir():
        raise InputError(
            f"{config} is {'no' if every else 'a'} folder; allowed: a folder with --all, a file without it"
        )
    if every and (dry_run or connection is not None):
        raise InputError("--all takes no --dry-run or --connection; allowed: these with one experiment")
    if jobs is not None and not every:
        raise InputError(f"--jobs {jobs} needs --all and a folder of experiments")
    if every:
        name = f"{config.resolve().name}{'-quick' if quick else ''}"
        commands.run_folder(config, out or Path("runs") / name, changes, quick=quick, restart=restart, jobs=jobs)
        return
    experiment = configuration.read_config(config, changes, quick=quick)
    if dry_run:
        commands.show_forecast(experiment, None if shape is None else commands.read_shape(shape))
        return
    if connection is not None and experiment.engine != "superlink":
        raise InputError(f"connection = {connection!r}, but engine {experiment.engine} has none, only superlink")
    carry = None
    if connection is not None:
        from fedkernel.engines import superlink  # noqa: PLC0415 - nobody waits for an engine that he does not use

        carry = partial(superlink.run_job, connection=connection)
    suffix = "" if experiment.engine == "local" else f"-{experiment.engine}"
    folder = out or Path("runs") / f"{experiment.name}{suffix}{'-quick' if quick else ''}"
    with PrintLog(print_status, "fedkernel.run.journal"), follow_failures(debug), progress() as report_line:
        outcome = running.run_experiment(experiment, folder, restart=restart, progress=report_line, engine=carry)
    commands.show_results(experiment, outcome, folder)
    commands.exit_if_failed(outcome, debug)


def report(
    folder: Annotated[Path, Argument(help="Output folder of an experiment, or of run --all.")],
    form: Annotated[Format | None, Option("--format", help="Only print tables; csv has all digits.")] = None,
) -> None:
    """Print an experiment's table again, and write its plots and report.html anew."""
    if commands.is_collection(folder):
        commands.report_folder(folder, form)
        return
    finished = commands.open_finished(folder)
    if form is not None:
        commands.print_summaries(finished, form)
        return
    commands.show_results(finished.experiment, running.conclude(finished.experiment, finished.runs, folder), folder)


def compare(  # noqa: PLR0917 - one option each
    a: Annotated[Path, Argument(metavar="A", help="Output folder of an experiment.")],
    b: Annotated[Path, Argument(metavar="B", help="Output folder of the other.")],
    metrics: Annotated[
        list[str] | None,
        Option("--metric", metavar="NAME", help="Metric to compare, by default the leading one; may be repeated."),
    ] = None,
    every: Annotated[bool, Option("--all", help="Compare all metrics.")] = False,
    form: Annotated[Format | None, Option("--format", help="Only print tables; csv has all digits.")] = None,
    fail: Annotated[bool, Option("--fail", help="Exit with 1 if anything differs by more than noise.")] = False,
) -> None:
    """Compare the experiments in two output folders, method by method.

    Noise is a difference of at most two standard errors, seed by seed if the seeds are the same; with one seed nothing
    is noise. Seconds never count.
    """
    differing = commands.compare_folders(a, b, metrics or [], form, every=every)
    if fail and differing:
        print_status(f"differ by more than noise: {differing}")
        raise Exit(FAILED)

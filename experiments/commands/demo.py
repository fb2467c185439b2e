"""The command `fedkernel demo`: the quickstart from any folder, never silent for more than five seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from fedkernel.experiments import commands, config, running
from fedkernel.experiments.commands.console import Debug, follow_failures, print_status

REPEAT_SECONDS = 4.0


@contextmanager
def _status(text: str) -> Iterator[Callable[[str], None]]:
    """Print a status at once and again every `REPEAT_SECONDS`; yields a function that changes it."""
    texts, ended, begun = [text], threading.Event(), time.monotonic()

    def repeat() -> None:
        while not ended.wait(REPEAT_SECONDS):
            print_status(f"{texts[-1]} ({time.monotonic() - begun:.0f} s)")

    print_status(text)
    threading.Thread(target=repeat, name="status", daemon=True).start()
    try:
        yield texts.append
    finally:
        ended.set()


def demo(out: Annotated[Path, Option(help="Output folder.")] = Path("fedkernel-demo"), debug: Debug = False) -> None:
    """Run the quickstart on bundled data, and print the path of its report."""
    with _status("quickstart: five clients hold different columns of 569 patients; loading libraries") as status:
        experiment = config.read_config(config.shipped()["quickstart"])

        def count(name: str, done: int, total: int) -> None:
            status(f"{done} of {total} runs done; {f'the last: {name}' if done < total else 'drawing the report'}")

        with follow_failures(debug):
            outcome = running.run_experiment(experiment, out, progress=count)
    commands.show_results(experiment, outcome, out)
    commands.exit_if_failed(outcome, debug)

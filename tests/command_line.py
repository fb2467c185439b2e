"""The commands, called in this process."""

from typer.testing import CliRunner

from fedkernel.experiments.cli import app


def call(*arguments, code=0, **environment):
    """Call a command, which must end with this code, and return what it printed and where; None: with any code."""
    done = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
    assert code in (None, done.exit_code), done.output
    return done

"""The commands `fedkernel policy init`, `check`, `explain` and `schema` for a site's policy."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

import fedkernel.data
from fedkernel import site, wire
from fedkernel.data import checks
from fedkernel.experiments import commands
from fedkernel.experiments.commands import console
from fedkernel.experiments.commands.table_options import ReadingOptions, Shape, guessed_format
from fedkernel.experiments.config.overrides import by_path
from fedkernel.ground import InputError, one_line

app = console.CommandGroup("Write and check a site's policy: what its operator allows.")

File = Annotated[Path, Argument(metavar="POLICY", help="A site's policy, a TOML file.")]

WORDS = {True: "allowed", False: "refused", None: "open"}

TEMPLATE = Path(__file__).with_name("policy.toml")


@app.command()
def init(
    path: Annotated[Path, Argument(metavar="POLICY", help="The file to write.")] = Path("site.toml"),
    study: Annotated[
        Path | None, Option(metavar="STUDY", help="Allow only a study's replies, as often and as large.")
    ] = None,
    shape: Shape = None,
) -> None:
    """Write a policy to start from: the defaults, with all other settings as comments."""
    if shape is not None and study is None:
        raise InputError(f"--shape {shape} needs --study STUDY")
    text = TEMPLATE.read_text(encoding="utf-8")
    if study is not None:
        size = None if shape is None else commands.read_shape(shape)
        read = commands.read_study(study)
        table = commands.messages_of(read, size)
        beginning, end = text.index("# Replies by their type"), text.index("[limits.run]")
        text = f"{text[:beginning]}{table}\n{text[end:]}"
        needed = site.needed_share(site.Policy(), read, size, commands.answers_of, commands.forecast_of)
        if needed is not None:
            text = text.replace("table_share = 0.5 ", f"table_share = {needed:<4g}")
    console.write_file(path, text)


@app.command()
def check(path: File) -> None:
    """Check a policy, and print every rule in effect, defaults included."""
    rules = by_path(site.read_policy(path).model_dump(mode="json", exclude_none=True))
    console.print_rows(("rule", "value"), [(rule, str(value)) for rule, value in rules.items()])


@app.command()
def explain(
    path: File,
    study: Annotated[Path, Argument(metavar="STUDY", help="Its .json, or the experiment that makes it.")],
    *,
    data: Annotated[Path | None, Option(help="The site's table, in place of --shape.")] = None,
    reading: ReadingOptions,
    shape: Shape = None,
    out: Annotated[
        Path | None, Option(help="The folder that the site joins with, by which earlier runs count.")
    ] = None,
) -> None:
    """Check a study against each rule of a policy, before anything connects; exit code 2 if one refuses.

    With the table or its size, limits that depend on it are checked, too. "open" is decided by the run.
    """
    read, policy = commands.read_study(study), site.read_policy(path)
    if data is not None and shape is not None:
        raise InputError(f"--data {data} and --shape {shape} are both given; allowed: one of them")
    size = None if shape is None else commands.read_shape(shape)
    if data is not None:
        size, _ = site.own_shape({**reading.of(data).to_node(), "policy": str(path)})
    left = None
    if out is not None:
        left, policy = site.totals_of(out), site.approved_policy(policy, out, read.sha256)
    foreseen = site.foreseen(policy, read, size, commands.answers_of, commands.forecast_of, left=left)
    rule_verdicts = [*site.verdicts(policy, read), *foreseen]
    console.print_rows(("rule", "", "why"), [(its.rule, WORDS[its.allowed], its.text) for its in rule_verdicts])
    refused, open_ = ([verdict.allowed for verdict in rule_verdicts].count(word) for word in (False, None))
    ending = f"{refused} reasons to refuse it" if refused else "the policy allows it, as far as the study shows"
    ending += f"; the run decides {open_} more" if open_ else ""
    console.print_line(f"study {read.sha256[: wire.HASH_DIGITS]} ({one_line(read.name)}): {ending}")
    if refused:
        raise Exit(console.BAD_INPUT)


@app.command()
def schema(
    data: Annotated[Path, Argument(metavar="DATA", help="The site's table.")],
    *,
    out: Annotated[Path, Option(help="The file to write.")] = Path("schema.toml"),
    reading: ReadingOptions,
    policy: Annotated[Path | None, Option(help="The site's policy, which may hide columns.")] = None,
) -> None:
    """Write a table's size, columns and ranges, for `fedkernel join --rehearse`; ranges show the extreme values."""
    file = reading.of(data)
    if guessed := guessed_format(file):
        console.print_status(guessed)
    node = file.to_node() | ({} if policy is None else {"policy": str(policy)})
    table = fedkernel.data.read_raw(site.own_file(node)[0])
    console.write_file(out, checks.schema_of(table, ranges=True).to_toml())

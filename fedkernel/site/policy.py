"""A site's policy: what its operator allows, as data that no coordinator changes.

A TOML file, or the options of ``fedkernel join``; whoever gives neither has `Policy()`, which is cautious. Each rule
has a name, such as ``study.min_sites``, by which refusals and the record of what left know it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field

from fedkernel.data import readable
from fedkernel.ground import InputError, RefusedError, explain, names, parse_toml, unknown_name
from fedkernel.numerics import kernel_tables
from fedkernel.protocol import AT_MOST, Guards
from fedkernel.site.policy_defaults import (
    LEAST_MEMORY,
    LEAST_MESSAGE,
    MIN_ROWS,
    MIN_SITES,
    MOST_MESSAGE,
    USUAL_MESSAGE,
    USUAL_SECONDS,
)
from fedkernel.site.resource_limits import PROC

Amount = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Approval = Literal["ask", "by hash", "signed", "any"]

ROW_SHARE, ATTEMPTS = 0.5, 3

FREE = ("Receipt", "Introduction", "Share", "HashedIds", "CommonRows", "PublicKeys", "Prepared")
"""Replies that `messages` need not name: those of joining, keys, and those that tell nothing or two sizes."""

NAMED = {"Extremes": "the least and the greatest value of each column, which are those of single rows"}
"""Replies that leave only where `messages` names them, and what they are."""


class _Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class TableRules(_Table):
    """What of the site's own file there is for anybody.

    - `min_rows`: nothing is answered from fewer.
    - `row_share`: of the site's own rows all sites must have so large a share in common, where rows are aligned.
    - `rows_apart`: the rows that two runs work on are the same, with the same values, or differ by so many either way:
      by fewer, the difference between their answers would be about these. By ids, or else places, and by what stands in
      them, of which the site keeps hashes under its secret. 0: they may differ by any.
    - `columns`, `hidden`: patterns with ``*`` and ``?``: which columns may be in the table, and which are never read.
    - `sha256`: of the file: the policy is for no other.
    """

    min_rows: Number = MIN_ROWS
    row_share: Annotated[float, Field(ge=0, le=1)] = ROW_SHARE
    rows_apart: Amount = MIN_ROWS
    columns: tuple[str, ...] = ("*",)
    hidden: tuple[str, ...] = ()
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class KernelRules(_Table):
    """Of which width a kernel may be.

    `gamma`: least and most; None: any, also one that is left to the number of columns.
    """

    gamma: tuple[float, float] | None = None

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> "KernelRules":
        if self.gamma is not None and not self.gamma[0] <= self.gamma[1]:
            raise ValueError(f"gamma = [{self.gamma[0]:g}, {self.gamma[1]:g}], but must be the least and the most")
        return self


class StudyRules(_Table):
    """Which studies the site takes part in.

    - `approve`: the operator is asked at the terminal; or names each study by its hash; or trusts signatures with that;
      or leaves it to the other rules. With all but the last, what was approved by its hash is.
    - `signers`: public Ed25519 keys, 64 hexadecimal digits each, whose signature approves a study.
    - `min_sites`: sites that a run has at least: with fewer, what is summed tells each what the others have.
    - `pairs`: the clients it answers as, by short name or address; None: those of fedkernel that the study names.
    - `kernels`: by type; None: any.
    - `n_components`: of a run, at most; where the run chooses, its ``max_components``, which then must be said.
    - `plan`: whether the strategy must say what it will ask.
    - `runs`: that may begin at this site, ever.
    - `attempts`: how often one of them may begin: asked the same each time, as far as it got.
    - `joint_seed`: whether all sites must draw the seed of a run, or its coordinator may choose it. It is needed where
      a site's answers are drawn from it, such as which rows are sampled: a coordinator could try seeds until they suit
      it.
    - `peers`: whose letters it reads and answers, in methods that have some: of those whose fingerprints its operator
      has pinned, or of whomever a coordinator names, who may be itself.
    """

    approve: Approval = "ask"
    signers: tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...] = ()
    min_sites: Number = MIN_SITES
    pairs: tuple[str, ...] | None = None
    kernels: dict[str, KernelRules] | None = None
    n_components: Number | None = None
    plan: bool = True
    runs: Amount | None = None
    attempts: Number = ATTEMPTS
    joint_seed: Literal["needed", "always", "never"] = "needed"
    peers: Literal["pinned", "any"] = "pinned"

    @pydantic.field_validator("kernels")
    @classmethod
    def _are_kernels(cls, kernels: dict[str, KernelRules] | None) -> dict[str, KernelRules] | None:
        known = names("kernels")
        if strange := [name for name in kernels or {} if name not in known and ":" not in name]:
            raise ValueError(unknown_name(strange[0], list(known)))
        return kernels

    def component_faults(self, fields: Mapping[str, Any], *, settled: bool) -> Iterator[str]:
        """Say which numbers of components are too large, and where it is `settled` which are none."""
        for table in _tables_with("n_components", fields) if self.n_components is not None else ():
            value = table["n_components"]
            number = value.get(AT_MOST) if isinstance(value, Mapping) else value
            if number is None and not settled:
                continue
            if number == "auto":
                number = table.get("max_components") or "auto, without max_components"
            if not isinstance(number, int) or number > (self.n_components or 0):
                yield f"n_components = {number}, but must be at most {self.n_components}"

    def kernel_faults(self, fields: Mapping[str, Any], *, settled: bool) -> Iterator[str]:
        """Say which kernels of some parameters are not allowed; where it is `settled`, no width may be left open."""
        for kernel in _kernels_of(fields) if self.kernels is not None else ():
            rules, gamma = (self.kernels or {}).get(str(kernel["type"])), kernel.get("gamma")
            if rules is None:
                yield f"a kernel of type {kernel['type']!r} is not allowed"
            elif rules.gamma is None or (gamma is None and not settled):
                continue
            elif not isinstance(gamma, int | float) or not rules.gamma[0] <= gamma <= rules.gamma[1]:
                least, most = rules.gamma
                yield f"a kernel of type {kernel['type']!r} has gamma = {gamma}, but must be from {least:g} to {most:g}"


class MessageRules(_Table):
    """What a type of reply may carry.

    `only_summed`: it must be of a type that coordinators only sum up; one that does not follow the protocol sees it all
    the same. `times`: in a run. `floats`, `rows`, `columns`: in each: entries; rows of the table as they are; entries
    along the last axis of each array.
    """

    never: bool = False
    only_summed: bool = False
    times: Amount | None = None
    floats: Amount | None = None
    rows: Amount | None = None
    columns: Amount | None = None


class Limits(_Table):
    """How much may leave, or be computed.

    `floats`, `rows`, `bytes`: of all replies; rows of the table as they are. `seconds`: of one processor.
    """

    floats: Amount | None = None
    rows: Amount | None = None
    bytes: Amount | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None


class RunLimits(Limits):
    """Those of a run.

    `memory`: bytes beyond what the site's process has, at a time (where there is /proc, as on Linux). None: half of
    what the machine has.
    """

    memory: Annotated[int, Field(ge=LEAST_MEMORY)] | None = None

    @pydantic.field_validator("memory")
    @classmethod
    def _can_be_limited(cls, memory: int | None) -> int | None:
        if memory is not None and not PROC.exists():
            raise ValueError(f"memory = {memory}, but it can be limited only where there is {PROC}")
        return memory


class RequestLimits(_Table):
    """Those of a single request, which no coordinator can raise.

    `bytes`: of the message that it comes in, and of the reply. `seconds`: that it may be computed for, by the clock.
    """

    bytes: Annotated[int, Field(ge=LEAST_MESSAGE, le=MOST_MESSAGE)] = USUAL_MESSAGE
    seconds: Annotated[float, Field(gt=0)] = USUAL_SECONDS


class AllLimits(_Table):
    """Limits of each request, of each run, and of all runs of the site together."""

    request: RequestLimits = RequestLimits()
    run: RunLimits = RunLimits()
    total: Limits = Limits(rows=0)


class Leaving(NamedTuple):
    """A reply as a site's rules see it.

    - `reply`: its type.
    - `shapes`: of its arrays.
    - `floats`, `letters`, `rows`, `bytes`: entries of its arrays of floats, and of those in letters to peers.
    - `seconds`: that it took to compute.
    - `summed`: whether it is of a type that is only summed up.
    """

    reply: str
    shapes: Mapping[str, tuple[int, ...]]
    floats: int = 0
    letters: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    summed: bool = False


class Policy(_Table):
    """What a site's operator allows; without anything said, cautious: no rows, and every study is asked about.

    `messages`: by the reply's type; ``"*"`` stands for all that are not named, which are refused without it. None:
    whatever the study's plan has, but what is in `NAMED`. `guards`: of any request, see `fedkernel.protocol.guards`.
    """

    table: TableRules = TableRules()
    study: StudyRules = StudyRules()
    messages: dict[str, MessageRules] | None = None
    limits: AllLimits = AllLimits()
    guards: Guards = Guards()

    @property
    def share_rows(self) -> bool:
        """Whether any row may leave as it is."""
        return self.limits.total.rows != 0 and self.limits.run.rows != 0

    def check_request(self, fields: Mapping[str, Any]) -> None:
        """Raise RefusedError if what a plan left open of a request is not allowed: a width, a number of components."""
        for text in self.study.kernel_faults(fields, settled=True):
            raise RefusedError("study.kernels", f"{text} (study.kernels)")
        for text in self.study.component_faults(fields, settled=True):
            raise RefusedError("study.n_components", f"{text} (study.n_components)")

    def rules_of(self, reply: str) -> MessageRules:
        """Return what the policy says of a type of reply; RefusedError if it may never leave."""
        if reply in NAMED and reply not in (self.messages or {}):
            rule = f"messages.{reply}"
            raise RefusedError(
                rule, f"{reply}: {NAMED[reply]}, leave only where the site's policy has a table [{rule}] ({rule})"
            )
        if self.messages is None or reply in FREE:
            return MessageRules()
        rules = self.messages.get(reply, self.messages.get("*"))
        if rules is None:
            raise RefusedError("messages", f"{reply} is none of the replies that the policy names (messages)")
        if rules.never:
            raise RefusedError(f"messages.{reply}.never", f"{reply} may never leave (messages.{reply}.never)")
        return rules

    def check_reply(self, leaving: Leaving, times: int) -> str:
        """Return the rule that allows what a reply carries, one of so many in its run; RefusedError if none does."""
        kind = leaving.reply
        rules, where = self.rules_of(kind), f"messages.{kind}"
        if rules.only_summed and not leaving.summed:
            raise RefusedError(f"{where}.only_summed", not_summed(kind))
        columns = max((shape[-1] for shape in leaving.shapes.values() if shape), default=0)
        for name, amount in (
            ("times", times),
            ("floats", leaving.floats),
            ("rows", leaving.rows),
            ("columns", columns),
        ):
            most = getattr(rules, name)
            if most is not None and amount > most:
                what = f"{kind} would leave {amount} times" if name == "times" else f"{kind} has {amount} {name}"
                rule = f"{where}.{name}"
                raise RefusedError(rule, f"{what}, but {most} are allowed ({rule})")
        return "plan" if self.messages is None else where


def values_of(name: str, table: Any) -> Iterator[Any]:
    """Yield the values of that name in a table, or in one within it."""
    return (inner[name] for inner in _tables_with(name, table))


def _tables_with(name: str, table: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a table and those within it, where they have a value of that name."""
    if isinstance(table, list | tuple):
        for inner in table:
            yield from _tables_with(name, inner)
    if isinstance(table, Mapping):
        if name in table:
            yield table
        for value in table.values():
            yield from _tables_with(name, value)


def _kernels_of(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of kernels; one that is None is the linear kernel."""
    yield from kernel_tables(fields)
    yield from ({"type": "linear"} for kernel in values_of("kernel", fields) if kernel is None)


def not_summed(reply: str) -> str:
    """Return the sentence about a reply that is to be summed only, and is not of such a type."""
    return f"{reply} is not only summed up (messages.{reply}.only_summed)"


def read_policy(path: str | Path) -> Policy:
    """Read a policy, a TOML file; InputError in one sentence that names the file if it is none."""
    path = Path(path).expanduser()
    with readable(path, "a site's policy, a TOML file such as `fedkernel policy init` writes"):
        return _parsed(path, path.read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _parsed(path: Path, text: str) -> Policy:
    """Return what the text of a policy says; cached, since a site is built anew for every message."""
    try:
        return Policy.model_validate(parse_toml(text, path))
    except pydantic.ValidationError as error:
        inner = {name: list(kind.model_fields) for name, kind in _TABLES.items()}
        inner["guards"] = [field.name for field in dataclasses.fields(Guards)]
        raise InputError(f"{path}: {explain(error, list(Policy.model_fields), inner=inner)}") from None


_TABLES: dict[str, type[_Table]] = {"table": TableRules, "study": StudyRules, "limits": AllLimits}


def flag(node: Mapping[str, Any], name: str) -> bool:
    """Return whether a node's configuration says yes to something."""
    return str(node.get(name, False)).lower() in ("true", "1", "yes")


def own_policy(node: Mapping[str, Any]) -> Policy:
    """Return the policy of a node: the file that its configuration names as ``policy``, or what its options say.

    These are ``min-rows``, ``min-sites``, ``share-rows``, ``given-seed``, ``peers-without-pins``, ``allow``,
    ``table-share`` and ``max-message``, ``max-memory``, ``max-seconds`` (see `fedkernel.site.site_of_job`);
    InputError where there are both, since then one would be overlooked.
    """
    if "policy" not in node:
        pairs = node.get("allow")
        return Policy(
            table=TableRules(min_rows=int(node.get("min-rows", MIN_ROWS))),
            study=StudyRules(
                min_sites=int(node.get("min-sites", MIN_SITES)),
                pairs=None if pairs is None else tuple(name.strip() for name in str(pairs).split(",")),
                joint_seed="never" if flag(node, "given-seed") else "needed",
                peers="any" if flag(node, "peers-without-pins") else "pinned",
            ),
            limits=_own_limits(node),
            guards=Guards(table_share=float(node["table-share"])) if "table-share" in node else Guards(),
        )
    if both := [name for name in OPTIONS if name in node]:
        raise InputError(f"{both[0]} and policy are both given; allowed beside a policy: none of {', '.join(OPTIONS)}")
    return read_policy(str(node["policy"]))


def _own_limits(node: Mapping[str, Any]) -> AllLimits:
    tables: dict[str, dict[str, Any]] = {
        "request": {"bytes": node.get("max-message"), "seconds": node.get("max-seconds")},
        "run": {"memory": node.get("max-memory")},
        "total": {"rows": None if flag(node, "share-rows") else 0},
    }
    limits = {
        where: {name: value for name, value in table.items() if value is not None or where == "total"}
        for where, table in tables.items()
    }
    try:
        return AllLimits.model_validate(limits)
    except pydantic.ValidationError as error:
        raise InputError(f"limits.{explain(error)} (--max-message, --max-memory, --max-seconds)") from None


MAXIMA = ("max-message", "max-memory", "max-seconds")
OPTIONS = ("min-rows", "min-sites", "share-rows", "given-seed", "peers-without-pins", "allow", "table-share", *MAXIMA)
"""Of a node, which a policy says itself."""

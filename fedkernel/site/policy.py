"""Policy of a site: its operator's rules for studies, requests and replies.

The default `Policy()` is cautious; `policy_reading` reads others. Each rule has a name, such as ``study.min_sites``,
for refusals and the outbox.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field

from fedkernel.ground import RefusedError, Sums, short_names, unknown_name
from fedkernel.numerics import kernel_tables
from fedkernel.protocol import AT_MOST, Guards
from fedkernel.site import policy_defaults as defaults
from fedkernel.site.resource_limits import PROC

Amount = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Approval = Literal["ask", "by hash", "signed", "any"]

SHARE_RULE, EPSILON_RULE = "limits.total.share", "limits.total.epsilon"

MOST_EPSILON = 10.0
"""Largest epsilon of a run by default: sums with noise are of single rows, not groups, and little noise shows these."""

FULL_RUNS = 10
"""Runs that send all that `Guards.table_share` allows, by the default of `TotalLimits.share`."""

EXEMPT = ("Done", "Introduction", "Share", "HashedIds", "CommonRows", "PublicKeys", "Prepared")
"""Reply types that `messages` need not name: those of joining and keys, and those with two sizes at most."""

NEEDS_OWN_RULE = {"Extremes": "the least and the greatest value of each column, which are those of single rows"}
"""Reply types that leave only if `messages` names them, with a description of their content."""


class _Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class TableRules(_Table):
    """Rules for the use of the site's own file.

    - `min_rows`: fewest rows from which an answer is computed.
    - `row_share`: least share of the site's rows that must be common to all sites, if rows are aligned.
    - `rows_apart`: rows added, and rows removed, between two runs: none, or at least so many. Otherwise the difference
      of their answers would reveal these rows. Compared are ids (or positions) and contents, clipped as the run does
      it, hashed under the site's secret; runs with noise are not. 0: no limit.
    - `columns`, `hidden`: patterns with ``*`` and ``?`` of columns that may be in the table, and of those never read.
    - `sha256`: hash of the only file that the policy is for.
    """

    min_rows: Number = defaults.MIN_ROWS
    row_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    rows_apart: Amount = defaults.MIN_ROWS
    columns: tuple[str, ...] = ("*",)
    hidden: tuple[str, ...] = ()
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class KernelRules(_Table):
    """Least and greatest allowed `gamma` of a kernel type. None: any, also the default, 1 / number of columns."""

    gamma: tuple[float, float] | None = None

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> "KernelRules":
        if self.gamma is not None and not self.gamma[0] <= self.gamma[1]:
            least, most = self.gamma
            raise ValueError(f"gamma = [{least:g}, {most:g}], but the first must be at most the second")
        return self


class StudyRules(_Table):
    """Rules for the studies that the site takes part in.

    - `approve`: "ask" the operator at the terminal; "by hash" named beforehand; "signed" by a trusted signer; or "any".
      With all but the last, an earlier approval counts too.
    - `signers`: public Ed25519 keys, 64 hexadecimal digits each, for signatures of studies.
    - `min_sites`: fewest sites of a run; with too few, a sum reveals the others' values to each site.
    - `pairs`: allowed client classes, by short name or address; None: those of fedkernel that the study names.
    - `kernels`: allowed kernels by type; None: any.
    - `n_components`: most components of a run; if the run chooses, its ``max_components``, which then is required.
    - `plan`: whether the strategy must declare its requests.
    - `runs`: most runs that may ever begin at this site.
    - `attempts`: most starts of a run, with the same requests each time.
    - `joint_seed`: whether all sites must draw a run's seed. "needed": if a site's answers are drawn from it, such as
      sampled rows, since a coordinator could try seeds until one suits it.
    - `peers`: senders and receivers of letters: only peers with pinned fingerprints, or any that a coordinator names.
    - `sums`: "masked" refuses every reply except sums over all sites under masks (`fedkernel.wire.masked_sums`), for
      which all sites got the same requests; and `EXEMPT` replies.
    """

    approve: Approval = "ask"
    signers: tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...] = ()
    min_sites: Number = defaults.MIN_SITES
    pairs: tuple[str, ...] | None = None
    kernels: dict[str, KernelRules] | None = None
    n_components: Number | None = None
    plan: bool = True
    runs: Amount | None = None
    attempts: Number = 3
    joint_seed: Literal["needed", "always", "never"] = "needed"
    peers: Literal["pinned", "any"] = "pinned"
    sums: Sums = "plain"

    @pydantic.field_validator("kernels")
    @classmethod
    def _are_kernels(cls, kernels: dict[str, KernelRules] | None) -> dict[str, KernelRules] | None:
        kernel_names = short_names("kernels")
        if strange := [name for name in kernels or {} if name not in kernel_names and ":" not in name]:
            raise ValueError(unknown_name(strange[0], list(kernel_names)))
        return kernels

    def component_faults(self, fields: Mapping[str, Any], *, settled: bool) -> Iterator[str]:
        """Yield an error text for each number of components that is too large, or missing if `settled`."""
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
        """Yield an error text for each forbidden kernel and, if `settled`, for each kernel whose width is left open."""
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
    """Limits on replies of one type.

    `only_summed`: the coordinator must only sum the type up (one that breaks the protocol reads it nevertheless).
    `times`: most replies in a run. `floats`, `rows`, `columns`: most entries, unchanged rows of the table, and size of
    the arrays' last axis, in each reply.
    """

    never: bool = False
    only_summed: bool = False
    times: Amount | None = None
    floats: Amount | None = None
    rows: Amount | None = None
    columns: Amount | None = None


class Limits(_Table):
    """Limits on the floats, unchanged rows and bytes of all replies, and on the seconds of one processor."""

    floats: Amount | None = None
    rows: Amount | None = None
    bytes: Amount | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None


class TotalLimits(Limits):
    """Limits on all runs together that are recorded in the site's folder (``out``), whatever files they read.

    `share`: numbers sent to all readers, each reply's per entry of the table it is about. A changed file counts on,
    since most of its rows may be the old ones; a repeated start counts again, new rows by their own entries. None:
    `FULL_RUNS` times `Guards.table_share`, that of the study's approval if it has one. `epsilon`: of runs with noise,
    added up (`fedkernel.protocol.privacy`); runs without noise are refused then. None: `MOST_EPSILON` in each.
    """

    share: Annotated[float, Field(gt=0)] | None = None
    epsilon: Annotated[float, Field(gt=0)] | None = None

    def allowed_share(self, table_share: float) -> float:
        """Return the limit `share` for a run with this `Guards.table_share`."""
        return FULL_RUNS * table_share if self.share is None else self.share

    def epsilon_fault(self, run: str, own: float, total: float) -> str:
        """Return the error text if a run's `own` epsilon (0: no noise) or the total is not allowed, else nothing."""
        if self.epsilon is None:
            text = f"run {run!r} has epsilon = {own:g}, which hides little, but must have at most {MOST_EPSILON:g}"
            return text if own > MOST_EPSILON else ""
        if own and total <= self.epsilon * (1 + 1e-9):  # three runs of 0.1 are 0.3
            return ""
        if not own:
            return f"run {run!r} has no noise, but must have privacy, a table of epsilon and delta"
        return f"with run {run!r}, epsilon = {total:g} would be spent in all runs, but {self.epsilon:g} is allowed"


class RunLimits(Limits):
    """Limits on each run. `memory`: bytes beyond the process's size (needs /proc). None: half of the machine's."""

    memory: Annotated[int, Field(ge=defaults.LEAST_MEMORY)] | None = None

    @pydantic.field_validator("memory")
    @classmethod
    def _can_be_limited(cls, memory: int | None) -> int | None:
        if memory is not None and not PROC.exists():
            raise ValueError(f"memory = {memory}, but a limit needs {PROC}, which this system lacks")
        return memory


class RequestLimits(_Table):
    """Limits on each request, which no coordinator can raise: bytes of a request or reply, and wall-clock seconds."""

    bytes: Annotated[int, Field(ge=defaults.LEAST_MESSAGE, le=defaults.MOST_MESSAGE)] = defaults.USUAL_MESSAGE
    seconds: Annotated[float, Field(gt=0)] = defaults.USUAL_SECONDS


class AllLimits(_Table):
    """Limits on each request, on each run, and on all runs of the site together."""

    request: RequestLimits = RequestLimits()
    run: RunLimits = RunLimits()
    total: TotalLimits = TotalLimits(rows=0)


class ReplySize(NamedTuple):
    """Sizes of a reply that is about to leave, for the policy's rules.

    `reply`: its type. `floats`, `letters`: float entries of its own arrays, and in letters to peers. `seconds`:
    computing time. `summed`: whether the coordinator only sums its type up. `masked`: number of sites in
    its masks' sum. `round`: the run's. `entries`: of the table that the reply is about.
    """

    reply: str
    shapes: Mapping[str, tuple[int, ...]]
    floats: int = 0
    letters: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    summed: bool = False
    masked: int = 0
    round: int = 0
    entries: int = 1

    @property
    def share(self) -> float:
        """Numbers in the reply and its letters per entry of the table."""
        return (self.floats + self.letters) / self.entries


class Policy(_Table):
    """All rules of a site; by default no row leaves, and the operator is asked about every study.

    `messages`: rules by type of reply; ``"*"``: all others, which are refused without it. None: all replies of the
    study's plan are allowed, except `NEEDS_OWN_RULE`. `guards`: checks of any request, `fedkernel.protocol.guards`.
    """

    table: TableRules = TableRules()
    study: StudyRules = StudyRules()
    messages: dict[str, MessageRules] | None = None
    limits: AllLimits = AllLimits()
    guards: Guards = Guards()

    @property
    def share_rows(self) -> bool:
        """True if unchanged rows may leave the site."""
        return self.limits.total.rows != 0 and self.limits.run.rows != 0

    def check_request(self, fields: Mapping[str, Any]) -> None:
        """Raise RefusedError if a request's kernels or numbers of components are not allowed."""
        for text in self.study.kernel_faults(fields, settled=True):
            raise RefusedError("study.kernels", f"{text} (study.kernels)")
        for text in self.study.component_faults(fields, settled=True):
            raise RefusedError("study.n_components", f"{text} (study.n_components)")

    def rules_of(self, reply: str) -> MessageRules:
        """Return the policy's rules for a type of reply. Raises RefusedError if the type may not leave."""
        if reply in NEEDS_OWN_RULE and reply not in (self.messages or {}):
            rule = f"messages.{reply}"
            text = f"{reply}: {NEEDS_OWN_RULE[reply]}, need a table [{rule}] in the site's policy ({rule})"
            raise RefusedError(rule, text)
        if self.messages is None or reply in EXEMPT:
            return MessageRules()
        rules = self.messages.get(reply, self.messages.get("*"))
        if rules is None:
            raise RefusedError("messages", f"the policy has no rule for reply {reply} (messages)")
        if rules.never:
            raise RefusedError(f"messages.{reply}.never", f"{reply} may never leave (messages.{reply}.never)")
        return rules

    def check_reply(self, size: ReplySize, times: int) -> str:
        """Return the rule that allows the `times`-th reply of a type. Raises RefusedError if a rule forbids it."""
        kind = size.reply
        rules, where = self.rules_of(kind), f"messages.{kind}"
        if rules.only_summed and not size.summed:
            raise RefusedError(f"{where}.only_summed", not_summed_text(kind))
        if self.study.sums == "masked" and kind not in EXEMPT and not size.masked:
            raise RefusedError("study.sums", f"{not_masked_text(kind)} (study.sums)")
        columns = max((shape[-1] for shape in size.shapes.values() if shape), default=0)
        for name, amount in (("times", times), ("floats", size.floats), ("rows", size.rows), ("columns", columns)):
            most = getattr(rules, name)
            if most is not None and amount > most:
                what = f"{kind} would leave {amount} times" if name == "times" else f"{kind} has {amount} {name}"
                rule = f"{where}.{name}"
                raise RefusedError(rule, f"{what}, but {most} are allowed ({rule})")
        return "plan" if self.messages is None else where


def values_of(name: str, table: Any) -> Iterator[Any]:
    """Yield the values under a name in a table and its nested tables."""
    return (inner[name] for inner in _tables_with(name, table))


def _tables_with(name: str, table: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the tables, nested ones included, that have a value under a name."""
    if isinstance(table, list | tuple):
        for inner in table:
            yield from _tables_with(name, inner)
    if isinstance(table, Mapping):
        if name in table:
            yield table
        for value in table.values():
            yield from _tables_with(name, value)


def _kernels_of(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of all kernels among a request's fields; None stands for the linear kernel."""
    yield from kernel_tables(fields)
    yield from ({"type": "linear"} for kernel in values_of("kernel", fields) if kernel is None)


def not_summed_text(reply: str) -> str:
    """Return the error text for a reply type that the rule `only_summed` forbids."""
    return f"the policy allows {reply} in sums only, but it is also read individually (messages.{reply}.only_summed)"


def not_masked_text(reply: str) -> str:
    """Return the error text for a reply type that the rule ``study.sums`` forbids."""
    return f"{reply} would leave, but it is no sum over all sites under masks"

"""docs/explanation/reliability.md: rules of replies' numbers. ``cd tests && python -m reply_rules`` writes it."""

import re
from pathlib import Path

from random_messages import SCALARS

from fedkernel.clients.admm_kpca import Estimate, Projection
from fedkernel.clients.peer_vfedpca import PeerVectors, RelayedVectors
from fedkernel.protocol import Eigenvalues, Orthonormal, PackedSemidefinite, Reply, Request, Rule, Within

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "reliability.md"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->"
WORDS = {
    Orthonormal: "orthonormal columns, to 1e-8",
    Eigenvalues: "the largest first, none below 0",
    PackedSemidefinite: "no eigenvalue below 0",
}
LETTERS = (Estimate, PeerVectors, Projection, RelayedVectors)


def in_words(rule: Rule) -> str:
    """Return a rule as the page has it."""
    if not isinstance(rule, Within):
        return WORDS[type(rule)]
    bounds = (f"from {rule.least:g}",) if rule.greatest == float("inf") else (f"{rule.least:g} to {rule.greatest:g}",)
    return ", ".join((*bounds, *(("whole",) if rule.whole else ())))


def rules_of(message: type) -> str:
    """Return the rules of a message's numbers."""
    fields = dict(message.model_fields.items())
    ruled = {name: [rule for rule in field.metadata if isinstance(rule, Rule)] for name, field in fields.items()}
    return "; ".join(f"{name}: {in_words(rule)}" for name, rules in ruled.items() for rule in rules)


def checks_of(request: type[Request]) -> list[str]:
    """Return what a request checks beside the rules, in the words of its docstrings."""
    written = [vars(request)[name].__doc__ for name in ("check_reply", "check_table") if name in vars(request)]
    return [re.sub(r"^(Check also (that )?|Raise ValueError if )", "", text).rstrip(".") for text in written]


def table() -> str:
    """Return the table: a line for each reply, or letter, with a rule, and with what its request checks."""
    rows = []
    requests = [kind for kind in SCALARS if issubclass(kind, Request)]
    replies = dict.fromkeys(kind for kind in SCALARS if issubclass(kind, Reply))
    for reply in (*replies, *LETTERS):
        bases = [base for kind in requests if kind.reply_type is reply for base in kind.__mro__]
        checks_of_bases = [checks_of(base) for base in bases if issubclass(base, Request) and base is not Request]
        sentences = [text for checks in checks_of_bases for text in checks]
        rules, checks = rules_of(reply), "; ".join(dict.fromkeys(sentences))
        if rules or checks:
            rows.append((reply.__name__, rules, checks))
    head = "| reply | its numbers | held to what was asked, and to the table |\n|---|---|---|\n"
    return head + "".join(f"| `{name}` | {rules} | {checks} |\n" for name, rules, checks in sorted(rows))


def page() -> str:
    """Return the page with the table as it is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())

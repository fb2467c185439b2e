"""docs/explanation/reply-rules.md: rules of replies' numbers. ``cd tests && python -m reply_rules`` writes it."""

import re
from pathlib import Path

from random_messages import SCALARS

from fedkernel.clients.admm_kpca import Estimate, Projection
from fedkernel.clients.peer_vfedpca import PeerVectors, RelayedVectors
from fedkernel.protocol import Eigenvalues, Orthonormal, PackedSemidefinite, Reply, Request, Rule, Within

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "reply-rules.md"
HEAD = """# Rules of replies

What sender and receiver check of each reply and letter, and the coordinator against its request and the table's size
([what that does not catch](reliability.md#what-a-reply-must-obey)). Beside these rules, arrays are finite and at most
1e150. With [float32](../how-to/experiments.md#numbers-of-half-the-size) 1e-8 is 1e-6.
`cd tests && ../.venv/bin/python -m reply_rules` writes this page.

"""
WORDS = {
    Orthonormal: "orthonormal to 1e-8",
    Eigenvalues: "descending, from 0",
    PackedSemidefinite: "semidefinite",
}
LETTERS = (Estimate, PeerVectors, Projection, RelayedVectors)


def in_words(rule: Rule) -> str:
    """Return a rule as the page has it."""
    if not isinstance(rule, Within):
        return WORDS[type(rule)]
    bounds = f"from {rule.least:g}" if rule.greatest == float("inf") else f"{rule.least:g} to {rule.greatest:g}"
    if rule.least == -rule.greatest:
        bounds = f"±{rule.greatest:g}"
    return f"{bounds}, whole" if rule.whole else bounds


def rules_of(message: type) -> list[tuple[str, str]]:
    """Return the rules of a message's numbers, each with the field's address."""
    fields = message.model_fields.items()
    found = [(rule, name) for name, field in fields for rule in field.metadata if isinstance(rule, Rule)]
    return [(in_words(rule), f"{message.__name__}.{name}") for rule, name in found]


def checks_of(request: type[Request]) -> list[str]:
    """Return what a request checks beside the rules, in the words of its docstrings."""
    written = [vars(request)[name].__doc__ for name in ("check_reply", "check_table") if name in vars(request)]
    return [re.sub(r"^(Check also (that )?|Raise ValueError if )", "", text).rstrip(".") for text in written]


def table() -> str:
    """Return the table: a line for each rule, or check of a request, with what is held to it."""
    requests = [kind for kind in SCALARS if issubclass(kind, Request)]
    replies = dict.fromkeys(kind for kind in SCALARS if issubclass(kind, Reply))
    rules = [rule for message in (*replies, *LETTERS) for rule in rules_of(message)]
    checks = [
        (sentence, kind.reply_type.__name__)
        for kind in requests
        for base in kind.__mro__
        if issubclass(base, Request) and base is not Request
        for sentence in checks_of(base)
    ]
    lines = "| rule | held to it |\n|---|---|\n"
    for pairs in (rules, checks):
        for rule in sorted({rule for rule, _ in pairs}):
            names = sorted({f"`{name}`" for of, name in pairs if of == rule})
            lines += f"| {rule} | {', '.join(names)} |\n"
    return lines


def page() -> str:
    """Return the page as it is now."""
    return HEAD + table()


if __name__ == "__main__":
    PAGE.write_text(page())

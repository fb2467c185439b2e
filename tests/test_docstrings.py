"""First sentences of docstrings: the thing itself or what it does, in plain words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = [path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("fedkernel/*/__init__.py")]
ROOMS += ["fedkernel/*.py", "clients", "strategies", "experiments"]

MOST_WORDS = 20
RIDDLES = ("what", "where", "who", "whose", "whom", "how", "whether", "which", "when", "why", "that")
"""First words that say nothing of the thing."""
CHAINS = re.compile(r"\b(of|by|from|in|with|to|for|on|at) (which|whom|what|whose)\b|\bwhat (is|are|has|comes)\b", re.I)


def first_sentence(docstring: str) -> str:
    """The first paragraph to its first full stop that ends a sentence."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:!?])\s+(?=[A-Z`\"(])", paragraph)[0]


def faults(sentence: str, kind: str) -> list[str]:
    """Why a first sentence is not plain."""
    words = re.findall(r"[^\s]+", sentence)
    found = []
    if words[0].strip("`*\"'(").casefold() in RIDDLES:
        found.append(f"begins with {words[0]!r}")
    if len(words) > MOST_WORDS:
        found.append(f"{len(words)} words")
    if chain := CHAINS.search(sentence):
        found.append(f"has {chain[0]!r}")
    if kind == "function" and re.match(r"(Return|Yield)s? (what|whether what|how)\b", sentence):
        found.append("returns 'what' or 'how'")
    return found


def docstrings(path: Path):
    """The module's, classes' and functions' docstrings with their lines, but those within functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            kind = {ast.Module: "module", ast.ClassDef: "class"}.get(type(node), "function")
            yield getattr(node, "lineno", 1), getattr(node, "name", "module"), kind, text


@pytest.mark.parametrize("room", ROOMS)
def test_a_first_sentence_begins_with_the_thing_and_has_twenty_words_at_most(room):
    paths = ROOT.glob(room) if room.endswith(".py") else (ROOT / room).rglob("*.py")
    riddles = [
        f"{path.relative_to(ROOT)}:{line} {name}: {'; '.join(why)}: {first_sentence(text)}"
        for path in sorted(paths)
        if "{{" not in path.name
        for line, name, kind, text in docstrings(path)
        if (why := faults(first_sentence(text), kind))
    ]
    assert riddles == [], "\n".join(["", *riddles])


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        ("What a site keeps of its runs.", ["begins with 'What'"]),
        ("Reader of a site's outbox, by which it is checked.", ["has 'by which'"]),
        (" ".join(["word"] * 21), ["21 words"]),
        ("Return what X is.", ["returns 'what' or 'how'"]),
        ("Append-only journal of a run's replies.", []),
    ],
)
def test_a_riddle_is_found(sentence, why):
    assert faults(sentence, "function") == why

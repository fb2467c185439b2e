"""First sentences of docstrings: the thing itself or what it does, in plain words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = [path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("fedkernel/*/__init__.py")]
ROOMS += ["fedkernel/*.py"]

MOST_WORDS = 20
RIDDLES = ("what", "where", "who", "whose", "whom", "how", "whether", "which", "when", "why", "that")
CHAINS = re.compile(r"\b(of|by|from|in|with|to|for|on|at) (which|whom|what|whose)\b|\bwhat (is|are|has|comes)\b", re.I)


def first_sentence(docstring: str) -> str:
    """The first paragraph to its first full stop that ends a sentence."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:!?])\s+(?=[A-Z`\"(])", paragraph)[0]


def faults(sentence: str) -> list[str]:
    """Why a first sentence is not plain."""
    words = sentence.split()
    wrong = {
        f"begins with {words[0]!r}": words[0].strip("`*\"'(").casefold() in RIDDLES,
        f"{len(words)} words": len(words) > MOST_WORDS,
        f"has {(CHAINS.search(sentence) or [''])[0]!r}": CHAINS.search(sentence) is not None,
        "returns 'what' or 'how'": re.match(r"(Return|Yield) (what|how)\b", sentence) is not None,
    }
    return [why for why, holds in wrong.items() if holds]


def docstrings(path: Path):
    """The module's, classes' and functions' docstrings with their lines, but those within functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), getattr(node, "name", "module"), text


@pytest.mark.parametrize("room", ROOMS)
def test_a_first_sentence_begins_with_the_thing_and_has_twenty_words_at_most(room):
    paths = ROOT.glob(room) if room.endswith(".py") else (ROOT / room).rglob("*.py")
    riddles = [
        f"{path.relative_to(ROOT)}:{line} {name}: {'; '.join(why)}: {first_sentence(text)}"
        for path in sorted(paths)
        if "{{" not in path.name
        for line, name, text in docstrings(path)
        if (why := faults(first_sentence(text)))
    ]
    assert riddles == [], "\n".join(["", *riddles])


def test_a_riddle_is_found():
    riddles = ["What a site keeps.", "Reader of a file, by which it is checked.", "word " * 21, "Return what X is."]
    assert all(faults(sentence) for sentence in riddles)
    assert not faults("Append-only journal of a run's replies.")

"""Small mistakes: all that `mutants.py` may put into a file of the product.

None is in annotations, decorators, imports and texts for people.
"""

import ast
import copy
import hashlib
from dataclasses import dataclass

SILENT = {"__all__", "__repr__", "__slots__", "__str__"}
SAYING = {"debug", "echo", "error", "exception", "info", "log", "log_event", "print", "say", "tell", "warn", "warning"}
UNSEEN = {"encoding", "flush", "help", "indent", "stacklevel", "strict"}
"""Keywords that change nothing a user sees, or that raise where other checks do."""
PAIRS = [("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil")]
NAMES = dict(PAIRS) | {second: first for first, second in PAIRS}
SYMMETRIC = {"cast", "getattr", "hypot", "isinstance", "partial", "setattr", "shares_memory", "vdot", "zip", *NAMES}
"""Calls whose first two arguments may change places, or break at once where they do."""
SWAPS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}


@dataclass(frozen=True)
class Mutant:
    """A stretch of a file's bytes, another text for it, and the names of the functions and classes around it."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str
    owners: tuple[str, ...]

    @property
    def room(self) -> str:
        """The package it is in, `fedkernel` for the modules outside its packages."""
        parts = self.file.split("/")
        room = "/".join(parts[:2]) if parts[0] == "fedkernel" and len(parts) > 2 else parts[0]
        return room.replace("settling", "preparing")

    def key(self, sources: dict[str, bytes]) -> str:
        """Return a name that stays as long as its file does."""
        place = f"{self.file}:{self.start}:{self.end}:{self.after}".encode()
        return hashlib.sha256(place + sources[self.file]).hexdigest()[:16]


class Changes(ast.NodeVisitor):
    """All mutants of a file."""

    def __init__(self, file: str, source: bytes):
        self.file, self.source, self.owners, self.all = file, source, (), []
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.visit(ast.parse(source))

    def add(self, node: ast.AST, after: str) -> None:
        start, end = self.offsets[node.lineno - 1] + node.col_offset, self.offsets[node.end_lineno - 1]
        end += node.end_col_offset
        before = self.source[start:end].decode()
        self.all.append(Mutant(self.file, node.lineno, start, end, before, after, self.owners))

    def change(self, node: ast.AST, **fields: object) -> None:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        text = ast.unparse(other)
        self.add(node, text if isinstance(node, (ast.Constant, ast.Call, ast.AugAssign)) else f"({text})")

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        outer = self.owners
        self.owners = (*outer, node.name)
        if node.name not in SILENT:
            defaults = [] if isinstance(node, ast.ClassDef) else [*node.args.defaults, *node.args.kw_defaults]
            for child in [*filter(None, defaults), *node.body]:
                self.visit(child)
        self.owners = outer

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)) or _says(node):
            return
        if isinstance(node, ast.keyword) and node.arg in UNSEEN:
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            of_types = not self.owners and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)
            if not names & SILENT and node.value is not None and not of_types:
                outer = self.owners
                self.owners = outer or tuple(names)
                self.visit(node.value)
                self.owners = outer
            return
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            if ast.unparse(node.test) == "TYPE_CHECKING":
                return
            if isinstance(node.test, (ast.Name, ast.Attribute, ast.Call)):
                self.add(node.test, f"(not {ast.unparse(node.test)})")
            elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[0], ast.Assign):
                self.add(node.test, "False")  # of a default
        self._mutate(node)
        if not isinstance(node, ast.Raise):
            super().generic_visit(node)

    def _mutate(self, node: ast.AST) -> None:
        match node:
            case ast.Raise() | ast.Expr(value=ast.Call()):
                self.add(node, "pass")
            case ast.Compare():
                for place, operator in enumerate(node.ops):
                    ops = [*node.ops]
                    ops[place] = SWAPS[type(operator)]()
                    self.change(node, ops=ops)
            case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in SWAPS:
                self.change(node, op=SWAPS[type(node.op)]())
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                self.add(node, f"({ast.unparse(node.operand)})")
            case ast.Constant(value=int(value) | float(value)):
                self.change(node, value=not value if isinstance(value, bool) else value + 1)
            case ast.Slice():
                for bound, sign in ((node.lower, "+"), (node.upper, "-")):
                    if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
                        self.add(bound, f"{ast.unparse(bound)} {sign} 1")
            case ast.Call():
                self._mutate_call(node)

    def _mutate_call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name in NAMES:
            owner = f"{ast.unparse(node.func.value)}." if isinstance(node.func, ast.Attribute) else ""
            self.add(node.func, owner + NAMES[name])
        elif len(node.args) > 1 and not any(isinstance(part, ast.Starred) for part in node.args):
            first, second, *others = node.args
            if name not in SYMMETRIC and ast.unparse(first) != ast.unparse(second):
                self.change(node, args=[second, first, *others])


def _says(node: ast.AST) -> bool:
    """Whether it is a call whose arguments are texts for people."""
    if not isinstance(node, ast.Call):
        return False
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    return owner not in {"np", "math"} and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) in SAYING

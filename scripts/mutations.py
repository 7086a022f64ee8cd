"""Small changes of a Python file, each of which a test should notice.

    constant     4 -> 5, 16 -> 32, 0.5 -> 1.0, True -> False, == "add" -> == "add~"
    named        the same at the top of a file: _LIMIT = 4 -> _LIMIT = 5
    comparison   < -> >=, == -> !=, in -> not in, is -> is not
    boolean      and -> or, not x -> x, an operand of and/or left out
    condition    if x -> if not (x), if x -> if False
    arithmetic   + -> -, * -> /, & -> |, ** -> *
    call         max -> min, any -> all
    statement    removed: calls for their effect, returns, continue, break, writes to attributes and items

Docstrings, annotations, decorators, assertions and the messages of errors are left alone: nothing that they say decides anything.
Comparisons are turned round, not moved to their boundary: at `error < tolerance` no test could hit it, and that of a count is moved
by its constant. A mutation replaces one stretch of the text, so its diff is as small as the change.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_CALLS = {"max": "min", "min": "max", "any": "all", "all": "any"}
_LARGE = 8
"""Numbers from here on are sizes, and are doubled; smaller ones count something."""
_SKIPPED_KEYWORDS = {"strict", "frozen", "slots"}
"""Keyword arguments that check, and decide nothing."""


KINDS = ("constant", "named", "comparison", "boolean", "condition", "arithmetic", "call", "statement")


@dataclass(frozen=True)
class Mutation:
    """One change: `start` to `end` of the text (in characters) become `text`."""

    path: str
    function: str
    """Qualified name of the function or class around it; empty at the top of the file."""
    line: int
    statement: tuple[int, int]
    """First and last line of the statement, of a compound one those before its body."""
    start: int
    end: int
    text: str
    kind: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def compiles(self, source: str) -> bool:
        try:
            ast.parse(self.apply(source))
        except SyntaxError:
            return False
        return True

    def diff(self, source: str) -> tuple[str, str]:
        """Changed lines before and after, stripped, without those that stay as they are."""
        one, two = source.splitlines(), self.apply(source).splitlines()
        removed, added = [], []
        for tag, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
            if tag != "equal":
                removed += one[a:b]
                added += two[c:d]
        return "\n".join(map(str.strip, removed)), "\n".join(map(str.strip, added))


def mutations(path: str, source: str) -> list[Mutation]:
    """All mutations of a file, in the order of the text; a few do not compile."""
    found = {(item.start, item.end, item.text): item for item in _Finder(path, source).found}
    return [found[key] for key in sorted(found)]


def functions(source: str) -> list[str]:
    """Qualified name of the innermost function or class for each line, from line 1 (index 1) on."""
    tree = ast.parse(source)
    names = [""] * (len(source.splitlines()) + 2)

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                names[child.lineno : (child.end_lineno or child.lineno) + 1] = [name] * (
                    (child.end_lineno or child.lineno) + 1 - child.lineno
                )
                visit(child, name)
            else:
                visit(child, prefix)

    visit(tree, "")
    return names


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        self._names = functions(source)
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = source.splitlines(keepends=True)
        self._statement = (1, 1)
        self.found: list[Mutation] = []
        for node in ast.parse(source).body:
            self._visit_statement(node)

    # --- positions ------------------------------------------------------------------------------------------------------

    def _offset(self, line: int, column: int) -> int:
        """Characters before a position whose column is counted in UTF-8 bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _range(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._range(node)
        return self._source[start:end]

    def _add(self, kind: str, start: int, end: int, text: str) -> None:
        line = self._source.count("\n", 0, start) + 1
        kind = "named" if kind == "constant" and not self._names[line] else kind
        self.found.append(Mutation(self._path, self._names[line], line, self._statement, start, end, text, kind))

    def _replace(self, kind: str, node: ast.AST, text: str) -> None:
        self._add(kind, *self._range(node), text)

    def _operator(self, kind: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """Replaces the operator between two operands."""
        start, end = self._range(left)[1], self._range(right)[0]
        place = self._source.find(old, start, end)
        if place >= 0:
            self._add(kind, place, place + len(old), new)

    # --- statements -----------------------------------------------------------------------------------------------------

    def _visit_statement(self, node: ast.stmt) -> None:
        body = getattr(node, "body", None)
        header = body[0] if isinstance(body, list) and body else None
        first = header.decorator_list[0] if isinstance(header, _DEFINITIONS) and header.decorator_list else header
        last = max(first.lineno - 1, node.lineno) if first is not None else node.end_lineno or node.lineno
        self._statement = node.lineno, last
        if _is_text(node) or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Raise | ast.Global):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]:
                self._visit(default)
        elif isinstance(node, ast.If | ast.While):
            if "TYPE_CHECKING" in self._text(node.test):
                return
            self._condition(node.test)
            if isinstance(node, ast.If):
                self._replace("condition", node.test, "False")
            self._visit(node.test)
        elif not isinstance(node, ast.ClassDef):
            self._removal(node)
            for field, value in ast.iter_fields(node):
                if field in ("annotation", "body", "orelse", "handlers", "finalbody", "cases"):
                    continue
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, ast.AST):
                        self._visit(item)
        for field in ("body", "orelse", "finalbody"):
            for child in getattr(node, field, None) or ():
                if isinstance(child, ast.stmt):
                    self._visit_statement(child)
        for handler in getattr(node, "handlers", None) or ():
            for child in handler.body:
                self._visit_statement(child)
        for case in getattr(node, "cases", None) or ():
            for child in case.body:
                self._visit_statement(child)

    def _removal(self, node: ast.stmt) -> None:
        """The statement as `pass`, where something else than a NameError would follow."""
        if isinstance(node, ast.Assign):
            written = all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        else:
            written = isinstance(node, ast.AugAssign | ast.Continue | ast.Break | ast.Delete)
            written |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
            written |= isinstance(node, ast.Return)
        if written:
            self._replace("statement", node, "pass")

    # --- expressions ----------------------------------------------------------------------------------------------------

    def _condition(self, node: ast.expr) -> None:
        self._replace("condition", node, f"not ({self._text(node)})")

    def _visit(self, node: ast.AST, compared: bool = False) -> None:
        """`compared`: inside of a comparison, where a text decides something."""
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Constant):
            self._constant(node, compared)
        elif isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                old = _SPELLED[type(operator)]
                self._operator("comparison", left, right, old, _COMPARISONS[type(operator)])
            compared = True
        elif isinstance(node, ast.BoolOp):
            old, new, neutral = ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
            for left, right in zip(node.values, node.values[1:], strict=False):
                self._operator("boolean", left, right, f" {old} ", f" {new} ")
            for value in node.values:
                self._replace("boolean", value, neutral)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._replace("boolean", node, f"({self._text(node.operand)})")
        elif isinstance(node, ast.BinOp):
            if not any(isinstance(side, ast.JoinedStr) or _is_str(side) for side in (node.left, node.right)):
                old = _SPELLED[type(node.op)]
                if type(node.op) in _ARITHMETIC:
                    self._operator("arithmetic", node.left, node.right, old, _ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.IfExp):
            self._condition(node.test)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                self._condition(test)
                self._replace("condition", test, "True")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._replace("call", node.func, _CALLS[node.func.id])
        elif isinstance(node, ast.keyword) and node.arg in _SKIPPED_KEYWORDS:
            return
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in (0, 1):
            self._replace("constant", node.slice, str(1 - node.slice.value))  # the other side, not an IndexError
            self._visit(node.value, compared)
            return
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments):
                self._visit(child, compared and not isinstance(child, ast.Call))

    def _constant(self, node: ast.Constant, compared: bool) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace("constant", node, str(not value))
        elif isinstance(value, int):
            self._replace("constant", node, str(value + 1 if value < _LARGE else value * 2))
        elif isinstance(value, float):
            self._replace("constant", node, repr(value * 2 if value else 1.0))
        elif isinstance(value, str) and compared:
            self._replace("constant", node, repr(f"{value}~"))


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SPELLED: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
}  # fmt: skip


def _is_str(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_text(node: ast.stmt) -> bool:
    """True of a docstring, also of an attribute."""
    return isinstance(node, ast.Expr) and _is_str(node.value)


def references(source: str, names: set[str]) -> Iterator[tuple[int, int, set[str]]]:
    """Statements that use one of these names or attributes: first and last line, and at the top of a file the names that it gives
    a value to (none in a function).
    """
    tree = ast.parse(source)
    inside = functions(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        parts = [value for field, value in ast.iter_fields(node) if field not in _BODIES]
        parts = [item for value in parts for item in (value if isinstance(value, list) else [value])]
        used = {
            getattr(child, "id", getattr(child, "attr", ""))
            for part in parts
            if isinstance(part, ast.AST)
            for child in ast.walk(part)
            if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load)
        }
        if used & names:
            target = assigned(node) if not inside[node.lineno] else set()
            yield node.lineno, node.end_lineno or node.lineno, target


_BODIES = ("body", "orelse", "handlers", "finalbody", "cases", "annotation", "returns", "decorator_list")


def assigned(node: ast.stmt) -> set[str]:
    """Names that an assignment at the top of a file or a class gives a value to; none of another statement."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {child.id for target in targets if target for child in ast.walk(target) if isinstance(child, ast.Name)}

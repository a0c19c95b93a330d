"""One-line mistakes in a module: where they can be made, and the module's text with one of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of one line: the text between two columns is replaced."""

    file: str
    line: int
    """Counted from 1, as columns from 0 in bytes of UTF-8."""
    start: int
    end: int
    replacement: str

    def applied(self, source: str) -> str:
        """Return the module's text with this mistake in it."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.replacement.encode() + line[self.end :]).decode()
        return "".join(lines)

    def diff(self, source: str) -> str:
        """Return the line as it was and as it is, each after its sign."""
        before, after = (text.splitlines()[self.line - 1].strip() for text in (source, self.applied(source)))
        return f"- {before}\n+ {after}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.start} -> {self.replacement}"


def mutants(file: str, source: str) -> list[Mutant]:
    """Return every mistake that can be made in a module, in the order of its lines."""
    tree = ast.parse(source)
    not_code = {id(inner) for outer in _not_code(tree) for inner in ast.walk(outer)}
    encoded = [line.encode() for line in source.splitlines()]
    return sorted(
        Mutant(file, line, start, end, text)
        for node in ast.walk(tree)
        if id(node) not in not_code and type(node) in _MISTAKES
        for line, start, end, text in _MISTAKES[type(node)](node, encoded)
    )


Place = tuple[int, int, int, str]


def _not_code(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, docstrings, names kept in constants, sentences: a mistake there changes no behaviour."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
            yield node.returns
        elif isinstance(node, ast.ClassDef):  # how a record is built: frozen, slots
            yield from (keyword.value for keyword in node.keywords)
            yield from (decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call))
        elif _is_left_alone(node):
            yield node


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name("TypeVar")):
            return True
        case ast.keyword(arg="strict", value=ast.Constant(True)):
            return True  # of zip: an assertion
        case ast.JoinedStr() | ast.Assert():
            return True
        case ast.If():
            return ast.unparse(node.test) == "TYPE_CHECKING"
        case ast.Assign(targets=[ast.Name("__all__")]):
            return True  # ruff compares it with what is imported
        case ast.Expr() | ast.Assign():
            return _is_text(node.value)
        case ast.Constant(value=str(text)):
            return " " in text
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _between(left: ast.expr, right: ast.expr, swap: tuple[str, str], lines: list[bytes]) -> Iterator[Place]:
    """The operator between two operands, where both are on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    old, new = swap
    gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
    if old in gap:
        start = left.end_col_offset + gap.index(old)
        yield right.lineno, start, start + len(old), new


def _comparison(node: ast.Compare, lines: list[bytes]) -> Iterator[Place]:
    for left, operator, right in zip(
        [node.left, *node.comparators], node.ops, node.comparators, strict=False
    ):
        yield from _between(left, right, COMPARISONS[type(operator)], lines)


def _boolean(node: ast.BoolOp, lines: list[bytes]) -> Iterator[Place]:
    swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield from _between(left, right, swap, lines)


def _arithmetic(node: ast.BinOp, lines: list[bytes]) -> Iterator[Place]:
    if type(node.op) in ARITHMETIC:
        yield from _between(node.left, node.right, ARITHMETIC[type(node.op)], lines)


def _negation(node: ast.UnaryOp, lines: list[bytes]) -> Iterator[Place]:
    if isinstance(node.op, ast.Not):
        yield node.lineno, node.col_offset, node.operand.col_offset, ""


def _constant(node: ast.Constant, lines: list[bytes]) -> Iterator[Place]:
    if node.end_lineno != node.lineno or node.end_col_offset is None:
        return
    if isinstance(node.value, bool):
        text = str(not node.value)
    elif isinstance(node.value, (int, float)):
        text = repr(node.value * 10 if node.value > 1 else node.value + 1)
    elif isinstance(node.value, str) and node.value:
        text = repr("" if len(node.value) == 1 else f"{node.value}x")
    else:
        return
    yield node.lineno, node.col_offset, node.end_col_offset, text


def _choice(node: ast.IfExp, lines: list[bytes]) -> Iterator[Place]:
    """The condition of an expression, the other way round."""
    test = node.test
    if test.lineno == test.end_lineno and test.end_col_offset is not None:
        text = lines[test.lineno - 1][test.col_offset : test.end_col_offset].decode()
        yield test.lineno, test.col_offset, test.end_col_offset, f"not ({text})"


def _call(node: ast.Expr, lines: list[bytes]) -> Iterator[Place]:
    """A call for its effect, left out."""
    if (
        isinstance(node.value, ast.Call)
        and node.lineno == node.end_lineno
        and node.end_col_offset is not None
    ):
        yield node.lineno, node.col_offset, node.end_col_offset, "pass"


_MISTAKES: dict[type[ast.AST], Callable[..., Iterator[Place]]] = {
    ast.Compare: _comparison,
    ast.BoolOp: _boolean,
    ast.BinOp: _arithmetic,
    ast.UnaryOp: _negation,
    ast.Constant: _constant,
    ast.IfExp: _choice,
    ast.Expr: _call,
}

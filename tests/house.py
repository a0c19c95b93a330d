"""Prints how heavy the package is (`make house`), or what was not only moved since a commit (`--moved BASE`).

Figures of the package: files and lines; import lines; tokens without the simulator, imports, docstrings and
comments; marks for the formatter and the linter; the longest function.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

IGNORED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def main(arguments: list[str]) -> int:
    """Print the figures, or compare the definitions of a commit with those of the work tree."""
    if arguments[:1] == ["--moved"]:
        return _moved(arguments[1])
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in _files(ROOT)}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    lengths = {
        _lines(node): f"{path}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    }
    own = {path: source for path, source in sources.items() if not path.startswith("tpuctl/sim/")}
    text = "\n".join(sources.values())
    figures = {
        "files": len(sources),
        "lines": text.count("\n"),
        "import lines": sum(_lines(node) for tree in trees.values() for node in _imports(tree)),
        "tokens without the simulator": sum(_tokens(source, trees[path]) for path, source in own.items()),
        "fmt: skip": text.count("# fmt: skip"),
        "noqa": text.count("# noqa"),
        "longest function": f"{max(lengths)} lines ({lengths[max(lengths)]})",
    }
    for name, figure in figures.items():
        print(f"{name:30} {figure:>8}" if isinstance(figure, str) else f"{name:30} {figure:>8,}")
    return 0


def _files(root: Path) -> list[Path]:
    return sorted((root / "tpuctl").rglob("*.py"))


def _imports(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _tokens(source: str, tree: ast.Module) -> int:
    """Count the tokens outside of imports, docstrings and the strings that explain a constant."""
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value))
    left_out = {
        line for node in (*_imports(tree), *texts) for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in IGNORED and token.start[0] not in left_out for token in tokens)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _moved(base: str) -> int:
    """Print the functions and classes that are not the same in a commit and in the work tree.

    `module.name` counts as `name`: that is how a definition of the same file is reached.
    """
    paths = _git("ls-tree", "-r", "--name-only", base, "tpuctl").split()
    before = _definitions(_git("show", f"{base}:{path}") for path in paths if path.endswith(".py"))
    after = _definitions(path.read_text() for path in _files(ROOT))
    for head, changed in (("gone", before - after), ("new", after - before)):
        for (name, _), count in sorted(changed.items()):
            print(f"{head}: {name} ({count})")
    print(f"{before.total()} definitions before, {after.total()} after")
    return int(before != after)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _definitions(sources: Iterator[str]) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for source in sources:
        tree = ast.parse(source)
        modules = {
            alias.asname or alias.name
            for node in _imports(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tpuctl")
            for alias in node.names
        }
        tree = _Plain(modules).visit(tree)
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                counted[node.name, ast.dump(node)] += 1
    return counted


class _Plain(ast.NodeTransformer):
    """Turns `module.name` into `name` for modules of the package."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules and node.value.id.islower():
            return ast.Name(node.attr, node.ctx)
        return node


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which tests can see a line of a module, those first that share most with it."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.ordering.file_order import is_long
from tests.paths import ROOT

ABOVE = {
    # package: the tests besides its own and those that import it that use it
    "cli": ("cli",),
    "flows/datasets": ("cli/datasets", "cli/test_bad_input.py"),
    "flows/runs": ("cli/runs", "cli"),
    "flows/nodes": ("cli/nodes", "cli/overview", "cli"),
    "flows/hosts": ("flows/nodes", "flows/remote", "flows/runs", "cli/remote", "cli/nodes"),
    "flows/remote": ("cli/remote", "cli"),
    "flows/offers": ("cli/offers", "cli"),
    "flows/overview": ("cli/overview", "cli"),
    "flows/project": ("cli/project", "cli"),
    "flows": ("cli",),
    "cloud": ("flows", "cli/nodes", "cli/remote", "cli"),
    "data": ("flows/datasets", "cli/datasets"),
    "host/keeper": ("host/keeper", "flows/nodes"),
    "host/worker": ("cli/test_story.py", "cli/runs"),
    "config": ("cli",),
    "faults": ("sim/faults", "cli/simulator"),
    "sim/gcs": ("sim/faults", "cloud", "flows", "host/worker"),
    "sim/world": ("sim/tpu", "sim/faults", "cloud", "cli/test_story.py"),
    "sim/tpu": ("sim/faults", "cloud"),
    "sim/hosts": ("sim/compute", "sim/faults", "sim/tpu/nodes", "host/worker", "cloud", "cli/test_story.py"),
    "sim/guest": (),
    "sim": ("sim", "cloud", "testing", "cli/simulator", "cli/test_story.py"),
    "testing": ("testing",),
    "": ("cloud", "flows", "cli", "config", "data"),
}
LEFT_OUT = ("tests/cli/runs/test_digits.py",)
"""The demo takes a minute or two: a mistake that it alone would catch counts as a survivor."""
FAR = 3
"""Nearness of tests that neither are the package's nor import the module."""
_WORD = re.compile(r"[A-Za-z_]{3,}")


def ranked(file: str, line: int) -> list[str]:
    """Return the files of tests that can see a line of `tpuctl/PACKAGE/MODULE.py`.

    The module's own come first, then those that import it, its package's, and its callers'. In each group
    those come first that share most words with the line's function, but callers' files that take long last.
    A word counts more, the fewer files have it.
    """
    module = Path(file).relative_to("tpuctl")
    own = f"tests/{module.parent.as_posix()}/test_{module.stem.strip('_')}.py"
    folder = next(
        f"tests/{above.as_posix()}/" for above in module.parents if (ROOT / "tests" / above).is_dir()
    )
    words = _words_at((ROOT / file).read_text(), line)

    def rank(test: str) -> tuple[int, bool, float, str]:
        if test == own:
            nearness = 0
        elif _name(file) in _imports(test):
            nearness = 1
        else:
            nearness = 2 if test.startswith(folder) else FAR
        shared = sum(_weights()[word] for word in words & _words(test))
        return nearness, nearness == FAR and is_long(test), -shared, test

    return sorted(_within(file), key=rank)


def _within(file: str) -> Iterator[str]:
    """Yield the files of tests that may see a module."""
    module = Path(file).relative_to("tpuctl")
    place = next(place for place in ABOVE if f"{module.as_posix()}/".startswith(place))
    layer = module.parts[0] if len(module.parts) > 1 else f"test_{module.name.strip('_')}"
    folders = [f"tests/{name}" for name in (layer, *ABOVE[place])]
    for test in _tests():
        if _name(file) in _imports(test) or any(f"{test}/".startswith(f"{folder}/") for folder in folders):
            yield test


@cache
def _tests() -> list[str]:
    names = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    return sorted(name for name in names if name not in LEFT_OUT)


@cache
def _weights() -> Counter[str]:
    """The weight of each word in tests, in thousandths: more, the fewer files have it."""
    files = Counter(word for test in _tests() for word in _words(test))
    return Counter({word: round(1000 * math.log(len(_tests()) / count)) for word, count in files.items()})


@cache
def _words(test: str) -> frozenset[str]:
    return frozenset(_WORD.findall((ROOT / test).read_text()))


def _words_at(source: str, line: int) -> frozenset[str]:
    """Return the words of the innermost function or class around a line, or of the line itself."""
    places = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    begin, end = max((place for place in places if place[0] <= line <= place[1]), default=(line, line))
    return frozenset(_WORD.findall("\n".join(source.splitlines()[begin - 1 : end])))


@cache
def _imports(file: str) -> frozenset[str]:
    """Return the modules that a file of tests imports, itself or through other modules of tests."""
    names = set(_import_names(ast.walk(ast.parse((ROOT / file).read_text()))))
    helpers = [name.replace(".", "/") + ".py" for name in names if name.startswith("tests.")]
    for helper in helpers:
        if (ROOT / helper).is_file():
            names |= _imports(helper)
    return frozenset(names)


def _import_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(file: str) -> str:
    """Return the name by which a module is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

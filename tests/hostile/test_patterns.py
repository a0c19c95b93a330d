"""No pattern takes a time that grows faster than its text, which may be from a bucket or a host."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any

import msgspec
import pytest

import tpuctl
from tests.paths import ROOT
from tpuctl import printable

Call = Callable[[Any], object]
Text = str | bytes

SIZES = (12, 16, 20, 24, 48, 192, 768, 3072, 20_000)
"""Characters of texts: exponential growth is seen at the first, that of the square of lines at the last."""
SLOW = 0.02
"""Seconds of CPU from which on it is looked at how they grow: a linear one takes less, or grows slowly."""
FACTOR, MOST = 4, 9
"""A text that is so many times as long takes at most so many times as long: 16 is quadratic."""
CHARACTERS = (" ", "\n", "a", "A", "0", "-", "_", ".", "/", ",", "=", "'", '"', "é", "\x1b")
"""Of each kind that patterns tell from others."""
SEARCHING = {"search", "sub", "subn", "split", "findall", "finditer"}
OWN = ("tpuctl.sim", "tpuctl.testing")
"""What only reads the text of the user's own programs."""


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """Return words that the pattern is made of, also as lines."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    words = [
        word for word in re.findall(r"[\w #/:@.,;=<>\"'!-]+", re.sub(r"\\.", " ", source)) if word.strip()
    ]
    return list(dict.fromkeys((*words[:4], *(f"{word}\n" for word in words[:4]))))


def texts(pattern: re.Pattern[Any], size: int, begin: str, middle: str, end: str) -> Text:
    """Return a text of about so many characters, whose middle is repeated."""
    text = begin + middle * max(1, size // len(middle)) + end
    return text if isinstance(pattern.pattern, str) else text.encode("utf-8")


def seconds(call: Call, text: Text) -> float:
    begin = time.process_time()
    call(text)
    return time.process_time() - begin


def growth(pattern: re.Pattern[Any], is_search: bool, shape: tuple[str, str, str]) -> float:
    """Return how many times longer a text takes that is FACTOR times as long; 0 where all take no time."""
    call: Call = (lambda text: pattern.sub(text[:0], text)) if is_search else pattern.fullmatch
    for size in SIZES:
        longer = texts(pattern, size, *shape)
        if seconds(call, longer) > SLOW:
            shorter = texts(pattern, size // FACTOR, *shape)
            least = min(seconds(call, shorter) for _ in range(3))
            return min(seconds(call, longer) for _ in range(2)) / max(least, 1e-6)
    return 0


def worst(pattern: re.Pattern[Any], is_search: bool) -> tuple[float, tuple[str, str, str]]:
    """Return the growth of the text that grows most, up to the first that grows too much, and its shape."""
    found = (0.0, ("", "", ""))
    words = pieces(pattern)
    for begin, middle, end in product(("", "a", *words[:4]), (*CHARACTERS, *words), ("\x00!", "")):
        found = max(found, (growth(pattern, is_search, (begin, middle, end)), (begin, middle, end)))
        if found[0] > MOST:
            break
    return found


def modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(tpuctl.__path__, "tpuctl."):
        if not module.name.startswith(OWN) and not module.name.endswith("__main__"):
            try:
                yield importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if str(error.name).startswith("tpuctl"):
                    raise  # else an extra that is not installed


@cache
def calls() -> dict[tuple[str, str], set[str]]:
    """Return file and name of a pattern -> its methods that are called; of a public one, in any file."""
    methods: dict[tuple[str, str], set[str]] = {}
    for path in (ROOT / "tpuctl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                name = getattr(node.value, "id", getattr(node.value, "attr", ""))
                place = str(path) if name.startswith("_") else ""
                methods.setdefault((place, name), set()).add(node.attr)
    return methods


def patterns() -> Iterator[tuple[str, re.Pattern[Any], bool]]:
    """Yield the place, the pattern, and whether it is searched for, of each with a name or written inline."""
    seen: set[tuple[Any, int, bool]] = set()
    for module in modules():
        for name, value in vars(module).items():
            for pattern in _in(value):
                place = str(module.__file__) if name.startswith("_") else ""
                methods = calls().get((place, name), SEARCHING)
                is_search = not isinstance(value, re.Pattern) or bool(SEARCHING & methods)
                key = (pattern.pattern, pattern.flags, is_search)
                if key not in seen:
                    seen.add(key)
                    yield f"{module.__name__}.{name}", pattern, is_search
    for path in (ROOT / "tpuctl").rglob("*.py"):
        if "sim" not in path.relative_to(ROOT).parts:
            for method, source in _inline(ast.parse(path.read_text())):
                yield f"{path.relative_to(ROOT)}: {source!r}", re.compile(source), method in SEARCHING
    for place in printable._PATTERNS:
        yield f"printable {place}", printable._pattern(place), True


def _in(value: object) -> Iterable[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list, frozenset, set)):
        return [inner for item in value for inner in _in(item)]
    metas = [meta for meta in getattr(value, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return [re.compile(meta.pattern) for meta in metas if meta.pattern]


def _inline(tree: ast.AST) -> Iterator[tuple[str, Text]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            is_of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            source = node.args[0]
            if is_of_re and isinstance(source, ast.Constant) and node.func.attr != "compile":
                yield node.func.attr, source.value


@pytest.mark.parametrize(
    ("source", "is_search"),
    [
        (r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", True),
        (r"[a-z]+[ \t]*(?:\[[ \t]*x?[ \t]*\])?[ \t]*(?:;.*)?[ \t]*", False),
        (r"\d+ hdrcharset=x", True), (r"(a|a)*b", False), (r"([^,]*,?)*x", False), (r"\s+$", True),
    ],
)  # fmt: skip
def test_a_pattern_that_grows_faster_is_told(source: str, is_search: bool) -> None:
    assert worst(re.compile(source), is_search)[0] > MOST


@pytest.mark.slow
def test_no_pattern_grows_faster_than_its_text() -> None:
    every = list(patterns())
    assert len(every) > 150
    wrong = []
    for place, pattern, is_search in every:
        factor, shape = worst(pattern, is_search)
        if factor > MOST:
            wrong.append(f"{place}: {pattern.pattern!r} takes {factor:.0f} times as long for {shape}")
    assert wrong == []

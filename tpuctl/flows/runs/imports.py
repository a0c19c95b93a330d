"""The modules beside a script that it imports: they have to come along."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def beside(script: Path) -> list[Path]:
    """Return the modules and packages in the script's folder that it imports, directly or through another.

    A module is a file `name.py`, a package a folder with an `__init__.py`: all of it counts. A script that
    this Python cannot parse imports nothing: the host's own may be a newer one.
    """
    root = script.resolve().parent
    found: dict[Path, None] = {}
    waiting = [script.resolve()]
    while waiting:
        for name in _imported(waiting.pop()):
            place = _place(root, name)
            if place and place not in found and place != script.resolve():
                found[place] = None
                waiting += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return sorted(found)


def _imported(file: Path) -> Iterator[str]:
    """Yield the first part of each name that is imported, wherever in the file."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _place(root: Path, name: str) -> Path | None:
    if (root / name / "__init__.py").is_file():
        return root / name
    module = root / f"{name}.py"
    return module if module.is_file() else None

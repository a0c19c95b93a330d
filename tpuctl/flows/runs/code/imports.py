"""Finds the modules that a script imports from its own folder, for the bundle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tpuctl.flows.runs.code.project_files import read_source


def local_modules(script: Path) -> list[Path]:
    """Return the modules and packages in the script's folder that it imports, directly or through another.

    A module is a file `name.py`, a package a folder with an `__init__.py`: all files of it count. A script
    that this Python cannot parse imports nothing: the host's Python may be newer.
    """
    root = script.parent.resolve()
    modules: set[Path] = {root / script.name}
    unread = [root / script.name]
    while unread:
        for name in _imported_names(unread.pop()):
            module = _module(root, name)
            if module and module not in modules:
                modules.add(module)
                unread += filter(Path.is_file, module.rglob("*.py")) if module.is_dir() else [module]
    return sorted(modules - {root / script.name})


def imported_files(script: Path) -> list[Path]:
    """Return the files in the script's folder that Python surely reads: of a package, its `__init__.py`."""
    modules = local_modules(script)
    return [module / "__init__.py" if module.is_dir() else module for module in modules]


def _imported_names(file: Path) -> Iterator[str]:
    """Yield the first part of each imported name, wherever in the file."""
    try:
        tree = ast.parse(read_source(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _module(root: Path, name: str) -> Path | None:
    if (root / name / "__init__.py").is_file():
        return root / name
    module = root / f"{name}.py"
    return module if module.is_file() else None

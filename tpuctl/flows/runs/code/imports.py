"""Finds the modules that a script imports from its own folder, for the bundle."""

from __future__ import annotations

import ast
import codecs
import io
import sys
import threading
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tpuctl.flows.runs.code.project_files import read_source
from tpuctl.host.worker import requirements
from tpuctl.images import JAX, PYTORCH, TENSORFLOW

LONGEST = 1 << 18
"""Bytes of a source that is parsed: its syntax tree takes some hundred times as many.

Python 3.11 takes a time that grows with the square of the expressions in an f-string.
"""
_FRAMEWORKS = {
    # distribution or module: the framework that has the chips. The first counts where several are there: a
    # program of JAX may read its data with TensorFlow, and one of TensorFlow take a tokenizer of torch.
    **dict.fromkeys(("torch-xla", "torch-tpu"), PYTORCH),
    **dict.fromkeys(("jax", "flax"), JAX),
    "tensorflow": TENSORFLOW, "tensorflow-tpu": TENSORFLOW,
    "torch": PYTORCH,
}  # fmt: skip
_SLOW = frozenset({"punycode", "idna"})
"""Encodings that Python decodes in a time that grows with the square."""
_PARSING = threading.Lock()
"""Held while Python parses: of two threads that do in 3.11, one may get a SystemError."""


def local_modules(script: Path, root: Path | None = None, names: Iterable[str] = ()) -> list[Path]:
    """Return the modules and packages in the script's folder that it imports, directly or through another.

    `root` is another folder to import from, and `names` are imported in place of what the script imports.

    A module is a file `name.py`, a package a folder with an `__init__.py`, or without one a folder in which a
    module is that is imported by name: all files of it count. A script that this Python cannot parse imports
    nothing: the host's Python may be newer.
    """
    root = (root or script.parent).resolve()
    own = script.parent.resolve() / script.name
    modules, pending = {own}, list(names) or list(imported_names(read_source(own)))
    while pending:
        module = _module(root, pending.pop())
        if module is None or module in modules:
            continue
        modules.add(module)
        if module.resolve().is_relative_to(root):  # else a link, which is refused when the files are listed
            files = filter(Path.is_file, module.rglob("*.py")) if module.is_dir() else [module]
            pending += (name for file in files for name in imported_names(read_source(file)))
    return sorted(modules - {own})


def imported_files(script: Path, root: Path | None = None) -> list[Path]:
    """Return the files in the script's folder that Python surely reads: of a package, its `__init__.py`."""
    modules = local_modules(script, root)
    files = (module / "__init__.py" if module.is_dir() else module for module in modules)
    return [file for file in files if file.is_file()]


def framework(sources: Iterable[bytes], dependencies: Iterable[str] = ()) -> str:
    """Return the framework that programs import or that requirements name; '' where they name none."""
    named = {requirements.parse(text).name for text in dependencies}
    named |= {
        requirements.normalized(name.partition(".")[0])
        for source in sources
        for name in imported_names(source)
    }
    return next((found for name, found in _FRAMEWORKS.items() if name in named), "")


def is_parsed(source: bytes) -> bool:
    """Return whether a source is one that Python parses in a time and a memory that grow with its size."""
    if len(source) > LONGEST:
        return False
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return codecs.lookup(encoding).name not in _SLOW
    except SyntaxError:
        return True  # Python says what is wrong


def import_statements(source: bytes) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a script, wherever in it; none where this Python cannot or should not parse it."""
    if not is_parsed(source):
        return
    try:
        with _PARSING:
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and node.module and not node.level
        ):
            yield node


def imported_names(source: bytes) -> Iterator[str]:
    """Yield each imported name with its dots, wherever in a file; the last part may be no module."""
    for statement in import_statements(source):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        else:
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _module(root: Path, name: str) -> Path | None:
    try:
        return _named(root, name)
    except (OSError, ValueError):  # a name that no file can have
        return None


def _named(root: Path, name: str) -> Path | None:
    first, *inner = name.split(".")
    folder, module = root / first, root / f"{first}.py"
    if (folder / "__init__.py").is_file():
        return folder
    if module.is_file():
        return module
    # A folder of an installed package's name, such as `wandb`, often holds what that package wrote.
    return folder if inner and first not in sys.stdlib_module_names and _holds(folder, inner[0]) else None


def _holds(folder: Path, name: str) -> bool:
    """Return whether a module or a package, with an `__init__.py` or without, is in a folder."""
    return (folder / f"{name}.py").is_file() or any(path.is_file() for path in (folder / name).glob("*.py"))

"""Finds the line of the user's program that caused a finding."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from ..tf_objects import Frame, Operation

_GUEST = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = ("<frozen ", "<__array_function__")
_AUTOGRAPH = "__autograph_generated_file"


@dataclass(frozen=True)
class Place:
    """A line of a program; both empty where it is not known."""

    file: str = ""
    line: int = 0

    def __bool__(self) -> bool:
        return bool(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(place unknown)"


class Places:
    """Finds the user's line in TensorFlow's view of the stack, which undoes AutoGraph's rewriting."""

    def __init__(self, stack: ModuleType) -> None:
        self._stack = stack
        self._around = Place()

    def here(self) -> Place:
        """Return the innermost line of the user's program that is being run."""
        return self._innermost(self._stack.extract_stack()) or self._around

    @contextmanager
    def around(self) -> Iterator[None]:
        """Use this line for threads that have no line of the user's meanwhile."""
        before, self._around = self._around, self.here()
        try:
            yield
        finally:
            self._around = before

    def of_operation(self, operation: Operation) -> Place:
        """Return the innermost line of the user's program that made an operation of a graph."""
        return self._innermost(operation.traceback or ())

    def _innermost(self, frames: Iterable[Frame]) -> Place:
        for frame in reversed(list(frames)):
            if _is_users(frame.filename):
                return Place(_shortest(frame.filename), frame.lineno)
        return Place()


def _is_users(file: str) -> bool:
    if file.startswith(_GENERATED) or _AUTOGRAPH in file:
        return False
    absolute = os.path.abspath(file)
    return not (
        absolute.startswith((_GUEST, _STANDARD_LIBRARY)) or any(part in absolute for part in _INSTALLED)
    )


def _shortest(file: str) -> str:
    """The path from the current folder, where the file is in it."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the folder was deleted, or is on another drive
        return file
    return file if relative.startswith(os.pardir) or file.startswith("<") else relative

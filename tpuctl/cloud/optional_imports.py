"""Keeps libraries from importing what they use only where it is installed, and tpuctl never: it is slow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked(*names: str) -> Iterator[None]:
    """Let optional imports of these packages fail inside the block, but not of those imported before it."""
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]

"""How a flow says what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]
"""Takes a line for the user; the command line shows it."""

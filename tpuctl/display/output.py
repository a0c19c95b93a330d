"""Shows what changes: in a notebook as one display that is updated, elsewhere as lines."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any:
    """Return the IPython that runs in this process, in a terminal or behind a notebook; None without one.

    IPython is not imported for that: where it runs, it is there.
    """
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython and hasattr(ipython, "get_ipython") else None


def is_notebook() -> bool:
    """Return whether what is displayed goes to a notebook, which can show HTML and update it."""
    return hasattr(running_shell(), "kernel")


class Display:
    """A display in a notebook that is replaced by each `show`."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._newest: tuple[str, str] | None = None

    def show(self, html: str, text: str) -> None:
        """Show a document, and for programs without HTML a text; nothing is sent where neither changed."""
        if (html, text) == self._newest:
            return
        from IPython.display import display  # noqa: PLC0415  IPython runs, and need not be installed else

        bundle = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        self._newest = html, text

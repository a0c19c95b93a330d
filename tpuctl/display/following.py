"""Shows a run that is still running, and errors: in a notebook in one display, elsewhere as lines."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tpuctl import printable
from tpuctl.display.markup import coloured_state, escaped, facts, joined, lines
from tpuctl.errors import TpuctlError

NEWEST_LINES = 15
"""Lines of the log that a notebook shows."""


@dataclass(frozen=True)
class RunView:
    """What is known of a run at one moment."""

    name: str
    state: str
    content: Mapping[str, object] = field(default_factory=dict)
    """Name -> value of what is shown below: node, step, metrics."""
    hint: str = ""
    """What to do next."""

    @property
    def sentence(self) -> str:
        """The run in one line."""
        parts = (f"{name} {value}" for name, value in self.content.items() if value not in ("", None))
        return printable.line(", ".join([f"{self.name}: {self.state}", *parts]))


class FollowScreen:
    """Where a run is followed: one display in a notebook, lines elsewhere."""

    def __init__(self, *, labels: bool, live: bool | None = None) -> None:
        """Take `labels`, which says whether each line begins with its worker; `live` chooses the display."""
        self._display = Display() if (is_notebook() if live is None else live) else None
        self._labels = labels
        self._newest: deque[str] = deque(maxlen=NEWEST_LINES)
        self._unfinished: Sequence[str] = ()
        self._count = 0
        self._state = ""

    def line(self, worker: int, text: str) -> None:
        """Show a line of the log; in a notebook with the next `update`."""
        shown = log_text(worker, text, labels=self._labels)
        self._count += 1
        if self._display:
            self._newest.append(shown)
        else:
            write(shown)

    def unfinished(self, lines: Iterable[tuple[int, str]]) -> None:
        """Note the workers' lines that have no end yet, such as progress bars: only a display shows them."""
        self._unfinished = [log_text(worker, text, labels=self._labels) for worker, text in lines]

    def update(self, view: RunView) -> None:
        """Show the run as it is now; lines elsewhere than in a notebook say only when its state changes."""
        if self._display:
            self._display.show(self._html(view), view.sentence)
        elif view.state != self._state:
            write(view.sentence)
        self._state = view.state

    def _html(self, view: RunView) -> str:
        title = joined((escaped(view.name), ": ", escaped(coloured_state(view.state))))
        earlier = self._count - len(self._newest)
        before = [f"... {earlier} lines before"] if earlier else []
        shown = [*before, *self._newest, *self._unfinished]
        content = {**view.content, "next": view.hint}
        return joined((facts(title, content), lines(shown) if shown else ""))


def log_text(worker: int, text: str, *, labels: bool) -> str:
    """Return a line of a log as it is shown, without colours; `labels` puts its worker before it."""
    shown = printable.log_line(text, colours=False)
    return f"[{worker}] {shown}" if labels else shown


def write(text: str) -> None:
    """Write a line to stdout at once: a notebook's cell, or a terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


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


E = TypeVar("E", bound=TpuctlError)
_BOLD_RED, _CYAN, _RESET = "\x1b[1;31m", "\x1b[36m", "\x1b[0m"


def concise(error: E) -> E:
    """Return an error that IPython shows in two lines; other programs see no difference."""
    error._render_traceback_ = lambda: _rendered(error)  # type: ignore[attr-defined]  # IPython's protocol
    return error


def _rendered(error: TpuctlError) -> list[str]:
    text = f"{_BOLD_RED}{type(error).__name__}:{_RESET} {printable.block(error.message)}"
    hint = [f"{_CYAN}Hint:{_RESET} {printable.block(error.hint)}"] if error.hint else []
    return [text, *hint]

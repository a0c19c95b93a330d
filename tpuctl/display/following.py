"""Shows a run while it goes on: its state, its last metrics and the newest lines of its log."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpuctl.display import cells
from tpuctl.display.markup import escaped, facts, joined, lines
from tpuctl.display.output import Display, is_notebook
from tpuctl.text import printable

MOST_LINES = 15
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
        self._newest: deque[str] = deque(maxlen=MOST_LINES)
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
        title = joined((escaped(view.name), ": ", escaped(cells.state(view.state))))
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

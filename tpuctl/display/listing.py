"""Shows several records as a table, and a picture."""

from __future__ import annotations

import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar, overload

from tpuctl import printable
from tpuctl.display.markup import cell, coloured_state, element, escaped, facts, joined, lines, table
from tpuctl.errors import TpuctlError

LONGEST = 60
"""Columns of a terminal that a cell takes at most."""
T = TypeVar("T")
MOST_ROWS = 200
"""Rows that a notebook shows; records beyond are counted."""
MOST_LINES = 30
"""Rows that plain text shows."""

Columns = Mapping[str, Callable[[T], object]]
"""Heading -> the value of a record, which `cell` says as text."""


class Listing(tuple[T, ...]):
    """Records in order: a tuple, which a notebook shows as a table, and so does a plain Python."""

    noun: str
    """What the records are, in the plural: `runs`."""
    columns: Mapping[str, Callable[[T], object]]

    def __new__(cls, records: Iterable[T], noun: str, columns: Columns[T]) -> Listing[T]:
        """Take the records, what they are called, and the columns that are shown."""
        listing = super().__new__(cls, records)
        listing.noun, listing.columns = noun, columns
        return listing

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self, place: slice, /) -> Listing[T]: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> T | Listing[T]:
        """Return a record, or for a slice a listing of some."""
        if isinstance(place, slice):
            return Listing(super().__getitem__(place), self.noun, self.columns)
        return super().__getitem__(place)

    def __getnewargs__(self) -> tuple[object, ...]:
        """Copy and pickle it as it is made."""
        return tuple(self), self.noun, self.columns

    def __repr__(self) -> str:
        """Return a table of text; `list(...)` shows the records themselves."""
        if not self:
            return f"(no {self.noun})"
        return text_table(*self._table(MOST_LINES)) + self._more(MOST_LINES, "\n")

    def _repr_html_(self) -> str:
        if not self:
            return element("div", f"no {self.noun}", class_="tpuctl")
        return table(*self._table(MOST_ROWS), self._more(MOST_ROWS) or self._count())

    def _table(self, most: int) -> tuple[list[str], list[list[object]]]:
        """Return headings and rows of the first records, without columns in which no record has a value."""
        rows = [[cell(name, value(record)) for name, value in self.columns.items()] for record in self[:most]]
        filled = [
            place for place in range(len(self.columns)) if any(row[place] not in ("", None) for row in rows)
        ]
        headings = list(self.columns)
        return [headings[place] for place in filled], [[row[place] for place in filled] for row in rows]

    def _count(self) -> str:
        return f"{len(self)} {self.noun if len(self) > 1 else self.noun.removesuffix('s')}"

    def _more(self, most: int, before: str = "") -> str:
        return f"{before}... and {len(self) - most} more {self.noun}" if len(self) > most else ""


# Shows records as plain text, for a terminal and for programs that show no HTML.


def text_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of text without trailing spaces."""
    table = [[heading.upper() for heading in headings], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(_padded, row, widths)).rstrip() for row in table)


def width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = printable.line("" if value is None else text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture as PNG."""

    png: bytes
    text: str
    """What it shows."""
    problems: Sequence[str] = ()
    """Why something is missing in it."""

    def save(self, path: str | Path) -> None:
        """Write it into a file."""
        Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        """Say what it shows."""
        missing = f", {len(self.problems)} not drawn" if self.problems else ""
        return f"<{self.text}{missing}: .save('FILE.png')>"

    def _repr_png_(self) -> bytes:
        return self.png


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

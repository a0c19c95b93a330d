"""Shows values and records of the API as HTML: every text is escaped, most comes from the bucket or cloud.

- Defines the metrics of a run, shown in a notebook as a table with small curves, elsewhere as lines.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from tpuctl import clock, durations, printable
from tpuctl.display import Record
from tpuctl.host.worker.records import PREPARING, QUEUED, RUNNING
from tpuctl.nodes import NodeState
from tpuctl.printable import format_bytes
from tpuctl.runs import FAILED, LOST, MAINTENANCE, PREEMPTED, STOPPED, SUCCEEDED

LINE = "1px solid rgba(128,128,128,.35)"
FAINT = "opacity:.7"
CELL = f"padding:.25em .8em .25em 0;border:0;border-bottom:{LINE};background:none;vertical-align:top"
SCROLLED = "overflow:auto;max-width:100%;max-height:32em"
"""Of what may be wider or longer than its place: wide tables in narrow columns."""
DOTS = {"green": "#2e9e5b", "red": "#d64545", "amber": "#c98a00", "grey": "#8a8a8a"}
"""Name of a colour -> one that is seen on white and on black."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


class Coloured(str):
    """Text with a dot of a colour before it in HTML; it says the same without."""

    __slots__ = ("colour",)
    colour: str

    def __new__(cls, text: str, colour: str) -> Coloured:
        """Take one of the names of `DOTS`."""
        coloured = super().__new__(cls, text)
        coloured.colour = colour
        return coloured


def escaped(value: object) -> Markup:
    """Return a value as HTML, a text on one line and without control and bidirectional characters."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Coloured):
        dot = element("span", "●", style=f"color:{DOTS[value.colour]}", aria_hidden="true")
        return Markup(f"{dot} {escaped(str(value))}")
    return Markup(html.escape(printable.line(str(value)), quote=True))


def element(name: str, *content: object, **attributes: str | float) -> Markup:
    """Return an element; `_` in the name of an attribute is `-`, and one at its end is left out."""
    pairs = (f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{''.join(pairs)}>{''.join(map(escaped, content))}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return parts beside each other."""
    return Markup("".join(map(escaped, parts)))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """Return a table that scrolls where it is too wide or too long; numbers are aligned to the right."""
    head = element("tr", *(element("th", text, scope="col", style=_heading()) for text in headings))
    body = joined(element("tr", *map(_cell, row)) for row in rows)
    below = [element("div", caption, style=f"{FAINT};padding:.3em 0")] if caption else []
    style = "border-collapse:collapse;border:0;margin:0;font-size:.93em"
    content = element("table", element("thead", head), element("tbody", body), style=style)
    return element("div", element("div", content, style=SCROLLED), *below, class_="tpuctl")


def facts(title: object, content: Mapping[str, object]) -> Markup:
    """Return names and values below a title; values that are empty are left out."""
    pairs = [(name, value) for name, value in content.items() if value not in ("", None)]
    rows = joined(
        element("tr", element("th", name, scope="row", style=_heading()), _cell(value, wraps=True))
        for name, value in pairs
    )
    style = "border-collapse:collapse;border:0;margin:.2em 0;font-size:.93em"
    content_table = element("table", element("tbody", rows), style=style)
    return element(
        "div", element("div", title), element("div", content_table, style=SCROLLED), class_="tpuctl"
    )


def lines(texts: Iterable[str]) -> Markup:
    """Return lines of a log, which have gone through `printable.log_line`, in a scrolling block."""
    style = (
        f"margin:.4em 0;padding:.4em .6em;border-left:3px solid {DOTS['grey']};background:none;color:inherit"
    )
    content = Markup("\n".join(html.escape(text) for text in texts))
    return element("pre", content, style=f"{style};{SCROLLED};font:.85em/1.4 monospace;white-space:pre-wrap")


def _heading() -> str:
    return f"{CELL};text-align:left;font-weight:600;white-space:nowrap;{FAINT}"


def _cell(value: object, *, wraps: bool = False) -> Markup:
    is_number = isinstance(value, (int, float)) and not wraps
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
    is_long = wraps or (len(str(value)) > 60 and not isinstance(value, Markup))
    width = "white-space:normal;overflow-wrap:anywhere;min-width:16em" if is_long else "white-space:nowrap"
    return element("td", text, style=f"{CELL};text-align:{'right' if is_number else 'left'};{width}")


COLOURS = {
    "green": (SUCCEEDED, RUNNING, NodeState.READY, "ACTIVE"),
    "red": (FAILED, LOST, PREEMPTED, NodeState.PREEMPTED, "SUSPENDED", "FAILED"),
    "amber": (
        MAINTENANCE, STOPPED, QUEUED, PREPARING, NodeState.CREATING, NodeState.STARTING, NodeState.REPAIRING,
        NodeState.STOPPING, NodeState.DELETING, "WAITING", "PROVISIONING", "SUSPENDING",
    ),
}  # fmt: skip
"""Colour -> states of nodes, requests and runs; others are grey."""
_COLOUR_OF = {str(state): colour for colour, states in COLOURS.items() for state in states}

STATES, SIZE = ("state", "outcome"), "bytes"
"""Names of fields that are states, and of one that is a size."""
MOST_CHARACTERS = 300
"""Of a value, which may be a text of megabytes."""


def coloured_state(text: str) -> Coloured:
    """Return a state with its colour."""
    return Coloured(text, _COLOUR_OF.get(text, "grey"))


def cell(name: str, value: object) -> object:
    """Return what a table shows of the field `name` of a record; numbers stay numbers."""
    if name in STATES:
        return coloured_state(str(value))
    if isinstance(value, bool):
        return "yes" if value else ""
    if name == SIZE and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, (int, float)):
        return durations.text(value) if name.endswith("seconds") else value
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, timedelta):
        return durations.text(value.total_seconds())
    text = _text(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _text(value: object) -> str:
    """Return a value, or several, on one line: of bytes their text, or their number where they are none."""
    if isinstance(value, Mapping):
        pairs = ((str(key), _text(item)) for key, item in value.items())
        return ", ".join(f"{key}={text}" if text else key for key, text in pairs)
    if isinstance(value, (tuple, list, set, frozenset)):
        return ", ".join(map(_text, value))
    if not isinstance(value, bytes):
        return "" if value is None else str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"


MOST_ROWS = 50
"""Records within a record that are shown."""
MOST_LINES = 50
"""Lines of a text that are shown, the last ones."""


def record_html(record: Any, title: str = "") -> Markup:
    """Return the fields of a dataclass that have a value, its name in the title."""
    name = getattr(record, "name", "")
    content = {
        field.name: _value(field.name, getattr(record, field.name))
        for field in fields(record)
        if field.name != "name"
    }
    return facts(title or f"{type(record).__name__} {name}".strip(), content)


def _value(name: str, value: object) -> object:
    if isinstance(value, str) and "\n" in value:
        return lines(printable.log_line(line, colours=False) for line in value.splitlines()[-MOST_LINES:])
    if isinstance(value, tuple) and value and all(map(_is_record, value)):
        return _table(value)
    if _is_record(value) and type(value).__str__ is object.__str__:
        return record_html(value)
    return cell(name, value)


def _is_record(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _table(records: Sequence[Any]) -> Markup:
    names = [field.name for field in fields(records[0])]
    rows = [[cell(name, getattr(record, name, "")) for name in names] for record in records[:MOST_ROWS]]
    filled = [place for place in range(len(names)) if any(row[place] not in ("", None) for row in rows)]
    more = f"... and {len(records) - MOST_ROWS} more" if len(records) > MOST_ROWS else ""
    return table(_chosen(names, filled), [_chosen(row, filled) for row in rows], more)


def _chosen(values: Sequence[Any], places: Iterable[int]) -> list[Any]:
    return [values[place] for place in places]


WIDTH, HEIGHT = 240, 48
MOST_POINTS = 300
"""Points of a curve that are drawn, evenly spaced: the words beside it have its lowest and highest."""


@dataclass(frozen=True)
class Point(Record):
    """A value of a metric."""

    step: int
    value: float
    """May be infinite, or no number."""
    time: float
    """Seconds since 1970, by the host's clock."""


@dataclass(frozen=True)
class Curve(Record):
    """The values of a metric, by their steps."""

    metric: str
    unit: str
    """`ms`, or empty for a plain number."""
    points: tuple[Point, ...]
    """Steps rise; those that a restart did again have its values, and none of the attempt before."""

    @property
    def last(self) -> Point:
        """The newest value."""
        return self.points[-1]


@dataclass(frozen=True, repr=False)
class Metrics(Record):
    """What a run has reported for TensorBoard: loss and accuracy, also of the validation, and step time."""

    run: str
    curves: Mapping[str, Curve]
    """By the metric: `loss`, `accuracy`, `val_loss`, `val_accuracy`, `step_time`."""
    problems: tuple[str, ...] = ()
    """Why event files could not be read."""

    def __repr__(self) -> str:
        """Return a line for each metric: its first, last, lowest and highest value."""
        lines = [
            f"  {printable.line(name)}: {_words(curve)}{f' ({curve.unit})' if curve.unit else ''}"
            for name, curve in self.curves.items()
        ]
        missing = [f"  not read: {printable.line(text)}" for text in self.problems]
        return "\n".join([f"<metrics of {printable.line(self.run)}>", *(lines or ["  none yet"]), *missing])

    def _repr_html_(self) -> str:
        rows = [
            (f"{name} ({curve.unit})" if curve.unit else name, _drawn(curve), _words(curve))
            for name, curve in self.curves.items()
        ]
        shown = (
            table(("metric", "by step", ""), rows) if rows else element("div", f"{self.run}: no metrics yet")
        )
        return element("div", shown, joined(element("div", f"not read: {text}") for text in self.problems))


def _finite(curve: Curve) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in curve.points if math.isfinite(point.value)]


def _words(curve: Curve) -> str:
    points, gaps = _finite(curve), ""
    if len(points) < len(curve.points):
        gaps = f"; {len(curve.points) - len(points)} of {len(curve.points)} values are no numbers"
    if not points:
        return f"no value{gaps}"
    named = [("", points[0])]
    if len(points) > 1:
        low, high = (extreme(points, key=lambda point: point[1]) for extreme in (min, max))
        named += [("", points[-1]), ("lowest ", low), ("highest ", high)]
    return ", ".join(f"{word}{value:.4g} at step {step}" for word, (step, value) in named) + gaps


def _drawn(curve: Curve) -> Markup:
    """Return the curve as SVG in the colour of the page; nothing for less than two points."""
    points = _finite(curve)
    if len(points) < 2:
        return Markup()
    points = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], points[-1]]
    steps, values = zip(*points, strict=True)
    width, height = max(steps) - min(steps), max(values) - min(values)
    if not math.isfinite(height):
        return Markup()
    places = " ".join(
        f"{(step - min(steps)) / (width or 1) * WIDTH:.1f},"
        f"{(max(values) - value) / (height or 1) * HEIGHT:.1f}"
        for step, value in points
    )
    line = element("polyline", points=places, fill="none", stroke="currentColor", stroke_width=1.5)
    return element(
        "svg", line, xmlns="http://www.w3.org/2000/svg", viewBox=f"-2 -2 {WIDTH + 4} {HEIGHT + 4}",
        width=WIDTH, height=HEIGHT, role="img", aria_label=_words(curve),
    )  # fmt: skip

"""Builds HTML: every text is escaped, as most of it comes from the bucket or the cloud.

Colours are those of the page, or between black and white, so that light and dark themes can be read.
Styles stand in the elements: notebooks that are not trusted lose style sheets.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from tpuctl.text import printable

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

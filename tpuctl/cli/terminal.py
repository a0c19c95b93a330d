"""What a stream can show: the width of its terminal, and colours; a pipe gets the plain text, unfolded."""

from __future__ import annotations

import os
import textwrap
from typing import TextIO

COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold red": "1;31"}
"""Name -> parameters of ANSI's SGR sequence."""
STATES = {
    # state of a node, a run, a check or a fault, in lower case -> colour
    **dict.fromkeys(("ready", "succeeded", "ok", "active"), "green"),
    **dict.fromkeys(("failed", "lost", "preempted", "terminated"), "red"),
    **dict.fromkeys(
        ("creating", "starting", "queued", "restarting", "repairing", "preparing", "running"), "cyan"
    ),
    **dict.fromkeys(("stopping", "stopped", "deleting", "warning", "in force"), "yellow"),
    **dict.fromkeys(("skipped", "spent", "over"), "dim"),
}


def width(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal; None where lines may have any length."""
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def shows_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose user has not refused colours; https://no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return a text in a colour, without those of the blanks after it, or as it is if the stream has none."""
    visible = text.rstrip(" ")
    if not visible or not colour or not shows_colours(stream):
        return text
    return f"\x1b[{COLOURS[colour]}m{visible}\x1b[0m{text[len(visible) :]}"


def state_colour(text: str) -> str:
    """Return the colour of a state, which blanks may follow; empty for another text."""
    return STATES.get(text.rstrip().lower(), "")


def display_width(text: str) -> int:
    """Return the columns of a text: two for a wide character such as 日, none for a combining mark."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to import, and rarely needed

    return cell_len(text)


def fold(text: str, columns: int | None) -> list[str]:
    """Return a text in lines of at most `columns`, cut between words; a longer word has its own line."""
    if columns is None or display_width(text) <= columns:
        return [text]
    columns = max(columns, 20)
    if text.isascii():
        return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    first, *words = text.split() or [""]
    lines = [first]
    for word in words:
        if display_width(f"{lines[-1]} {word}") <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines

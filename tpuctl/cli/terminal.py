"""What a stream can show: the width of its terminal, and colours; a pipe gets the plain text, unfolded."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold red": "1;31"}
"""Name -> parameters of ANSI's SGR sequence."""
STATES = {
    # state of a node, a run, a check or a fault, in lower case -> colour
    **dict.fromkeys(("ready", "succeeded", "ok", "active"), "green"),
    **dict.fromkeys(("failed", "lost", "preempted", "terminated"), "red"),
    **dict.fromkeys(("creating", "starting", "restarting", "repairing", "preparing", "running"), "cyan"),
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


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return a text in a colour, as it is where the stream shows none; https://no-color.org."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain or not text else f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def paint_state(text: str, stream: TextIO) -> str:
    """Return a state in its colour, without those of the blanks after it."""
    state = text.rstrip()
    colour = STATES.get(state.lower())
    return paint(state, colour, stream) + text[len(state) :] if colour else text


def say(text: str, *, label: str = "", colour: str = "") -> None:
    """Print a sentence on stderr, after a label such as `Error:`; folded between words on a terminal."""
    first, *more = fold(f"{label} {text}".lstrip(), width(sys.stderr))
    painted = paint(label, colour, sys.stderr) if colour else label
    print("\n".join([painted + first.removeprefix(label), *more]), file=sys.stderr)


def show_command(text: str, *, label: str, colour: str) -> None:
    """Print a line on stderr that holds a command: never folded, so that it can be copied."""
    print(f"{paint(label, colour, sys.stderr)} {text}", file=sys.stderr)


def fold(text: str, columns: int | None) -> list[str]:
    """Return a text in lines of at most `columns`, cut between words; a longer word has its own line."""
    if columns is None or len(text) <= columns:
        return [text]
    return textwrap.wrap(text, max(columns, 20), break_long_words=False, break_on_hyphens=False) or [""]

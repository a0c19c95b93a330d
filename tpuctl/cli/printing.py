"""Writes to stdout and stderr: nothing else of the command line does, so that nothing unprintable gets there.

Own colours are added here, after the text was made printable: no text can carry its own, but a line of a log.

- Builds the JSON form of a price.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

import click

from tpuctl import printable
from tpuctl.catalogue.prices import Price
from tpuctl.cli import terminal
from tpuctl.errors import DeclinedError, UsageError


def price_fields(price: Price) -> dict[str, object]:
    """Return a price: its amount is a decimal number in a string, or null with the reason."""
    return {
        "amount": price.digits,
        "currency": price.currency,
        "source": price.source,
        "as_of": price.as_of,
        "reason": price.reason,
    }


Answer = TypeVar("Answer")
Painted = tuple[str, str]
"""A text and the name of its colour, empty for none."""
_PLAIN_LOG = bytes([*range(0x20, 0x7F)]) + b"\t\n"
"""Bytes of log lines that are shown as they are."""


class OutputError(UsageError):
    """Stdout takes no more: a file on a disk that is full."""


def write(*pieces: str | Painted, err: bool = False) -> None:
    """Print pieces of text as one line."""
    stream = sys.stderr if err else sys.stdout
    painted = (terminal.paint(printable.line(text), colour, stream) for text, colour in map(_painted, pieces))
    _write("".join(painted).rstrip(" "), stream)


def write_at_once(text: str) -> None:
    """Print a line of a stream, at once also into a pipe."""
    _write(printable.line(text), sys.stdout, flush=True)


def clear_screen() -> None:
    """Empty the terminal that stdout is, for a list that is drawn anew."""
    _write("\x1b[H\x1b[2J", sys.stdout, flush=True)


def write_block(text: str, *, err: bool = False) -> None:
    """Print a text of several lines."""
    _write(printable.block(text), sys.stderr if err else sys.stdout)


def say(text: str, *, label: str = "", colour: str = "") -> None:
    """Print a sentence on stderr, after a label such as `Error:`; folded between words on a terminal."""
    sentence = f"{label} {printable.line(text)}".lstrip()
    first, *more = terminal.fold(sentence, terminal.width(sys.stderr))
    write((label, colour), first.removeprefix(label), err=True)
    for line in more:
        write(line, err=True)


def show_command(text: str, *, label: str, colour: str) -> None:
    """Print lines on stderr that hold a command each: never folded, so that they can be copied."""
    first, *more = text.split("\n")
    write((label, colour), f" {first}", err=True)
    for line in more:
        write(f"{'':<{len(label)}} {line}", err=True)


def write_json(document: bytes) -> None:
    """Print a JSON document, at once also into a pipe: it may be an item of a stream."""
    _write(printable.json(document.decode()), sys.stdout, flush=True)


def write_code(line: str) -> None:
    """Print a line that another program evaluates: exactly, except to a terminal."""
    _write(line if not sys.stdout.isatty() else printable.line(line), sys.stdout)


def write_log_line(text: str, label: str = "") -> None:
    """Print a line of a program's log at once; its colours stay where colours are shown."""
    shown = printable.log_line(text, colours=terminal.shows_colours(sys.stdout))
    _write(printable.line(label) + shown, sys.stdout, flush=True)


def write_live_line(text: str, label: str) -> None:
    """Show on the terminal that stdout is a line that is not over, cut to its width."""
    shown = (printable.line(label) + printable.log_line(text, colours=False)).expandtabs()
    columns = (terminal.width(sys.stdout) or 80) - 1
    while terminal.display_width(shown) > columns:
        shown = shown[: min(columns, len(shown) - 1)]
    with _to(sys.stdout) as stream:
        stream.write(shown)
        stream.flush()


def erase_live_line() -> None:
    """Remove what `write_live_line` has shown."""
    with _to(sys.stdout) as stream:
        stream.write("\r\x1b[K")
        stream.flush()


def write_log_lines(lines: bytes, label: str, *, errors: str = "surrogateescape", err: bool = False) -> None:
    """Print lines of a program's log at once; many cost little if they are plain."""
    stream, label = sys.stderr if err else sys.stdout, printable.line(label)
    if not lines.translate(None, _PLAIN_LOG):
        if label:
            text = lines.removesuffix(b"\n").decode("ascii")
            _write(label + text.replace("\n", f"\n{label}"), stream, flush=True)
        else:
            write_bytes(lines if lines.endswith(b"\n") else lines + b"\n", err=err)
        return
    colours = terminal.shows_colours(stream)
    shown = (
        label + printable.log_line(line.decode(errors=errors).removesuffix("\r"), colours=colours)
        for line in lines.removesuffix(b"\n").split(b"\n")
    )
    _write("\n".join(shown), stream, flush=True)


def write_bytes(data: bytes, *, err: bool = False) -> None:
    """Write bytes as they are, for a user who asks for that."""
    with _to(sys.stderr if err else sys.stdout) as stream:
        if _flushes:
            stream.flush()
        stream.buffer.write(data)
        if _flushes:
            stream.buffer.flush()


def flush() -> None:
    """Write to stdout what was held back."""
    with _to(sys.stdout) as stream:
        stream.flush()


def confirm(question: str) -> bool:
    """Ask a question on stderr and return the answer."""
    return _answer(lambda: click.confirm(printable.line(question), err=True))


def prompt(question: str, default: str | None, parse: Callable[[str], str]) -> str:
    """Ask on stderr for a value, again after a click.UsageError of `parse`; Enter gives the default."""
    text = printable.line(f"{question} [{default}]" if default else question)
    return _answer(
        lambda: str(click.prompt(text, default=default, show_default=False, value_proc=parse, err=True))
    )


def _answer(ask: Callable[[], Answer]) -> Answer:
    """Return the answer to a question; raises DeclinedError at the end of the input."""
    try:
        return ask()
    except click.Abort as error:  # for Ctrl-C, too
        if not isinstance(error.__context__, EOFError):
            raise
        write(err=True)  # ends the line of the question
        message = "Input is needed, and the command is not interactive."
        raise DeclinedError(message, hint="Pass the options.") from error


class PrintableStream:
    """Makes printable what libraries write by themselves: warnings, log messages, tracebacks of threads."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text of several lines."""
        with _to(self.unguarded) as stream:
            stream.write(printable.block(text))
        return len(text)

    def flush(self) -> None:
        """Write what was held back."""
        with _to(self.unguarded) as stream:
            stream.flush()

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.unguarded, name)


def open_closed_streams() -> None:
    """Open stdin, stdout and stderr that are closed (`>&-`) as empty ones: else a file would be one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def guard() -> None:
    """Make stdout and stderr of this process printable; characters that they cannot encode are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = PrintableStream(sys.stdout)
    sys.stderr = PrintableStream(sys.stderr)


def has_lost_its_reader() -> bool:
    """Return whether nobody reads stdout or stderr any more.

    A BrokenPipeError alone does not say so: that of a connection to a server is another's.
    """
    streams = select.poll()
    for stream in (sys.stdout, sys.stderr):
        try:
            streams.register(stream.fileno(), 0)
        except (OSError, ValueError, AttributeError):  # closed, or no file
            continue
    return bool(streams.poll(0))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream that control sequences of our own can be written to."""
    return stream.unguarded if isinstance(stream, PrintableStream) else stream


def _painted(piece: str | Painted) -> Painted:
    return (piece, "") if isinstance(piece, str) else piece


def _write(text: str, stream: TextIO, *, flush: bool = False) -> None:
    with _to(stream) as raw:
        print(text, file=raw, flush=flush and _flushes)


@contextmanager
def in_blocks() -> Iterator[None]:
    """Write what is printed on stdout in blocks, unless that is a terminal: nobody waits for its lines."""
    global _flushes
    stream = unguarded(sys.stdout)
    if stream.isatty() or not isinstance(stream, io.TextIOWrapper):
        yield
        return
    stream.flush()
    stream.reconfigure(write_through=True)  # text and bytes keep their order
    _flushes = False
    try:
        yield
    finally:
        _flushes = True
        with _to(sys.stdout) as raw:
            raw.flush()


_flushes = True
"""Whether what is asked to be printed at once is."""


@contextmanager
def without_reader() -> Iterator[None]:
    """Let a command do its work to the end although nobody reads its output: what it has made would bill."""
    global _needs_reader
    before, _needs_reader = _needs_reader, False
    try:
        yield
    finally:
        _needs_reader = before


_needs_reader = True
"""Whether the command ends when the reader of its output has gone, as of `tpuctl ls | head`."""


@contextmanager
def _to(stream: TextIO) -> Iterator[TextIO]:
    """Yield what can be written to without a guard; raises OutputError where it takes no more.

    What stderr does not take is lost: nobody can be told, and the command does its work all the same.
    """
    raw = unguarded(stream)
    try:
        yield raw
    except BrokenPipeError:
        if _needs_reader:
            raise
        _drop(raw)
    except OSError as error:
        if error.errno == errno.EIO and not _needs_reader:  # of a terminal that was closed
            _drop(raw)
            return
        if raw is not unguarded(sys.stderr):
            raise OutputError(
                f"The output cannot be written: {error.strerror or error}.",
                hint="Make room, or write elsewhere. What the command has changed stays changed: 'tpuctl ls'"
                " and 'tpuctl runs' show it.",
            ) from error


def _drop(stream: TextIO) -> None:
    """Let what is written to a stream from now on go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

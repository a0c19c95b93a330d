"""A stream is cut into whole lines, however its pieces are cut, and a line without an end has a limit."""

from __future__ import annotations

import pytest

from tpuctl.printable import WholeLines

LIMIT = 65_536


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a\nb\n"]),
        ([b"a", b"b\nc", b"\n"], [b"", b"ab\n", b"c\n"]),
        ([b"a\nb", b"c", b"\n\n"], [b"a\n", b"", b"bc\n\n"]),
        ([b"", b"\n"], [b"", b"\n"]),
        ([b"1\r2\r", b"3\n"], [b"", b"1\r2\r3\n"]),
    ],
)
def test_lines_come_when_they_are_complete(pieces: list[bytes], lines: list[bytes]) -> None:
    stream = WholeLines()
    assert [stream.feed(piece) for piece in pieces] == lines
    assert stream.end() == b""


def test_what_is_left_at_the_end_is_a_line() -> None:
    stream = WholeLines()
    assert (stream.feed(b"a\nb"), stream.end(), stream.end()) == (b"a\n", b"b\n", b"")


def test_a_line_without_an_end_is_cut_after_its_limit() -> None:
    stream = WholeLines()
    assert stream.feed(b"x" * LIMIT) == b""
    assert stream.feed(b"y") == b"x" * LIMIT + b"y\n"
    assert stream.feed(b"z\n") == b"z\n"


@pytest.mark.parametrize("end", [b"", b"\r"], ids=["unfinished", "finished"])
def test_of_a_progress_bar_the_last_state_is_kept(end: bytes) -> None:
    stream = WholeLines()
    assert stream.feed(b"\rold" + b"x" * LIMIT + b"\rnew" + end) == b""
    assert stream.end() == b"new" + end + b"\n"


def test_a_bar_that_begins_with_its_only_return_is_cut_there() -> None:
    stream = WholeLines()
    assert stream.feed(b"\r" + b"x" * LIMIT) == b""
    assert stream.end() == b"x" * LIMIT + b"\n"

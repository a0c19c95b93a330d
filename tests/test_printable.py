"""Text from elsewhere cannot steer a terminal or hide.

Streams in whole lines, sizes in their units, workers in ranges.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.text import ESCAPES, LEGITIMATE, steers
from tpuctl import printable
from tpuctl.flows.remote.targets import parse_workers
from tpuctl.printable import WholeLines, format_bytes, named, ranges

ANY_TEXT = st.text(st.characters() | st.sampled_from("\x1b\x9b\r\n\t\x00\u202e\u200d[]m;0;31K"))


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_an_escape_becomes_visible(escape: str) -> None:
    text = f"before {escape} after"
    assert not steers(printable.line(text))
    assert not steers(printable.block(text).replace("\n", ""))
    assert not steers(printable.log_line(text, colours=False))
    assert printable.line(text).isprintable()


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable.line(text) == text
    assert printable.block(text) == text
    assert printable.log_line(text, colours=False) == text
    assert printable.json(f'"{text}"') == f'"{text}"'


def test_what_is_escaped_is_shown_as_its_code() -> None:
    assert printable.line("a\x1b]0;t\x07\x9b\x7f\u202e\U000e0041\udc9b\n\r\tz") == (
        r"a\x1b]0;t\x07\x9b\x7f\u202e\U000e0041\udc9b\n\r\tz"
    )


def test_a_block_keeps_its_lines_and_tabs() -> None:
    assert printable.block("a\tb\r\nc\rd\n") == "a\tb\nc\\rd\n"


@pytest.mark.parametrize(
    "text",
    ["a\u200db", "a\ufe0f", "x\u200f", "\U0001f3f4\U000e0061\U000e007f", "\u0628\u200c\u200c", "\u200b"],
    ids=ascii,
)
def test_an_invisible_character_stays_only_where_a_script_needs_it(text: str) -> None:
    assert printable.line(text) != text
    assert printable.line(text).encode("ascii", "ignore").count(b"\\") >= 1


def test_marks_are_piled_up_to_six_high() -> None:
    assert printable.line("o" + "\u0301" * 9) == "o" + "\u0301" * 6 + r"\u0301" * 3


@given(ANY_TEXT)
def test_no_control_character_survives_in_a_line(text: str) -> None:
    shown = printable.line(text)
    assert not steers(shown)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert printable.line(shown) == shown


@given(ANY_TEXT)
def test_only_ends_of_lines_and_tabs_survive_in_a_block(text: str) -> None:
    assert not steers(printable.block(text).translate({9: None, 10: None}))


@given(ANY_TEXT)
def test_only_colours_survive_in_a_log_and_they_end_with_the_line(text: str) -> None:
    shown = printable.log_line(text, colours=True)
    rest = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not steers(rest.replace("\t", ""))
    assert "\x1b" not in shown or shown.endswith("\x1b[0m")
    assert "\x1b" not in printable.log_line(text, colours=False)


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\u202e\x9b\x7f\U000e0041")))
def test_json_has_the_same_value_and_no_control_character(text: str) -> None:
    document = json.dumps({text: [text]}, ensure_ascii=False, indent=2)
    shown = printable.json(document)
    assert json.loads(shown) == {text: [text]}
    assert not steers(shown.replace("\n", ""))


class TestLogs:
    @pytest.mark.parametrize(
        ("printed", "coloured", "plain"),
        [
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m", "red"),
            ("\x1b[01;38;5;196mred", "\x1b[01;38;5;196mred\x1b[0m", "red"),
            ("\x1b[38;2;1;2;3mred\x1b[m\x1b[K", "\x1b[38;2;1;2;3mred\x1b[m\x1b[0m", "red"),
            (" 10%\r 50%\r100%\r", "100%", "100%"),
            ("\r\x1b[K", "", ""),
            ("\x1b[8mhidden", r"\x1b[8mhidden", r"\x1b[8mhidden"),
            ("\x1b[31;8mhidden", r"\x1b[31;8mhidden", r"\x1b[31;8mhidden"),
            ("\x1b[5mblink", r"\x1b[5mblink", r"\x1b[5mblink"),
            ("\x1b\x1b[31m[2J", "\\x1b\x1b[31m[2J\x1b[0m", r"\x1b[2J"),
            ("\x9b31mC1", r"\x9b31mC1", r"\x9b31mC1"),
            ("a\tb\b", "a\tb\\x08", "a\tb\\x08"),
        ],
    )
    def test_a_line_is_shown_as_a_terminal_shows_it_in_the_end(
        self, printed: str, coloured: str, plain: str
    ) -> None:
        assert printable.log_line(printed, colours=True) == coloured
        assert printable.log_line(printed, colours=False) == plain

    @pytest.mark.parametrize(
        "flood", [bytes(50_000), b"\x1b" * 50_000, b"\xe9" * 50_000, b"a\0\t" * 9000, bytes(range(256)) * 99],
        ids=["zeros", "escapes", "Latin-1", "UTF-16", "all bytes"],
    )  # fmt: skip
    def test_a_flood_of_bytes_is_few_calls(self, flood: bytes) -> None:
        """A call for each byte was a microsecond: a quarter of an hour for a gigabyte."""
        text = flood.replace(b"\n", b"").replace(b"\r", b"").decode(errors="surrogateescape")
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            shown = printable.log_line(text, colours=False)
        finally:
            sys.setprofile(None)
        assert not steers(shown.replace("\t", ""))
        assert calls < 20_000

    def test_bytes_that_are_no_utf_8_are_shown_as_such(self) -> None:
        text = b"caf\xe9 \xff\0 na\xc3\xafve\x9b".decode(errors="surrogateescape")
        assert printable.log_line(text, colours=True) == r"caf\xe9 \xff\x00 naïve\x9b"

    def test_a_sequence_without_an_end_costs_no_more_than_its_length(self) -> None:
        for start in ("\x1b[" + ";" * 300_000, "\x1b[" + "1;" * 150_000, "\x1b[38;5;" * 40_000):
            assert printable.log_line(start + "x", colours=True).endswith("x")


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


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (1234, "1.2 kB"), (999_900, "999.9 kB"),
        (1_000_000, "1.0 MB"), (2.5e9, "2.5 GB"), (1e12, "1.0 TB"), (1.5e15, "1500.0 TB"),
    ],
)  # fmt: skip
def test_a_size_has_its_unit(size: float, text: str) -> None:
    assert format_bytes(size) == text


TEXTS = [([0, 1, 2, 3], "0-3"), ([9, 0, 2, 3], "0, 2-3, 9"), ([5], "5"), (range(256), "0-255")]


@pytest.mark.parametrize(("workers", "text"), TEXTS)
def test_numbers_are_ranges_that_the_option_reads(workers: list[int], text: str) -> None:
    assert ranges(workers) == text
    spans = parse_workers(text).ranges
    assert [worker for first, last in spans for worker in range(first, last + 1)] == sorted(workers)


def test_their_noun_is_singular_for_one() -> None:
    assert [named([3]), named(range(64))] == ["worker 3", "workers 0-63"]

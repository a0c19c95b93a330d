"""One module writes to stdout and stderr.

What it writes is printable, and tables fit the width that there is.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.hostile.text import ESCAPES, LEGITIMATE, steers
from tests.paths import ROOT
from tpuctl.cli import output, printing, terminal
from tpuctl.cli.output import GAP, fit
from tpuctl.cli.terminal import display_width, fold
from tpuctl.errors import DeclinedError

PACKAGE = ROOT / "tpuctl"
WRITES = re.compile(
    r"(?<![.\w])print\(|click\.(s?echo|confirm|prompt|style|edit|progressbar)|sys\.(__)?std(out|err)|Console\("
)
READS_ONLY = re.compile(
    r"sys\.std(out|err)(\.(flush|isatty|fileno)\(\)| if err else sys\.std(out|err))"
    r"|print\(\{read\}\.info\)"  # in a command that is shown
    r"|Console\(file=unguarded\(sys\.stderr\)|for stream in \(sys\.stdout, sys\.stderr\):"
)
"""What may be done with a stream beside writing text to it; the bars of rich show no text from elsewhere."""
EVERYTHING = "".join(ESCAPES.values())


def test_only_one_module_writes_to_stdout_and_stderr() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for layer in ("cli", "flows", "cloud", "data", "config", "text")
        for path in sorted((PACKAGE / layer).rglob("*.py"))
        if path != PACKAGE / "cli" / "printing.py"
        for line in path.read_text().splitlines()
        if WRITES.search(READS_ONLY.sub("", line))
    ]
    assert elsewhere == []


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_every_form_of_output_is_printable(escape: str, capfd: pytest.CaptureFixture[str]) -> None:
    output.table((escape, "STATE"), [(escape, "READY"), ("a", escape)])
    output.facts({"name": escape})
    output.note(escape)
    output.note(f"Warning: {escape}")
    output.hint(f"tpuctl logs {escape}")
    output.json({escape: [escape]})
    output.json_line({"text": escape})
    printing.write_block(escape)
    printing.write_log_line(escape, f"[{escape}] ")
    captured = capfd.readouterr()
    assert not steers(captured.out.replace("\n", ""))
    assert not steers(captured.err.replace("\n", ""))


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE)
def test_columns_are_as_wide_as_they_look(text: str) -> None:
    lines = [["NAME", "NEXT"], [text, "|"], ["x", "|"]]
    places = [display_width(line[0]) for line in fit(lines, None)]
    assert len(set(places)) == 1
    assert f"{GAP}|" in GAP.join(list(fit(lines, 200))[1])


def test_a_text_of_wide_characters_is_folded_where_the_terminal_ends() -> None:
    assert all(
        display_width(line) <= 30
        for line in fold("猫 と 犬 の 写真 を 集めた 大きな データセット です " * 3, 30)
    )


LIBRARIES = f"""\
import logging, sys, threading, warnings
from tpuctl.cli import printing
printing.guard()
text = {EVERYTHING!r}
print(text)
sys.stderr.writelines([text])
warnings.warn(text)
logging.getLogger("library").warning(text)
thread = threading.Thread(target=lambda: 1 / 0, name=text)
thread.start()
thread.join()
raise ValueError(text)
"""


def test_what_libraries_write_by_themselves_is_printable() -> None:
    process = subprocess.run([sys.executable, "-c", LIBRARIES], capture_output=True, check=False, timeout=60)
    for data in (process.stdout, process.stderr):
        text = data.decode()
        assert text.count("owned") >= 1
        assert not steers(text.replace("\n", "").replace("\t", ""))
    assert b"ZeroDivisionError" in process.stderr


def test_characters_that_an_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    program = "from tpuctl.cli import printing; printing.guard(); printing.write('größer')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert process.stdout == b"gr\\xf6\\xdfer\n"


def test_a_step_on_a_terminal_is_no_markup(home: Path) -> None:
    program = home / "steps.py"
    program.write_text(
        "from tpuctl.cli.progress import show_steps\n"
        "with show_steps() as report:\n"
        f"    report({ESCAPES['markup']!r})\n"
        f"    report({ESCAPES['clipboard']!r})\n"
    )
    shown = in_terminal(columns=120, program=(str(program),))
    assert "\x1b]" not in shown
    assert "[link=https://example.com]click[/link]" in shown


def test_each_form_of_output_is_on_its_stream(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printing.write("a ", ("b", "red"), " ")
    printing.write("c", err=True)
    printing.write_at_once("d")
    printing.write_block("e\nf")
    printing.write_block("g", err=True)
    printing.say("h", label="Error:", colour="red")
    printing.say("i")
    printing.show_command("tpuctl ls", label="Next:", colour="cyan")
    printing.write_json(b'{"j": 1}')
    printing.write_code("k='l'")
    printing.write_log_line("m", "[0] ")
    printing.write_log_lines(b"n\no\n", "[1] ")
    printing.write_log_lines(b"p\r\n\xff\x1b[2J\n", "[2] ")
    printing.write_log_lines(b"q\n", "[3] ", err=True)
    sys.stdout.flush()
    printing.write_bytes(b"\x00\xff\n")
    printing.write_bytes(b"\x01\n", err=True)
    captured = capfdbinary.readouterr()
    assert captured.out.splitlines() == [
        b"a b", b"d", b"e", b"f", b'{"j": 1}', b"k='l'", b"[0] m", b"[1] n", b"[1] o", b"[2] p",
        b"[2] \\xff\\x1b[2J", b"\x00\xff",
    ]  # fmt: skip
    assert captured.err.splitlines() == [
        b"c", b"g", b"Error: h", b"i", b"Next: tpuctl ls", b"[3] q", b"\x01",
    ]  # fmt: skip


def test_lines_of_a_log_are_written_at_once_or_in_blocks_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = list[bytes]()

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return len(data)

    def show() -> None:
        printing.write_log_lines(b"a\n", "")
        printing.write_log_lines(b"b\n", "[1] ")
        printing.write_bytes(b"c\n")

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Pipe())))

    def interrupted() -> None:
        with printing.in_blocks():
            show()
            assert not written
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written == [b"a\n[1] b\nc\n"]
    show()
    assert b"".join(written[1:]) == written[0]
    printing.write_log_lines(b"d\n", "")
    assert written[-1] == b"d\n"


@pytest.mark.parametrize(
    ("typed", "answer"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("x\ny\n", True)]
)
def test_a_question_is_answered_on_stdin(
    typed: str, answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert printing.confirm("Delete it?") is answer
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Delete it? [y/N]: ")


def test_a_value_is_asked_for_with_its_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def parse(text: str) -> str:
        if text == "bad":
            raise click.UsageError("no")
        return text.upper()

    monkeypatch.setattr(sys, "stdin", io.StringIO("bad\na\n\nb\n"))
    assert printing.prompt("Zone", "z", parse) == "A"
    assert printing.prompt("Zone", "z", parse) == "Z"
    assert printing.prompt("Project", None, parse) == "B"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Zone [z]: Error: no\nZone [z]: Zone [z]: Project: ")


def test_the_end_of_the_input_declines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(
        DeclinedError, match=r"^Input is needed, and the command is not interactive\.$"
    ) as error:
        printing.confirm("Delete it?")
    assert error.value.hint == "Pass the options."
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Delete it? [y/N]: \n")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("states", "colour"),
    [
        ("ready succeeded ok active READY", "green"),
        ("failed lost preempted terminated", "red"),
        ("creating starting queued restarting repairing preparing running", "cyan"),
        ("stopping stopped deleting warning", "yellow"),
        ("skipped spent over", "dim"),
        ("unknown suspended x", ""),
    ],
)
def test_a_state_has_a_colour(states: str, colour: str) -> None:
    assert {terminal.state_colour(f"{state}  ") for state in states.split()} == {colour}
    assert terminal.state_colour("In force") == "yellow"


@pytest.mark.parametrize(
    ("colour", "parameters"),
    [("red", "31"), ("green", "32"), ("yellow", "33"), ("cyan", "36"), ("dim", "2"), ("bold red", "1;31")],
)
def test_a_colour_ends_before_the_blanks(
    colour: str, parameters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert terminal.paint("a b  ", colour, Terminal()) == f"\x1b[{parameters}ma b\x1b[0m  "
    assert terminal.paint("  ", colour, Terminal()) == "  "
    assert terminal.paint("a", "", Terminal()) == "a"
    assert terminal.paint("a", colour, io.StringIO()) == "a"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert terminal.paint("a", colour, Terminal()) == "a"
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "")
    assert terminal.shows_colours(Terminal())


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("1", 1), ("0", None), ("", None), ("x", None), ("-5", None)]
)
def test_the_width_of_a_terminal_is_that_of_its_user(
    columns: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.width(Terminal()) == width, "a stream without a descriptor has no other"
    assert terminal.width(io.StringIO()) is None


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("a b", None, ["a b"]),
        ("x" * 30, None, ["x" * 30]),
        ("x" * 20, 20, ["x" * 20]),
        ("x" * 10 + " " + "y" * 10, 21, ["x" * 10 + " " + "y" * 10]),
        ("x" * 10 + " " + "y" * 10, 20, ["x" * 10, "y" * 10]),
        ("x" * 10 + " " + "y" * 10, 5, ["x" * 10, "y" * 10]),
        ("x" * 9 + " " + "y" * 10, 5, ["x" * 9 + " " + "y" * 10]),
        ("x" * 30 + " y", 20, ["x" * 30, "y"]),
        ("a-" * 15 + " b", 20, ["a-" * 15, "b"]),
        ("é" * 10 + " " + "é" * 10, 21, ["é" * 10 + " " + "é" * 10]),
        ("é" * 10 + " " + "é" * 10, 20, ["é" * 10, "é" * 10]),
        ("日" * 5 + " " + "日" * 5, 21, ["日" * 5 + " " + "日" * 5]),
        ("日" * 5 + " " + "日" * 5, 20, ["日" * 5, "日" * 5]),
        ("é" * 30 + " a", 20, ["é" * 30, "a"]),
        (" " * 30, 20, [""]),
        ("\u3000" * 15, 20, [""]),
    ],
)
def test_a_text_is_folded_between_words(text: str, columns: int | None, lines: list[str]) -> None:
    assert fold(text, columns) == lines
    assert display_width("日本é") == 5


NODES = [
    ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE"],
    ["ada-v3-8", "europe-west4-a", "v3-8", "1", "READY", "no", "tpu-vm-tf-2.18.0-pjrt", "0s"],
    [
        "a-colleagues-v5litepod-256",
        "us-central1-a",
        "v5litepod-256",
        "",
        "CREATING",
        "yes",
        "v2-alpha-tpuv5",
        "3h",
    ],
]
PUBLIC = [
    ["NAME", "SIZE", "WHAT", "LICENCE"],
    [
        "cats_dogs",
        "824.9 MB",
        "25,000 photographs of cats and dogs, of many sizes",
        "Microsoft's own, in the archive",
    ],
    ["reuters", "", "11,228 newswire stories of 1987", "copyright Reuters Ltd.; for research only"],
]
TABLES = pytest.mark.parametrize("lines", [NODES, PUBLIC], ids=["nodes", "public"])


def printed(lines: list[list[str]], columns: int | None) -> list[str]:
    return [GAP.join(cells).rstrip() for cells in fit(lines, columns)]


@TABLES
@pytest.mark.parametrize("columns", [None, 200])
def test_with_room_enough_a_row_is_one_line(lines: list[list[str]], columns: int | None) -> None:
    assert [re.split(r" {2,}", line.strip()) for line in printed(lines, columns)] == [
        [cell for cell in row if cell] for row in lines
    ]


@TABLES
@pytest.mark.parametrize("columns", range(40, 140, 3))
def test_no_line_is_longer_than_the_terminal_and_no_character_is_lost(
    lines: list[list[str]], columns: int
) -> None:
    text = printed(lines, columns)
    assert max(map(len, text)) <= columns
    shown = sorted("".join("".join(text).split()))
    blocks = sorted("".join("".join(row) for row in lines).replace(" ", ""))
    if shown != blocks:  # blocks repeat the header for each row
        header, *rows = lines
        assert shown == sorted("".join("".join(header + row) for row in rows).replace(" ", ""))


@pytest.mark.parametrize("columns", range(60, 140, 5))
def test_values_are_folded_between_words(columns: int) -> None:
    words = {word for row in PUBLIC for cell in row for word in cell.split()}
    assert {word for line in printed(PUBLIC, columns) for word in line.split()} == words


def test_a_name_is_folded_at_its_dashes_where_words_are_too_long_and_the_first_column_last() -> None:
    assert printed(NODES[:2], 60) == [
        "NAME      ZONE     TYPE  HOSTS  STATE  SPOT  RUNTIME     AGE",
        "ada-v3-8  europe-  v3-8  1      READY  no    tpu-vm-tf-  0s",
        "          west4-a                            2.18.0-",
        "                                             pjrt",
    ]


@pytest.mark.parametrize(
    ("row", "columns", "lines"),
    [
        (["first first", "other"], 13, ["first   other", "first"]),
        (["first first", "other other"], 18, ["first first  other", "             other"]),
        (["first first", "other other", "a b"], 23, ["first first  other  a b", "             other"]),
        (["first", "a a", "other other"], 17, ["first  a a  other", "            other"]),
        (["first", "other other", "a a"], 17, ["first  other  a a", "       other"]),
    ],
)
def test_the_widest_column_is_folded_but_the_first_one_last(
    row: list[str], columns: int, lines: list[str]
) -> None:
    shown = printed([["A", "B", "C"][: len(row)], row], columns)
    assert shown[1:] == lines
    assert max(map(len, shown)) <= columns


def test_where_nothing_helps_each_row_is_a_block() -> None:
    assert printed(NODES[:2], 30) == [
        "NAME     ada-v3-8", "ZONE     europe-west4-a", "TYPE     v3-8", "HOSTS    1", "STATE    READY",
        "SPOT     no", "RUNTIME  tpu-vm-tf-2.18.0-pjrt", "AGE      0s",
    ]  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    assert printed(NODES[:1], 200) == [GAP.join(NODES[0])]

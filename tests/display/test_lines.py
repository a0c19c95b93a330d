"""Lines, tables, colours and folds, stream by stream: by call, for terminals of any width."""

from __future__ import annotations

import io
import sys

import click
import pytest

from tpuctl.cli import output, printing, terminal
from tpuctl.cli.session import WarningLines
from tpuctl.errors import DeclinedError
from tpuctl.nodes import HttpRequest

Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A stream that is a terminal, without a size of its own."""

    def isatty(self) -> bool:
        return True


class Unread(io.StringIO):
    """A pipe whose reader gets what was flushed."""

    arrived = ""

    def flush(self) -> None:
        self.arrived += self.getvalue()
        self.truncate(self.seek(0))


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return what stdout and stderr show from now on, on a terminal of 40 columns that has colours."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return shown


@pytest.mark.parametrize(
    ("columns", "width"), [("40", 40), ("1", 1), ("0", None), ("", None), ("-4", None), ("wide", None)]
)
def test_the_width_of_a_terminal_is_that_of_its_user(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None
) -> None:
    screen = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.width(screen) == width
    assert terminal.width(io.StringIO()) is None


@pytest.mark.parametrize(
    ("colour", "parameters"),
    [("red", "31"), ("green", "32"), ("yellow", "33"), ("cyan", "36"), ("dim", "2"), ("bold red", "1;31")],
)
def test_a_colour_is_that_of_its_name_and_leaves_the_blanks_behind(
    monkeypatch: pytest.MonkeyPatch, colour: str, parameters: str
) -> None:
    screen = on_terminal(monkeypatch)
    assert terminal.paint("READY  ", colour, screen) == f"\x1b[{parameters}mREADY\x1b[0m  "
    assert terminal.paint("   ", colour, screen) == "   "
    assert terminal.paint("READY", "", screen) == "READY"
    assert terminal.paint("READY", colour, io.StringIO()) == "READY"


@pytest.mark.parametrize(
    ("colour", "states"),
    [
        ("green", "READY succeeded ok ACTIVE"),
        ("red", "failed LOST preempted TERMINATED"),
        ("cyan", "CREATING STARTING queued restarting REPAIRING preparing running"),
        ("yellow", "STOPPING STOPPED DELETING warning"),
        ("dim", "skipped spent over"),
        ("", "unknown europe-west4-a"),
    ],
)
def test_a_state_has_its_colour(colour: str, states: str) -> None:
    assert {terminal.state_colour(f"{state}  ") for state in states.split()} == {colour}
    assert terminal.state_colour("in force") == "yellow"


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("twenty-two characters!", None, ["twenty-two characters!"]),
        ("twenty-two characters!", 22, ["twenty-two characters!"]),
        ("twenty-two characters!", 21, ["twenty-two", "characters!"]),
        ("a b c d e f g h i j k l", 5, ["a b c d e f g h i j", "k l"]),
        ("a-word-that-is-longer-than-that b", 20, ["a-word-that-is-longer-than-that", "b"]),
        ("größe größe größe größe", 23, ["größe größe größe größe"]),
        ("größe größe größe größe", 22, ["größe größe größe", "größe"]),
        ("größe größe  größe größe", 24, ["größe größe  größe größe"]),
        ("größe größe größe größe b", 23, ["größe größe größe größe", "b"]),
        ("日本 日本 日本 日本 日本", 24, ["日本 日本 日本 日本 日本"]),
        ("日本 日本 日本 日本 日本", 23, ["日本 日本 日本 日本", "日本"]),
        ("", 1, [""]),
        (" " * 30, 20, [""]),
        ("\u3000" * 30, 20, [""]),
    ],
)
def test_a_text_is_folded_between_words_but_not_below_twenty_columns(
    text: str, columns: int | None, lines: list[str]
) -> None:
    assert terminal.fold(text, columns) == lines


def test_a_wide_character_takes_two_columns_and_a_mark_none() -> None:
    assert [terminal.display_width(text) for text in ("abc", "日本", "é", "e\u0301")] == [3, 4, 1, 1]


def test_in_a_pipe_a_sentence_is_one_line_after_its_label(capsys: Capture) -> None:
    printing.say("x " * 60 + "end", label="Error:", colour="red")
    printing.show_command("tpuctl ls", label="Hint:", colour="cyan")
    output.note("Warning:  careful")
    output.note("A note of a Warning: is none.")
    output.hint("tpuctl runs")
    printing.write("a", "b  ", err=True)
    assert capsys.readouterr() == (
        "",
        f"Error: {'x ' * 60}end\nHint: tpuctl ls\nWarning: careful\nA note of a Warning: is none.\n"
        "Next: tpuctl runs\nab\n",
    )


def test_on_a_terminal_labels_have_colours_and_only_sentences_are_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = on_terminal(monkeypatch)
    printing.say("one two three four five six seven eight", label="Error:", colour="bold red")
    output.note("Warning: one two three four five six seven eight")
    output.note("one")
    output.hint(f"tpuctl {'x' * 60}")
    assert screen.getvalue().split("\n") == [
        "\x1b[1;31mError:\x1b[0m one two three four five six seven",
        "eight",
        "\x1b[33mWarning:\x1b[0m one two three four five six",
        "seven eight",
        "one",
        f"\x1b[36mNext:\x1b[0m tpuctl {'x' * 60}",
        "",
    ]


def test_facts_stand_below_each_other_on_the_stream_that_is_meant(capsys: Capture) -> None:
    output.facts({"name": "n1", "accelerator": "v3-8", "none": None})
    output.facts({"a": 1}, err=True)
    assert capsys.readouterr() == ("name         n1\naccelerator  v3-8\nnone         None\n", "a  1\n")


def test_a_long_fact_begins_each_line_below_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    output.facts({"name": "n1", "accelerator": "one two three four five six"})
    output.hanging(": a", "one two three four five six seven eight", state="ok")
    assert screen.getvalue().split("\n") == [
        "name         n1",
        "accelerator  one two three four five six",
        "\x1b[32mok\x1b[0m: a  one two three four five six seven",
        "       eight",
        "",
    ]


def test_a_table_of_states_has_colours_and_another_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    output.table(("NAME", "STATE"), [("ok", "READY"), (1, "?")])
    output.table(("NAME", "RESULT"), [("ok", "READY")])
    assert screen.getvalue().split("\n") == [
        "NAME  STATE",
        "\x1b[32mok\x1b[0m    \x1b[32mREADY\x1b[0m",
        "1     ?",
        "NAME  RESULT",
        "ok    READY",
        "",
    ]


def test_a_table_is_on_the_stream_that_is_meant(capsys: Capture) -> None:
    output.table(("A", "B"), [("1", "2")])
    output.table(("C",), [], err=True)
    assert capsys.readouterr() == ("A  B\n1  2\n", "C\n")


def test_lines_are_folded_by_the_width_of_their_own_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    text = "one two three four five six seven eight nine"
    pipe, screen = io.StringIO(), on_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", pipe)
    for err in (False, True):
        output.facts({"a": text}, err=err)
        output.table(("A",), [(text,)], err=err)
    assert pipe.getvalue() == f"a  {text}\nA\n{text}\n"
    assert {len(line) <= 40 for line in screen.getvalue().split("\n")} == {True}


def test_what_others_wait_for_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Unread()
    monkeypatch.setattr(sys, "stdout", stream)
    for write, arrived in (
        (lambda: printing.write_at_once("a"), "a\n"),
        (lambda: printing.write_json(b"{}"), "{}\n"),
        (lambda: printing.write_log_line("b", "[0] "), "[0] b\n"),
        (lambda: printing.write_log_lines(b"c\n", "[0] "), "[0] c\n"),
        (lambda: printing.write_log_lines(b"\xc3\xb6\n", "[0] "), "[0] ö\n"),
        (lambda: printing.write_live_line("d", ""), "d"),
        (printing.erase_live_line, "\r\x1b[K"),
        (printing.clear_screen, "\x1b[H\x1b[2J\n"),
        (lambda: printing.write("not yet"), ""),
    ):
        write()
        assert stream.arrived == arrived
        stream.arrived = ""


def test_blocks_and_bytes_are_written_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printing.write_block("a\n b")
    printing.write_block("c", err=True)
    printing.write_bytes(b"\xff\x00")
    sys.stdout.flush()
    printing.write_bytes(b"\xfe", err=True)
    assert tuple(capfdbinary.readouterr()) == (b"a\n b\n\xff\x00", b"c\n\xfe")


def test_questions_are_asked_on_stderr_and_answered_by_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def parse(text: str) -> str:
        if text == "bad":
            raise click.UsageError("Not that.")
        return text.upper()

    monkeypatch.setattr(sys, "stdin", io.StringIO("y\nn\nbad\nzone\n\n"))
    assert [printing.confirm("Delete it?"), printing.confirm("Delete it?")] == [True, False]
    assert printing.prompt("Zone", None, parse) == "ZONE"
    assert printing.prompt("Zone", "here", parse) == "HERE"
    with pytest.raises(DeclinedError) as error:
        printing.confirm("More?")
    assert (error.value.message, error.value.hint) == (
        "Input is needed, and the command is not interactive.",
        "Pass the options.",
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "Delete it? [y/N]: Delete it? [y/N]: Zone: Error: Not that.\nZone: Zone [here]: More? [y/N]: \n"
    )


def test_an_interrupt_of_a_question_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        def readline(self, *size: object) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    with pytest.raises(click.Abort):
        printing.confirm("Delete it?")


def test_json_has_its_schema_and_a_stream_of_it_a_line_for_each(capsys: Capture) -> None:
    output.json({"a": [1]})
    output.json_line({"a": [1], "b": "größe"})
    assert capsys.readouterr().out == (
        '{\n  "schema": 1,\n  "a": [\n    1\n  ]\n}\n{"schema":1,"a":[1],"b":"größe"}\n'
    )


def test_json_shows_the_bytes_of_a_name_that_is_no_text() -> None:
    content = {"a\udc80": ["b\udcff", ("c", 1)], "d": {"e": "\udc80"}, "f": 1.5}
    assert output.encoded(content) == (rb'{"a\\udc80":["b\\udcff",["c",1]],"d":{"e":"\\udc80"},"f":1.5}')


def test_requests_are_shown_with_their_bodies_or_as_json(capsys: Capture) -> None:
    planned = [HttpRequest("POST", "https://x/nodes", {"a": 1}), HttpRequest("DELETE", "https://x/n1", None)]
    output.requests(planned, as_json=False)
    assert capsys.readouterr().out == ('POST https://x/nodes\n{\n  "a": 1\n}\nDELETE https://x/n1\n')
    output.requests(planned[1:], as_json=True)
    assert '"requests": [\n' in capsys.readouterr().out


def test_lines_of_a_log_have_their_label_and_what_a_program_printed(capsys: Capture) -> None:
    printing.write_log_lines(b"plain\tone\ntwo\n", "[0] ")
    printing.write_log_lines(b"gr\xc3\xb6\xc3\x9fe\r\nbad \xff\x07\n", "[1] ")
    printing.write_log_lines(b"three\n", "", err=True)
    printing.write_log_line("\x1b[31mred\x1b[0m", "[2] ")
    shown = capsys.readouterr()
    assert shown.out.split("\n")[:3] == ["[0] plain\tone", "[0] two", "[1] größe"]
    assert shown.out.split("\n")[3].startswith("[1] bad ")
    assert "\x07" not in shown.out
    assert (shown.out.split("\n")[4:], shown.err) == (["[2] red", ""], "three\n")


def test_colours_of_a_log_stay_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    printing.write_log_line("\x1b[31mred\x1b[0m")
    printing.write_log_lines(b"\x1b[31mred\x1b[0m\n", "")
    assert screen.getvalue().count("\x1b[31mred\x1b[0m") == 2


def test_a_live_line_is_cut_to_the_terminal_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    printing.write_live_line("x" * 100, "[0] ")
    assert screen.getvalue() == f"[0] {'x' * 35}", "a column stays free"
    printing.write_live_line("日" * 100, "")
    assert screen.getvalue()[39:] == "日" * 19
    printing.write_live_line("a\tb", "")
    printing.erase_live_line()
    printing.clear_screen()
    assert screen.getvalue()[58:] == "a       b\r\x1b[K\x1b[H\x1b[2J\n"


def test_code_for_another_program_is_exact_but_not_on_a_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing.write_code("export A='\x1b[31m'")
    assert capsys.readouterr().out == "export A='\x1b[31m'\n"
    monkeypatch.setattr(sys, "stdout", Terminal())
    printing.write_code("export A='\x1b[31m'")
    assert "\x1b" not in sys.stdout.getvalue()  # type: ignore[attr-defined]


def test_a_stream_that_is_guarded_says_how_much_it_took_and_is_itself_otherwise() -> None:
    inner = Terminal()
    guarded = printing.PrintableStream(inner)
    assert guarded.write("a\x1b[2Jb\n") == 7
    guarded.writelines(["c\n", "d"])
    assert "\x1b" not in inner.getvalue()
    assert inner.getvalue().endswith("c\nd")
    assert guarded.isatty()
    assert printing.unguarded(guarded) is printing.unguarded(inner) is inner  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, "Warning: 1 more like these.\n")])
def test_twenty_warnings_are_shown_each_once_and_the_others_counted(
    capsys: Capture, count: int, more: str
) -> None:
    warn = WarningLines()
    for number in range(count):
        warn(f"line {number}")
        warn(f"line {number}")
    shown = capsys.readouterr().err
    assert shown == "".join(f"Warning: line {number}\n" for number in range(20))
    warn.close()
    assert capsys.readouterr().err == more

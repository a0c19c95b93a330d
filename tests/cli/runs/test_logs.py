"""Options of `tpuctl logs`, and what a terminal shows of a line that is not over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, write_chunk, write_run
from tests.running_simulator import CommandResult
from tpuctl.cli.runs.logs import LogScreen
from tpuctl.cli.terminal import display_width
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.logs.reader import Line

Command = Callable[..., CommandResult]


@pytest.fixture
def printed(bucket: Bucket) -> Bucket:
    """A run r1 of four workers: each printed two lines in its first attempt, and one in its second."""
    run = write_run(bucket)
    for worker in range(4):
        write_chunk(run.attempt(1), worker, 1, f"step of {worker}\nloss of {worker}\n")
    second = run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
    for worker in range(4):
        write_chunk(second, worker, 1, f"again {worker}\n")
    return bucket


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ((), ["[0] again 0", "[1] again 1", "[2] again 2", "[3] again 3"]),
        (("--worker", "1,3"), ["[1] again 1", "[3] again 3"]),
        (("--worker", "2-3", "--tail", "1"), ["[3] again 3"]),
        (("--worker", "2"), ["again 2"]),
        (("--worker", "all", "--grep", "again 1"), ["[1] again 1"]),
        (("--attempt", "1", "--grep", "loss", "--tail", "2"), ["[2] loss of 2", "[3] loss of 3"]),
        (("--attempt", "1", "--worker", "0", "-f"), ["step of 0", "loss of 0"]),
        (("--since", "1h", "--worker", "0"), ["again 0"]),
        (("--grep", "nothing"), []),
    ],
)  # fmt: skip
def test_options_choose_lines(
    tpuctl: Command, printed: Bucket, options: tuple[str, ...], lines: list[str]
) -> None:
    shown = tpuctl("logs", "r1", *options)
    assert (shown.code, shown.out.splitlines()) == (0, lines), shown.err


def test_since_leaves_out_what_is_older(
    tpuctl: Command, printed: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Bucket.now
    monkeypatch.setattr(Bucket, "now", lambda own: now(own) + timedelta(hours=1))
    assert tpuctl("logs", "r1", "--since", "10m").out == ""


def test_timestamps_are_those_of_the_bucket(tpuctl: Command, printed: Bucket) -> None:
    (item,) = printed.objects("runs/r1/attempts/2/workers/0/log/")
    assert tpuctl("logs", "r1", "--worker", "0", "--timestamps").out == f"{item.updated} again 0\n"
    line = tpuctl("logs", "r1", "--worker", "0", "--timestamps", "--json").json
    assert line == {"schema": 1, "worker": 0, "time": item.updated, "text": "again 0"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--worker", "4"), "Worker 4 does not run 'r1'."),
        (("--worker", "0-999999"), "Worker 4 does not run 'r1'."),
        (("--worker", "one"), "'one' names no workers."),
        (("--attempt", "3"), "Run 'r1' has no attempt 3."),
        (("--raw", "--timestamps"), "--raw and --timestamps are two forms of a log."),
        (("--since", "soon"), "'soon' is no duration"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tpuctl: Command, printed: Bucket, options: tuple[str, ...], words: str
) -> None:
    refused = tpuctl("logs", "r1", *options)
    assert refused.code == 2
    assert words in refused.err


def test_a_piece_of_a_log_is_shown_as_its_lines_are(tpuctl: Command, bucket: Bucket) -> None:
    attempt = write_run(bucket).attempt(1)
    texts = ("a\tb\n\nc\nd", "e\r\n10%\r20%\n\x1b[2Jf \xe9\n", "end")
    for number, text in enumerate(texts, start=1):
        bucket.create(attempt.run.paths.log(1, 3, number), text.encode("latin-1"))
    lines = ["a\tb", "", "c", "de", "20%", "\\x1b[2Jf \ufffd", "end"]
    assert tpuctl("logs", "r1", "--worker", "3").out.split("\n") == [*lines, ""]
    assert tpuctl("logs", "r1").out.split("\n") == [*(f"[3] {line}" for line in lines), ""]
    assert tpuctl("logs", "r1", "--tail", "99").out.split("\n") == [*(f"[3] {line}" for line in lines), ""]


def screen(*, raw: bool = False, is_terminal: bool = True) -> LogScreen:
    return LogScreen(as_json=False, raw=raw, labels=True, timestamps=False, is_terminal=is_terminal)


def test_a_terminal_shows_the_state_of_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    own = screen()
    own.show_unfinished([Line(0, b"10%\r20%\r", "1"), Line(1, b"5%", "0")])
    own.show_unfinished([Line(0, b"10%\r20%\r", "1"), Line(1, b"5%", "0")])
    assert capsys.readouterr().out == "[0] 20%", "the newest state, drawn once"
    own.show_unfinished([Line(0, b"10%\r20%\r30%", "2"), Line(1, b"5%", "0")])
    assert capsys.readouterr().out == "\r\x1b[K[0] 30%"
    own.show(Line(0, b"10%\r20%\r30%\r100%\n"))
    assert capsys.readouterr().out == "\r\x1b[K[0] 100%\n"
    own.show_unfinished([])
    own.clear()
    assert capsys.readouterr().out == ""


def test_a_warning_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    own = screen()
    own.show_unfinished([Line(0, b"10%", "1")])
    own.warner(lambda text: print(text))("Careful.")
    assert capsys.readouterr().out == "[0] 10%\r\x1b[KCareful.\n"


def test_a_live_line_fits_the_terminal_and_draws_nothing_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen().show_unfinished([Line(0, b"\x1b[2J\x1b[31m" + "日".encode() * 100, "1")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "日" in shown
    assert display_width(shown) < 80


def test_elsewhere_a_line_waits_for_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    screen(is_terminal=False).show_unfinished([Line(0, b"10%", "1")])
    screen(raw=True).show_unfinished([Line(0, b"10%", "1")])
    assert capsys.readouterr().out == ""

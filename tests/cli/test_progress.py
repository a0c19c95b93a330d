"""Tests what progress says where there is no terminal, and on one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.cli.pseudo_terminal import in_terminal
from tpuctl.cli import progress
from tpuctl.cli.progress import (
    INTERVAL,
    resumable,
    show_conversion,
    show_count,
    show_late_count,
    show_steps,
    show_transfer,
)
from tpuctl.errors import InterruptedByUser
from tpuctl.flows.datasets.conversion import ConversionProgress


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of progress, beside a stderr that is no terminal."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_conversion_says_how_far_and_how_fast_it_is_and_what_is_left(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_conversion(1000) as report:
        clock.now += INTERVAL
        report(ConversionProgress(250, 1000, 50_000_000))
        clock.now += INTERVAL
        report(ConversionProgress(800, 1000, 160_000_000))
        clock.now += INTERVAL
        report(ConversionProgress(1000, 1000, 600_000_000))
    assert capsys.readouterr().err.splitlines() == [
        "250 of 1000 records, 50.0 MB at 5.0 MB/s, 30s left",
        "800 of 1000 records, 160.0 MB at 8.0 MB/s, 5s left",
        "1000 of 1000 records, 600.0 MB at 20.0 MB/s, 0s left",
    ]


def test_before_the_first_record_nobody_knows_what_is_left(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_conversion(1000) as report:
        clock.now += 2 * INTERVAL
        report(ConversionProgress(0, 1000, 0))
    assert capsys.readouterr().err == "0 of 1000 records, 0 B at 0 B/s\n"


def test_there_is_one_line_an_interval(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with show_count("files checked") as report:
        for count in range(30):  # a second each
            report(count, 30)
            clock.now += 1
    assert capsys.readouterr().err.splitlines() == [
        "10 of 30 files checked",
        "20 of 30 files checked",
    ]


def test_each_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with show_steps() as report:
        report("creating the node")
        report("waiting for SSH")
    assert capsys.readouterr().err == "creating the node\nwaiting for SSH\n"


PROGRAM = """
from tpuctl.cli import progress
from tpuctl.flows.datasets.conversion import ConversionProgress
progress.REDRAW_INTERVAL = 0
with progress.show_conversion(40) as report:
    report(ConversionProgress(10, 40, 1_000))
    report(ConversionProgress(40, 40, 4_000))
with progress.show_count("files checked") as count:
    count(3, 12)
"""


def test_a_terminal_has_a_bar_with_the_count_that_disappears(home: Path) -> None:
    program = home / "bars.py"
    program.write_text(PROGRAM)
    shown = in_terminal(columns=120, program=(str(program),))
    for text in ("records", "40/40", "MB/s", "left", "files checked", "3/12"):
        assert text in shown, shown
    assert shown.rstrip().endswith("\x1b[2K"), "the last line is cleared"


def test_a_transfer_says_its_steps_at_once_and_its_bytes_once_an_interval(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_transfer() as (report, progress):
        report("listing objects")
        progress(1, 10_000_000)
        clock.now += 9.5
        progress(2, 10_000_000)
        clock.now += 0.5
        progress(2_500_000, 10_000_000)
        progress(3_000_000, 10_000_000)
    assert capsys.readouterr().err == "listing objects\n2.5 MB of 10.0 MB\n"


def test_a_terminal_shows_the_bytes_of_a_transfer_ten_times_a_second_at_most(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextmanager
    def status(_: Console, text: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(update=lambda text: shown.append(text.plain))

    monkeypatch.setattr(Console, "status", status)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_transfer() as (_, amount):
        for count in range(1, 13):
            clock.now += 1 / 32
            amount(count * 1_000_000, 12_000_000)
    assert shown == [f"{count}.0 MB of 12.0 MB" for count in (4, 8, 12)]


def test_counts_of_several_nouns_follow_each_other_and_none_is_shown_before_its_first(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_late_count() as report:
        clock.now += 60
        for noun in ("files", "shards"):
            report(noun, 1, 3)
            clock.now += 10
            report(noun, 2, 3)
    assert capsys.readouterr().err == "2 of 3 files\n2 of 3 shards\n"


def test_an_interrupt_says_that_the_same_command_goes_on() -> None:
    with pytest.raises(InterruptedByUser) as error, resumable("Interrupted: half.", "that half is kept"):
        raise KeyboardInterrupt
    assert error.value.message == "Interrupted: half."
    assert error.value.hint == "Run the same command again: that half is kept."

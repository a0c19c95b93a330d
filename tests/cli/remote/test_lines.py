"""What is shown of the output of workers and of bytes on their way, without hosts."""

from __future__ import annotations

import pytest

from tests.cli.test_progress import Clock
from tpuctl.cli.remote import cp
from tpuctl.cli.remote.cp import show_bytes
from tpuctl.cli.remote.exec import LinePrinter, write_raw
from tpuctl.flows.remote.execution import Output

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a copy: nothing waits."""
    clock = Clock()
    monkeypatch.setattr(cp, "time", clock)
    return clock


def test_lines_of_several_workers_have_their_numbers_below_each_other(capsys: Capture) -> None:
    printer = LinePrinter([3, 11])
    printer.take(Output(3, "stdout", b"one\ntw"))
    printer.take(Output(11, "stdout", b"eleven\n"))
    printer.take(Output(3, "stderr", b"bad\n"))
    assert capsys.readouterr() == ("[ 3] one\n[11] eleven\n", "[ 3] bad\n")
    printer.take(Output(3, "stdout", b"o\nthree"))
    assert capsys.readouterr() == ("[ 3] two\n", "")
    printer.close()
    assert capsys.readouterr() == ("[ 3] three\n", "")


def test_lines_of_one_worker_have_no_number(capsys: Capture) -> None:
    printer = LinePrinter([7])
    printer.take(Output(7, "stdout", b"one\n"))
    printer.close()
    assert capsys.readouterr() == ("one\n", "")


def test_raw_output_is_written_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_raw(Output(0, "stdout", b"\x1b[31m\xff"))
    write_raw(Output(0, "stderr", b"x\r"))
    assert tuple(capfdbinary.readouterr()) == (b"\x1b[31m\xff", b"x\r")


def test_a_copy_says_every_ten_seconds_how_far_and_how_fast_it_is(clock: Clock, capsys: Capture) -> None:
    with show_bytes([0, 1, 2]) as report:
        clock.now += 9.5
        report(0, 1, 2)
        clock.now += 0.5
        report(0, 5_000_000, 5_000_000)
        report(1, 6_000_000, 20_000_000)
        clock.now += 10
        report(1, 15_000_000, 20_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "5.0 MB of 5.0 MB at 500.0 kB/s, 1 of 3 workers complete",
        "20.0 MB of 25.0 MB at 1.0 MB/s, 1 of 3 workers complete",
    ]


def test_a_copy_to_one_worker_or_of_an_unknown_size_says_less(clock: Clock, capsys: Capture) -> None:
    with show_bytes([0]) as report:
        clock.now += 10
        report(0, 100, 0)
        clock.now += 10
        report(0, 100, 100)
    assert capsys.readouterr().err.splitlines() == ["100 B at 10 B/s", "100 B of 100 B at 5 B/s"]

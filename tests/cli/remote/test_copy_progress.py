"""What is shown of a copy: the bytes of all workers, their rate, and who has all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tpuctl.cli.remote import cp
from tpuctl.cli.remote.cp import show_bytes

Shown = Callable[[], list[str]]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A time that only the test moves."""
    made = Clock()
    monkeypatch.setattr(cp, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def test_there_is_a_line_every_ten_seconds_on_stderr(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_bytes([0]) as report:
        for now in (100.0, 109.9, 110.0, 115.0, 119.9, 120.0):
            clock.now = now
            report(0, int(now) * 1000, 200_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "110.0 kB of 200.0 kB at 11.0 kB/s",
        "120.0 kB of 200.0 kB at 6.0 kB/s",
    ]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({0: (50, 100)}, "50 B of 100 B at 5 B/s"),
        ({0: (100, 100)}, "100 B of 100 B at 10 B/s"),
        ({0: (101, 100)}, "101 B at 10 B/s"),
        ({0: (50, 100), 1: (100, 100)}, "150 B of 200 B at 15 B/s, 1 of 3 workers complete"),
        ({0: (100, 100), 1: (100, 100), 2: (0, 0)}, "200 B of 200 B at 20 B/s, 2 of 3 workers complete"),
    ],
)
def test_the_bytes_of_all_workers_are_added_up(
    clock: Clock, capsys: pytest.CaptureFixture[str], parts: dict[int, tuple[int, int]], text: str
) -> None:
    with show_bytes([0] if len(parts) == 1 else [0, 1, 2]) as report:
        *first, last = parts.items()
        for worker, (size, total) in first:
            report(worker, size, total)
        clock.now += 10
        report(last[0], *last[1])
    assert capsys.readouterr().err == f"{text}\n"

"""Programs with a budget of CPU seconds."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.mutation.programs import CpuClock


def _run(clock: CpuClock, code: str) -> int | None:
    with tempfile.TemporaryFile("w+") as output:
        return clock.run([sys.executable, "-S", "-c", code], Path.cwd(), os.environ, output)


def test_a_program_ends_with_its_code() -> None:
    assert _run(CpuClock(600), "raise SystemExit(3)") == 3


def test_a_program_over_the_budget_is_ended() -> None:
    clock = CpuClock(0.5)
    assert _run(clock, "while True: pass") is None
    assert clock.is_over


def test_a_program_at_a_standstill_is_ended() -> None:
    clock = CpuClock(600, standstill=1)
    assert _run(clock, "import threading; threading.Event().wait()") is None
    assert not clock.is_over

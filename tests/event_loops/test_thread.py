"""Tests that a server which fails to start, or to end, leaves no thread behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.event_loops.thread import LoopThread
from tests.running_simulator import RunningSimulator


async def fail() -> None:
    raise OSError("no port")


def test_a_server_that_fails_to_start_ends_the_loop() -> None:
    thread = LoopThread()
    with pytest.raises(OSError, match="no port"):
        thread.start(fail())
    assert thread.loop.is_closed()


def test_a_server_that_fails_to_end_ends_the_loop() -> None:
    thread = LoopThread()
    with pytest.raises(OSError, match="no port"):
        thread.finish(fail())
    assert thread.loop.is_closed()


def test_a_simulator_that_fails_to_start_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "sim").write_text("not a folder")
    with pytest.raises(FileExistsError):
        RunningSimulator(tmp_path / "sim")
    assert set(threading.enumerate()) <= before

"""Locks of files: who holds one alone is seen by all, and one that is only looked at by nobody."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from tpuctl.cloud.simulator.process import exclusive, is_locked


def test_a_lock_is_held_while_the_block_runs(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists(), "a look makes no file"
    with exclusive(path):
        assert is_locked(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert not is_locked(path)


def test_who_only_looks_is_not_in_the_way_of_another_look(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert not is_locked(path)


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    try:
        with exclusive(path):
            raise KeyError
    except KeyError:
        pass
    assert not is_locked(path)


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    path, order, waits = tmp_path / "lock", list[str](), threading.Event()

    def second() -> None:
        waits.set()
        with exclusive(path):
            order.append("second")

    thread = threading.Thread(target=second, daemon=True)
    with exclusive(path):
        thread.start()
        waits.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert os.path.exists(path), "a lock that is deleted locks nobody out"

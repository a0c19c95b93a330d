"""Pauses before tries, and waiting with a limit."""

from __future__ import annotations

import time

from tpuctl.worker import timing


def test_each_try_comes_after_its_pause() -> None:
    start = time.monotonic()
    assert list(timing.tries((0.0, 0.05))) == [1, 2]
    assert time.monotonic() >= start + 0.05


def test_a_wait_ends_when_the_condition_is_true() -> None:
    states = iter((False, False, True))
    assert timing.wait_until(lambda: next(states), timeout=60, interval=0.0)


def test_a_wait_ends_after_its_limit() -> None:
    assert not timing.wait_until(lambda: False, timeout=0.02, interval=0.01)


def test_a_condition_that_is_true_already_is_looked_at_once() -> None:
    assert timing.wait_until(lambda: True, timeout=0.0)

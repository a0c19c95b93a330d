"""The bytes of downloads in several threads, which end with the command."""

from __future__ import annotations

import threading

import pytest

from tpuctl.flows.progress import ByteCount, EndedError


def test_what_has_arrived_is_told_with_what_is_expected_at_least() -> None:
    told: list[tuple[int, int]] = []
    with ByteCount(lambda here, size: told.append((here, size))) as count:
        count.add(2)
        count.expect(10)
        count.expect(5)
        count.add(3)
        count.add(7)
        count.expect(20)
        count.add(0)
    assert told == [(2, 2), (5, 10), (12, 12), (12, 20)]


def test_downloads_in_other_threads_end_with_an_error_of_the_command_and_not_without() -> None:
    count = ByteCount(lambda here, size: None)
    with count:
        pass
    count.add(1)
    with pytest.raises(KeyboardInterrupt), count:
        raise KeyboardInterrupt
    with pytest.raises(EndedError):
        count.add(1)


def test_bytes_of_several_threads_are_all_counted() -> None:
    told: list[tuple[int, int]] = []
    count = ByteCount(lambda here, size: told.append((here, size)))
    threads = [
        threading.Thread(target=lambda: [count.add(1) for _ in range(100)], daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [(number, number) for number in range(1, 401)]

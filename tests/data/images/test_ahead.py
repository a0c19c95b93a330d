"""Images are converted side by side and come in order; a large one holds nobody up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tpuctl.data.images import decoding as module
from tpuctl.data.images.decoding import LARGE, Ahead, _Budget

TIMEOUT = 120.0


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    with closing(Ahead()) as made:
        yield made


def test_results_come_in_order_whatever_takes_long(ahead: Ahead) -> None:
    items = [(number, bytes([number]), number % 3 == 0) for number in range(100)]
    assert list(ahead.map(lambda number, data: data * 2, items)) == [
        (number, data * 2) for number, data, _ in items
    ]


def test_two_are_converted_at_the_same_time(ahead: Ahead) -> None:
    both = threading.Barrier(2, timeout=TIMEOUT)
    assert len(list(ahead.map(lambda number, data: both.wait(), [(0, b"", True), (1, b"", True)]))) == 2


def test_what_follows_a_large_one_is_converted_meanwhile(ahead: Ahead) -> None:
    small = threading.Event()

    def convert(number: int, data: bytes) -> bool:
        if number == 0:
            return small.wait(TIMEOUT)
        small.set()
        return True

    results = list(ahead.map(convert, [(0, b"", True), (1, b"", True)]))
    assert results == [(0, True), (1, True)]


def test_an_error_is_raised_in_its_place_and_the_rest_is_dropped(ahead: Ahead) -> None:
    def convert(number: int, data: bytes) -> int:
        if number == 2:
            raise ValueError("the third")
        return number

    results = ahead.map(convert, ((number, b"", True) for number in range(10)))
    assert [next(results), next(results)] == [(0, 0), (1, 1)]
    with pytest.raises(ValueError, match="the third"):
        next(results)


def test_files_wait_up_to_a_number_of_bytes(ahead: Ahead) -> None:
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number in range(6):
            read.append(number)
            yield number, bytes(1 << 25), True

    first = next(ahead.map(lambda number, data: number, files()))
    assert first == (0, 0)
    assert read == [0, 1]


def test_what_was_handed_on_no_longer_counts_among_the_bytes_that_wait(ahead: Ahead) -> None:
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number, size in enumerate([1 << 25, 1, 1, 1]):
            read.append(number)
            yield number, bytes(size), True

    results = ahead.map(lambda number, data: number, files())
    assert (next(results), read) == ((0, 0), [0, 1])
    assert (next(results), read) == ((1, 1), [0, 1, 2, 3])


def test_only_so_many_wait_for_the_one_in_front(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITING", 3)
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number in range(9):
            read.append(number)
            yield number, b"", True

    results = ahead.map(lambda number, data: number, files())
    assert (next(results), read) == ((0, 0), [0, 1, 2, 3])
    assert (next(results), read) == ((1, 1), [0, 1, 2, 3, 4])


def test_what_was_not_begun_when_the_reader_stops_is_never_begun(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CORES", 1)  # two threads
    monkeypatch.setattr(module, "_WAITING", 8)
    begun, release = [], threading.Event()

    def convert(number: int, data: bytes) -> int:
        begun.append(number)
        assert number == 0 or release.wait(TIMEOUT)
        return number

    results = ahead.map(convert, ((number, b"", True) for number in range(20)))
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    release.set()
    assert list(ahead.map(convert, [(20, b"", True)])) == [(20, 20)]
    assert set(begun) <= {0, 1, 2, 20}


def test_its_threads_end_with_it() -> None:
    threads = []
    ahead = Ahead()
    assert list(ahead.map(lambda number, data: threads.append(threading.current_thread()), [(0, b"", True)]))
    ahead.close()
    assert [thread.is_alive() for thread in threads] == [False]


def test_large_images_share_their_pixels_and_one_beyond_them_is_alone() -> None:
    budget = _Budget(3 * LARGE)
    inside: list[int] = []
    with budget.share(LARGE), budget.share(LARGE):
        waits = threading.Event()

        def large() -> None:
            waits.set()
            with budget.share(10 * LARGE):
                inside.append(1)

        thread = threading.Thread(target=large, daemon=True)
        thread.start()
        assert waits.wait(TIMEOUT)
        assert inside == []
    thread.join(TIMEOUT)
    assert inside == [1]

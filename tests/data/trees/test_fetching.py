"""What is fetched ahead: in its order, and not without bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tpuctl.data.trees import objects
from tpuctl.data.trees.objects import ReadAhead, in_turn
from tpuctl.data.trees.tree import ListedFile

TIMEOUT = 120.0


class Waiting(ThreadPoolExecutor):
    """A pool of one thread that begins with nothing before it may."""

    def __init__(self) -> None:
        super().__init__(1)
        self.may_begin = threading.Event()
        self.when_asked: Callable[[], object] = bool
        """Called before each work that it is given."""
        super().submit(self.may_begin.wait, TIMEOUT)

    def submit(self, *work: Any) -> Future[Any]:  # type: ignore[override]
        self.when_asked()
        return super().submit(*work)


@pytest.fixture
def pool() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.may_begin.set()
    made.shutdown()


def files(*sizes: int) -> list[ListedFile]:
    return [ListedFile(str(number), size, 0, "") for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "ahead"),
    [
        ([1] * 20, 8),
        ([4 << 20] * 9, 4),
        ([16 << 20, 1, 1], 1),
        ([(16 << 20) - 1, 1, 1], 2),
        ([100 << 20, 1], 1),
    ],
)
def test_eight_files_or_16_mib_are_fetched_ahead(pool: Waiting, sizes: list[int], ahead: int) -> None:
    asked: list[str] = []

    def size(file: ListedFile) -> int:
        asked.append(file.path)
        pool.may_begin.set()
        return file.size

    fetched = in_turn(pool, lambda file: file.path.encode(), files(*sizes), size)
    assert next(fetched) == b"0"
    assert len(asked) == ahead + 1, "the one for which there was no room yet"
    assert list(fetched) == [b"%d" % number for number in range(1, len(sizes))]


def test_a_file_that_cannot_be_fetched_is_its_error_in_its_place(pool: Waiting) -> None:
    pool.may_begin.set()

    def fetch(file: ListedFile) -> bytes:
        if file.path == "1":
            raise OSError(5, "no answer")
        return file.path.encode()

    first, error, last = in_turn(pool, fetch, files(1, 1, 1), lambda file: file.size)
    assert (first, str(error), last) == (b"0", "[Errno 5] no answer", b"2")


def test_what_was_not_begun_when_the_reader_stops_is_never_fetched(pool: Waiting) -> None:
    pool.may_begin.set()
    begun, first_is_read = list[str](), threading.Event()

    def fetch(file: ListedFile) -> bytes:
        begun.append(file.path)
        if file.path != "0":
            first_is_read.wait(TIMEOUT)
        return b""

    fetched = in_turn(pool, fetch, files(*[1] * 20), lambda file: file.size)
    next(fetched)
    fetched.close()  # type: ignore[attr-defined]
    first_is_read.set()
    assert pool.submit(lambda: "after").result(TIMEOUT) == "after"
    assert set(begun) <= {"0", "1"}


class TestReadingOn:
    @pytest.fixture(autouse=True)
    def _parts_of_four_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(objects, "PART", 4)

    def test_four_parts_are_fetched_each_once(self, pool: Waiting) -> None:
        pool.may_begin.set()
        fetched: list[tuple[int, int]] = []
        content = bytes(range(30))

        def fetch(start: int, end: int) -> bytes:
            fetched.append((start, end))
            return content[start:end]

        stream = ReadAhead(pool, fetch, len(content))
        assert [stream.read(0, 3), stream.read(3, 9), stream.read(4, 4)] == [
            content[:3],
            content[3:4],
            content[4:8],
        ]
        pool.submit(bool).result(TIMEOUT)
        assert fetched == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20)]

    def test_the_end_of_the_file_is_the_end(self, pool: Waiting) -> None:
        pool.may_begin.set()
        stream = ReadAhead(pool, lambda start, end: b"0123456789"[start:end], 10)
        assert [stream.read(8, 9), stream.read(10, 1), stream.read(12, 4)] == [b"89", b"", b""]
        assert ReadAhead(pool, lambda start, end: b"", 0).read(0, 1) == b""

    @pytest.mark.parametrize("leaves", ["a jump", "the end"])
    def test_parts_that_were_passed_before_they_were_begun_are_never_fetched(
        self, pool: Waiting, leaves: str
    ) -> None:
        fetched, second_is_begun, release = list[int](), threading.Event(), threading.Event()

        def fetch(start: int, end: int) -> bytes:
            fetched.append(start)
            if start == 4:
                second_is_begun.set()
                release.wait(TIMEOUT)
            return b"0123"

        pool.may_begin.set()
        stream = ReadAhead(pool, fetch, 4000)
        assert stream.read(0, 1) == b"0"
        assert second_is_begun.wait(TIMEOUT)
        if leaves == "the end":
            stream.close()
        else:
            pool.when_asked = release.set
            assert stream.read(400, 1) == b"0"
        release.set()
        pool.submit(bool).result(TIMEOUT)
        assert set(fetched) <= {0, 4, 400, 404, 408, 412}

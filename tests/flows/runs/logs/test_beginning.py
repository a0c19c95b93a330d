"""The last lines of a log: the same as those of the whole log, at the cost of its end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows.runs.logs.memory_logs import MemoryLogs
from tpuctl.cloud.storage import Object
from tpuctl.flows.runs.logs import beginning
from tpuctl.flows.runs.logs import reader as reader_module
from tpuctl.flows.runs.logs.reader import LogReader, last
from tpuctl.runs import ORDERED_LOGS

PIECES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.sampled_from([b"a", b"loss\n", b"\n", b"I am long\n", b"no end "]), max_size=6).map(
            b"".join
        ),
        st.sampled_from([0, 0, 0, 30, 700, 20_000]),
    ),
    max_size=25,
)  # fmt: skip


def lines_of(
    logs: MemoryLogs, tail: int | None = None, since: float | None = None, text: str = ""
) -> list[tuple[int, bytes]]:
    reader = LogReader(logs.attempt, text=text)
    reader.begin(tail, since)
    return [(line.worker, line.data) for line in last(reader.present_lines(), tail)]


@pytest.mark.parametrize("layout", [1, ORDERED_LOGS])
@given(PIECES, st.integers(0, 12), st.sampled_from(["", "loss"]), st.sampled_from([3, 1 << 18]))
def test_the_tail_is_the_end_of_the_whole_log(
    layout: int, pieces: list[tuple[int, bytes, int]], tail: int, text: str, block: int
) -> None:
    logs = MemoryLogs(layout=layout)
    for worker, data, pause in pieces:
        logs.print(worker, data)
        logs.bucket.pass_time(pause)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginning, "BLOCK", block)
        whole = lines_of(logs, text=text)
        assert lines_of(logs, tail, text=text) == whole[max(0, len(whole) - tail) :]


@given(PIECES, st.sampled_from([10, 65, 1000]))
def test_since_shows_the_lines_that_ended_since(pieces: list[tuple[int, bytes, int]], since: int) -> None:
    logs = MemoryLogs()
    for worker, data, pause in pieces:
        logs.print(worker, data)
        logs.bucket.pass_time(pause)
    reader = LogReader(logs.attempt)
    earliest = logs.bucket.now().timestamp() - since
    expected = [
        (line.worker, line.data)
        for line in reader.lines()
        if beginning.clock.parse(line.time).timestamp() >= earliest
    ]
    shown = LogReader(logs.attempt)
    shown.begin(None, since)
    assert [(line.worker, line.data) for line in shown.lines()] == expected


def test_what_follows_the_tail_is_joined_and_shown_once() -> None:
    logs = MemoryLogs()
    for number in range(50):
        logs.print(number % 3, b"line %d\nbegun " % number)
        logs.bucket.pass_time(60)
    reader = LogReader(logs.attempt)
    reader.begin(2, None)
    shown = [line.data for line in last(reader.lines(), 2)]
    for number in range(50, 53):
        logs.print(number % 3, b"line %d\n" % number)
    reader.look()
    shown += [line.data for line in reader.lines()]
    assert shown == [b"begun line %d\n" % number for number in range(48, 53)]


@pytest.mark.parametrize(
    ("tail", "most_requests", "most_bytes"), [(20, 7, 1 << 18), (5000, 10, 2 << 20), (0, 7, 1 << 18)]
)
def test_a_long_log_shows_its_tail_for_a_few_requests(tail: int, most_requests: int, most_bytes: int) -> None:
    logs = MemoryLogs(workers=(0,))
    line = b"%07d " + b"x" * 91 + b"\n"
    for number in range(100):
        logs.print(0, b"".join(line % (number * 10_000 + row) for row in range(10_000)))
        logs.bucket.pass_time(15)
    logs.requests = logs.bucket.bytes_read = 0
    shown = lines_of(logs, tail)
    assert [int(data[:7]) for _, data in shown] == list(range(1_000_000 - tail, 1_000_000))
    assert logs.requests <= most_requests
    assert logs.bucket.bytes_read <= most_bytes


def test_a_silent_worker_hides_nothing() -> None:
    logs = MemoryLogs()
    logs.print(2, b"long ago, and no end")
    logs.bucket.pass_time(100_000)
    random.seed(0)
    for _ in range(30):
        logs.print(random.choice([0, 1]), b"x\n")
    assert lines_of(logs, 2)[-1] == (2, b"long ago, and no end")


def test_a_piece_that_came_late_is_the_newest() -> None:
    logs = MemoryLogs(workers=(0, 1))
    logs.print(0, b"first\n")
    logs.bucket.pass_time(5000)
    logs.print(1, b"second\n")
    logs.print(0, b"late\n", late=4000)
    assert [data for _, data in lines_of(logs)] == [b"first\n", b"second\n", b"late\n"]


def test_a_line_that_began_long_before_is_whole() -> None:
    logs = MemoryLogs(workers=(0, 1))
    logs.print(0, b"half ")
    logs.bucket.pass_time(5000)
    for worker, data in ((1, b"a\n"), (1, b"b\n"), (0, b"done\n"), (1, b"c\n")):
        logs.print(worker, data)
    assert lines_of(logs, 2) == [(0, b"half done\n"), (1, b"c\n")]


def starts(logs: MemoryLogs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that gets the time in the name from which each listing of the logs begins."""
    listed, objects = list[str](), logs.bucket.objects

    def note(prefix: str, *, start: str = "", **options: Any) -> list[Object]:
        if "/log/" in start:
            listed.append(start.rpartition("/log/")[2])
        return objects(prefix, start=start, **options)

    monkeypatch.setattr(logs.bucket, "objects", note)
    return listed


class TestListing:
    """The bucket's clock begins at noon."""

    def test_for_a_tail_begins_ten_minutes_before_the_last_word(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs = MemoryLogs(workers=(0,))
        for _ in range(3):
            logs.print(0, b"x\n")
            logs.bucket.pass_time(60)
        logs.bucket.pass_time(9000)
        listed = starts(logs, monkeypatch)
        assert lines_of(logs, 1) == [(0, b"x\n")]
        assert listed == ["20260101T115200"] * 2, "to find the beginning, and to read from there"

    def test_for_a_tail_of_more_lines_begins_three_hours_before_and_then_at_the_start(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs = MemoryLogs(workers=(0,))
        for _ in range(3):
            logs.print(0, b"x\n")
            logs.bucket.pass_time(4000)
        listed = starts(logs, monkeypatch)
        assert len(lines_of(logs, 2)) == 2
        assert listed[:-1] == ["20260101T140320", "20260101T111320"]
        listed.clear()
        assert len(lines_of(logs, 9)) == 3
        assert listed == ["20260101T140320", "20260101T111320", "", ""]

    def test_for_a_tail_begins_before_now_where_no_worker_has_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs = MemoryLogs()
        listed = starts(logs, monkeypatch)
        assert lines_of(logs, 5) == []
        assert listed[0] == "20260101T115000"

    def test_of_the_lines_since_a_time_begins_a_minute_earlier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        logs = MemoryLogs(workers=(0,))
        logs.print(0, b"old\n")
        logs.bucket.pass_time(60)
        logs.print(0, b"new\n")
        listed = starts(logs, monkeypatch)
        assert lines_of(logs, since=25) == [(0, b"new\n")]
        assert listed == ["20260101T115935"] * 2


@pytest.mark.parametrize("has_label", [True, False])
def test_a_worker_whose_chunks_are_old_is_looked_for_also_if_its_status_does_not_count_them(
    has_label: bool,
) -> None:
    logs = MemoryLogs(workers=(0, 1))
    logs.print(1, b"long ago, and no end")
    logs.bucket.pass_time(100_000)
    logs.print(0, b"x\n")
    if not has_label:
        status = logs.run.paths.status(1, 1)
        logs.bucket.put(status, logs.bucket.read(status))
    assert lines_of(logs, 1) == [(1, b"long ago, and no end")]


def test_a_worker_that_has_printed_nothing_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = MemoryLogs(workers=(0, 1))
    logs.print(0, b"old\n")
    logs.bucket.pass_time(100_000)
    logs.tell(1)
    logs.print(0, b"new\n")
    listed = starts(logs, monkeypatch)
    assert lines_of(logs, 0) == []
    assert "" not in listed


def ranges(logs: MemoryLogs, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that gets the size of each range that is read."""
    sizes, read = list[int](), logs.bucket.read_range

    def note(item: Object, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return read(item, start, end)

    monkeypatch.setattr(logs.bucket, "read_range", note)
    return sizes


def test_the_end_is_read_in_blocks_that_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "BLOCK", 2)
    monkeypatch.setattr(beginning, "LARGEST_BLOCK", 8)
    logs = MemoryLogs(workers=(0,))
    logs.print(0, b"\n" * 40)
    sizes = ranges(logs, monkeypatch)
    beginning.find_beginning(logs.attempt, [0], lambda _: True, 25, None)
    assert sizes[:5] == [2, 4, 8, 8, 8]


def test_a_huge_line_is_one_of_the_tail_and_is_not_read_to_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "BLOCK", 16)
    monkeypatch.setattr(beginning, "LARGEST_BLOCK", 16)
    for module in (beginning, reader_module):
        monkeypatch.setattr(module, "LONGEST_LINE", 64)
    logs = MemoryLogs(workers=(0,))
    logs.print(0, b"first\n" + b"x" * 4000 + b"\nlast\n")
    sizes = ranges(logs, monkeypatch)
    shown = lines_of(logs, 2)
    assert shown[-1] == (0, b"last\n")
    assert set(shown[0][1]) == set(b"x\n")
    assert sum(sizes) < 400

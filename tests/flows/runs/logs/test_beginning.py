"""The last lines of a log: the same as those of the whole log, at the cost of its end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows.runs.logs.memory_logs import MemoryLogs
from tpuctl.flows.runs.logs import beginning
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

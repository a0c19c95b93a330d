"""Lines of several workers, joined from their chunks."""

from __future__ import annotations

import pytest

from tests.flows.runs.records import write_chunk, write_run
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import UsageError
from tpuctl.flows.runs.logs import Line, LogReader
from tpuctl.flows.runs.stored_run import StoredAttempt


@pytest.fixture
def attempt(bucket: Bucket) -> StoredAttempt:
    return write_run(bucket).last_attempt()


def test_lines_come_in_the_order_in_which_chunks_were_written(attempt: StoredAttempt) -> None:
    for worker, chunk, text in ((2, 1, "a\n"), (0, 1, "b\n"), (2, 2, "c\nd\n"), (0, 2, "e\n")):
        write_chunk(attempt, worker, chunk, text)
    lines = list(LogReader(attempt).lines())
    assert lines == [Line(2, "a"), Line(0, "b"), Line(2, "c"), Line(2, "d"), Line(0, "e")]


def test_each_line_is_read_once(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt)
    write_chunk(attempt, 0, 1, "a\n")
    assert list(reader.lines()) == [Line(0, "a")]
    assert list(reader.lines()) == []
    write_chunk(attempt, 0, 2, "b\n")
    assert list(reader.lines()) == [Line(0, "b")]


def test_a_line_cut_at_a_chunks_end_is_joined(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt)
    write_chunk(attempt, 0, 1, "one\ntw")
    write_chunk(attempt, 1, 1, "other\n")
    assert list(reader.lines()) == [Line(0, "one"), Line(1, "other")]
    write_chunk(attempt, 0, 2, "o\r\nthree")
    assert list(reader.lines()) == [Line(0, "two")]
    assert list(reader.all_lines()) == [Line(0, "three")]
    assert list(reader.all_lines()) == []


def test_the_lines_of_one_worker_can_be_chosen(attempt: StoredAttempt) -> None:
    for worker in range(4):
        write_chunk(attempt, worker, 1, f"I am {worker}\n")
    assert list(LogReader(attempt, worker=3).lines()) == [Line(3, "I am 3")]


def test_a_worker_that_does_not_run_the_script_is_refused(attempt: StoredAttempt) -> None:
    with pytest.raises(UsageError, match="Worker 4 does not run 'r1'") as refused:
        LogReader(attempt, worker=4)
    assert refused.value.hint == "It runs on: 0, 1, 2, 3."

"""Lines of several workers, joined from their chunks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from tests.flows.runs.logs.memory_logs import MemoryLogs
from tests.flows.runs.records import ATTEMPT, STATUS, write_chunk, write_run
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import UsageError
from tpuctl.flows.runs.logs import reader as logs
from tpuctl.flows.runs.logs.reader import Line, LogReader, _Cursor, hides_startup_lines, is_startup_line
from tpuctl.flows.runs.stored_attempt import LogChunk, StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, encode, ordered_log_file, status_type
from tpuctl.runs import ORDERED_LOGS


@pytest.fixture
def attempt(bucket: Bucket) -> StoredAttempt:
    return write_run(bucket).last_attempt()


def texts(lines: Iterable[Line]) -> list[tuple[int, str]]:
    """The worker and the text of each line."""
    return [(line.worker, line.text) for line in lines]


def test_lines_come_in_the_order_in_which_chunks_were_written(attempt: StoredAttempt) -> None:
    for worker, chunk, text in ((2, 1, "a\n"), (0, 1, "b\n"), (2, 2, "c\nd\n"), (0, 2, "e\n")):
        write_chunk(attempt, worker, chunk, text)
    assert texts(LogReader(attempt).lines()) == [(2, "a"), (0, "b"), (2, "c"), (2, "d"), (0, "e")]


@pytest.fixture
def ordered(bucket: Bucket) -> StoredAttempt:
    """An attempt whose workers name the chunks of their logs by the time."""
    run = StoredRun(bucket, "r2")
    run.create(msgspec.structs.replace(write_run(bucket).record, run="r2"))
    return run.create_attempt(msgspec.structs.replace(ATTEMPT, log_layout=ORDERED_LOGS))


def write_ordered(attempt: StoredAttempt, worker: int, chunk: int, text: str, seconds: float = 0) -> None:
    """Write a chunk whose name has the bucket's time of so many seconds ago."""
    bucket = attempt.run.bucket
    moment = (bucket.now() - timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%S")
    name = ordered_log_file(moment, worker, chunk)
    bucket.create(f"runs/r2/attempts/1/{name}", text.encode(), "text/plain")


def requests(simulator: RunningSimulator) -> int:
    """How many requests the bucket got."""
    return len(simulator.events.find(kind="request", service="storage"))


class TestOrderedLogs:
    def test_a_look_is_one_listing_whatever_the_number_of_workers(
        self, ordered: StoredAttempt, simulator: RunningSimulator
    ) -> None:
        reader = LogReader(ordered)
        for worker in ATTEMPT.workers:
            write_ordered(ordered, worker, 1, f"I am {worker}\n")
        before = requests(simulator)
        assert len(texts(reader.lines())) == 4
        assert requests(simulator) - before == 1 + 4, "a listing, and each chunk"
        before = requests(simulator)
        assert texts(reader.lines()) == []
        assert requests(simulator) - before == 1

    def test_a_chunk_that_came_late_under_an_early_name_is_shown_before_the_next(
        self, ordered: StoredAttempt
    ) -> None:
        reader = LogReader(ordered)
        write_ordered(ordered, 0, 1, "a\n", seconds=900)
        assert texts(reader.lines()) == [(0, "a")]
        write_ordered(ordered, 0, 2, "b\n", seconds=600)
        assert texts(reader.lines()) == [], "nobody looks so far back at each look"
        write_ordered(ordered, 0, 3, "c\n")
        assert texts(reader.lines()) == [(0, "b"), (0, "c")]
        write_ordered(ordered, 0, 4, "d\n", seconds=600)
        assert texts(reader.all_lines()) == [(0, "d")], "at the end everything is looked at"

    def test_names_that_no_worker_gave_hide_nothing(self, ordered: StoredAttempt) -> None:
        """The future, a day that does not exist, and another worker's number."""
        reader, warnings = LogReader(ordered), list[str]()
        ordered.run.warn = warnings.append
        for name in ("99991231T235959-0000-000007.log", "20269999T999999-0001-000009.log", "x.log"):
            ordered.run.bucket.create(f"runs/r2/attempts/1/log/{name}", b"theirs\n", "text/plain")
        write_ordered(ordered, 9, 1, "no worker\n")
        assert {text for _, text in texts(reader.lines())} == {"theirs"}
        write_ordered(ordered, 0, 1, "a\n")
        assert texts(reader.lines()) == [(0, "a")]
        assert "is no chunk of a log" in warnings[0]
        for number in range(2, 8):
            write_ordered(ordered, 0, number, f"{number}\n")
        assert texts(reader.lines()) == [(0, str(number)) for number in range(2, 8)], "7 is theirs, too"

    def test_a_number_far_beyond_the_last_takes_no_memory(self, ordered: StoredAttempt) -> None:
        """Any job may write a piece for each of its workers under the last number that there is."""
        reader = LogReader(ordered)
        assert texts(reader.lines()) == []
        for worker in ATTEMPT.workers:
            write_ordered(ordered, worker, 999_999, "theirs\n")
        tracemalloc.start()
        reader.look()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 << 20
        assert len(texts(reader.lines())) == len(ATTEMPT.workers)


def test_each_line_is_read_once(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt)
    write_chunk(attempt, 0, 1, "a\n")
    assert texts(reader.lines()) == [(0, "a")]
    assert texts(reader.lines()) == []
    write_chunk(attempt, 0, 2, "b\n")
    assert texts(reader.lines()) == [(0, "b")]


def test_a_line_cut_at_a_chunks_end_is_joined(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt)
    write_chunk(attempt, 0, 1, "one\ntw")
    write_chunk(attempt, 1, 1, "other\n")
    assert texts(reader.lines()) == [(0, "one"), (1, "other")]
    write_chunk(attempt, 0, 2, "o\r\nthree")
    assert texts(reader.lines()) == [(0, "two")]
    assert texts(reader.all_lines()) == [(0, "three")]
    assert texts(reader.all_lines()) == []


def test_the_bytes_of_a_log_stay_as_they_were_printed(attempt: StoredAttempt) -> None:
    printed = "Schritt 1: größer\r\n\x1b[31mrot\x1b[0m\r50%\r100%\n\nohne Ende".encode() + b"\xff"
    for number, start in enumerate(range(0, len(printed), 3), start=1):
        attempt.run.bucket.create(attempt.run.paths.log(1, 0, number), printed[start : start + 3])
    lines = list(LogReader(attempt).all_lines())
    assert b"".join(line.data for line in lines) == printed
    assert [line.text for line in lines] == [
        "Schritt 1: größer", "\x1b[31mrot\x1b[0m\r50%\r100%", "", "ohne Ende\ufffd",
    ], "characters and sequences that a chunk's end cuts are whole again"  # fmt: skip


def test_many_lines_come_as_one_unless_they_have_to_be_looked_at(attempt: StoredAttempt) -> None:
    pieces = ("one\ntw", "o\n\nthree\nfo", "u", "r\nbad\nfive\n", "end")
    for number, text in enumerate(pieces, start=1):
        write_chunk(attempt, 0, number, text)
    hides = "bad".__eq__
    reader = LogReader(attempt, None, hides, splits=lambda lines: b"bad" in lines)
    lines = [line.data for line in reader.all_lines()]
    assert lines == [b"one\n", b"two\n\nthree\n", b"four\n", b"five\n", b"end"]
    assert reader.hidden == 1
    assert b"".join(lines) == b"".join(line.data for line in LogReader(attempt, None, hides).all_lines())


def test_the_lines_of_one_worker_can_be_chosen(attempt: StoredAttempt) -> None:
    for worker in range(4):
        write_chunk(attempt, worker, 1, f"I am {worker}\n")
    assert texts(LogReader(attempt, workers=[3]).lines()) == [(3, "I am 3")]


def test_a_worker_that_does_not_run_the_script_is_refused(attempt: StoredAttempt) -> None:
    with pytest.raises(UsageError, match="Worker 4 does not run 'r1'") as refused:
        LogReader(attempt, workers=[4])
    assert refused.value.hint == "It runs on: 0-3."


TENSORFLOW = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795343934.916123   32655 port.cc:153] oneDNN custom operations are on.
I0000 00:00:1795343934.916445     955 cudart_stub.cc:31] Could not find cuda drivers on your machine.
E0000 00:00:1795343940.326008   32655 cuda_platform.cc:52] failed call to cuInit
I have a line of my own
first useful line
"""


def test_lines_that_are_left_out_are_counted(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt, hides=is_startup_line)
    write_chunk(attempt, 0, 1, TENSORFLOW[:200])
    assert texts(reader.lines()) == []
    write_chunk(attempt, 0, 2, TENSORFLOW[200:])
    first_words = [line.text.split()[0] for line in reader.lines()]
    assert first_words == ["E0000", "I", "first"], "errors and the script's own stay"
    assert reader.hidden == 3


def test_without_a_filter_every_line_is_there(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt)
    write_chunk(attempt, 0, 1, TENSORFLOW)
    assert "".join(f"{line.text}\n" for line in reader.lines()) == TENSORFLOW
    assert reader.hidden == 0


@pytest.mark.parametrize(
    ("framework", "environment", "hides"),
    [
        ("tensorflow", {}, True), ("tensorflow", {"RATE": "1"}, True), ("jax", {}, False),
        ("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "0"}, False),
    ],
)  # fmt: skip
def test_they_are_left_out_of_tensorflow_runs_whose_user_set_no_level(
    bucket: Bucket, framework: str, environment: dict[str, str], hides: bool
) -> None:
    record = msgspec.structs.replace(write_run(bucket).record, framework=framework, environment=environment)
    assert hides_startup_lines(record) == hides


def test_a_chunk_after_a_gap_hides_none_that_come(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt, workers=[0])
    for chunk, text in ((1, "a\n"), (999_999, "far\n"), (2, "b\n"), (3, "c\n")):
        write_chunk(attempt, 0, chunk, text)
        assert [line.text for line in reader.lines()] == [text.strip()]
    assert list(reader.lines()) == []


def test_a_huge_chunk_is_read_in_blocks_and_a_huge_line_in_pieces(
    attempt: StoredAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BLOCK", 64)
    monkeypatch.setattr(logs, "LONGEST_LINE", 256)
    text = "first\n" + "x" * 2000 + "\nlast\n"
    write_chunk(attempt, 0, 1, text)
    pieces = [line.text for line in LogReader(attempt, workers=[0]).lines()]
    assert (pieces[0], pieces[-1]) == ("first", "last")
    assert "".join(pieces[1:-1]) == "x" * 2000
    assert max(map(len, pieces)) < 256 + 64


def test_a_chunk_that_is_written_again_between_listing_and_reading_is_read(attempt: StoredAttempt) -> None:
    reader = LogReader(attempt, workers=[0])
    write_chunk(attempt, 0, 1, "a\n")
    bucket, listed = attempt.run.bucket, attempt.log_chunks(0)
    write_chunk(attempt, 0, 1, "a\n")
    chunk = LogChunk(listed[0], 0, 1)
    assert list(reader._blocks(chunk, _Cursor(0))) == [b"a\n"]
    bucket.remove(attempt.log_chunks(0)[0])
    warnings: list[str] = []
    attempt.run.warn = warnings.append
    assert list(reader._blocks(chunk, _Cursor(0))) == []
    assert "000001.log" in warnings[0]


class TestChunks:
    """Of a bucket in memory."""

    @pytest.mark.parametrize(
        ("limit", "value", "fetched"),
        [("MOST_AT_ONCE", 8, 8), ("MOST_AT_ONCE", 11, 8), ("MOST_AT_ONCE", 12, 12), ("WIDTH", 2, 8)],
    )
    def test_are_fetched_together_up_to_a_limit(
        self, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, fetched: int
    ) -> None:
        monkeypatch.setattr(logs, limit, value)
        memory = MemoryLogs(workers=(0,))
        for _ in range(5):
            memory.print(0, b"abc\n")
        lines = LogReader(memory.attempt).lines()
        memory.bucket.bytes_read = 0
        next(lines)
        assert memory.bucket.bytes_read == fetched
        assert len(list(lines)) == 4

    def test_of_which_one_is_larger_than_the_limit_are_all_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "MOST_AT_ONCE", 2)
        memory = MemoryLogs(workers=(0,))
        for _ in range(3):
            memory.print(0, b"abc\n")
        assert len(list(LogReader(memory.attempt).lines())) == 3

    def test_are_not_looked_for_without_a_tail_or_a_time(self) -> None:
        memory = MemoryLogs()
        memory.print(0, b"abc\n")
        reader = LogReader(memory.attempt)
        memory.requests = 0
        reader.begin(None, None)
        assert memory.requests == 0
        assert texts(reader.lines()) == [(0, "abc")]


class TestLinesWithoutEnd:
    @pytest.fixture
    def reader(self) -> LogReader:
        memory = MemoryLogs(workers=(0, 1, 2))
        memory.print(0, b"one\nloss 1")
        memory.print(1, b"other")
        reader = LogReader(memory.attempt, hides=lambda text: text == "other", text="o")
        assert texts(reader.lines()) == [(0, "one")]
        return reader

    def test_are_shown_at_the_end_if_they_are_selected(self, reader: LogReader) -> None:
        (line,) = reader.rest()
        assert line == Line(0, b"loss 1", "2026-01-01T12:00:00Z")
        assert list(reader.rest()) == []

    def test_can_be_shown_again_and_again(self, reader: LogReader) -> None:
        for _ in range(2):
            assert reader.unfinished() == [Line(0, b"loss 1", "2026-01-01T12:00:00Z")]


class TestCompleteness:
    """Whether the last look has listed the end of every worker's log."""

    def look(self, memory: MemoryLogs, reader: LogReader) -> bool:
        return reader.is_complete(memory.attempt.words_of(reader.look().statuses))

    def end(self, memory: MemoryLogs, *workers: int, chunks: int) -> None:
        for worker in workers:
            status = replace(STATUS, worker=worker, state=FINISHED, exit_code=0, log_chunks=chunks)
            memory.bucket.put(memory.run.paths.status(1, worker), encode(status), status_type(status))

    def test_is_reached_once_each_worker_has_said_its_last_word(self) -> None:
        memory = MemoryLogs(workers=(0, 1))
        memory.print(0, b"a\n")
        memory.print(1, b"b\n")
        reader = LogReader(memory.attempt)
        assert not self.look(memory, reader)
        self.end(memory, 0, chunks=1)
        assert not self.look(memory, reader)
        self.end(memory, 1, chunks=1)
        assert self.look(memory, reader)
        assert len(list(reader.lines())) == 2
        assert not reader.is_complete(memory.attempt.words()), "since the lines were read nobody has looked"

    def test_is_not_reached_before_the_last_chunk_is_there(self) -> None:
        memory = MemoryLogs(workers=(0,))
        memory.print(0, b"a\n")
        reader = LogReader(memory.attempt)
        self.end(memory, 0, chunks=2)
        assert not self.look(memory, reader)
        list(reader.lines())
        assert not self.look(memory, reader)
        memory.print(0, b"b\n")
        self.end(memory, 0, chunks=2)
        assert self.look(memory, reader)


@pytest.mark.parametrize(("count", "shown"), [(None, "abc"), (2, "bc"), (0, ""), (5, "abc")])
def test_the_last_lines_are_as_many_as_are_asked_for(count: int | None, shown: str) -> None:
    lines = (Line(0, letter.encode()) for letter in "abc")
    assert "".join(line.text for line in logs.last(lines, count)) == shown

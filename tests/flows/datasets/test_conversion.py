"""Shards are converted side by side: progress, one error that ends all, and the search for bad records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.flows.datasets import conversion as module
from tpuctl.flows.datasets.conversion import Conversion, ConversionProgress

TIMEOUT = 120.0
SHARDS = cast("list[Shard]", list(range(10)))
"""A conversion only hands them on."""


def bad(line: int) -> BadRecord:
    return BadRecord("rows.csv", "is empty", line)


class Plan:
    """What a conversion needs of a plan: its records, and a search that finds these, step by step."""

    def __init__(self, records: int = 100, found: Sequence[tuple[int, list[BadRecord]]] = ()) -> None:
        self.records = records
        self.steps = 0
        self._found = found

    def search(self) -> Iterator[tuple[int, list[BadRecord]]]:
        for step in self._found:
            self.steps += 1
            yield step


def converting(plan: Plan, reported: list[ConversionProgress] | None = None) -> Conversion:
    report = (reported if reported is not None else []).append
    return Conversion(cast("DatasetPlan", plan), report, skip_bad=False)


def as_result(value: object) -> ShardResult:
    return cast("ShardResult", value)


def failing(error: Exception) -> Callable[[Shard], ShardResult]:
    def work(shard: Shard) -> ShardResult:
        raise error

    return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only when a test says so."""
    now = [0.0]

    class Time:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(module, "time", Time)
    return now


def test_the_results_are_in_the_order_of_the_shards() -> None:
    assert converting(Plan()).run(lambda shard: as_result(("made", shard)), SHARDS) == [
        ("made", shard) for shard in SHARDS
    ]


def test_four_shards_are_converted_at_once() -> None:
    four = threading.Barrier(4, timeout=TIMEOUT)
    assert len(converting(Plan()).run(lambda shard: as_result(four.wait()), SHARDS[:8])) == 8


def test_progress_is_the_sum_of_all_and_never_beyond_the_plan() -> None:
    reported: list[ConversionProgress] = []
    counted = converting(Plan(10), reported)
    counted.count(4, 100)
    counted.count(5)
    counted.count(4, 50)
    assert reported == [
        ConversionProgress(4, 10, 100), ConversionProgress(9, 10, 100), ConversionProgress(10, 10, 150),
    ]  # fmt: skip


def test_with_one_error_no_further_shard_begins_and_those_under_way_end() -> None:
    begun, others, failed = list[Any](), threading.Barrier(4, timeout=TIMEOUT), threading.Event()
    converted = converting(Plan())

    def work(shard: Any) -> ShardResult:
        begun.append(shard)
        others.wait()
        if shard == 3:
            failed.set()
            raise OSError("no answer")
        failed.wait(TIMEOUT)
        while True:  # the next piece of a shard, which ends once the error is known
            converted.count(1)

    with pytest.raises(OSError, match=r"^no answer$"):
        converted.run(work, SHARDS)
    assert sorted(begun) == [0, 1, 2, 3]


def test_what_hangs_holds_nobody_up_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over, ended = threading.Event(), list[Any]()

    def work(shard: Any) -> ShardResult:
        is_over.wait(TIMEOUT)
        ended.append(shard)
        return as_result(shard)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        converting(Plan()).run(work, SHARDS)
    assert ended == []
    is_over.set()


def test_after_the_end_of_the_conversion_nothing_is_counted() -> None:
    converted = converting(Plan())
    converted.run(as_result, SHARDS[:1])
    with pytest.raises(module._Stopped):
        converted.count(1)


class TestBadRecords:
    def test_they_outrank_other_errors_and_those_of_all_shards_are_named_in_order(self) -> None:
        both = threading.Barrier(3, timeout=TIMEOUT)
        errors = [OSError("no answer"), BadRecordsError([bad(7)]), BadRecordsError([bad(3), bad(5)])]

        def work(shard: Any) -> ShardResult:
            both.wait()
            raise errors[shard]

        with pytest.raises(BadRecordsError) as refused:
            converting(Plan()).run(work, SHARDS[:3])
        assert [record.line for record in refused.value.bad] == [3, 5, 7]
        assert refused.value.message.startswith("3 records cannot be used: ")

    def test_the_search_to_the_end_finds_them_all(self) -> None:
        plan = Plan(100, [(50, [bad(1)]), (100, [bad(2), bad(9)])])
        with pytest.raises(BadRecordsError) as refused:
            converting(plan).run(failing(BadRecordsError([bad(9)])), SHARDS[:1])
        assert [record.line for record in refused.value.bad] == [1, 2, 9]
        assert refused.value.message.startswith("3 records cannot be used: ")

    @pytest.mark.parametrize(
        ("seconds", "steps", "count"), [(10.0, 2, "3 records"), (10.5, 1, "At least 2 records")]
    )
    def test_the_search_ends_after_ten_seconds(
        self, seconds: float, steps: int, count: str, clock: list[float]
    ) -> None:
        class Slow(Plan):
            def search(self) -> Iterator[tuple[int, list[BadRecord]]]:
                for step in super().search():
                    clock[0] = seconds
                    yield step

        plan = Slow(100, [(50, [bad(1)]), (100, [bad(2)])])
        with pytest.raises(BadRecordsError) as refused:
            converting(plan).run(failing(BadRecordsError([bad(9)])), SHARDS[:1])
        assert plan.steps == steps
        assert refused.value.message.startswith(f"{count} cannot be used: ")

    @pytest.mark.parametrize(
        ("found", "steps", "count"), [(98, 2, "100 records"), (99, 1, "At least 100 records")]
    )
    def test_the_search_ends_with_a_hundred(
        self, found: int, steps: int, count: str, clock: list[float]
    ) -> None:
        plan = Plan(1000, [(500, [bad(line) for line in range(found)]), (1000, [bad(2000)])])
        with pytest.raises(BadRecordsError) as refused:
            converting(plan).run(failing(BadRecordsError([bad(9999)])), SHARDS[:1])
        assert plan.steps == steps
        assert refused.value.message.startswith(f"{count} cannot be used: ")

    def test_a_search_that_ends_early_with_the_last_record_has_found_them_all(
        self, clock: list[float]
    ) -> None:
        plan = Plan(1000, [(1000, [bad(line) for line in range(150)])])
        with pytest.raises(BadRecordsError) as refused:
            converting(plan).run(failing(BadRecordsError([bad(0)])), SHARDS[:1])
        assert refused.value.message.startswith("150 records cannot be used: ")

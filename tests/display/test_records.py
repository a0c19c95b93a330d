"""Tests what is shown of one record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.records import MOST_LINES, MOST_ROWS, record_html


@dataclass(frozen=True)
class Worker:
    """A record within another."""

    worker: int
    error: str = ""


@dataclass(frozen=True)
class Amount:
    """A record that says itself."""

    amount: int

    def __str__(self) -> str:
        return f"{self.amount} USD"


@dataclass(frozen=True)
class Result:
    """A record."""

    name: str
    state: str = "READY"
    ended: datetime | None = None
    cost: Amount = Amount(3)
    workers: tuple[Worker, ...] = ()
    stdout: str = ""
    best: Worker | None = None


def text(result: Result) -> str:
    return Reader(record_html(result)).text


def test_fields_with_values_are_shown_and_others_left_out() -> None:
    shown = text(Result("r1", ended=datetime(2026, 1, 31, tzinfo=UTC)))
    assert shown == "Result r1state● READYended2026-01-31T00:00:00Zcost3 USD"


def test_records_within_it_are_tables_without_empty_columns() -> None:
    shown = text(Result("r1", workers=(Worker(0), Worker(1)), best=Worker(2, "lost")))
    assert "workersworker01" in shown
    assert "bestWorkerworker2errorlost" in shown


def test_much_is_cut() -> None:
    many = Result("r1", workers=tuple(map(Worker, range(1000))), stdout="x\n" * 1000)
    assert f"... and {1000 - MOST_ROWS} more" in text(many)
    assert text(many).count("x\n") == MOST_LINES - 1


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_values_are_text(hostile: str) -> None:
    record = Result(hostile, hostile, workers=(Worker(1, hostile),), stdout=f"{hostile}\n{hostile}")
    check_harmless(record_html(record))

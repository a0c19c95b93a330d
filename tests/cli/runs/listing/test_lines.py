"""What each column of `tpuctl runs` shows of a run, without a bucket."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest

from tpuctl.cli.runs.runs import COLUMNS, ColumnList, Line, headings, reason, shown
from tpuctl.display import Cost
from tpuctl.flows.runs.metrics import LatestMetrics, Metric
from tpuctl.flows.runs.summaries import RunInfo, Summary
from tpuctl.upkeep import Note, Notes

NOW = datetime(2026, 1, 1, 14, tzinfo=UTC)
NOTES = Notes(
    "r1",
    {"team": "vision", "keep": ""},
    (Note("first", "ada", "2026-01-01T12:00:00Z"), Note("last", "bob", "2026-01-01T13:00:00Z")),
)
QUEUED = RunInfo(
    "r2", "queued", datetime(2026, 1, 1, 13, 59, tzinfo=UTC), None, timedelta(0), "v3-8", "", "", "", None,
    "", Cost(None, "", "", ""), "ada@laptop", 0, {},
)  # fmt: skip
RUN = replace(
    QUEUED, name="r1", submitted=datetime(2026, 1, 1, 12, tzinfo=UTC), dataset="pets/1.0.0", state="failed",
    node="n1", zone="europe-west4-a", ended=datetime(2026, 1, 1, 13, 30, tzinfo=UTC),
    duration=timedelta(seconds=5400), exit_code=3, reason="it broke", attempt=2, tags=NOTES.tags,
)  # fmt: skip
CREATED = "2026-01-01T11:59:00Z"
METRICS = LatestMetrics(
    {"loss": Metric(0.123456, 7, "", "loss"), "step_time": Metric(12.0, 7, "", "step_ms")}
)


def test_a_line_has_a_text_in_each_column() -> None:
    line = Line(Summary(RUN, CREATED, notes=NOTES), NOW, METRICS)
    assert {name: str(text(line)) for name, text in COLUMNS.items()} == {
        "run": "r1", "node": "n1", "zone": "europe-west4-a", "type": "v3-8", "state": "failed", "age": "2h",
        "submitted": "2026-01-01T12:00:00Z", "ended": "2026-01-01T13:30:00Z", "duration": "1h30m",
        "cost": "0.00", "dataset": "pets/1.0.0", "submitter": "ada@laptop", "attempt": "2",
        "loss": "0.1235", "accuracy": "", "val_loss": "", "val_accuracy": "", "step_time": "12",
        "tags": "keep, team=vision", "note": "last", "exit": "3", "reason": "attempt 2: it broke",
    }  # fmt: skip


def test_a_run_that_has_not_begun_leaves_cells_empty() -> None:
    line = Line(Summary(QUEUED, CREATED), NOW)
    cells = {name: str(text(line)) for name, text in COLUMNS.items()}
    assert {name: cell for name, cell in cells.items() if cell} == {
        "run": "r2", "type": "v3-8", "state": "queued", "age": "1m", "submitted": "2026-01-01T13:59:00Z",
        "submitter": "ada@laptop",
    }  # fmt: skip
    zero = Line(Summary(replace(QUEUED, exit_code=0), CREATED, notes=Notes("r2")), NOW)
    assert [str(COLUMNS[name](zero)) for name in ("exit", "note", "tags")] == ["0", "", ""]


@pytest.mark.parametrize(
    ("state", "attempt", "lost", "text"),
    [
        ("succeeded", 1, None, ""),
        ("succeeded", 2, None, "attempt 2"),
        ("succeeded", 2, 0, "attempt 2, 0 steps lost"),
        ("failed", 1, None, "it broke"),
        ("failed", 0, None, "it broke"),
        ("failed", 3, 40, "attempt 3, 40 steps lost: it broke"),
    ],
)
def test_a_reason_has_the_attempt_of_a_run_that_was_started_again(
    state: str, attempt: int, lost: int | None, text: str
) -> None:
    run = replace(RUN, state=state, attempt=attempt)
    assert reason(Summary(run, CREATED, steps_lost=lost)) == text


def test_tags_are_a_column_where_a_run_has_any() -> None:
    usual = ("run", "node", "type", "state", "age", "duration", "cost", "dataset", "exit", "reason")
    assert shown([]) == shown([Summary(QUEUED, CREATED)]) == usual
    assert shown([Summary(QUEUED, CREATED), Summary(RUN, CREATED)]) == (*usual[:-1], "tags", "reason")


def test_a_heading_is_the_name_and_that_of_times_has_the_unit() -> None:
    assert headings(["run", "val_loss", "step_time"]) == ["RUN", "VAL_LOSS", "STEP_TIME/MS"]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("loss", ("run", "loss")),
        ("loss, state,loss", ("run", "loss", "state")),
        ("loss,run", ("loss", "run")),
        (("loss",), ("loss",)),
    ],
)
def test_names_of_columns_are_read(typed: object, names: tuple[str, ...]) -> None:
    assert ColumnList().convert(typed, None, None) == names


@pytest.mark.parametrize(
    ("typed", "hint"), [("stat", "did you mean state?"), ("xyzzy", "there are run, node, zone, type, ")]
)
def test_a_word_that_is_no_column_is_refused_with_those_that_are(typed: str, hint: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        ColumnList().convert(f"loss,{typed}", None, None)
    assert f"there is no column '{typed}': {hint}" in error.value.message

"""`tpuctl runs --columns`: which columns are shown, and what reading metrics asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.data.events.files import event
from tests.flows.runs.records import write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket

Command = Callable[..., CommandResult]


@pytest.fixture
def run(bucket: Bucket) -> str:
    """A run that has reported loss and step time."""
    write_run(bucket)
    records = event("loss", 7, 0.12345), event("step_ms", 7, float("inf"))
    bucket.upload("runs/r1/tensorboard/events.out.tfevents.1.h", records, "application/octet-stream")
    return "r1"


def test_the_columns_of_the_user_are_shown_in_their_order_behind_the_run(tpuctl: Command, run: str) -> None:
    shown = tpuctl("runs", "--columns", "loss,state,step_time,accuracy,cost")
    header, line = (text.split() for text in shown.out.splitlines())
    assert header == ["RUN", "LOSS", "STATE", "STEP_TIME/MS", "ACCURACY", "COST"]
    assert line[:4] == [run, "0.1235", "starting", "inf"]


def test_json_has_the_metrics_that_are_asked_for(tpuctl: Command, run: str) -> None:
    (fields,) = tpuctl("runs", "--json", "--columns", "loss,step_time,accuracy").json["runs"]
    assert fields["metrics"]["loss"] == {
        "value": pytest.approx(0.12345), "step": 7, "at": "2026-02-02T02:40:00Z",
        "source": "loss in events.out.tfevents.1.h",
    }  # fmt: skip
    assert fields["metrics"]["step_time"]["value"] == "inf"
    assert fields["metrics"]["accuracy"] is None
    assert "metrics" not in tpuctl("runs", "--json").json["runs"][0]


def test_metrics_are_read_only_for_their_columns(
    tpuctl: Command, run: str, simulator: RunningSimulator
) -> None:
    def requests() -> int:
        return len(simulator.events.find(kind="request", service="storage"))

    counts = []
    for columns in ("run,state,cost", "run,loss"):
        before = requests()
        assert tpuctl("runs", "--columns", columns).code == 0
        counts.append(requests() - before)
    before = requests()
    assert tpuctl("runs").code == 0
    assert requests() - before == counts[0]
    assert counts[1] == counts[0] + 2  # a listing, and the end of the one file


def test_describe_shows_them_with_step_time_and_file(tpuctl: Command, run: str) -> None:
    facts = {fact["name"]: fact for fact in tpuctl("describe", run, "--json").json["run"]["facts"]}
    assert facts["loss"]["value"] == "0.1235 at step 7, 2026-02-02T02:40:00Z"
    assert facts["loss"]["from"] == "loss in events.out.tfevents.1.h"


def test_a_column_that_is_none_names_the_nearest(tpuctl: Command) -> None:
    refused = tpuctl("runs", "--columns", "run,los")
    assert refused.code == 2
    assert "there is no column 'los': did you mean loss?" in refused.err
    assert "there are run, node" in tpuctl("runs", "--columns", "").err

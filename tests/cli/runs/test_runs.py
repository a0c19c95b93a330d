"""`tpuctl runs`: which runs and which columns are shown, and what stands in each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.completion.interface import interface, recorded
from tests.data.events.files import event
from tests.flows.runs.records import ATTEMPT, CREATED, TPU, write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket

Command = Callable[..., CommandResult]


@pytest.fixture
def ended(bucket: Bucket) -> Bucket:
    """A run that succeeded, then one that failed with exit code 3."""
    for name, outcome, code in (("good", runs.SUCCEEDED, 0), ("bad", runs.FAILED, 3)):
        reason = f"worker 0's script ended with exit code {code}"
        verdict = runs.Verdict(
            name, outcome, 1, CREATED, reason, code, runs.BY_WORKERS, ended="2099-01-01T00:00:00Z", tpu=TPU
        )
        write_run(bucket, name).end(verdict)
    return bucket


def test_a_line_tells_node_duration_cost_and_why_it_failed(tpuctl: Command, ended: Bucket) -> None:
    shown = tpuctl("runs")
    header, good, bad = shown.out.splitlines()
    assert header.split() == [
        "RUN", "NODE", "TYPE", "STATE", "AGE", "DURATION", "COST", "DATASET", "EXIT", "REASON",
    ]  # fmt: skip
    assert good.split()[:4] == ["good", "n1", ATTEMPT.tpu.accelerator, "succeeded"]
    assert "USD" in good
    assert good.split()[-1] == "0", "a success needs no reason"
    assert bad.endswith("3     worker 0's script ended with exit code 3")
    assert shown.err.splitlines()[-1] == "Next: tpuctl logs bad --tail 20"


def test_the_json_has_every_fact(tpuctl: Command, ended: Bucket) -> None:
    shown = tpuctl("runs", "--json", "--limit", "1").json
    assert shown["older"] == 1
    (run,) = shown["runs"]
    assert (run["run"], run["node"], run["zone"], run["exit_code"]) == ("bad", "n1", TPU.zone, 3)
    assert run["ended"] == "2099-01-01T00:00:00Z"
    assert run["duration_seconds"] > 0
    assert run["cost"]["currency"] == "USD"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--state", "failed"), ["bad"]),
        (("--state", "failed", "--state", "succeeded"), ["good", "bad"]),
        (("--dataset", "pets"), []),
        (("--since", "1h"), ["good", "bad"]),
        (("--limit", "0"), ["good", "bad"]),
    ],
)
def test_options_select(tpuctl: Command, ended: Bucket, options: tuple[str, ...], names: list[str]) -> None:
    assert [run["run"] for run in tpuctl("runs", "--json", *options).json["runs"]] == names


def test_what_is_not_shown_is_said(tpuctl: Command, ended: Bucket) -> None:
    assert "1 older run not listed: 'tpuctl runs --limit 0'" in tpuctl("runs", "--limit", "1").err
    assert "No run is like that." in tpuctl("runs", "--dataset", "pets").err
    assert tpuctl("runs", "--state", "fine").code == 2


def test_the_commands_of_runs_take_what_is_recorded() -> None:
    paths = ("submit", "run", "resubmit", "watch", "logs", "pull", "runs", "cancel", "wait")
    assert interface(*paths) == recorded(*paths) != ""


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

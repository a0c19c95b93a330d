"""`tpuctl runs`: a line about each run, and the selection of runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.completion.interface import interface, recorded
from tests.flows.runs.records import ATTEMPT, CREATED, TPU, write_run
from tests.running_simulator import CommandResult
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

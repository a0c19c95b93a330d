"""Tests the command drill: the simulated maintenance of the API, and what the loss of its TPU costs a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.catalogue.prices import Price
from tpuctl.cli.runs import drill as run_drill
from tpuctl.errors import DeclinedError, UsageError
from tpuctl.flows.runs.recovery.drill import RunDrillReport

Tpuctl = Callable[..., CommandResult]
JOB = """
import os, pathlib, time
folder = os.environ["TPUCTL_CHECKPOINT_DIR"]
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tpuctl: Tpuctl, node: str) -> str:
    """The name of a run that goes on until it is ended."""
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    return "r1"


def calls(simulator: RunningSimulator) -> list[str]:
    return [
        event.resource for event in simulator.events.find(kind="request", what="SimulateMaintenanceEvent")
    ]


def test_a_maintenance_is_simulated_by_the_api_and_the_run_goes_on(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, run: str
) -> None:
    dry = tpuctl("drill", node, "--dry-run")
    assert dry.out.startswith("POST https://tpu.googleapis.com/v2alpha1/projects/")
    assert f"/nodes/{node}:simulateMaintenanceEvent\n" in dry.out
    assert '"workerIds"' in dry.out
    assert calls(simulator) == []
    asked = tpuctl("drill", node)
    assert asked.code == 10
    assert f"Running there: {run}." in asked.err
    assert re.search(rf"^{node} .* READY ", asked.err, re.MULTILINE)
    assert "It can end what runs there, as a maintenance by the provider can." in asked.err
    assert calls(simulator) == []
    result = tpuctl("drill", node, "--yes", "--json")
    assert result.code == 0, result.err
    assert [name.rpartition("/")[2] for name in calls(simulator)] == [node]
    (sent,) = simulator.events.find(kind="request", what="SimulateMaintenanceEvent")
    shown = tpuctl("drill", node, "--dry-run", "--json").json["requests"]
    assert shown[0]["url"].endswith(f"/v2alpha1/{sent.resource}:simulateMaintenanceEvent")
    assert sent.body is not None
    assert sent.body["workerIds"] == shown[0]["body"]["workerIds"]
    report = result.json["drill"]
    assert set(report) == {"node", "zone", "state", "maintenance", "runs"}
    assert (report["node"], report["zone"], report["state"]) == (node, "europe-west4-a", "READY")
    assert report["maintenance"]["status"] == "PENDING"
    assert report["runs"] == [{"run": run, "state": "running", "evidence": ""}]
    assert f"simulating a maintenance of worker 0 of {node}" in result.err


def test_another_persons_node_is_refused_until_its_owner_is_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tpuctl("ls", "--json").json["nodes"][0]["owner"]
    monkeypatch.setenv("TPUCTL_OWNER", "other@example.com")
    for whose in ((), ("--owner", "somebody@example.com"), ("--owner", "-")):
        result = tpuctl("drill", node, "--yes", *whose)
        assert result.code == 4
        assert f"Node '{node}' is not yours" in result.err
        assert owner not in result.err
    assert calls(simulator) == []
    done = tpuctl("drill", node, "--yes", "--owner", owner)
    assert done.code == 0
    assert "No run of this bucket is on it." in done.err
    assert "Next:" not in done.err


def test_a_worker_that_is_not_there_is_refused(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    for worker in ("1", "-1"):
        result = tpuctl("drill", node, "--worker", worker, "--yes")
        assert result.code == 2
        assert f"has no worker {worker}" in result.err


def test_a_stopped_node_has_no_drill(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    result = tpuctl("drill", node, "--yes")
    assert result.code == 4
    assert f"tpuctl start {node}" in result.err


def test_after_a_maintenance_the_log_of_a_run_is_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, run: str
) -> None:
    done = tpuctl("drill", node, "--yes")
    assert done.code == 0, done.err
    assert f"Next: tpuctl logs {run} --tail 20" in done.err


REPORT = RunDrillReport(
    run="r1",
    kind="preemption",
    begun="12:00",
    ended="12:01",
    outcome="preempted",
    evidence="its node is gone",
    saved="ckpt-30",
    resumed_from="ckpt-30",
    steps_lost=0,
    attempt=2,
    node="r1-2",
    zone="europe-west4-a",
    restarted="12:02",
    next_step="12:03",
    seconds_without_steps=180.4,
    cost=Price(Decimal("0.5"), "USD"),
)
POOR = replace(REPORT, saved="", resumed_from="", steps_lost=None, next_step="", seconds_without_steps=None)


def shown(capsys: pytest.CaptureFixture[str], report: RunDrillReport) -> tuple[dict[str, str], str]:
    session: Any = SimpleNamespace(as_json=False)
    run_drill._show(session, report)
    printed = capsys.readouterr()
    lines = [line.split("  ", 1) for line in printed.out.splitlines()]
    return {name: text.strip() for name, text in lines}, printed.err


def test_a_drill_shows_what_the_loss_has_cost(capsys: pytest.CaptureFixture[str]) -> None:
    facts, said = shown(capsys, REPORT)
    assert facts == {
        "run": "r1",
        "preemption": "12:00",
        "ended": "12:01, preempted: its node is gone",
        "saved": "ckpt-30",
        "resumed from": "ckpt-30",
        "steps lost": "0",
        "restarted": "12:02, attempt 2 on r1-2 in europe-west4-a",
        "next step": "12:03",
        "without progress": f"180 s, {REPORT.cost.short}",
    }
    assert said == "Next: tpuctl describe r1\n"


def test_what_a_drill_could_not_find_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    facts, _ = shown(capsys, POOR)
    assert [
        facts[name] for name in ("saved", "resumed from", "steps lost", "next step", "without progress")
    ] == [
        "nothing after the notice",
        "no checkpoint",
        "unknown",
        "none was told: its log has no 'step N'",
        "unknown",
    ]


def test_programs_read_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    session: Any = SimpleNamespace(as_json=True)
    run_drill._show(session, POOR)
    printed = capsys.readouterr()
    content = json.loads(printed.out)["drill"]
    cost = content.pop("cost")
    assert (cost["amount"], cost["currency"]) == (POOR.cost.digits, "USD")
    assert content == {
        name: value for name, value in vars(POOR).items() if name != "cost"
    }  # fmt: skip
    assert printed.err == ""


class TestWhichDrill:
    """Of a TPU or of a run: a name may be both."""

    @pytest.fixture
    def call(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
        """Calls the command in a world with a run of the name, or none; returns what was drilled."""

        def call(*, run: bool, bucket: str = "b", **options: object) -> list[object]:
            done: list[object] = []
            session: Any = SimpleNamespace(
                config={"bucket": bucket}, cloud=SimpleNamespace(bucket="b"), close=lambda: None
            )
            monkeypatch.setattr(run_drill, "find_described", lambda bucket, name: "stored" if run else None)
            monkeypatch.setattr(run_drill, "_drill_tpu", lambda *facts, **_: done.append(facts[1:]))
            monkeypatch.setattr(run_drill, "_drill_run", lambda *facts, **_: done.append(facts[1:]))
            values = {"reboot": False, "worker": 0, "notice": 0.0, "owner": "", "yes": True,
                      "dry_run": False, **options}  # fmt: skip
            assert isinstance(run_drill.drill, click.Command)
            command: Any = run_drill.drill.callback
            command.__wrapped__(session, name="x", **values)
            return done

        return call

    def test_a_run_is_preempted_or_rebooted(self, call: Callable[..., list[object]]) -> None:
        assert call(run=True) == [("stored", "preemption", 0.0)]
        assert call(run=True, notice=9.0) == [("stored", "preemption", 9.0)]
        assert call(run=True, reboot=True) == [("stored", "reboot", 0.0)]

    def test_without_a_run_of_that_name_it_is_a_tpu(self, call: Callable[..., list[object]]) -> None:
        node = [("x", 1, "bob")]
        assert call(run=False, worker=1, owner="bob") == node
        assert call(run=True, worker=1, owner="bob", bucket="") == node

    def test_a_tpu_is_not_rebooted(self, call: Callable[..., list[object]]) -> None:
        with pytest.raises(UsageError, match="--reboot is for a run, and 'x' is none"):
            call(run=False, reboot=True)


class TestDrillOfARun:
    """What is done to its TPU, and what is asked before."""

    @pytest.fixture
    def call(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
        def call(kind: str, *, answer: bool = True, yes: bool = False, **options: bool) -> list[object]:
            done: list[object] = []

            def confirm(question: str, *, yes: bool) -> None:
                done.append((question, yes))
                if not answer:
                    raise DeclinedError("no")

            def drill(planned: object, tools: object, strike: Callable[[], None], price: object) -> str:
                strike()
                return "report"

            cloud = SimpleNamespace(
                require_simulator=lambda: done.append("simulator"),
                preempt=lambda node, notice: done.append(("preempt", node, notice)),
                reboot=lambda node, notice: done.append(("reboot", node, notice)),
            )
            planned = SimpleNamespace(tpu=SimpleNamespace(name="n1"), node="node")
            flow = SimpleNamespace(
                PREEMPTION="preemption", REBOOT="reboot", plan=lambda *_: planned, drill=drill
            )
            monkeypatch.setattr(run_drill, "flow", flow)
            monkeypatch.setattr(run_drill, "tools", lambda *_: "tools")
            monkeypatch.setattr(run_drill, "confirm", confirm)
            monkeypatch.setattr(run_drill, "_show", lambda session, report: done.append(report))
            session: Any = SimpleNamespace(cloud=cloud, owner="ada", as_json=False)
            stored: Any = SimpleNamespace(name="r1")
            with suppress(DeclinedError):
                run_drill._drill_run(
                    session, stored, kind, 9.0, yes=yes, dry_run=options.get("dry_run", False)
                )
            return done

        return call

    @pytest.mark.parametrize(("kind", "strike"), [("preemption", "preempt"), ("reboot", "reboot")])
    def test_its_tpu_is_struck_once_its_user_agrees(
        self, call: Callable[..., list[object]], kind: str, strike: str
    ) -> None:
        question = f"Have run 'r1' lose n1 by a {kind}?"
        assert call(kind) == ["simulator", (question, False), (strike, "node", 9.0), "report"]
        assert call(kind, yes=True)[1] == (question, True)
        assert call(kind, answer=False) == ["simulator", (question, False)]

    def test_a_dry_run_shows_what_it_would_do(
        self, call: Callable[..., list[object]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert call("reboot", dry_run=True) == ["simulator"]
        assert capsys.readouterr().out.startswith("SIMULATOR n1\n")

"""A TPU that is busy: refused, waited for in line, and replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cli.main import run
from tpuctl.client.runs import busy
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import QUEUED, RUNNING, WorkerStatus
from tpuctl.parallel import fanout
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
LONG = HEADER + "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


def await_states(bucket: Bucket, run: str, state: str, ahead: int = 0) -> list[WorkerStatus]:
    """Wait until every worker of a run is in a state, and behind so many others."""

    def look() -> list[WorkerStatus] | None:
        attempt = StoredRun(bucket, run).last_attempt()
        statuses = [status for status in attempt.statuses() if status]
        expected = [status for status in statuses if (status.state, status.ahead) == (state, ahead)]
        return expected if len(expected) == len(attempt.record.workers) else None

    return poll(look, awaiting=f"{run} to be {state}", timeout=120, backoff=Backoff(0.05, 0.3))


def test_a_busy_tpu_is_waited_for_or_taken(tpuctl: Command, node: str, bucket: Bucket) -> None:
    Path("job.py").write_text(LONG)

    def submit(name: str, *options: str) -> CommandResult:
        return tpuctl("submit", "job.py", "--name", name, *options)

    assert submit("r1").code == 0
    await_states(bucket, "r1", RUNNING)
    refused = submit("r2")
    assert refused.code == 4
    assert f"n1 is busy with run 'r1' of {runs.submitter()} (running, " in refused.err
    for command in ("submit job.py --name r2 --queue", "submit job.py --name r2 --replace", "wait r1"):
        assert f": tpuctl {command}\n" in refused.err
    assert bucket.objects("runs/r2/") == []
    waiting = submit("r2", "--queue")
    assert (waiting.code, "1 ahead, the next is 'r1'" in waiting.err) == (0, True), waiting.err
    assert submit("r3", "--queue").code == 0
    await_states(bucket, "r2", QUEUED, 1)
    await_states(bucket, "r3", QUEUED, 2)
    listed = {run["run"]: (run["state"], run["reason"]) for run in tpuctl("runs", "--json").json["runs"]}
    assert listed["r2"] == ("queued", "1 ahead")
    assert listed["r3"] == ("queued", "2 ahead")
    taken = submit("r4", "--replace")
    assert (taken.code, "In the line of n1 wait: r2, r3" in taken.err) == (4, True)
    assert tpuctl("cancel", "r2", "--yes").code == 0
    assert "step 1" not in tpuctl("logs", "r2").out
    await_states(bucket, "r3", QUEUED, 1)
    assert tpuctl("cancel", "r1", "--yes").code == 0
    await_states(bucket, "r3", RUNNING)
    same = submit("r3", "--replace")
    assert (same.code, "There is a run 'r3' already" in same.err) == (4, True)
    await_states(bucket, "r3", RUNNING)
    replacing = submit("r4", "--replace")
    assert replacing.code == 0, replacing.err
    assert f"Stopping 'r3' of {runs.submitter()}.\n" in replacing.err
    verdict = StoredRun(bucket, "r3").verdict()
    assert verdict
    assert verdict.outcome == runs.STOPPED
    await_states(bucket, "r4", RUNNING)


def test_what_waits_no_longer_and_what_is_refused_is_told(tpuctl: Command, node: str, bucket: Bucket) -> None:
    Path("job.py").write_text(LONG)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    await_states(bucket, "r1", RUNNING)
    refused = tpuctl("submit", "job.py", "--name", "r2", "--json")
    assert refused.code == 4
    assert (refused.json["error"]["kind"], refused.json["error"]["busy"]) == ("state", ["r1"])
    shown = in_terminal("submit", "job.py", "--name", "r2", columns=200, typed="n\n")
    assert "n1 is busy with run 'r1'" in shown
    assert "Declined: nothing was started." in shown
    assert "tpuctl wait r1" in shown
    assert bucket.objects("runs/r2/") == []
    assert tpuctl("submit", "job.py", "--queue-timeout", "1h").code == 2
    assert tpuctl("submit", "job.py", "--name", "r2", "--queue", "--queue-timeout", "1s").code == 0
    late = tpuctl("wait", "r2")
    assert late.code == 100
    assert "its turn did not come within 1 s, 1 ahead" in late.err
    assert tpuctl("cancel", "r1", "--yes").code == 0
    again = tpuctl("cancel", "r1", "--yes").err
    assert f"Run 'r1' had ended before: stopped by {load({}).require('owner')}" in again
    assert again.count("stopped") == 1


def test_all_hosts_agree_on_the_order_of_two_that_come_at_once(
    tpuctl: Command, simulator: RunningSimulator, cloud: Cloud
) -> None:
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(LONG)
    assert tpuctl("submit", "job.py", "--name", "r0").code == 0
    names = ["r1", "r2"]
    results = fanout(lambda name: tpuctl("submit", "job.py", "--name", name, "--queue").code, names)
    assert [result.value for result in results] == [0, 0]
    notes = sorted(cloud.bucket.objects("nodes/"), key=lambda item: item.generation)
    order = [item.name.split("/")[-2] for item in notes]
    assert sorted(order[1:]) == names
    assert order[0] == "r0"
    for ahead, name in enumerate(order[1:], start=1):
        await_states(cloud.bucket, name, QUEUED, ahead)
    for ended, following in pairwise(order):
        assert tpuctl("cancel", ended, "--yes").code == 0
        await_states(cloud.bucket, following, RUNNING)
    before, after = (StoredRun(cloud.bucket, name).verdict() for name in order[:2])
    assert before
    assert after
    assert (after.begun or "") >= before.ended, "time in line is no time on the TPU"


@pytest.mark.parametrize("options", [("--queue",), ("--replace",)])
def test_a_free_tpu_is_used_at_once(tpuctl: Command, node: str, options: tuple[str, ...]) -> None:
    Path("job.py").write_text(HEADER + "print('done')\n")
    assert tpuctl("submit", "job.py", "--name", "r1", "-a", *options).out == "done\n"


@pytest.mark.parametrize("name", [("--name", "r{}"), ()])
def test_of_two_that_find_a_tpu_free_at_once_only_the_first_starts(
    tpuctl: Command, node: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: tuple[str, ...]
) -> None:
    Path("job.py").write_text(LONG)
    both, look = threading.Barrier(2), busy.flow.occupants

    def look_together(*arguments: Any) -> object:
        occupants = look(*arguments)
        both.wait(60)
        return occupants

    monkeypatch.setattr(busy.flow, "occupants", look_together)
    options = [[word.format(number) for word in name] for number in (1, 2)]
    results = fanout(lambda words: run(["submit", "job.py", *words]), options)
    assert {result.value for result in results} == {0, 4}
    assert len(bucket.objects("runs/", glob="runs/*/run.json")) == 1
    assert len(bucket.objects("nodes/", glob="nodes/*/runs/**")) == 1

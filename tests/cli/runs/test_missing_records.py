"""Runs that the bucket does not list: their records were deleted meanwhile, or are in another bucket."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.api_core.exceptions import Conflict

from tests.cli.runs.test_queue import HEADER, LONG, await_states
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import Client, runs
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.job.processes import variable
from tpuctl.host.worker.records import QUEUED, READY, RUNNING
from tpuctl.parallel import fanout
from tpuctl.polling import poll

Command = Callable[..., CommandResult]
SHORT = HEADER + "print('done')\n"
RECORD, ATTEMPT, PLACE = "runs/r1/run.json", "runs/r1/attempts/1/attempt.json", "nodes/*/runs/r1/1.json"


@pytest.fixture
def run(tpuctl: Command, node: str, bucket: Bucket) -> str:
    """The name of a run whose script runs on n1."""
    Path("job.py").write_text(LONG)
    Path("short.py").write_text(SHORT)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    await_states(bucket, "r1", RUNNING)
    return "r1"


def forget(bucket: Bucket, *globs: str) -> None:
    """Delete objects as a rule of the bucket's lifecycle does, or a colleague."""
    for glob in globs:
        for item in bucket.objects("", glob=glob):
            bucket.remove(item)


def await_status(bucket: Bucket) -> None:
    """Wait until a worker of r1 has written its status again."""
    poll(
        lambda: bucket.objects("runs/r1/", glob="runs/*/attempts/*/workers/*/status.json") or None,
        awaiting="a status", timeout=60,
    )  # fmt: skip


def check_alive(tpuctl: Command, bucket: Bucket, tpu: str) -> None:
    """Check that the run r1 is known to work, and that nothing deletes or overrides it."""
    listed = tpuctl("runs", "--json").json["runs"]
    assert [row["run"] for row in listed] == ["r1"]
    assert listed[0]["state"] in ("record missing", "running")
    if listed[0]["state"] == "record missing":
        described = tpuctl("describe", "r1")
        assert "record missing" in described.out or "Run 'r1' still works" in described.err, described.err
    before = {item.name for item in bucket.objects("runs/r1/")}
    for name in ("r1", "r2"):
        refused = tpuctl("submit", "short.py", "--name", name, "--tpu", tpu)
        assert refused.code == 4, (name, refused.out, refused.err)
        assert "'r1'" in refused.err, name
    again = tpuctl("run", "short.py", "--name", "r1", "--tpu", tpu, "--yes")
    assert (again.code, "'r1'" in again.err) == (4, True), again.err
    removed = tpuctl("rm", "r1", "--yes")
    assert (removed.code, "'r1'" in removed.err) == (4, True), removed.out
    collected = tpuctl("runs", "gc", "--keep", "0", "--yes")
    assert collected.code == 0, collected.err
    assert tpuctl("reap", "--without-run", "1s", "--yes").code == 0
    assert tpuctl("ls", "--json").json["nodes"][0]["name"] == tpu
    declined = tpuctl("down", tpu)
    assert (declined.code, "r1" in declined.err) == (10, True), declined.err
    assert bucket.objects("runs/r2/") == [], "nothing of it had started"
    assert before <= {item.name for item in bucket.objects("runs/r1/")}


def check_cancel(tpuctl: Command, tpu: str, waiting: str = "") -> None:
    """Check that r1 is stopped although the bucket has no record of it, and its name is free after `rm`."""
    shown = tpuctl("cancel", "r1", "--dry-run", "--json").json["requests"]
    assert [(request["method"], request["body"]) for request in shown] == [("SSH", "stop r1")]
    stopped = tpuctl("cancel", "r1", "--yes")
    assert stopped.code == 0, stopped.err
    assert f"Run 'r1' was stopped on {tpu}" in stopped.err
    assert "r1" not in [row["run"] for row in tpuctl("runs", "--json").json["runs"]]
    assert not waiting or tpuctl("wait", waiting).code == 0
    left = tpuctl("submit", "short.py", "--name", "r1", "--tpu", tpu)
    assert (left.code, "Files of an earlier run 'r1'" in left.err) == (4, True), left.err
    assert tpuctl("rm", "r1", "--yes").code == 0
    following = tpuctl("submit", "short.py", "--name", "r1", "--tpu", tpu, "--attach")
    assert (following.code, "done\n" in following.out) == (0, True), following.err


def test_a_run_whose_records_are_deleted_one_after_another_is_still_a_run(
    tpuctl: Command, run: str, bucket: Bucket
) -> None:
    for gone in (RECORD, ATTEMPT, PLACE):
        forget(bucket, gone)
        check_alive(tpuctl, bucket, "n1")
    check_cancel(tpuctl, "n1")


@pytest.mark.slow
def test_a_supervisor_that_hangs_is_killed_also_where_the_run_has_no_record(
    tpuctl: Command, run: str, bucket: Bucket, simulator: RunningSimulator
) -> None:
    forget(bucket, "**")
    (home,) = Path(simulator.folder, "hosts").glob("*/w0/home")
    folder = home / ".tpuctl/runs/r1/1"
    supervisor = int((folder / "started").read_text().split()[0])
    for pid in (supervisor, processes.running()[supervisor].parent):
        os.kill(pid, signal.SIGSTOP)
    shown = tpuctl("cancel", "r1", "--force", "--dry-run", "--json").json["requests"]
    assert [request["body"] for request in shown] == ["kill r1"]
    killed = tpuctl("cancel", "r1", "--yes", "--force")
    assert killed.code == 0, killed.err
    assert not processes.with_variable(processes.running(), [variable(str(folder))])
    assert tpuctl("submit", "short.py", "--name", "r2", "--attach").code == 0


@pytest.mark.slow
def test_python_stops_a_run_without_a_record_as_the_command_does(
    tpuctl: Command, run: str, bucket: Bucket
) -> None:
    forget(bucket, RECORD, ATTEMPT, PLACE)
    with Client() as client:
        assert client.run("r1").state == "record missing"
        end = client.run("r1").cancel(grace=5)
        assert (end.run, end.outcome, end.stopped_by) == ("r1", "stopped", runs.submitter())
        assert end.evidence == f"stopped by {end.stopped_by}; the bucket has no record of it"
        with pytest.raises(NotFoundError):
            client.run("r1").cancel()
    assert tpuctl("submit", "short.py", "--name", "r2", "--attach").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("gone", [(RECORD, ATTEMPT), (RECORD, ATTEMPT, PLACE)], ids=["listed", "not listed"])
def test_replace_stops_a_run_without_a_record_or_says_what_is_there(
    tpuctl: Command, run: str, bucket: Bucket, gone: tuple[str, ...]
) -> None:
    forget(bucket, *gone)
    replaced = tpuctl("submit", "short.py", "--name", "r2", "--replace", "--attach")
    if PLACE in gone:
        assert replaced.code == 4, replaced.err
        assert "The TPU is busy with run 'r1'" in replaced.err
        assert "tpuctl cancel r1" in replaced.err
        assert bucket.objects("runs/r2/") == []
        assert tpuctl("cancel", "r1", "--yes").code == 0
    else:
        assert (replaced.code, replaced.out) == (0, "done\n"), replaced.err
        assert tpuctl("cancel", "r1", "--yes").code == 4, "nothing of it lives"


def test_what_was_pulled_of_a_run_without_a_record_names_a_command_that_works(
    tpuctl: Command, run: str, bucket: Bucket
) -> None:
    forget(bucket, ATTEMPT)
    pulled = tpuctl("pull", "r1")
    assert "tpuctl logs" not in pulled.err
    assert "Run 'r1' still works, but its records are missing" in pulled.err
    assert pulled.err.endswith("Next: tpuctl doctor\n")


@pytest.mark.slow
def test_a_run_without_the_record_of_its_attempt_is_still_a_run(
    tpuctl: Command, run: str, bucket: Bucket
) -> None:
    forget(bucket, ATTEMPT)
    check_alive(tpuctl, bucket, "n1")
    stopped = tpuctl("cancel", "r1", "--yes")
    assert (stopped.code, "Run 'r1' was stopped on n1" in stopped.err) == (0, True), stopped.err


@pytest.mark.slow
def test_an_emptied_bucket_does_not_hide_the_runs_of_a_slice(
    tpuctl: Command, simulator: RunningSimulator, bucket: Bucket
) -> None:
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(LONG)
    Path("short.py").write_text(SHORT)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    await_states(bucket, "r1", RUNNING)
    forget(bucket, "**")
    await_status(bucket)
    check_alive(tpuctl, bucket, "pod")
    assert tpuctl("submit", "short.py", "--name", "r3", "--queue").code == 0
    attempt = StoredRun(bucket, "r3").last_attempt()

    def waits() -> bool | None:
        first, *others = attempt.statuses()
        is_ready = all(status and status.state == READY for status in others)
        return (is_ready and first is not None and (first.state, first.ahead) == (QUEUED, 1)) or None

    poll(waits, awaiting="the first worker to wait in line, and the others for it", timeout=60)
    check_cancel(tpuctl, "pod", waiting="r3")


@pytest.mark.slow
def test_a_run_whose_bucket_was_deleted_is_stopped_and_nothing_says_that_there_is_none(
    tpuctl: Command, run: str, bucket: Bucket, cloud: Cloud
) -> None:
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)

    def delete() -> bool | None:
        forget(bucket, "**")
        try:
            client.bucket(bucket.name).delete()
        except Conflict:
            return None  # its worker has written meanwhile
        return True

    def is_old() -> bool | None:
        (node,) = cloud.provider.list_nodes().nodes
        return cloud.server_time().timestamp() > node.created_at + 1 or None

    poll(delete, awaiting="the end of the bucket", timeout=60)
    poll(is_old, awaiting="the age at which reap takes a TPU", timeout=60)
    for words in (
        ("runs",), ("logs", "r1"), ("wait", "r1"), ("describe", "r1"), ("pull", "r1"), ("rm", "r1", "--yes"),
        ("runs", "gc", "--yes"), ("reap", "--without-run", "1s", "--yes"), ("watch", "r1", "--once"),
        ("submit", "short.py", "--name", "r2", "--replace"),
    ):  # fmt: skip
        failed = tpuctl(*words)
        assert (failed.code, "does not exist" in failed.err) == (4, True), (words, failed.err)
    assert tpuctl("wait", "n1").code == 0
    stopped = tpuctl("cancel", "r1", "--yes")
    assert (stopped.code, "Run 'r1' was stopped on n1" in stopped.err) == (0, True), stopped.err


@pytest.mark.slow
def test_a_verdict_that_may_not_be_read_is_not_taken_for_none(
    tpuctl: Command, run: str, bucket: Bucket, simulator: RunningSimulator
) -> None:
    fault = simulator.faults.add(
        "gcs-error", status=403, method="storage.objects.get", object="runs/*/verdict.json"
    )
    (listed,) = tpuctl("runs", "--json").json["runs"]
    assert (listed["state"], "verdict.json" in listed["reason"]) == ("unknown", True)
    before = {item.name for item in bucket.objects("")}
    for words in (
        ("wait", "r1"), ("describe", "r1"), ("rm", "r1", "--yes"), ("submit", "short.py", "--name", "r2"),
        ("submit", "short.py", "--name", "r2", "--replace"),
    ):  # fmt: skip
        refused = tpuctl(*words)
        assert (refused.code, "No permission for" in refused.err) == (3, True), (words, refused.err)
    assert tpuctl("runs", "gc", "--keep", "0", "--yes").code == 0
    tpuctl("reap", "--without-run", "1s", "--yes")
    assert tpuctl("ls", "--json").json["nodes"][0]["state"] == "READY"
    assert before <= {item.name for item in bucket.objects("")}
    simulator.faults.remove(fault.id)
    assert [row["state"] for row in tpuctl("runs", "--json").json["runs"]] == ["running"]


@pytest.fixture
def other_bucket(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Another bucket, which commands use from now on."""
    project = cloud.bucket.name.removesuffix("-tpuctl")
    client = google_clients.storage_client(project, cloud.credentials, cloud.endpoints.storage)
    client.create_bucket("other-bucket", location="europe-west4")
    with monkeypatch.context() as patch:
        patch.setenv("TPUCTL_BUCKET", "other-bucket")
        yield Bucket(client, "other-bucket")


@pytest.mark.slow
def test_a_tpu_on_which_a_run_of_another_bucket_works_takes_no_second_one(
    tpuctl: Command, run: str, bucket: Bucket, other_bucket: Bucket
) -> None:
    for name in ("r1", "r2"):
        refused = tpuctl("submit", "short.py", "--name", name)
        assert refused.code == 4, refused.err
        assert "The TPU is busy with run 'r1': it works on worker 0" in refused.err
        assert "--queue" in refused.err
    waiting = tpuctl("submit", "short.py", "--name", "r3", "--queue")
    assert waiting.code == 0, waiting.err
    await_states(other_bucket, "r3", QUEUED, 1)
    reaped = tpuctl("reap", "--without-run", "1s", "--dry-run", "--json")
    assert reaped.json["requests"] == [], "r3 waits, too"
    assert tpuctl("cancel", "r1", "--yes").code == 0
    assert tpuctl("wait", "r3").code == 0
    again = tpuctl("submit", "short.py", "--name", "r2", "--attach")
    assert (again.code, again.out) == (0, "done\n"), again.err


@pytest.mark.slow
def test_a_tpu_that_was_made_for_a_run_stays_while_one_of_another_bucket_works_on_it(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, bucket: Bucket, other_bucket: Bucket
) -> None:
    Path("long.py").write_text(LONG)
    gate = tmp_path / "gate"
    Path("job.py").write_text(
        f"{HEADER}import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)\n"
    )
    own = ("run", "job.py", "--name", "own", "--up", "v3-8", "--down", "--yes", "--bucket", bucket.name)

    def follow() -> bool:
        poll(lambda: bucket.stat("runs/own/attempts/1/attempt.json"), awaiting="its attempt", timeout=120)
        await_states(bucket, "own", RUNNING)
        queued = tpuctl("submit", "long.py", "--name", "r9", "--tpu", "own", "--queue")
        try:
            await_states(other_bucket, "r9", QUEUED, 1)
        finally:
            gate.touch()
        return queued.code == 0

    ended, has_queued = (result.value for result in fanout(lambda act: act(), [lambda: tpuctl(*own), follow]))
    assert has_queued
    assert ended.code == 0, ended.err
    assert "Run 'r9' uses it." in ended.err
    await_states(other_bucket, "r9", RUNNING)

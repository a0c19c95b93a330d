"""The commands cancel, wait and submit --attach, as their user sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runs.test_queue import await_states
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import InterruptedByUser
from tpuctl.flows.runs.control import cancel
from tpuctl.flows.runs.evidence import decision, witnesses
from tpuctl.flows.runs.logs import following
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.job.processes import variable
from tpuctl.host.worker.records import RUNNING

Command = Callable[..., CommandResult]
JAX_HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
SCRIPT = JAX_HEADER + "import time\ntime.sleep(600)\n"


@pytest.fixture
def run(tpuctl: Command, node: str, bucket: Bucket) -> str:
    """The name of a run whose script runs."""
    Path("job.py").write_text(SCRIPT)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    await_states(bucket, "r1", RUNNING)
    return "r1"


def test_a_run_is_stopped_and_everything_says_by_whom(tpuctl: Command, run: str, bucket: Bucket) -> None:
    shown = tpuctl("cancel", run, "--dry-run", "--json")
    first, second = shown.json["requests"]
    assert (first["method"], first["body"]["name"]) == ("POST", "runs/r1/stop.json")
    assert (second["method"], sorted(second)) == ("SSH", ["body", "method", "url"])
    assert bucket.stat("runs/r1/stop.json") is None
    refused = tpuctl("cancel", run)
    assert (refused.code, "Pass --yes" in refused.err) == (10, True)
    assert bucket.stat("runs/r1/stop.json") is None
    stopped = tpuctl("cancel", run, "--yes")
    assert stopped.code == 0, stopped.err
    assert "Run 'r1' was stopped by " in stopped.err
    assert "n1 stays" in stopped.err
    followed = tpuctl("logs", "-f", run)
    assert (followed.code, "Run 'r1' was stopped by " in followed.err) == (4, True)
    assert "stopped" in tpuctl("runs").out
    assert "n1" in tpuctl("ls").out
    again = tpuctl("cancel", run, "--yes", "--json")
    assert again.code == 0
    by = runs.submitter()
    assert f"Run 'r1' was stopped by {by}" in stopped.err
    assert again.json == {
        "schema": 1, "run": "r1", "outcome": "stopped", "stopped_by": by,
        "evidence": again.json["evidence"], "workers": [{"worker": 0, "exit_code": 143, "signal": "SIGTERM"}],
    }  # fmt: skip
    assert by in again.json["evidence"]
    assert tpuctl("cancel", run, "--dry-run", "--json").json["requests"] == []
    assert "had ended before: stopped" in tpuctl("cancel", run).err


@pytest.mark.slow
def test_hosts_are_asked_also_where_the_bucket_refuses_the_request_and_it_is_named_at_the_end(
    tpuctl: Command, run: str, bucket: Bucket, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is told by the host, which may not write it, either."""
    for module, name in (
        (decision, "CHECK_NODE_AFTER"),
        (decision, "ASK_HOST_AFTER"),
        (witnesses, "INTERVAL"),
    ):
        monkeypatch.setattr(module, name, 0.5)
    simulator.faults.add("gcs-error", status=403, method="storage.objects.create", object="runs/r1/*")
    stopped = tpuctl("cancel", run, "--yes")
    assert stopped.code == 0, stopped.err
    lines = stopped.err.splitlines()
    places = [
        next(number for number, line in enumerate(lines) if words in line)
        for words in ("worker 0 has ended", "The bucket did not take the request: ", "was stopped by ")
    ]
    assert places == sorted(places)
    assert "No permission" in lines[places[1]]
    assert StoredRun(bucket, run).verdict() is None
    assert "its last word could not be written: 403 " in stopped.err
    assert "stopped" in tpuctl("runs").out, "who may not write the verdict learns it all the same"


@pytest.mark.slow
def test_hosts_are_asked_also_where_the_bucket_does_not_tell_of_the_run(
    tpuctl: Command, run: str, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-error", status=403, method="storage.objects.*", object="runs/r1/*")
    stopped = tpuctl("cancel", run, "--yes")
    assert stopped.code == 0, stopped.err
    end = next(line for line in stopped.err.splitlines() if "was stopped on" in line)
    assert "No permission" in end
    again = tpuctl("cancel", run, "--yes")
    assert (again.code, "No permission" in again.err) == (3, True), "no host knows it any more"


@pytest.mark.slow
def test_a_supervisor_that_hangs_is_killed_and_its_guard_ends_the_script(
    tpuctl: Command, run: str, bucket: Bucket, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home,) = Path(simulator.folder, "hosts").glob("*/w0/home")
    folder = home / ".tpuctl/runs/r1/1"
    supervisor = int((folder / "started").read_text().split()[0])
    for pid in (supervisor, processes.running()[supervisor].parent):
        os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(cancel, "REACTION", 0.0)
        hangs = tpuctl("cancel", run, "--yes", "--grace", "0s")
    assert (hangs.code, f"tpuctl cancel {run} --force" in hangs.err) == (9, True), hangs.err
    assert tpuctl("cancel", run, "--force", "--dry-run", "--json").json["requests"][-1]["body"] == "kill r1"
    killed = tpuctl("cancel", run, "--yes", "--force")
    assert killed.code == 0, killed.err
    assert "Run 'r1' was stopped by " in killed.err
    assert not processes.with_variable(processes.running(), [variable(str(folder))])
    status = StoredRun(bucket, run).last_attempt().statuses()[0]
    assert status
    assert (status.is_finished, status.stopped_by) == (True, runs.submitter())
    freed = tpuctl("submit", "job.py", "--name", "r2")
    assert freed.code == 0, freed.err


def test_a_run_that_does_not_exist_is_named(tpuctl: Command, node: str) -> None:
    result = tpuctl("cancel", "r9", "--yes")
    assert (result.code, "There is no run 'r9'" in result.err) == (4, True)


def test_a_run_whose_submission_was_killed_is_replaced_at_once(
    tpuctl: Command, node: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hosts have no trace of it, and what may still be on its way reads the request in the bucket."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    Path("job.py").write_text(SCRIPT)
    with monkeypatch.context() as patch:
        patch.setattr(launch, "launch_all", interrupt)
        assert tpuctl("submit", "job.py", "--name", "r1").code == 130
    busy = tpuctl("submit", "job.py", "--name", "r2")
    assert (busy.code, "busy with run 'r1'" in busy.err) == (4, True)
    monkeypatch.setattr(cancel, "REACTION", 0.0)
    replaced = tpuctl("submit", "job.py", "--name", "r2", "--replace")
    assert replaced.code == 0, replaced.err
    verdict = StoredRun(bucket, "r1").verdict()
    assert verdict
    assert (verdict.outcome, verdict.basis, verdict.silent) == (runs.STOPPED, runs.BY_MACHINE, (0,))
    assert verdict.evidence.endswith(" before it had started")


HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nimport sys, time\n'


@pytest.mark.daily
def test_runs_are_waited_for_and_followed(
    tpuctl: Command, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.py").write_text(HEADER + "print('hello')\nsys.exit(int(sys.argv[1]))\n")
    attached = tpuctl("submit", "job.py", "--name", "r1", "--attach", "--", "0")
    assert (attached.code, attached.out) == (0, "hello\n"), attached.err
    assert "Run 'r1' succeeded." in attached.err
    assert tpuctl("submit", "job.py", "--name", "r2", "-d", "--", "3").code == 0
    waited = tpuctl("wait", "r2", "--json")
    assert waited.code == 100
    assert (waited.json["run"], waited.json["outcome"], waited.json["exit_code"]) == ("r2", "failed", 3)
    waited = tpuctl("wait", "r1")
    assert (waited.code, "Next: tpuctl pull r1" in waited.err) == (0, True)
    assert tpuctl("wait", node).code == 0
    assert tpuctl("wait", "r1", "--tpu").code == 4
    Path("long.py").write_text(HEADER + "print('step 1')\ntime.sleep(600)\n")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    def follow(*arguments: object, **options: object) -> object:
        return real(*arguments, **{**options, "sleep": interrupt})  # type: ignore[arg-type]

    real = following.follow
    monkeypatch.setattr("tpuctl.cli.runs.logs.follow_lines", follow)
    left = tpuctl("submit", "long.py", "--name", "r3", "-a")
    assert left.code == 130
    assert "Interrupted; run 'r3' goes on." in left.err
    assert "Hint: Follow it: tpuctl logs -f r3\n      Stop it: tpuctl cancel r3\n" in left.err
    late = tpuctl("wait", "r3", "--timeout", "0s")
    assert (late.code, "has not ended within 0 s" in late.err) == (9, True)
    assert tpuctl("cancel", "r3", "--yes").code == 0
    assert tpuctl("wait", "r3").code == 4


@pytest.mark.slow
def test_a_run_ends_whose_last_word_the_bucket_refuses_and_its_tpu_is_free(
    tpuctl: Command, simulator: RunningSimulator, cloud: Cloud, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who followed it hung, and the TPU was busy, for an hour."""
    monkeypatch.setattr(decision, "CHECK_NODE_AFTER", 0.5)
    monkeypatch.setattr(decision, "ASK_HOST_AFTER", 0.5)
    monkeypatch.setattr(witnesses, "INTERVAL", 0.5)
    Path("job.py").write_text(
        HEADER + "import os\nprint('step 1', flush=True)\n"
        "while not os.path.exists('../go'): time.sleep(0.05)\nprint('step 2')\n"
    )
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    await_states(cloud.bucket, "r1", RUNNING)
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
    bucket = client.bucket(cloud.bucket.name)
    bucket.retention_period = 3600
    bucket.patch()
    (folder,) = Path(simulator.folder, "hosts").glob("*/w0/home/.tpuctl/runs/r1/1")
    (folder / "go").touch()
    followed, waited = tpuctl("logs", "-f", "r1"), tpuctl("wait", "r1")
    assert (followed.code, followed.out, waited.code) == (0, "step 1\nstep 2\n", 0), followed.err
    said = "Run 'r1' succeeded; its last word could not be written: 403 Object 'sim-project-tpuctl/runs/r1/"
    for result in (followed, waited):
        assert said in result.err
        assert "is subject to bucket's retention policy" in result.err
    bucket.retention_period = None
    bucket.patch()
    client.close()
    Path("next.py").write_text(HEADER + "print('hello')\n")
    following_run = tpuctl("submit", "next.py", "--name", "r2", "--tpu", node, "--attach")
    assert following_run.code == 0, following_run.err


def test_a_bucket_that_refuses_is_no_answer_about_a_run_whose_tpu_has_its_name(
    tpuctl: Command, simulator: RunningSimulator, node: str
) -> None:
    """It waited for the TPU instead, and ended with 0 while the run trained."""
    Path("job.py").write_text(HEADER + "print('hello')\n")
    assert tpuctl("submit", "job.py", "--name", node, "--attach").code == 0
    simulator.faults.add("gcs-error", status=403, object=f"runs/{node}/run.json")
    refused = tpuctl("wait", node)
    assert refused.code == 3, refused.err
    assert f"tpuctl wait {node} --tpu" in refused.err
    assert tpuctl("wait", node, "--tpu").code == 0
    simulator.faults.clear()
    simulator.faults.add("gcs-error", status=503, object=f"runs/{node}/run.json", count=20)
    waited = tpuctl("wait", node)
    assert (waited.code, f"Run '{node}' succeeded." in waited.err) == (0, True)


def test_an_interrupt_that_names_what_may_bill_is_not_hidden(
    tpuctl: Command, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(*_: object) -> None:
        raise InterruptedByUser("Interrupted; machine 'r1-2' may bill.", hint="See.", may_bill=["r1-2"])

    # A Ctrl-C in the moment in which a machine is made for a restart.
    monkeypatch.setattr("tpuctl.cli.runs.logs.attach", follow)
    Path("job.py").write_text(HEADER)
    left = tpuctl("submit", "job.py", "--name", "r1", "--attach")
    assert (left.code, "machine 'r1-2' may bill" in left.err) == (130, True), left.err

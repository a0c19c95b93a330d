"""The commands wait and submit --attach, on one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runs.test_queue import await_states
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud
from tpuctl.errors import InterruptedByUser
from tpuctl.flows.runs.evidence import decision, witnesses
from tpuctl.flows.runs.logs import following
from tpuctl.host.worker.records import RUNNING

Command = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nimport sys, time\n'


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
    monkeypatch.setattr("tpuctl.client.runs.following.follow", follow)
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

"""The scheduled job of terraform/ with its own rights restarts a preempted run, and needs each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.iam.rehearsal import COMPLETE, PROJECT, Tpuctl, grant, start
from tests.terraform.plans import record
from tests.terraform.plans.stanzas import nested
from tpuctl.config.settings import SETTINGS, normalize
from tpuctl.flows.runs.evidence import decision

WATCHER = f"serviceAccount:vision-team-watch@{PROJECT}.iam.gserviceaccount.com"
ON_PROJECT, ON_BUCKET = "google_project_iam_member", "google_storage_bucket_iam_member"
JOB = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, time\nwhile os.environ['TPUCTL_ATTEMPT'] == '1': time.sleep(0.05)\nprint('trained')\n"
)
JOBS = "module.base.google_cloud_run_v2_job.watch"
"""The scheduled jobs in the plan of examples/complete."""
NOTHING: Callable[[dict[str, Any]], bool] = lambda resource: False  # noqa: E731


def environment() -> dict[str, str]:
    """Return the environment that examples/complete gives its scheduled job."""
    (lines,) = (lines for name, lines in record.of_plan("complete").items() if name.startswith(JOBS))
    container = nested(lines)["template"][0]["template"][0]["containers"][0]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_the_environment_of_the_job_is_one_that_tpuctl_reads() -> None:
    for variable, value in environment().items():
        setting = variable.removeprefix("TPUCTL_").lower()
        assert setting in SETTINGS, variable
        if setting != "target":
            assert normalize(setting, value, variable)


@contextmanager
def simulator(
    monkeypatch: pytest.MonkeyPatch, folder: Path, user: str | None, dropped: Callable[..., bool] = NOTHING
) -> Iterator[RunningSimulator]:
    running = start(monkeypatch, folder, COMPLETE, user=user, dropped=dropped)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def preempted(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tpuctl: Tpuctl
) -> Callable[..., CommandResult]:
    """A run whose TPU a member made and the provider took back, and a step of the watcher's."""
    for variable, value in environment().items():
        if variable not in ("TPUCTL_TARGET", "TPUCTL_SSH_USER"):
            monkeypatch.setenv(variable, value)
    monkeypatch.setattr(decision, "CHECK_NODE_AFTER", 2.0)
    Path("job.py").write_text(JOB)
    with simulator(monkeypatch, tmp_path, None) as running:
        up = tpuctl("up", "v4-8", "--name", "n1", "--spot", "--framework", "jax", "--yes")
        assert up.code == 0, up.err
        submitted = tpuctl("submit", "job.py", "--name", "r1")
        assert submitted.code == 0, submitted.err
        (node,) = running.world.nodes.all()
        running.call(running.world.preempt(node.name))
        assert tpuctl("wait", "r1").code == 7
    monkeypatch.setenv("TPUCTL_SSH_USER", "tpuctl")
    monkeypatch.setenv("TPUCTL_SSH_KEY", str(tmp_path / "watcher_key"))

    def step(dropped: Callable[..., bool] = NOTHING) -> CommandResult:
        with simulator(monkeypatch, tmp_path, WATCHER, dropped):
            stepped = tpuctl("watch", "--all", "--once")
            if stepped.code == 0 and "restarted" in stepped.out:
                assert tpuctl("wait", "r1").code == 0
                return tpuctl("watch", "--all", "--once")
            return stepped

    return step


def test_the_account_of_the_job_restarts_a_run_and_deletes_what_it_made(
    preempted: Callable[..., CommandResult], tpuctl: Tpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = preempted()
    assert ended.code == 0, ended.err
    with simulator(monkeypatch, tmp_path, None) as running:
        assert running.world.nodes.all() == []
        assert tpuctl("logs", "r1").out == "trained\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (grant(ON_PROJECT, "roles/tpu.admin", member=WATCHER), "roles/tpu.admin"),
        (grant("google_service_account_iam_member", "User", member=WATCHER), "iam.serviceAccountUser"),
        (grant(ON_BUCKET, "objectViewer", member=WATCHER), "No permission for gs://"),
        (
            grant(ON_BUCKET, "objectCreator", member=WATCHER),
            "storage.objects.create",
        ),
        (grant(ON_BUCKET, "overwrite", member=WATCHER), "storage.objects.delete"),
    ],
    ids=["tpu", "actAs", "read", "create", "overwrite"],
)
def test_without_one_of_its_rights_the_job_says_which_and_restarts_nothing(
    preempted: Callable[..., CommandResult], missing: Callable[..., bool], named: str
) -> None:
    refused = preempted(missing)
    assert "restarted" not in refused.out
    assert named in refused.out + refused.err

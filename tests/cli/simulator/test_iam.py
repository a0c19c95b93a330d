"""`sim start --iam`: what it enforces, for whom, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.running_simulator import CommandResult

STATE = ROOT / "tests/terraform/recorded/minimal-rights.json"
Tpuctl = Callable[..., CommandResult]


@pytest.fixture
def stopped(home: Path, tpuctl: Tpuctl) -> Iterator[None]:
    """No simulator runs, before the test and after it."""
    yield
    assert tpuctl("sim", "stop").code == 0


@pytest.fixture
def applied(stopped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project of terraform's minimal example, with its state in iam.json."""
    monkeypatch.setenv("TPUCTL_TARGET", "sim")
    monkeypatch.setenv("TPUCTL_PROJECT", "demo-project-1")
    monkeypatch.setenv("TPUCTL_BUCKET", "demo-project-1-tpuctl-runs")
    Path("iam.json").write_bytes(STATE.read_bytes())


@pytest.mark.usefixtures("applied")
def test_roles_of_a_state_are_enforced_for_the_user_until_it_stops(tpuctl: Tpuctl) -> None:
    started = tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:eve@example.com")
    assert started.code == 0, started.err
    assert "enforced, this shell as user:eve@example.com" in started.out
    denied = tpuctl("ls", "--zone", "europe-west4-a")
    assert denied.code == 3, denied.out
    assert "Permission 'tpu.nodes.list' denied" in denied.err
    assert "Ask an owner of the project for the role roles/tpu.admin." in denied.err

    other = tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:ada@example.com")
    assert other.code == 4
    assert "The simulator runs already, as user:eve@example.com." in other.err

    assert tpuctl("sim", "stop").code == 0
    free = tpuctl("sim", "start", "--json")
    assert free.json["iam"] is None
    assert tpuctl("ls", "--zone", "europe-west4-a").code == 0
    unenforced = tpuctl("sim", "start", "--iam")
    assert unenforced.code == 4
    assert "The simulator runs already, without --iam." in unenforced.err


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_a_default_account_without_a_role_can_neither_write_nor_delete(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--default-account", "none").code == 0
    asked = tpuctl("up", "v3-8", "--ttl", "2h", "--name", "n1", "--yes")
    assert asked.code == 0
    assert "let it use the bucket: gcloud storage buckets add-iam-policy-binding" in asked.err
    assert "--role roles/tpu.admin" in asked.err
    Path("job.py").write_text("print('done')\n")
    refused = tpuctl("submit", "job.py")
    assert refused.code == 3, refused.err
    assert "-compute@developer.gserviceaccount.com, may not write into gs://sim-project-tpuctl" in refused.err
    assert "gcloud storage buckets add-iam-policy-binding gs://sim-project-tpuctl/" in refused.err
    assert "Node 'n1' bills." in refused.err
    other = tpuctl("sim", "start", "--default-account", "editor", "--firewall", "open")
    assert (other.code, "runs already, with --default-account none" in other.err) == (4, True)


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_a_closed_firewall_is_said_before_anything_bills(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--firewall", "closed").code == 0
    asked = tpuctl("up", "v3-8")
    assert asked.code == 10
    assert "No firewall rule of default lets machines outside of it reach port 22" in asked.err


@pytest.mark.usefixtures("stopped")
def test_without_a_file_the_user_owns_the_project_and_hosts_are_editors(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--iam").code == 0
    assert tpuctl("up", "v3-8", "--yes").code == 0
    Path("job.py").write_text("print('done')\n")
    assert tpuctl("submit", "job.py").code == 0
    assert tpuctl("logs", "-f").out == "done\n"


@pytest.mark.usefixtures("applied")
def test_hosts_with_the_rights_of_terraform_end_with_the_one_whose_script_fails(tpuctl: Tpuctl) -> None:
    """They overwrite the decision that all start by the one that all end."""
    assert tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:ada@example.com").code == 0
    account = "tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
    up = tpuctl(
        "up", "v4-16", "--framework", "jax", "--zone", "us-central2-b", "--service-account", account, "--yes"
    )
    assert up.code == 0, up.err
    header = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    script = "import os, sys, time\nos.environ['TPUCTL_WORKER'] == '1' and sys.exit(3)\ntime.sleep(900)\n"
    Path("job.py").write_text(header + script)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    ended = tpuctl("wait", "r1", "--timeout", "5m")
    assert ended.code == 100, ended.err
    assert "worker 1" in ended.err
    assert "decision.json" not in tpuctl("logs", "r1").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--iam", "gone.json"), "gone.json cannot be read: No such file or directory"),
        (("--iam", "job.json"), "job.json holds no resources that terraform has applied"),
        (("--iam", "--iam-user", "ada"), "'ada' names no account"),
        (("--iam-user", "user:ada@example.com"), "--iam-user is for roles that are enforced"),
    ],
)
@pytest.mark.usefixtures("stopped")
def test_a_mistake_is_named_before_anything_starts(
    tpuctl: Tpuctl, options: tuple[str, ...], message: str
) -> None:
    Path("job.json").write_text("{}")
    result = tpuctl("sim", "start", *options)
    assert result.code != 0
    assert message in result.err
    assert tpuctl("sim", "status", "--json").json == {"schema": 1, "running": False}

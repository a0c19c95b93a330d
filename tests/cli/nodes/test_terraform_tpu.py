"""The TPU that Terraform keeps, as its state describes it: every command may use it, none deletes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.cloud.tpu.test_client import REQUEST
from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.nodes.lookup import node_state
from tpuctl.nodes import CreateNode, NodeRequest, NodeState, SshKey
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]
STATE = ROOT / "tests/terraform/recorded/complete-rights.json"
STRANGER = SshKey("terraform", "ssh-ed25519 AAAA")
JOB = '# /// script\n# dependencies = []\n# ///\nprint("trained")\n'


def resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a module of a state holds, with the modules in it."""
    yield from module.get("resources", ())
    for child in module.get("child_modules", ()):
        yield from resources(child)


def applied_tpu() -> dict[str, Any]:
    """Return the TPU VM in the recorded state of the complete example."""
    state = json.loads(STATE.read_text())["values"]["root_module"]
    (values,) = (item["values"] for item in resources(state) if item["type"] == "google_tpu_v2_vm")
    return dict(values)


def request_of(values: dict[str, Any], **changes: object) -> NodeRequest:
    node_id = replace(REQUEST.id, zone=values["zone"], name=values["name"])
    request = structs.replace(
        REQUEST, id=node_id, accelerator=values["accelerator_type"], runtime=values["runtime_version"],
        labels=values["labels"], ssh_key=STRANGER,
    )  # fmt: skip
    return structs.replace(request, **changes)


def make(cloud: Cloud, **changes: object) -> str:
    request = request_of(applied_tpu(), **changes)
    cloud.provider.begin(CreateNode(request)).wait("to be created", 30)
    return request.id.name


def preempt(cloud: Cloud) -> None:
    """Preempt it, and return once it is."""
    identity = request_of(applied_tpu()).id
    cloud.preempt(identity, 0.0)
    poll(
        lambda: node_state(cloud.provider, identity) is NodeState.PREEMPTED or None,
        awaiting="its preemption", timeout=60, backoff=Backoff(0.1, 1.0),
    )  # fmt: skip


@pytest.fixture
def kept(cloud: Cloud) -> str:
    """The name of the READY TPU that Terraform keeps; its hosts know no key of ours."""
    return make(cloud)


def names(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.rpartition("/")[2] for node in simulator.world.nodes.all())


def test_ls_shows_whose_it_is(tpuctl: Tpuctl, kept: str) -> None:
    listed = tpuctl("ls")
    assert f"terraform ({applied_tpu()['labels']['tpuctl-base']})" in listed.out
    assert "Not listed" not in listed.err
    (shown,) = tpuctl("ls", "--json").json["nodes"]
    assert shown["owner"] == "terraform (vision-team)"


@pytest.mark.parametrize("options", [(), ("--tpu", "vision-team")])
def test_submit_runs_there_and_adds_its_key_by_itself(
    tpuctl: Tpuctl, simulator: RunningSimulator, kept: str, options: tuple[str, ...]
) -> None:
    Path("job.py").write_text(JOB)
    shown = tpuctl("submit", "job.py", "--dry-run", *options)
    assert "updateMask=metadata" in shown.out, shown.err
    submitted = tpuctl("submit", "job.py", "--name", "r1", *options)
    assert submitted.code == 0, submitted.err
    assert "adding your SSH key to vision-team" in submitted.err
    assert tpuctl("wait", "r1", "--timeout", "5m").code == 0
    assert tpuctl("logs", "r1").out == "trained\n"
    assert names(simulator) == [kept]
    assert "updateMask" not in tpuctl("submit", "job.py", "--dry-run").out, "the key is there now"


def test_ones_own_tpu_comes_first(tpuctl: Tpuctl, kept: str) -> None:
    assert tpuctl("up", "v4-8", "--name", "own", "--zone", "us-central2-b", "--yes").code == 0
    Path("job.py").write_text(JOB)
    assert "own (v4-8" in tpuctl("submit", "job.py").out
    assert tpuctl("exec", "--", "hostname").code == 0


def test_a_stopped_tpu_of_ones_own_hides_it_from_nobody(tpuctl: Tpuctl, kept: str) -> None:
    assert tpuctl("up", "v4-8", "--name", "own", "--zone", "us-central2-b", "--yes").code == 0
    assert tpuctl("stop", "own", "--yes").code == 0
    Path("job.py").write_text(JOB)
    assert "vision-team (v4-8" in tpuctl("submit", "job.py").out


def test_commands_on_hosts_reach_it(tpuctl: Tpuctl, kept: str) -> None:
    for words in (("exec", "--", "true"), ("exec", kept, "--", "true"), ("ssh-config",)):
        result = tpuctl(*words)
        assert result.code == 0, (words, result.err)


def test_run_uses_it_and_says_that_it_stays(tpuctl: Tpuctl, simulator: RunningSimulator, kept: str) -> None:
    Path("job.py").write_text(JOB)
    ran = tpuctl("run", "job.py", "--name", "r1", "--yes")
    assert ran.code == 0, ran.err
    assert "vision-team goes on billing: Terraform keeps it." in ran.err
    assert "tpuctl down" not in ran.err
    assert names(simulator) == [kept]


@pytest.mark.parametrize(
    "words", [("down", "vision-team"), ("down", "vision-team", "own"), ("down", "vision-team", "--dry-run")]
)
def test_down_refuses_it_and_deletes_nothing_beside_it(
    tpuctl: Tpuctl, simulator: RunningSimulator, kept: str, words: tuple[str, ...]
) -> None:
    assert tpuctl("up", "v4-8", "--name", "own", "--zone", "us-central2-b", "--yes").code == 0
    refused = tpuctl(*words, "--yes")
    assert refused.code == 4
    assert "'vision-team' in us-central2-b is kept by Terraform: tpuctl does not delete it." in refused.err
    assert "terraform apply" in refused.err
    assert names(simulator) == ["own", kept]


def test_what_deletes_all_leaves_it(tpuctl: Tpuctl, simulator: RunningSimulator, cloud: Cloud) -> None:
    kept = make(cloud, spot=True)
    assert "You have no TPUs to delete." in tpuctl("down", "--yes").err
    preempt(cloud)
    assert tpuctl("reap", "--all-users", "--yes").code == 0
    assert names(simulator) == [kept]


@pytest.mark.parametrize("words", [("submit", "job.py"), ("describe", "vision-team"), ("why", "vision-team")])
def test_a_preempted_one_is_replaced_by_terraform_alone(
    tpuctl: Tpuctl, simulator: RunningSimulator, cloud: Cloud, words: tuple[str, ...]
) -> None:
    Path("job.py").write_text(JOB)
    make(cloud, spot=True)
    preempt(cloud)
    shown = tpuctl(*words)
    assert "terraform apply -replace=ADDRESS" in shown.out + shown.err
    assert "tpuctl down" not in shown.out + shown.err
    up = tpuctl("up", "v4-8", "--name", "vision-team", "--zone", "us-central2-b", "--yes")
    assert up.code == 7, up.err
    assert "tpuctl down" not in up.err
    assert names(simulator) == ["vision-team"]


def test_stop_and_cancel_do_not_suggest_to_delete_it(tpuctl: Tpuctl, kept: str) -> None:
    Path("job.py").write_text(JOB.replace('print("trained")', "import time; time.sleep(900)"))
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    cancelled = tpuctl("cancel", "r1", "--grace", "0s", "--yes")
    assert "vision-team stays: Terraform keeps it." in cancelled.err
    other = tpuctl("up", "v3-8", "--name", kept, "--zone", "us-central2-b", "--yes")
    stopped = tpuctl("stop", kept, "--yes")
    extended = tpuctl("extend", kept, "1h")
    for result in (cancelled, other, stopped, extended):
        assert "tpuctl down" not in result.out + result.err

"""Which TPU a command means: by name, zone and owner, or that of Terraform's state, which none deletes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.cloud.tpu.test_client import REQUEST
from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.flows.nodes.lookup import node_state
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    NodeRequest,
    NodeState,
    QueuedResourceRequest,
    SshKey,
    owner_label,
)
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]
HERE, THERE = "europe-west4-a", "us-central1-a"


@pytest.fixture
def twins(tpuctl: Tpuctl, simulator: RunningSimulator) -> str:
    """The name of two nodes, in two zones."""
    for zone in (HERE, THERE):
        result = tpuctl("up", "v3-8", "--name", "dup", "--zone", zone, "--yes")
        assert result.code == 0, result.err
    return "dup"


def zones_with_nodes(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.split("/")[3] for node in simulator.world.nodes.all())


@pytest.mark.parametrize("zone", [HERE, THERE])
def test_down_deletes_the_node_in_the_zone_that_was_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str, zone: str
) -> None:
    result = tpuctl("down", twins, "--zone", zone, "--yes")
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [{HERE: THERE, THERE: HERE}[zone]]


def test_a_name_in_two_zones_is_an_error_that_lists_them(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str
) -> None:
    result = tpuctl("down", twins, "--yes")
    assert result.code == 4
    assert f"There are 2 TPUs called 'dup': in {HERE} and in {THERE}." in result.err
    assert "--zone ZONE" in result.err
    assert zones_with_nodes(simulator) == [HERE, THERE]
    Path("job.py").write_text("print('hello')\n")
    submitted = tpuctl("submit", "job.py", "--tpu", twins)
    assert submitted.code == 4
    assert "There are 2 TPUs called 'dup'" in submitted.err


def test_without_names_down_keeps_to_the_zone_that_was_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str
) -> None:
    assert tpuctl("down", "--zone", HERE, "--yes").code == 0
    assert zones_with_nodes(simulator) == [THERE]


def test_of_several_tpus_one_is_named_or_all_are_meant(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n2", "--yes").code == 0
    several = tpuctl("down", "--yes")
    assert several.code == 4
    assert several.err.endswith(
        "Error: You have 2 TPUs: n1, n2.\nHint: Name those to delete. All of them: tpuctl down --all\n"
    )
    assert tpuctl("down", "n1", "--all", "--yes").code == 2
    assert len(zones_with_nodes(simulator)) == 2
    assert tpuctl("down", "--all", "--yes").code == 0
    assert zones_with_nodes(simulator) == []


def test_a_silent_zone_keeps_nothing_else_from_being_deleted(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert tpuctl("down", "--yes").code == 9, "a second one may be there"
    assert len(zones_with_nodes(simulator)) == 1
    result = tpuctl("down", "--all", "--yes")
    assert result.code == 9
    assert "No answer from us-east1-d: TPUs there may continue to bill." in result.err
    assert zones_with_nodes(simulator) == []


def test_submit_does_not_take_a_silent_zone_for_an_empty_one(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("unreachable", zone=HERE)
    Path("job.py").write_text("print('hello')\n")
    result = tpuctl("submit", "job.py")
    assert result.code == 9
    assert f"No answer from {HERE}: your TPU may be there." in result.err
    assert "tpuctl up" not in result.err


def test_another_account_with_the_same_user_name_is_another_owner(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_OWNER", "other@example.com")
    assert "You have no TPUs to delete." in tpuctl("down", "--yes").err
    elsewhere = tpuctl("down", "--all", "--zone", "us-central1-b", "--yes").err
    assert "You have no TPUs to delete in us-central1-b." in elsewhere
    listed = tpuctl("ls")
    assert node not in listed.out
    assert "Not listed: 1 of " in listed.err
    assert "--all-users" in listed.err
    assert node in tpuctl("ls", "--all-users").out
    Path("job.py").write_text("print('hello')\n")
    assert "There is no TPU to run on." in tpuctl("submit", "job.py").err
    monkeypatch.delenv("TPUCTL_OWNER")
    assert node in tpuctl("ls").out


def test_what_tpuctl_did_not_create_is_listed(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    cloud = connect(load({}))
    cloud.provider.begin(CreateNode(msgspec.structs.replace(REQUEST, labels={}))).wait("to be created", 30)
    cloud.close()
    listed = tpuctl("ls")
    assert REQUEST.id.name in listed.out
    assert "Not listed" not in listed.err


def test_a_queued_resource_is_listed_while_it_waits_and_deleted(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    simulator.faults.add("stockout", zone=HERE)
    cloud = connect(load({}))
    owner = {"managed-by": "tpuctl", "tpuctl-owner": owner_label(load({}).require("owner"))}
    queued = QueuedResourceRequest(
        cloud.provider.queued_resource_id(HERE, "q1"), msgspec.structs.replace(REQUEST, labels=owner)
    )
    cloud.provider.begin(CreateQueuedResource(queued)).wait("to be accepted", 30)
    cloud.close()
    assert "q1 " in tpuctl("ls").out
    assert [item["name"] for item in tpuctl("ls", "--json").json["queued_resources"]] == ["q1"]
    assert "queuedResources/q1?force=true" in tpuctl("down", "--dry-run").out
    result = tpuctl("down", "--yes")
    assert result.code == 0, result.err
    assert result.err.splitlines()[-1] == "Deleted q1."
    assert simulator.world.queued_resources.all() == []


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

"""Preemption and maintenance on demand: now, after a time, and when a run shows a step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.cloud import storage, tpu_v2

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User, wait_until

NODE = f"{PARENT}/nodes/one"
STATES = tpu_v2.Node.State


@pytest.fixture
def node(simulator: RunningSimulator, user: User) -> Any:
    return user.create(simulator.simulator.endpoints["tpu_grpc"])


def preempted(tpu: tpu_v2.TpuClient) -> bool:
    return bool(tpu.get_node(name=NODE).state == STATES.PREEMPTED)


def write(bucket: storage.Bucket, name: str, text: str) -> None:
    bucket.blob(name).upload_from_string(text)


def attempt(bucket: storage.Bucket, run: str, node: Any, number: int = 1) -> None:
    """The record that says where a run runs, as far as the simulator reads it."""
    record = {"attempt": number, "tpu": {"name": "one", "uid": str(node.id)}}
    write(bucket, f"runs/{run}/attempts/{number}/attempt.json", json.dumps(record))


def log(bucket: storage.Bucket, run: str, chunk: int, text: str) -> None:
    """Write a piece of a log; run `r` is of an earlier version of tpuctl."""
    older, newer = f"workers/0/log/{chunk:06}.log", f"log/20260101T120000-0000-{chunk:06}.log"
    write(bucket, f"runs/{run}/attempts/1/{older if run == 'r' else newer}", text)


def let_a_control_fire(simulator: RunningSimulator) -> None:
    """Return when a later fault, whose condition is met, has fired and the preemption before it has not.

    Faults are examined in the order in which they were added, all of them each time.
    """
    wait_until(lambda: simulator.events.find(kind="fault", what="maintenance-notice"))
    assert simulator.events.find(kind="fault", what="preemption") == []


def test_a_node_is_preempted_at_once(tpu: tpu_v2.TpuClient, simulator: RunningSimulator, node: Any) -> None:
    simulator.faults.add("preemption", node="another")
    simulator.faults.add("preemption", node="o*")
    wait_until(lambda: preempted(tpu))
    assert [(event.kind, event.what) for event in simulator.events if event.kind in ("fault", "notice")] == [
        ("fault", "preemption"),
        ("notice", "PREEMPTED"),
    ]
    assert [fault["node"] for fault in simulator.faults.all()] == ["another"]


def test_the_next_node_of_its_zone_is_preempted_when_it_is_old_enough(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, user: User
) -> None:
    simulator.faults.add("preemption", zone="europe-west4-a", type="v3-8", age="300ms")
    user.create(simulator.simulator.endpoints["tpu_grpc"])
    wait_until(lambda: preempted(tpu))
    came = {event.what: event.time for event in simulator.events.find(resource=NODE)}
    assert came["preemption"] - came["READY"] >= 0.3


def test_a_fault_whose_node_has_gone_meanwhile_is_too_late(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tpuctl.sim.fault_executor")
    simulator.faults.add("maintenance", notice="1h")
    wait_until(lambda: simulator.events.find(kind="fault", what="maintenance"))
    tpu.delete_node(name=NODE).result()
    simulator.simulator.clock.advance(3600)
    wait_until(lambda: caplog.messages)
    (message,) = caplog.messages
    assert message.startswith("a fault came too late: ")
    assert NODE in message


def test_the_notice_comes_before_the_end(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, user: User, node: Any
) -> None:
    address = node.network_endpoints[0].ip_address
    asking = "curl -sH Metadata-Flavor:Google http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted"
    simulator.faults.add("preemption", notice="1h")
    wait_until(lambda: simulator.events.find(kind="notice", what="PREEMPTED"))
    hosts_file = simulator.folder / "hosts.json"
    assert user.run(hosts_file, address, asking) == "TRUE"
    assert not preempted(tpu)
    simulator.simulator.clock.advance(3600)
    wait_until(lambda: preempted(tpu))
    noticed, ended = (simulator.events.find(what="PREEMPTED", resource=NODE)[at].time for at in (0, -1))
    assert ended - noticed >= 3600


def test_a_runs_log_shows_the_step(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, bucket: storage.Bucket, node: Any
) -> None:
    """A line may come in two chunks, and other runs may be further."""
    simulator.faults.add("preemption", run="digits-*", step=120)
    simulator.faults.add("maintenance-notice", run="digits-*", step=119)
    for run in ("digits-1", "other"):
        attempt(bucket, run, node)
    log(bucket, "other", 1, "step 500\n")
    log(bucket, "digits-1", 1, "11 steps of 128 an epoch\nstep 119/1000\nst")
    let_a_control_fire(simulator)
    log(bucket, "digits-1", 2, "ep 120/1000\n")
    wait_until(lambda: preempted(tpu))


def test_a_line_of_the_log_can_be_what_counts(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, bucket: storage.Bucket, node: Any
) -> None:
    attempt(bucket, "r", node)
    simulator.faults.add("preemption", log=r"epoch +5 ")
    simulator.faults.add("maintenance-notice", log=r"epoch +4 ")
    log(bucket, "r", 1, "epoch  4  loss 1\n")
    let_a_control_fire(simulator)
    log(bucket, "r", 2, "epoch  5  loss 1\n")
    wait_until(lambda: preempted(tpu))


@pytest.mark.parametrize("name", ["ckpt-200.index", "step_250/commit_success.txt", "200/metadata"])
def test_a_checkpoint_shows_the_step(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, bucket: storage.Bucket, node: Any, name: str
) -> None:
    simulator.faults.add("preemption", run="r", step=200)
    simulator.faults.add("maintenance-notice", run="r", step=199)
    attempt(bucket, "r", node)
    write(bucket, "runs/r/checkpoints/checkpoint", "1")
    write(bucket, "runs/r/checkpoints/ckpt-199.data-00000-of-00001", "1")
    let_a_control_fire(simulator)
    write(bucket, f"runs/r/checkpoints/{name}", "1")
    wait_until(lambda: preempted(tpu))


def test_what_was_shown_before_counts_and_the_latest_attempts_node_is_meant(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, bucket: storage.Bucket, user: User, node: Any
) -> None:
    other = user.create(simulator.simulator.endpoints["tpu_grpc"], "two")
    log(bucket, "r", 1, "Step: 7\n")
    attempt(bucket, "r", other, 1)
    attempt(bucket, "r", node, 10)
    simulator.faults.add("preemption", run="r", step=7)
    wait_until(lambda: preempted(tpu))
    assert tpu.get_node(name=f"{PARENT}/nodes/two").state == STATES.READY


def test_a_worker_is_told_of_maintenance(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, user: User, node: Any
) -> None:
    address = node.network_endpoints[0].ip_address
    path = "computeMetadata/v1/instance/maintenance-event"
    asking = f"curl -sH Metadata-Flavor:Google http://$GCE_METADATA_HOST/{path}"
    hosts_file = simulator.folder / "hosts.json"
    assert user.run(hosts_file, address, asking) == "NONE"
    simulator.faults.add("maintenance-notice", node="one")
    wait_until(lambda: user.run(hosts_file, address, asking) == "TERMINATE_ON_HOST_MAINTENANCE")
    assert tpu.get_node(name=NODE).state == STATES.READY
    assert simulator.faults.all() == []


def test_maintenance_takes_the_hosts_down_and_brings_them_back(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, user: User, node: Any
) -> None:
    address, hosts_file = node.network_endpoints[0].ip_address, simulator.folder / "hosts.json"
    user.run(hosts_file, address, "nohup sleep 600 >kept 2>&1 & echo $! >pid")
    simulator.faults.add("maintenance", node="one", notice="100ms")
    wait_until(
        lambda: (
            [event.what for event in simulator.events.find(kind="transition")][-2:] == ["REPAIRING", "READY"]
        )
    )
    assert user.run(hosts_file, address, "ls; ps -o stat= $(cat pid) | grep -v Z || echo gone").split() == [
        "kept", "pid", "gone",
    ]  # fmt: skip
    flags = [event.what for event in simulator.events.find(kind="fault")]
    assert flags == ["maintenance"]

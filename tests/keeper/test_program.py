"""The keeper as it runs on a host, started by the startup script of a node that `up` made."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
FAST = Backoff(0.05, 0.2)


def note(simulator: RunningSimulator, worker: int = 0, node: str = "n1") -> dict[str, Any]:
    """Return what the keeper of a worker published last; empty before its first note."""
    nodes = [item for item in simulator.world.nodes.all() if item.name.endswith(f"/{node}")]
    if not nodes:
        return {}
    attributes = simulator.simulator.hosts.guest_attributes(nodes[0].hosts()[worker])
    notes = [item.value for item in attributes if (item.namespace, item.key) == ("tpuctl", "keeper")]
    return json.loads(notes[0]) if notes else {}


def wait(condition: Callable[[], object], awaiting: str) -> None:
    poll(lambda: condition() or None, awaiting=awaiting, timeout=60, backoff=FAST)


def names(simulator: RunningSimulator) -> list[str]:
    return [node.name.rpartition("/")[2] for node in simulator.world.nodes.all()]


def test_it_deletes_the_node_when_its_time_is_over(
    simulator: RunningSimulator, tpuctl: Command, bucket: Bucket
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
    wait(lambda: note(simulator).get("expires"), "the keeper")
    simulator.simulator.clock.advance(8 * 3600 - 120)
    at = note(simulator)["at"]
    wait(lambda: note(simulator)["at"] > at, "another look")
    assert names(simulator) == ["n1"]
    simulator.simulator.clock.advance(200)
    wait(lambda: not names(simulator), "the end of n1")
    records = bucket.objects("nodes/")
    assert len(records) == 1
    assert records[0].name.startswith("nodes/sim-project.europe-west4-a.n1.")
    record = json.loads(bucket.read(records[0].name))
    assert (record["reason"], record["node"]) == ("expired", "n1")

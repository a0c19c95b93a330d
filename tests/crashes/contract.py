"""The promises that always hold: what bills is listed, `up` resumes, `down` ends everything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.crashes.faults import DOWN, NAME, nothing
from tests.crashes.world import KILLED, CrashWorld
from tests.running_simulator import CommandResult
from tpuctl.host.keeper.records import TTL
from tpuctl.sim.world.resources import Node

ATTEMPTS = 8
"""Calls of a command that waits for something; what holds it up is over by then."""
CHANGES = re.compile(r"(Create|Delete|Update|Start|Stop)(Node|QueuedResource)")
LATER = 3600.0
"""Seconds after which a slow operation has ended."""


def check(world: CrashWorld, result: CommandResult, up: Sequence[str]) -> None:
    """Check all promises after a command, with the faults over; `up` is the command that resumes."""
    assert_told(world, result)
    assert_listed(world)
    world.interfere = nothing
    world.faults.clear()
    assert_listed(world)
    assert_up_resumes(world, up)
    assert_listed(world)
    assert_down_ends_it(world)


def assert_listed(world: CrashWorld) -> None:
    """What bills or may come to bill is in `ls`, or in a zone of which `ls` says that it is not listed."""
    interfere, world.interfere = world.interfere, nothing
    listing = world.tpuctl("ls", "--all-users", "--json")
    world.interfere = interfere
    assert listing.code == 0, listing.err
    missing = set(world.billing) - _resources(listing.json)
    silent = listing.json["unreachable"]
    assert [name for name in missing if name.split("/")[3] not in silent] == []


def ready_nodes(world: CrashWorld) -> list[Node]:
    """Return the nodes that are READY."""
    return [node for node in world.world.nodes.all() if node.state == "READY"]


def assert_spared(world: CrashWorld, nodes: Sequence[Node]) -> None:
    """Of nodes that were READY before `reap`, those are gone at most whose --ttl is over by now."""
    for node in nodes:
        if node.name not in world.billing:
            length = node.metadata.get(TTL)
            assert length, f"reap deleted {node.name}, which has no end"
            assert node.create_time + int(length[:-1]) <= world.time.timestamp(), f"{node.name} had time left"


def assert_told(world: CrashWorld, result: CommandResult) -> None:
    """A command that fails after it has changed something names what may bill, and the next command."""
    if result.code in (0, KILLED):
        return
    error = result.err[result.err.rindex("Error: ") :] if "Error: " in result.err else ""
    if world.billing and any(CHANGES.fullmatch(method) for method in world.latest):
        assert re.search(rf"\b{NAME}\b|may continue to bill", error), result.err
        assert "tpuctl " in error or "--name" in error, result.err
    assert error or not world.billing or result.code == 130, result.err


def assert_up_resumes(world: CrashWorld, up: Sequence[str]) -> None:
    """The same `up` ends with one READY node, and says what is still being deleted, if anything is."""
    result = world.tpuctl(*up)
    for _ in range(ATTEMPTS):
        if result.code == 0:
            break
        if f"tpuctl extend {NAME}" in result.err:
            assert world.tpuctl("extend", NAME, "8h").code == 0
        if result.code == 7:
            assert f"tpuctl down {NAME}" in result.err, result.err
            world.tpuctl(*DOWN)
        world.pass_time(LATER)
        result = world.tpuctl(*up)
    assert result.code == 0, result.err
    nodes = [(node.name, node.state) for node in world.world.nodes.all()]
    assert [state for _, state in nodes if state != "DELETING"] == ["READY"], nodes
    leaving = [name for name in world.billing if name not in _kept(world)]
    assert not leaving or "still being deleted" in result.err, (leaving, result.err)


def _kept(world: CrashWorld) -> list[str]:
    """Return the full names of the READY node, and of the queued resource that made it."""
    ready = next(node for node in world.world.nodes.all() if node.state == "READY")
    return [ready.name, ready.queued_resource]


def assert_down_ends_it(world: CrashWorld) -> None:
    """`down` leaves nothing that bills."""
    result = world.tpuctl(*DOWN)
    assert result.code == 0, result.err
    assert world.billing == []


def _resources(listing: dict[str, Any]) -> set[str]:
    """The full names of what `ls` lists."""
    collections = {"nodes": "nodes", "queued_resources": "queuedResources"}
    return {
        f"projects/{item['project']}/locations/{item['zone']}/{collection}/{item['name']}"
        for key, collection in collections.items()
        for item in listing[key]
    }

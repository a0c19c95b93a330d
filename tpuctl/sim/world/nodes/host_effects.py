"""Starts, stops and restarts hosts for the operations of their node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tpuctl.sim.records import GRACE, Host, Hosts, Notices
from tpuctl.sim.world.resources import Node, Operation

NO_HEALTH = "HEALTH_UNSPECIFIED"
MAINTENANCE = Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")
MAINTENANCE_WINDOW = timedelta(hours=1)
SHOWN_ON_HOSTS = {"metadata", "networkConfig"}
"""Fields of a node whose changes its hosts take over."""
LATEST_START = timedelta(days=1)
"""Both ours: how long real windows last, and how far they can be moved, was not found."""


class HostEffects:
    """Carries out operations on the hosts of a node."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._effects: dict[str, Callable[[Node, Operation], Awaitable[Node | None]]] = {
            "create": self._start,
            "delete": self._delete,
            "update": self._update,
            "stop": self._stop,
            "start": self._start,
            "simulateMaintenanceEvent": self._announce_maintenance,
            "performMaintenance": self._perform_maintenance,
        }

    async def carry_out(self, node: Node, operation: Operation) -> Node | None:
        """Return the node after the operation, or None when it is deleted."""
        return await self._effects[operation.verb](node, operation)

    async def stop_hosts(self, node: Node, *, keep_disk: bool, grace: float = GRACE) -> None:
        """Stop the node's hosts; programs have `grace` seconds after SIGTERM."""
        await _uncancelled(self._hosts.stop(node.hosts(), keep_disk=keep_disk, grace=grace))

    async def restart_hosts(self, node: Node) -> None:
        """Start the node's hosts again after a restart of the simulator."""
        await self._hosts.start(node.hosts(), node.metadata)
        await self._hosts.announce(_hosts_under_notice(node), MAINTENANCE)

    async def announce_preemption(self, node: Node) -> None:
        """Show the preemption on the hosts' metadata servers."""
        await self._hosts.announce(node.hosts(), Notices(preempted=True))

    async def _start(self, node: Node, _: Operation) -> Node:
        await _uncancelled(self._hosts.start(node.hosts(), node.metadata))
        return replace(node, state="READY", health="HEALTHY")

    async def _delete(self, node: Node, _: Operation) -> None:
        await self.stop_hosts(node, keep_disk=False)

    async def _update(self, node: Node, operation: Operation) -> Node:
        updated = node.updated(operation.changes)
        if SHOWN_ON_HOSTS & operation.changes.keys() and node.state == "READY":
            await _uncancelled(self._hosts.update_metadata(updated.hosts(), updated.metadata))
        return updated

    async def _stop(self, node: Node, _: Operation) -> Node:
        await self.stop_hosts(node, keep_disk=True)
        return replace(node, state="STOPPED", health=NO_HEALTH, maintenance=None, maintenance_workers=())

    async def _announce_maintenance(self, node: Node, operation: Operation) -> Node:
        """The notice stays until the maintenance is performed or the hosts are stopped."""
        begin = datetime.fromtimestamp(operation.create_time, UTC)
        announced = replace(
            node,
            maintenance={
                "type": "UNSCHEDULED",
                "canReschedule": True,
                "maintenanceStatus": "PENDING",
                "windowStartTime": _timestamp(begin),
                "windowEndTime": _timestamp(begin + MAINTENANCE_WINDOW),
                "latestWindowStartTime": _timestamp(begin + LATEST_START),
            },
            maintenance_workers=operation.workers,
        )
        await _uncancelled(self._hosts.announce(_hosts_under_notice(announced), MAINTENANCE))
        return announced

    async def _perform_maintenance(self, node: Node, operation: Operation) -> Node:
        await self.stop_hosts(node, keep_disk=True)
        started = await self._start(node, operation)
        return replace(started, maintenance=None, maintenance_workers=())


async def _uncancelled(effect: Coroutine[object, None, None]) -> None:
    """Await an effect on hosts; a cancel waits for its end, so that no host is left half started."""
    task = asyncio.ensure_future(effect)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not log it: the next operation looks at the hosts
        raise


def _hosts_under_notice(node: Node) -> list[Host]:
    return [host for host in node.hosts() if host.worker in node.maintenance_workers]


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

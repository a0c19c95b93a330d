"""What an operation on a node does to its hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tpuctl.sim.records import Host, Hosts, Notices
from tpuctl.sim.world.resources import Node, Operation

NO_HEALTH = "HEALTH_UNSPECIFIED"
MAINTENANCE = Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")
MAINTENANCE_WINDOW = timedelta(hours=1)
"""Ours: how long real windows last was not found."""


class Work:
    """Carries out operations; each returns the node as it is then, or None when it is gone."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._steps: dict[str, Callable[[Node, Operation], Awaitable[Node | None]]] = {
            "create": self._bring_up,
            "delete": self._delete,
            "update": self._update,
            "stop": self._stop,
            "start": self._bring_up,
            "simulateMaintenanceEvent": self._announce_maintenance,
            "performMaintenance": self._maintain,
        }

    async def do(self, node: Node, operation: Operation) -> Node | None:
        """Carry an operation out."""
        return await self._steps[operation.verb](node, operation)

    async def take_down(self, node: Node, *, keep_disk: bool) -> None:
        """End the hosts."""
        await to_the_end(self._hosts.stop(node.hosts(), keep_disk=keep_disk))

    async def revive(self, node: Node) -> None:
        """Bring the hosts up again after a restart of the simulator."""
        await self._hosts.start(node.hosts(), node.metadata)
        await self._hosts.announce(_flagged(node), MAINTENANCE)

    async def announce_preemption(self, node: Node) -> None:
        """Tell the hosts that they are about to be taken away."""
        await self._hosts.announce(node.hosts(), Notices(preempted=True))

    async def _bring_up(self, node: Node, _: Operation) -> Node:
        await to_the_end(self._hosts.start(node.hosts(), node.metadata))
        return replace(node, state="READY", health="HEALTHY")

    async def _delete(self, node: Node, _: Operation) -> None:
        await self.take_down(node, keep_disk=False)

    async def _update(self, node: Node, operation: Operation) -> Node:
        changed = node.changed(operation.changes)
        if "metadata" in operation.changes and node.state == "READY":
            await to_the_end(self._hosts.update_metadata(changed.hosts(), changed.metadata))
        return changed

    async def _stop(self, node: Node, _: Operation) -> Node:
        await self.take_down(node, keep_disk=True)
        return replace(node, state="STOPPED", health=NO_HEALTH, maintenance=None, flagged=())

    async def _announce_maintenance(self, node: Node, operation: Operation) -> Node:
        """The notice stays until the maintenance is performed or the hosts go down."""
        begin = datetime.fromtimestamp(operation.create_time, UTC)
        window = {"windowStartTime": _text(begin), "windowEndTime": _text(begin + MAINTENANCE_WINDOW)}
        maintenance = {"type": "UNSCHEDULED", "canReschedule": True, "maintenanceStatus": "PENDING", **window}
        noticed = replace(node, maintenance=maintenance, flagged=tuple(operation.changes["workers"]))
        await to_the_end(self._hosts.announce(_flagged(noticed), MAINTENANCE))
        return noticed

    async def _maintain(self, node: Node, operation: Operation) -> Node:
        await self.take_down(node, keep_disk=True)
        return replace(await self._bring_up(node, operation), maintenance=None, flagged=())


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await what the hosts do; a cancel takes effect after it, so that no host is left half up."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        if not doing.cancelled():
            doing.exception()  # whoever takes over looks at the hosts afresh
        raise


def _flagged(node: Node) -> list[Host]:
    return [host for host in node.hosts() if host.worker in node.flagged]


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

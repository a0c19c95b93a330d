"""The fields of a node that requests may set, and the operations that change it, from begin to end."""

from __future__ import annotations

import asyncio
import json
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tpuctl.sim.records import GRACE, Host, Hosts, Notices
from tpuctl.sim.world.api_errors import ApiError, Status, api_error
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.capacity.capacity import uses_capacity
from tpuctl.sim.world.injected_faults import operation_fault
from tpuctl.sim.world.resources import (
    DEFAULT_CONTEXT,
    Node,
    NodeFields,
    Operation,
    RequestContext,
    node_fields,
)
from tpuctl.sim.world.state import CANCELLABLE, NODE_TRANSITIONS, State
from tpuctl.sim.world.tasks import Tasks

MOST_LABELS = 64
MOST_CHARACTERS = 63
MOST_BYTES = 128
LETTERS = frozenset({"Ll", "Lo"})
"""Unicode categories: small letters, and those of scripts without capitals."""
CHARACTERS = LETTERS | {"Nd", "Nl", "No"}
UPDATABLE: dict[str, Callable[[NodeFields], NodeFields]] = {
    "description": lambda sent: {"description": sent.get("description", "")},
    "labels": lambda sent: {"labels": sent.get("labels", {})},
    "metadata": lambda sent: {"metadata": sent.get("metadata", {})},
    "tags": lambda sent: {"tags": sent.get("tags", [])},
    "data_disks": lambda sent: {"dataDisks": sent.get("dataDisks", [])},
    "network_config.enable_external_ips": lambda sent: {
        "networkConfig": {"enableExternalIps": sent.get("networkConfig", {}).get("enableExternalIps", False)}
    },
}
"""Path that an update's mask may name -> the new value, a default when the request leaves it out."""

MAX_DESCRIPTION = 512


def checked(zone: str, sent: Mapping[str, object]) -> NodeFields:
    """Return the fields of a node as sent, its accelerator filled in; raises INVALID_ARGUMENT."""
    spec = node_fields(sent)
    accelerator = availability.requested_accelerator(zone, spec)
    _check(spec, accelerator.hosts)
    availability.require_runtime_version(spec.get("runtimeVersion", ""))
    return {
        **spec,
        "acceleratorType": accelerator.type,
        "acceleratorConfig": {
            "type": availability.CONFIG_TYPES[accelerator.generation],
            "topology": accelerator.topology,
        },
    }


def changes(sent: Mapping[str, object], mask: Sequence[str], *, hosts: int) -> NodeFields:
    """Return the new values of the fields in an update's mask; raises INVALID_ARGUMENT."""
    unknown = [path for path in mask if path not in UPDATABLE]
    if unknown or not mask:
        paths = ", ".join(unknown) or "it is empty"
        raise api_error("bad_mask", paths=paths, updatable=", ".join(UPDATABLE))
    changed: NodeFields = {}
    for path in mask:
        changed.update(UPDATABLE[path](node_fields(sent)))
    _check(changed, hosts)
    return changed


def without_external_ips(fields: NodeFields) -> NodeFields:
    """Return fields that ask for no external addresses, whatever they asked for."""
    inside: NodeFields = {**fields}
    if "networkConfig" in fields:
        inside["networkConfig"] = {**fields["networkConfig"], "enableExternalIps": False}
    if "networkConfigs" in fields:
        inside["networkConfigs"] = [
            {**network, "enableExternalIps": False} for network in fields["networkConfigs"]
        ]
    return inside


def _check(spec: NodeFields, hosts: int) -> None:
    check(spec.get("labels", {}))
    if len(spec.get("description", "")) > MAX_DESCRIPTION:
        raise api_error("bad_field", reason=f"description has more than {MAX_DESCRIPTION} characters")
    if spec.get("networkConfig") and spec.get("networkConfigs"):
        raise api_error("bad_field", reason="network_config and network_configs are mutually exclusive")
    if len(spec.get("networkConfigs", [])) > 1:
        raise api_error("unimplemented", feature="nodes with several networks")
    if hosts > 1 and any(disk.get("mode") == "READ_WRITE" for disk in spec.get("dataDisks", [])):
        raise api_error("bad_field", reason="a data disk of a slice of several hosts is read-only")


# Checks labels as Google Cloud does: https://cloud.google.com/compute/docs/labeling-resources#requirements.


def check(labels: Mapping[str, str]) -> None:
    """Raise INVALID_ARGUMENT for labels that no resource of Google Cloud can have."""
    if len(labels) > MOST_LABELS:
        raise api_error("many_labels", count=len(labels), most=MOST_LABELS)
    for key, value in labels.items():
        problem = _problem_of_key(key)
        if problem:
            raise api_error("label_key", key=_quoted(key), problem=problem)
        problem = _problem(value)
        if problem:
            raise api_error("label_value", key=_quoted(key), value=_quoted(value), problem=problem)


def _problem_of_key(key: str) -> str:
    if not key:
        return "cannot be empty"
    is_letter = unicodedata.category(key[0]) in LETTERS
    return _problem(key) or ("" if is_letter else "must start with a lowercase letter")


def _problem(text: str) -> str:
    """Return what is wrong with a key or value, '' if nothing is."""
    for index, letter in enumerate(text):
        if unicodedata.category(letter) not in CHARACTERS and letter not in "_-":
            return f"contains invalid character '{letter}' at index {index}"
    if len(text) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS} characters"
    return f"is longer than {MOST_BYTES} bytes" if len(text.encode()) > MOST_BYTES else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


NO_HEALTH = "HEALTH_UNSPECIFIED"
MAINTENANCE = Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")
MAINTENANCE_WINDOW = timedelta(hours=1)
SHOWN_ON_HOSTS = {"metadata", "networkConfig"}
"""Fields of a node whose changes its hosts take over."""
LATEST_START = timedelta(days=1)
"""Both ours: how long real windows last, and how far they can be moved, was not found."""
logger = logging.getLogger(__name__)

PREEMPTIBLE_LIFE = 24 * 3600.0
"""Seconds that a preemptible node lives at most; a spot node has no limit (Cloud TPU documentation)."""

CANCELLED = {"CREATING": "TERMINATED", "STARTING": "STOPPED", "STOPPING": "STOPPED"}
"""State of a node whose operation a delete has cancelled -> the state it is in if that delete fails. Ours."""


class Lifecycle:
    """Carries operations out, one task a node.

    A node's new state and its operation's are committed together, so that a restart finds both or neither;
    an operation that it finds running is carried out again from the start, which `Hosts` allows.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._host_effects = HostEffects(state.hosts)
        self._tasks = Tasks()
        self._end_of_life_tasks = Tasks()
        self._reclaiming: set[int] = set()

    def begin(
        self,
        verb: str,
        node: Node,
        context: RequestContext = DEFAULT_CONTEXT,
        *,
        changes: NodeFields | None = None,
        workers: tuple[int, ...] = (),
        error: Status | None = None,
    ) -> Operation:
        """Begin an operation on a node and cancel the one that runs, if any; `error`: how it will end."""
        operations = self._state.operations
        transition = NODE_TRANSITIONS[verb]
        usual_failure = self._state.profile.seconds("failure")
        fault = operation_fault(
            self._state.faults, transition.method, node.name, node.accelerator_type, usual_failure
        )
        cancelled = operations.running_on(node.name)
        vacant = not uses_capacity(node, self._state)
        with self._state.database.transaction():
            if cancelled:
                operations.end(cancelled, error=api_error("cancelled").status)
            fault = replace(fault, error=fault.error or error)
            operation = operations.begin(
                verb, node, changes=changes, workers=workers, fault=fault, context=context, vacant=vacant
            )
            if transition.during:
                self._save(replace(node, state=transition.during))
        self._start(operation)
        return operation

    def cancel(self, operation_name: str) -> None:
        """Cancel an operation: a create ends and its node is deleted; any other runs on, as Google allows."""
        operation = self._state.operations.get(operation_name)
        if operation.done:
            return
        cancelled = self._state.operations.request_cancel(operation)
        if operation.on_node and operation.verb in CANCELLABLE:
            self._start(cancelled)

    def is_being_reclaimed(self, node: Node) -> bool:
        """Whether `reclaim` is under way for the node."""
        return node.uid in self._reclaiming

    async def announce_preemption(self, node: Node) -> None:
        """Announce to the node's hosts that the node will be preempted."""
        self._state.events.note("notice", "PREEMPTED", node.name)
        await self._host_effects.announce_preemption(node)

    async def reclaim(self, node: Node, final_state: str, grace: float = GRACE) -> None:
        """Stop a node's hosts, then make it PREEMPTED or TERMINATED and its operation a failure."""
        self._reclaiming.add(node.uid)
        task = self._tasks.start(node.name, lambda: self._reclaim(node, final_state, grace))
        try:
            await asyncio.wait({task})
        finally:
            self._reclaiming.discard(node.uid)
        if not task.cancelled():  # a delete may have taken over
            task.result()

    async def resume(self) -> None:
        """After a restart, start the hosts of READY nodes again and continue the operations."""
        ready = [node for node in self._state.nodes.all() if node.state == "READY"]
        await asyncio.gather(*(self._restart_hosts(node) for node in ready))
        for operation in self._state.operations.running():
            if operation.on_node:
                self._start(operation)

    async def close(self) -> None:
        """Cancel the tasks; their operations are on disk."""
        await self._end_of_life_tasks.close()
        await self._tasks.close()

    def _start(self, operation: Operation) -> None:
        self._tasks.start(operation.target, lambda: self._run(operation))

    async def _run(self, operation: Operation) -> None:
        if not self._is_current(operation):
            return
        try:
            await self._pause(operation)
            after = await self._host_effects.carry_out(self._node(operation), operation)
        except ApiError as failure:
            await self._fail(operation, failure.status)
        except Exception as bug:
            logger.exception("operation %s failed", operation.name)
            await self._fail(operation, api_error("internal", reason=f"{type(bug).__name__}: {bug}").status)
        else:
            self._finish(operation, after)

    async def _pause(self, operation: Operation) -> None:
        """Let the operation take its time; raises the error with which it is to fail."""
        if operation.cancel_requested and operation.verb in CANCELLABLE:
            raise api_error("cancelled")
        while fault := self._state.faults.find(operation.held_by):
            await self._state.notifier.wait(fault.ends)
        begun = operation.create_time + operation.delay
        if operation.injected_error:
            await self._state.profile.pause("failure", begun)
            raise ApiError(operation.injected_error)
        await self._state.profile.pause(operation.verb, begun)

    async def _reclaim(self, node: Node, final_state: str, grace: float) -> None:
        await self._stop_hosts(node, keep_disk=True, grace=grace)
        current = self._state.nodes.get(node.name)
        if current is None or current.uid != node.uid or current.state == "DELETING":
            return
        running = self._state.operations.running_on(node.name)
        with self._state.database.transaction():
            self._save(
                replace(
                    current, state=final_state, health=NO_HEALTH, maintenance=None, maintenance_workers=()
                )
            )
            if running:
                status = api_error("wrong_state", call="update", state=final_state).status
                self._state.operations.end(running, error=status)

    async def _fail(self, operation: Operation, error: Status) -> None:
        """Delete a node that could not be created; leave any other as it was before."""
        node = self._node(operation)
        if operation.verb != "create":
            await self._restore(operation, node, error)
            return
        await self._stop_hosts(node, keep_disk=False)
        self._finish(operation, None, error)

    async def _restore(self, operation: Operation, node: Node, error: Status) -> None:
        """Leave a node as it was before; an operation that this one has cancelled does not go on."""
        state = CANCELLED.get(operation.before, operation.before)
        if state != operation.before:
            await self._stop_hosts(node, keep_disk=True)
        self._finish(operation, replace(node, state=state), error)

    async def _stop_hosts(self, node: Node, *, keep_disk: bool, grace: float = GRACE) -> None:
        """Stop a node's hosts; their error is logged, and keeps the node from nothing."""
        try:
            await self._host_effects.stop_hosts(node, keep_disk=keep_disk, grace=grace)
        except Exception:
            logger.exception("the hosts of %s did not stop", node.name)

    def _finish(self, operation: Operation, node: Node | None, error: Status | None = None) -> None:
        """Commit the node (None: deleted) together with the end of its operation."""
        if not self._is_current(operation):
            return  # another operation has begun, and the hosts did not let this one be cancelled
        with self._state.database.transaction():
            if node:
                self._save(node)
            else:
                self._state.remove_node(operation.target)
            self._state.operations.end(operation, result=None if error else node, error=error)

    async def _restart_hosts(self, node: Node) -> None:
        try:
            await self._host_effects.restart_hosts(node)
            health = "HEALTHY"
        except Exception:
            logger.exception("the hosts of %s did not start again", node.name)
            health = "TIMEOUT"
        self._save(replace(node, health=health))

    def _is_current(self, operation: Operation) -> bool:
        running = self._state.operations.running_on(operation.target)
        return running is not None and running.name == operation.name

    def _node(self, operation: Operation) -> Node:
        """Return the operation's node as it is now; it cannot be removed before the operation's end."""
        node = self._state.nodes.get(operation.target)
        assert node is not None
        return node

    def _save(self, node: Node) -> None:
        self._state.save_node(node)
        if node.ends_after_24_hours and node.state == "READY":
            self._end_of_life_tasks.start(node.name, lambda: self._terminate_at_end_of_life(node))

    async def _terminate_at_end_of_life(self, node: Node) -> None:
        profile = self._state.profile
        remaining = node.create_time + PREEMPTIBLE_LIFE * profile.scale - profile.clock()
        await profile.sleep(max(remaining, 0))
        current = self._state.nodes.get(node.name)
        if current and current.uid == node.uid and current.state == "READY":
            await self.reclaim(current, "TERMINATED")


# Starts, stops and restarts hosts for the operations of their node.


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

"""From a wish to a node that answers over SSH."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    StateError,
    StockoutError,
    UsageError,
    nearest,
)
from tpuctl.flows.hosts.ssh_access import await_ssh, install_key, key_line
from tpuctl.flows.nodes.lookup import require_ready
from tpuctl.flows.progress import Tell
from tpuctl.nodes import COMING, LABEL, LABEL_VALUE, OWNER_LABEL, Node, NodeRequest
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.tpu import TpuApi

CREATE_TIMEOUT = 1800.0
NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

TENSORFLOW_IMAGES = ("v2", "v3", "v4")
"""Generations for which Google builds images with TensorFlow in them."""


@dataclass(frozen=True)
class Wanted:
    """What `up` was asked for."""

    accelerator: str
    name: str
    zone: str
    runtime: str | None
    framework: str
    spot: bool
    network: str
    service_account: str | None
    subnetwork: str | None = None
    external_ips: bool = True


@dataclass(frozen=True)
class UpPlan:
    """What `up` will do: create by `request`, or use `found`."""

    request: NodeRequest
    found: Node | None
    hosts: int
    chips: int


def default_name(user: str, accelerator: str) -> str:
    """Return the name of a user's node of a type when none is given: the same each time, so `up` finds it."""
    return re.sub(r"[^-a-z0-9]", "-", f"{user}-{accelerator}".lower()).lstrip("-0123456789") or "tpu"


def plan_up(tpu: TpuApi, ssh: Ssh, wanted: Wanted) -> UpPlan:
    """Check what was asked against the catalogue and the zone, and return what there is to do.

    Sends reads only. Raises UsageError for a type or runtime that the zone does not offer, StateError
    when the name belongs to a node of another type or one that is on its way out.
    """
    kind = accelerators.accelerator(wanted.accelerator)
    if not NODE_NAME.fullmatch(wanted.name):
        raise UsageError(
            f"'{wanted.name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    _check_zone(tpu, kind, wanted.zone)
    runtime = _runtime(tpu, kind, wanted)
    found = _find(tpu, wanted)
    request = NodeRequest(
        name=wanted.name,
        project=tpu.project,
        zone=wanted.zone,
        accelerator=kind.type,
        runtime=runtime,
        spot=wanted.spot,
        network=wanted.network,
        subnetwork=wanted.subnetwork,
        external_ips=wanted.external_ips,
        service_account=wanted.service_account,
        labels={LABEL: LABEL_VALUE, OWNER_LABEL: ssh.user},
        metadata={"ssh-keys": key_line(ssh)},
    )
    return UpPlan(request, found, kind.hosts, kind.chips)


def up(tpu: TpuApi, ssh: Ssh, plan: UpPlan, tell: Tell) -> Node:
    """Do what the plan says and return the node once every host answers over SSH.

    Raises StockoutError, QuotaError, PreemptedError, HostError or DeadlineError; on Ctrl-C an
    InterruptedByUser that says how to go on, since a create that was sent goes on by itself.
    """
    name, zone, kind = plan.request.name, plan.request.zone, plan.request.accelerator
    try:
        if plan.found is None:
            _create(tpu, plan.request, tell)
        else:
            tell(f"{name} exists")
        node = _await_ready(tpu, zone, name, tell)
        node = install_key(tpu, ssh, node, tell)
        await_ssh(tpu, ssh, node, tell)
    except StockoutError as error:
        hint = _other_zones(plan.request) or error.hint
        raise StockoutError(error.message, hint=hint, zone=zone, **error.facts) from error
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted while '{name}' was on its way; it may bill already.",
            hint=f"'tpuctl up {kind} --name {name}' goes on, 'tpuctl down {name}' ends it.",
        ) from error
    return node


def _other_zones(request: NodeRequest) -> str:
    """Name the next zones to try, those of the same continent first."""
    zones = accelerators.accelerator(request.accelerator).zones
    continent = request.zone.split("-")[0]
    others = [zone for zone in zones if zone != request.zone]
    others.sort(key=lambda zone: not zone.startswith(continent))
    if not others:
        return ""
    more = f" (it is also offered in {', '.join(others[1:4])})" if others[1:] else ""
    return f"Try the next zone: tpuctl up {request.accelerator} --zone {others[0]}{more}, --spot, or later."


def _check_zone(tpu: TpuApi, kind: accelerators.Accelerator, zone: str) -> None:
    """The zone's own list decides; the catalogue only names alternatives."""
    if zone not in accelerators.zones():
        close = nearest(zone, accelerators.zones())
        if close and accelerators.region(zone) not in map(accelerators.region, accelerators.zones()):
            raise UsageError(
                f"There is no zone '{zone}' with TPUs.", hint=f"Did you mean {close[0]}?", zone=zone
            )
    if kind.type not in tpu.accelerator_types(zone):
        raise UsageError(
            f"{kind.type} is not offered in {zone}.",
            hint=f"It has been seen in {', '.join(kind.zones)}.",
            zone=zone,
            accelerator=kind.type,
        )


def _runtime(tpu: TpuApi, kind: accelerators.Accelerator, wanted: Wanted) -> str:
    offered = tpu.runtimes(wanted.zone)
    if wanted.runtime:
        if wanted.runtime not in offered:
            close = nearest(wanted.runtime, offered)
            raise UsageError(
                f"{wanted.zone} has no runtime version '{wanted.runtime}'.",
                hint=f"The nearest are {', '.join(close or offered[:3])}.",
                runtime=wanted.runtime,
            )
        return wanted.runtime
    if wanted.framework == "tensorflow" and kind.generation in TENSORFLOW_IMAGES:
        fitting = accelerators.tensorflow_runtimes(offered, kind.hosts)
        if fitting:
            return fitting[0]
    return kind.base_runtime


def _find(tpu: TpuApi, wanted: Wanted) -> Node | None:
    try:
        found = tpu.node(wanted.zone, wanted.name)
    except NotFoundError:
        return None
    differs = _differences(found, wanted)
    if differs:
        raise StateError(
            f"Node '{found.name}' exists and {' and '.join(differs)}.",
            hint="Give the new one another name with --name, or delete the old one with 'tpuctl down'.",
        )
    if found.state != "READY" and found.state not in COMING:
        return require_ready(found)
    return found


def _differences(found: Node, wanted: Wanted) -> list[str]:
    """What was asked for in so many words and is otherwise."""
    differs = []
    if found.accelerator != wanted.accelerator:
        differs.append(f"is a {found.accelerator}")
    if wanted.spot and not found.spot:
        differs.append("is not spot")
    if wanted.runtime and wanted.runtime != found.runtime:
        differs.append(f"has the runtime {found.runtime}")
    return differs


def _create(tpu: TpuApi, request: NodeRequest, tell: Tell) -> None:
    tell(f"creating {request.name} ({request.accelerator}) in {request.zone}")
    try:
        operation = tpu.create(request)
    except (DeadlineError, ConflictError):
        # The answer may be lost although the node was made: look, and never send a second create blindly.
        try:
            tpu.node(request.zone, request.name)
        except NotFoundError:
            pass
        else:
            return
        raise
    poll(
        lambda: tpu.finished(operation) or None,
        awaiting=f"{operation.what} to be created",
        timeout=CREATE_TIMEOUT,
        hint=f"It may still come: 'tpuctl up' again waits on, 'tpuctl down {request.name}' gives up.",
    )


def _await_ready(tpu: TpuApi, zone: str, name: str, tell: Tell) -> Node:
    said = set[str]()

    def ready() -> Node | None:
        node = tpu.node(zone, name)
        if node.state == "READY":
            return node
        if node.state not in COMING:
            require_ready(node)
        if node.state not in said:
            said.add(node.state)
            tell(f"{name} is {node.state}")
        return None

    return poll(ready, awaiting=f"node '{name}' to be READY", timeout=CREATE_TIMEOUT, hint="See 'tpuctl ls'.")

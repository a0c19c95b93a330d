"""Says how often a run that is submitted is started again, and on what machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tpuctl import accelerators, durations
from tpuctl.config.subnetworks import subnetwork_in
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import users_script
from tpuctl.flows.nodes.options import is_own
from tpuctl.flows.nodes.placement.rounds import expand
from tpuctl.host.keeper.records import IDLE, TTL
from tpuctl.job_header import ToolTable
from tpuctl.masking import is_secret, secrets_in
from tpuctl.nodes import Node
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import NOT_STORED

UNLIMITED = "unlimited"


@dataclass(frozen=True)
class RestartRequest:
    """What options and configuration say about restarts; empty leaves it to the header, or to tpuctl."""

    after_loss: str = ""
    """A number, or UNLIMITED."""
    after_failure: str = ""
    """A number."""
    is_configured: bool = False
    """Whether the former two are of the configuration, which the header overrides."""
    zones: tuple[str, ...] = ()
    """Zones, regions or `any`, tried after the zone of the node."""
    max_price: str = ""
    subnetworks: Mapping[str, str] = field(default_factory=dict)
    """Region -> subnetwork, as configured; empty where one setting names that of all zones."""


def policy(request: RestartRequest, table: ToolTable, node: Node) -> Restarts:
    """Return how often a run on this node is started again: for spot without end unless somebody says so.

    Raises UsageError for what is no number.
    """
    header = tuple(
        "" if value is None else str(value) for value in (table.restarts, table.restarts_on_failure)
    )
    given = (request.after_loss, request.after_failure)
    first, second = (header, given) if request.is_configured else (given, header)
    after_loss, after_failure = (strong or weak for strong, weak in zip(first, second, strict=True))
    return Restarts(
        after_loss=_count(after_loss or (UNLIMITED if node.spot else "0"), "--restarts"),
        after_failure=_count(after_failure or "0", "--restarts-on-failure") or 0,
    )


def _count(text: str, option: str) -> int | None:
    if text == UNLIMITED and option == "--restarts":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise UsageError(f"{option} {text} is no number of restarts.", hint=f"For instance {option} 3.")
    return int(text)


def machine_like(node: Node, request: RestartRequest, framework: str, owner: str) -> Machine:
    """Return the machine to make when a node is lost: one like it, without what looks like a secret.

    Raises UsageError for a wrong zone, and for one that a data disk of the node is not in; ConfigError for
    one whose region has no subnetwork.
    """
    zones = _zones(request, node)
    machine = Machine(
        accelerator=node.accelerator,
        zones=(node.zone, *zones),
        spot=node.spot,
        runtime=node.runtime,
        owner=owner,
        framework=framework,
        max_price=request.max_price,
    )
    return _with_subnetworks(_with_settings(machine, node), request.subnetworks)


def _zones(request: RestartRequest, node: Node) -> tuple[str, ...]:
    """Return the zones besides the node's; of a region or `any` those for which a subnetwork is known."""
    if not request.zones:
        return ()
    zones = expand(request.zones, accelerators.accelerator(node.accelerator))
    if not request.subnetworks:
        return zones
    known = {*request.subnetworks, accelerators.region(node.zone)}
    return tuple(zone for zone in zones if zone in request.zones or accelerators.region(zone) in known)


def _with_subnetworks(machine: Machine, configured: Mapping[str, str]) -> Machine:
    """Return a machine with a subnetwork for the region of each zone, its own for that of its first one."""
    own, regions = accelerators.region(machine.zones[0]), {*map(accelerators.region, machine.zones)}
    if regions == {own}:
        return machine
    table = {region: name for region, name in configured.items() if region in regions}
    if table and machine.subnetwork:
        table[own] = machine.subnetwork
    for zone in machine.zones:
        subnetwork_in(zone, machine.subnetwork, table)
    return msgspec.structs.replace(machine, subnetworks=table)


def moved(machine: Machine | None, node: Node) -> Machine | None:
    """Return the machine like another node, which was made in place of the one that was planned."""
    return _with_settings(machine, node) if machine else None


def _with_settings(machine: Machine, node: Node) -> Machine:
    """Return a machine with what its creator chose of a node."""
    spec = node.spec
    zones = tuple(dict.fromkeys((node.zone, *machine.zones)))
    if spec.data_disks and len(zones) > 1:
        raise UsageError(
            f"'{node.name}' has disk '{spec.data_disks[0].source.rpartition('/')[2]}', which a TPU in"
            f" {zones[1]} cannot have.",
            hint=f"Leave out --restart-zone: a disk is attached in its own zone, {node.zone}, only.",
        )
    return msgspec.structs.replace(
        machine,
        **{
            **spec.chosen,
            "metadata": {
                key: NOT_STORED if is_secret(key, value) or secrets_in(value) else value
                for key, value in users_metadata(node).items()
            },
            "startup_script": _stored_script(users_script(spec.startup_script)),
        },
        accelerator=node.accelerator,
        zones=zones,
        runtime=node.runtime,
        queued=bool(node.queued_resource),
        slices=len(node.parts),
        labels={key: value for key, value in node.labels.items() if not is_own(key)},
        ttl=_seconds(node, TTL),
        idle=_seconds(node, IDLE),
    )


def users_metadata(node: Node) -> dict[str, str]:
    """Return the metadata of a node that its user chose."""
    return {key: value for key, value in node.spec.metadata.items() if not is_own(key)}


def _stored_script(script: str) -> str:
    return NOT_STORED if secrets_in(script, is_code=True) else script


def _seconds(node: Node, key: str) -> int:
    """Return a length of the node's lifetime; 0 where its metadata has none."""
    try:
        return durations.parse(node.metadata.get(key, "0s"))
    except ValueError:
        return 0

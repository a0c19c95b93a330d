"""Gathers what is known of each TPU, and puts into words what its user has to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import bucket_objects, clock, durations
from tpuctl.catalogue.prices import Price
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.nodes.lifetime import expiry_of, idle_limit
from tpuctl.flows.nodes.lookup import Inventory, take_inventory
from tpuctl.flows.overview.node_runs import RunOnNode, Workload, workload
from tpuctl.flows.progress import Report
from tpuctl.host.keeper import records as keeper
from tpuctl.host.keeper.records import Note
from tpuctl.nodes import Maintenance, Node, NodeState, QueuedResource, QueueState
from tpuctl.nodes.queued_resources import REPLACEMENT
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket

HEALTHY = ("", "HEALTHY")
LONGEST_NOTE = 8192
"""Bytes of a keeper's note: every program on the host can write it."""
SILENT_AFTER, FIRST_NOTE = 180.0, 900.0
"""Seconds without a note after which a keeper is silent, and from a node's creation to its first one. It
writes each half minute; where something does not answer, each minute."""
ASK_AFTER = 60.0
"""Seconds after which a keeper's note is read again."""


@dataclass(frozen=True)
class Overview:
    """Every TPU, with what is known of it from elsewhere."""

    inventory: Inventory
    workload: Workload
    maintenance: Mapping[str, Maintenance] = field(default_factory=dict)
    """By the nodes' uids."""
    maintenance_unknown: str = ""
    """Why the provider does not say; empty if it does."""
    keepers: Mapping[str, Note | TpuctlError | None] = field(default_factory=dict)
    """By the uids of the nodes that are to end by themselves: what their keepers wrote last."""

    def troubles(self, item: Node | QueuedResource, now: datetime) -> Iterator[str]:
        """Yield what the user of one of these has to know."""
        if not isinstance(item, Node):
            yield from troubles(item, None, now)
            return
        yield from troubles(item, self.maintenance.get(item.id.uid), now)
        run = self.workload.on(item)
        if run and run.trouble:
            yield f"{run.run} {run.trouble}"
        silence = self.silence(item, now)
        if silence:
            yield f"keeper silent {silence}: it may not end by itself"

    def silence(self, node: Node, now: datetime) -> str:
        """Return for how long a node's keeper has not written: `for 9 min`; empty for one that writes."""
        note = self.keepers.get(node.id.uid)
        if node.id.uid not in self.keepers or isinstance(note, TpuctlError):
            return ""
        try:
            seconds = (now - clock.parse(note.at if note else node.created)).total_seconds()
        except ValueError:  # every program on the host can write a note
            return ""
        if seconds < (SILENT_AFTER if note else FIRST_NOTE):
            return ""
        return f"for {durations.roughly(seconds)}"


def take_overview(
    provider: Provider,
    get_bucket: Callable[[], Bucket],
    zone: str | None,
    warn: Report,
    keepers: KeeperNotes | None = None,
) -> Overview:
    """Return what there is in a zone, or in every zone; asks the bucket only where there is a node.

    A bucket or an announcement that cannot be read is said in the result, and raises nothing.
    """
    return overview_of(provider, get_bucket, take_inventory(provider, zone), zone, warn, keepers)


def overview_of(
    provider: Provider,
    get_bucket: Callable[[], Bucket],
    inventory: Inventory,
    zone: str | None,
    warn: Report,
    keepers: KeeperNotes | None = None,
) -> Overview:
    """Return what is known of the TPUs of an inventory, which are all in `zone` where one is given."""
    if not inventory.nodes:
        return Overview(inventory, Workload())
    try:
        maintenance, unknown = provider.maintenance(zone), ""
    except TpuctlError as error:
        maintenance, unknown = {}, error.message
    notes = (keepers or KeeperNotes(provider)).of(inventory.nodes)
    return Overview(inventory, _workload(get_bucket, inventory, warn), maintenance, unknown, notes)


class KeeperNotes:
    """What keepers wrote last, by the uids of their nodes; for a command that asks again and again.

    Compute Engine allows ten queries of a VM's guest attributes a minute, the keeper's own included, and may
    lose what is written beyond them: cloud.google.com/compute/docs/metadata/manage-guest-attributes.
    """

    def __init__(self, provider: Provider, now: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._now = now
        self._known: dict[str, tuple[float, Note | TpuctlError | None]] = {}

    def of(self, nodes: Sequence[Node]) -> dict[str, Note | TpuctlError | None]:
        """Return those of the nodes that are up and are to end by themselves."""
        now = self._now()
        mortal = [
            node for node in nodes if node.state is NodeState.READY and (expiry(node) or idle_limit(node))
        ]
        late = [
            node for node in mortal if now - self._known.get(node.id.uid, (-ASK_AFTER, None))[0] >= ASK_AFTER
        ]
        for result in fanout(lambda node: keeper_note(self._provider, node), late):
            self._known[result.item.id.uid] = now, result.error or result.value
        return {node.id.uid: self._known[node.id.uid][1] for node in mortal}


def keeper_note(provider: Provider, node: Node) -> Note | TpuctlError | None:
    """Return what the keeper on worker 0 wrote last; None for nothing, or an error."""
    try:
        text = provider.host_notes(node.id, keeper.NAMESPACE, keeper.NOTE).get(0, "")
        return bucket_objects.decode(text.encode()[:LONGEST_NOTE], Note) if text else None
    except NotFoundError:  # so Compute Engine answers where nothing is written yet
        return None
    except TpuctlError as error:
        return error
    except bucket_objects.DecodeError as error:
        return TpuctlError(f"the note on worker 0 cannot be read: {error}")


def _workload(get_bucket: Callable[[], Bucket], inventory: Inventory, warn: Report) -> Workload:
    try:
        bucket = get_bucket()
    except TpuctlError as error:  # none is configured, or no answer
        return Workload(unknown=error.message)
    return workload(bucket, inventory.nodes, warn)


def expiry(item: Node | QueuedResource) -> str:
    """Return when a node ends by itself at the latest, ISO-8601, UTC; empty for never, or not known yet."""
    moment = expiry_of(item)
    return clock.iso(moment) if moment else ""


def cost_so_far(item: Node | QueuedResource, price: Price, now: datetime) -> Price | None:
    """Return what a node has cost since its creation at the most; None for what has no node."""
    if isinstance(item, QueuedResource) or not item.created:
        return None
    return price.for_seconds(max(0.0, (now - clock.parse(item.created)).total_seconds())).rounded()


def bills(item: Node | QueuedResource) -> bool:
    """Whether it bills by the hour now, or is about to."""
    return isinstance(item, Node) and item.state.bills


def troubles(item: Node | QueuedResource, announced: Maintenance | None, now: datetime) -> Iterator[str]:
    """Yield what its user has to know: why it waits, ill health, maintenance, an expiry that has passed."""
    if isinstance(item, QueuedResource):
        yield from waiting_reason(item)
    else:
        if item.state is NodeState.PREEMPTED:
            cause = (
                "stopped, and spot"
                if item.provider_state == NodeState.STOPPED
                else "taken back by the provider"
            )
            yield f"{cause}: never runs again"
        if item.state is NodeState.READY and item.missing_hosts:
            yield item.missing_hosts
        if item.health not in HEALTHY:
            yield f"{item.health}{f': {item.health_description}' if item.health_description else ''}"
        for symptom in item.symptoms:
            details = f" ({symptom.details})" if symptom.details else ""
            yield f"worker {symptom.worker}: {symptom.kind}{details}"
        if announced:
            yield maintenance_words(announced)
    expires = expiry(item)
    if expires and clock.parse(expires) <= now:
        yield "its time to live is over"


def maintenance_words(announced: Maintenance) -> str:
    """Return announced maintenance in one line."""
    begins = f" {announced.begins}" if announced.begins else ""
    ends = f" to {announced.ends}" if announced.ends else ""
    movable = ", can be rescheduled" if announced.can_reschedule else ""
    return f"maintenance {announced.status.lower()}{begins}{ends}{movable}"


def waiting_reason(queued: QueuedResource) -> Iterator[str]:
    """Yield why a queued resource has no node that works; nothing for one that is ACTIVE."""
    by = f" by the {'service' if queued.initiator == 'SERVICE' else 'user'}" if queued.initiator else ""
    if queued.state is QueueState.FAILED:
        kind = f"{queued.error_kind}: " if queued.error_kind in ("quota", "stockout") else ""
        yield f"failed: {kind}{queued.error or 'the provider does not say why'}"
    elif queued.state in (QueueState.SUSPENDED, QueueState.SUSPENDING):
        yield f"suspended{by}: has lost its nodes, takes quota until it is deleted"
    elif queued.state is QueueState.WAITING:
        until = f", until {queued.valid_until} at the latest" if queued.valid_until else ""
        waits_for = f"reservation {queued.reservation}" if queued.reservation else "capacity"
        yield f"waits for {waits_for}{until}"


def next_command(item: Node | QueuedResource, run: RunOnNode | None) -> str:
    """Return the command that its user needs next."""
    if run:
        return f"tpuctl logs {run.run} -f"
    if isinstance(item, QueuedResource):
        over = item.state.is_over
        return f"tpuctl down {item.name} --zone {item.zone}" if over else "tpuctl ls --watch"
    if item.state is NodeState.READY:
        return f"tpuctl submit SCRIPT --tpu {item.queued_resource if item.multislice else item.name}"
    if item.state is NodeState.STOPPED:
        return f"tpuctl start {item.name} --zone {item.zone}"
    if item.state is NodeState.PREEMPTED:
        return REPLACEMENT if item.is_kept_by_terraform else f"{item.deletion} --zone {item.zone}"
    return "tpuctl ls --watch"

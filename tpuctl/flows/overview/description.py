"""Lists everything that is known of one TPU, each fact with where it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import accelerators, durations
from tpuctl.catalogue.prices import Price
from tpuctl.display import Fact
from tpuctl.errors import NotFoundError
from tpuctl.flows.nodes.lifetime import idle_limit
from tpuctl.flows.nodes.lookup import Allocation, Inventory, choose_candidates, no_answer, take_inventory
from tpuctl.flows.overview.views import (
    Overview,
    bills,
    cost_so_far,
    expiry,
    maintenance_words,
    overview_of,
    waiting_reason,
)
from tpuctl.flows.progress import Report
from tpuctl.host.keeper.records import Note
from tpuctl.nodes import Node, QueuedResource

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket
    from tpuctl.flows.nodes.plan import Prices


def find_overview(
    provider: Provider, get_bucket: Callable[[], Bucket], name: str, zone: str | None, warn: Report
) -> Overview:
    """Return the overview of what a name means: one TPU, or the candidates of one search in several zones.

    Raises NotFoundError, DeadlineError for a zone that did not answer, and StateError for several TPUs.
    """
    inventory = take_inventory(provider, zone)
    chosen = choose_candidates(inventory.allocations, name)
    if not chosen and inventory.unreachable:
        raise no_answer(inventory.unreachable, f"'{name}'")
    if not chosen:
        raise NotFoundError(
            f"There is no TPU '{name}'.", hint=f"What happened to one that was there: tpuctl why {name}"
        )
    only = chosen[0].zone if len({item.zone for item in chosen}) == 1 else None
    return overview_of(provider, get_bucket, Inventory(chosen, inventory.unreachable), only, warn)


def facts_of(
    allocation: Allocation,
    overview: Overview,
    prices: Prices,
    now: datetime,
) -> Iterator[Fact]:
    """Yield what is known of a TPU: of its queued resource, then of each of its nodes."""
    if allocation.queued_resource:
        yield from _queue_facts(allocation.queued_resource)
    for node in allocation.nodes:
        yield from _node_facts(node, overview)
        yield from _bucket_facts(node, overview)
        yield from _lifetime_facts(node, overview, now)
        if bills(node):
            yield from _price_facts(node, prices.of(node), now)


def _queue_facts(queued: QueuedResource) -> Iterator[Fact]:
    source = "provider"
    by = f", by {queued.initiator}" if queued.initiator else ""
    yield Fact("queued resource", f"{queued.name} in {queued.zone} of {queued.id.project}", source)
    yield Fact("state of the request", f"{queued.provider_state}{by}", source)
    for reason in waiting_reason(queued):
        yield Fact("why", reason, source)
    if queued.error_hint:
        yield Fact("what to do", queued.error_hint, "docs/errors.md")
    yield Fact("asks for", _kind(queued), source)
    yield Fact("nodes", ", ".join(node.name for node in queued.nodes), source)
    yield Fact("requested", queued.created, source)
    optional = {"reservation": queued.reservation, "valid until": queued.valid_until}
    yield from (Fact(name, value, source) for name, value in optional.items() if value)
    yield Fact("owner", queued.owner or "unknown", "metadata or label")


def _node_facts(node: Node, overview: Overview) -> Iterator[Fact]:
    source = "provider"
    yield Fact("node", f"{node.name} in {node.zone} of {node.id.project}", source)
    yield Fact("uid", node.id.uid, source)
    yield Fact("state", node.provider_state, source)
    described = f" ({node.health_description})" if node.health_description else ""
    yield Fact("health", f"{node.health or 'not reported'}{described}", source)
    for symptom in node.symptoms:
        words = f"{symptom.kind} {symptom.details} {symptom.noticed}".strip()
        yield Fact(f"symptom of worker {symptom.worker}", words, source)
    announced = overview.maintenance.get(node.id.uid)
    unknown = overview.maintenance_unknown
    silence = f"unknown: {unknown}" if unknown else "none announced"
    words = maintenance_words(announced) if announced else silence
    yield Fact("maintenance", words, source)
    yield Fact("type", _kind(node), source)
    yield from _size(node)
    yield Fact("runtime", node.runtime, source)
    yield Fact("created", node.created, source)
    yield Fact("addresses", ", ".join(node.addresses) or "none", source)
    yield Fact("owner", node.owner or "unknown", "metadata or label")
    labels = ", ".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
    yield Fact("labels", labels or "none", source)
    yield Fact("metadata", ", ".join(sorted(node.metadata)) or "none", source)


def _kind(item: Node | QueuedResource) -> str:
    return f"{item.accelerator}{', spot' if item.spot else ''}"


def _size(node: Node) -> Iterator[Fact]:
    known = accelerators.catalogue().get(node.accelerator)
    if known:
        hosts = f"{known.hosts} host{'s' if known.hosts > 1 else ''}"
        yield Fact("size", f"{hosts}, {known.chips} chips, {known.cores} cores", "catalogue")


def _bucket_facts(node: Node, overview: Overview) -> Iterator[Fact]:
    if overview.workload.unknown:
        yield Fact("run", f"unknown: {overview.workload.unknown}", "bucket")
        return
    run = overview.workload.newest.get(node.id.uid)
    words = f"{run.run}, attempt {run.attempt}: {run.state}, started {run.started}" if run else "none yet"
    yield Fact("newest run", words, "bucket")


def _lifetime_facts(node: Node, overview: Overview, now: datetime) -> Iterator[Fact]:
    ends, idle = expiry(node), idle_limit(node)
    ways = " or ".join(filter(None, (ends, f"after {durations.text(idle)} without use" if idle else "")))
    never = "never: Terraform keeps it" if node.is_kept_by_terraform else "never: until 'tpuctl down'"
    yield Fact("ends by itself", ways or never, "metadata" if ways else "no metadata")
    source, note = "keeper on worker 0", overview.keepers.get(node.id.uid)
    if isinstance(note, Note):
        in_use = note.activity or f"idle since {note.active or 'its start'}"
        yield Fact("keeper", f"{in_use}; wrote {note.at}", source)
        for name, value in (("keeper deletes it", note.deleting), ("keeper cannot work", note.error)):
            yield from [Fact(name, value, source)] if value else []
    elif note:
        yield Fact("keeper", f"unknown: {note.message}", source)
    elif node.id.uid in overview.keepers:
        yield Fact("keeper", "has not written yet", source)
    silence = overview.silence(node, now)
    if silence:
        yield Fact("keeper is silent", f"{silence}: it may not end by itself", source)


def _price_facts(node: Node, price: Price, now: datetime) -> Iterator[Fact]:
    so_far = cost_so_far(node, price, now)
    source = f"{price.source} {price.as_of}".strip() or "no price list"
    yield Fact("price per hour", price.short if price.is_known else str(price), source)
    if so_far and so_far.is_known:
        yield Fact("so far, at most", so_far.short, f"{source}, since it was created")

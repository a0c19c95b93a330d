"""Lists what bills in a project now, whoever made it, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.totals import Total
from tpuctl.errors import TpuctlError
from tpuctl.flows.nodes.inventory import Allocation, Inventory, take_inventory
from tpuctl.nodes import Node, NodeState
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.catalogue.holdings import Address, Disk, Usage
    from tpuctl.cloud.provider import Provider

MOST_OBJECTS = 100_000
"""Of one bucket that are counted: a hundred requests."""
NOT_LOOKED_AT = (
    "Snapshots, images, other virtual machines, Cloud NAT, Dataflow, logs, traffic and what buckets keep of "
    "deleted objects are not looked at."
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Bill:
    """One thing that bills, or will once there is capacity."""

    kind: str
    """`TPU`, `queued resource`, `disk`, `address` or `bucket`."""
    name: str
    place: str
    what: str
    """Its size and state, for people."""
    owner: str = ""
    """Whose it is; empty for what tpuctl did not make."""
    price: Price | None = None
    """Per hour; None where tpuctl has no price list of it."""


@dataclass
class BillReport:
    """What bills in a project."""

    bills: list[Bill] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """What could not be looked at: sentences."""
    unseen: list[Price] = field(default_factory=list)
    """What TPUs cost that could not be looked at: unknown, with the reason."""

    @property
    def total(self) -> Total:
        """The price per hour of what has one."""
        return Total.of([*(bill.price for bill in self.bills if bill.price), *self.unseen])


@dataclass(frozen=True)
class Sources:
    """Who is asked: each may raise tpuctl's errors."""

    provider: Provider
    price_of: Callable[[Node], Price]
    disks: Callable[[], tuple[list[Disk], list[str]]]
    """The disks, and places that did not answer."""
    addresses: Callable[[], tuple[list[Address], list[str]]]
    buckets: Callable[[], Sequence[str]]
    """Names of the project's buckets."""
    own_buckets: Sequence[str]
    """Those that are configured, and looked at where the project's cannot be listed."""
    usage: Callable[[str, int], tuple[str, Usage]]
    """Location and content of a bucket, of so many objects at most."""


def take_bills(sources: Sources) -> BillReport:
    """Return what bills in every zone; a service that does not answer or refuses is said in the result."""
    report = BillReport()
    inventory = _asked(report, "TPUs", lambda: take_inventory(sources.provider), Inventory(()))
    report.unseen += [unknown("the TPUs were not looked at")] if report.gaps else []
    for zone in inventory.unreachable:
        report.gaps.append(f"No answer from {zone}: what is there may bill.")
        report.unseen.append(unknown(f"no answer from {zone}"))
    for item in inventory.allocations:
        report.bills += _of_allocation(item, sources)
    nothing: tuple[list[Disk], list[str]] = ([], [])
    disks, silent = _asked(report, "disks", sources.disks, nothing)
    report.bills += _of_disks(disks, inventory)
    no_address: tuple[list[Address], list[str]] = ([], [])
    addresses, without = _asked(report, "addresses", sources.addresses, no_address)
    for each in addresses:
        state = "nothing uses it" if each.status == "RESERVED" else each.status.lower()
        report.bills.append(Bill("address", each.name, each.place, f"{each.address}, {state}"))
    for place in sorted({*silent, *without}):
        report.gaps.append(f"No answer from {place}: disks or addresses may be there.")
    names = _asked(report, "buckets", sources.buckets, sources.own_buckets)
    for result in fanout(lambda name: sources.usage(name, MOST_OBJECTS), names, width=8):
        if result.error:
            report.gaps.append(f"The size of gs://{result.item} was not read: {result.error.message}")
        elif result.value:
            place, usage = result.value
            least = "" if usage.is_complete else "at least "
            what = f"{least}{_size(usage.size)} in {least}{usage.objects:,} objects"
            report.bills.append(Bill("bucket", f"gs://{result.item}", place, what))
    report.gaps.append(NOT_LOOKED_AT)
    return report


def _asked(report: BillReport, what: str, ask: Callable[[], Result], without: Result) -> Result:
    try:
        return ask()
    except TpuctlError as error:
        report.gaps.append(f"The {what} were not looked at: {error.message}")
        return without


def _of_allocation(item: Allocation, sources: Sources) -> Iterator[Bill]:
    owner = item.owner if item.managed else ""
    for node in item.nodes:
        if node.state is NodeState.STOPPED:
            yield Bill("TPU", node.name, node.zone, f"{node.accelerator} STOPPED: its boot disk bills", owner)
        elif node.state.bills:
            count = sum(map(bool, node.external))
            addresses = f", {count} external address{'es' if count > 1 else ''}" if count else ""
            what = f"{node.accelerator}{' spot' if node.spot else ''} {node.provider_state}{addresses}"
            yield Bill("TPU", node.name, node.zone, what, owner, sources.price_of(node))
    queued = item.queued_resource
    if queued and not item.nodes and not item.is_over:
        what = f"{queued.accelerator} {queued.provider_state}: bills once there is capacity"
        yield Bill("queued resource", queued.name, queued.zone, what, owner)


def _of_disks(disks: Sequence[Disk], inventory: Inventory) -> Iterator[Bill]:
    """Yield the disks of the project, and those of other projects that its TPUs have."""
    holders: dict[str, list[str]] = {}
    for node in inventory.nodes:
        for disk in node.spec.data_disks:
            holders.setdefault(f"{node.zone}/{disk.source.rpartition('/')[2]}", []).append(node.name)
    for each in disks:
        users = [*holders.pop(f"{each.place}/{each.name}", []), *each.users]
        used = f"attached to {', '.join(users)}" if users else "attached to no TPU"
        yield Bill("disk", each.name, each.place, f"{each.size_gb} GB {each.kind}, {used}")
    for place, names in holders.items():
        zone, _, name = place.partition("/")
        yield Bill("disk", name, zone, f"attached to {', '.join(names)}; its size is not known")


def _size(size: int) -> str:
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.3g} {unit}"

"""Lists what bills in a project now, whoever made it, and what could not be looked at.

- Defines what a cost is made of: spans of time on one node, and their sums by run, node, user or label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from tpuctl import clock
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.totals import Total
from tpuctl.errors import TpuctlError
from tpuctl.flows.nodes.lookup import Allocation, Inventory, take_inventory
from tpuctl.nodes import Node, NodeState
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.catalogue.quotas import Address, Disk, Usage
    from tpuctl.cloud.provider import Provider


By = Literal["run", "node", "user", "label"]


@dataclass(frozen=True)
class Entry:
    """A span in which one node billed: for an attempt of a run, or for no run."""

    run: str
    """Empty for time in which no run used the node."""
    attempt: int
    """0 for no run."""
    node: str
    zone: str
    uid: str
    """Empty where the node is not recorded."""
    user: str
    """The account whose node it was, or, where that is not known, who submitted the run."""
    began: str
    """ISO-8601, UTC; empty where nobody knows."""
    ended: str
    """ISO-8601, UTC."""
    seconds: float | None
    """None where nobody knows."""
    price: Price
    """Per hour."""
    is_present: bool
    """Whether that is the present price, because none was recorded at the time."""
    cost: Price
    labels: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = False
    """Whether it has not ended yet."""
    is_preempted: bool = False
    """Whether Google took the node back at its end."""

    def within(self, start: str, end: str) -> Entry | None:
        """Return what of it is between two moments; None for nothing."""
        if self.seconds is None or not self.began:
            return self
        began, ended = max(self.began, start), min(self.ended, end)
        if (began, ended) == (self.began, self.ended):
            return self
        return self.part(began, ended) if began < ended else None

    def part(self, began: str, ended: str) -> Entry:
        """Return what of it is from `began` to `ended`."""
        seconds = (clock.parse(ended) - clock.parse(began)).total_seconds()
        cost, goes_on = self.price.for_seconds(seconds), self.goes_on and ended == self.ended
        return replace(self, began=began, ended=ended, seconds=seconds, cost=cost, goes_on=goes_on)


@dataclass(frozen=True)
class Group:
    """The entries of one run, node, user or label."""

    key: str
    entries: Sequence[Entry]

    @property
    def total(self) -> Total:
        """What they have cost together."""
        return Total.of(entry.cost for entry in self.entries)

    @property
    def seconds(self) -> float:
        """The time of nodes, as far as it is known."""
        return sum(entry.seconds or 0.0 for entry in self.entries)

    @property
    def attempts(self) -> int:
        """The number of attempts of runs."""
        return len({(entry.run, entry.attempt) for entry in self.entries if entry.run})


def grouped(entries: Iterable[Entry], by: By) -> list[Group]:
    """Return the entries by their keys, in order of the first time of each.

    With labels, one with several is in the group of each.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.began or entry.ended, entry.run, entry.attempt)):
        for key in KEYS[by](entry):
            groups.setdefault(key, []).append(entry)
    return [Group(key, members) for key, members in groups.items()]


def _node(entry: Entry) -> str:
    return f"{entry.node} in {entry.zone}" if entry.node else "no record of the node"


def _labels(entry: Entry) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(entry.labels.items())] or ["no label"]


KEYS: dict[By, Callable[[Entry], list[str]]] = {
    "run": lambda entry: [entry.run or f"no run, {_node(entry)}"],
    "node": lambda entry: [_node(entry)],
    "user": lambda entry: [entry.user or "unknown"],
    "label": _labels,
}
"""What to sum by -> the keys of an entry."""


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

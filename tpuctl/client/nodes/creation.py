"""Turns options and configuration into the plan of a TPU, and creates it.

- What a creation or a deletion of TPUs would do, to be looked at before it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import ceil, inf
from typing import Any, Literal, TypedDict

from msgspec.structs import replace

from tpuctl import accelerators, clock
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.client.context import Call, Context, Span, Stop, length
from tpuctl.client.nodes import changes
from tpuctl.client.nodes.changes import note_preemptions, note_requests
from tpuctl.client.nodes.node import Node
from tpuctl.client.nodes.records import RequestInfo
from tpuctl.client.records import ProgressCallback
from tpuctl.config import subnetworks
from tpuctl.config.settings import normalize
from tpuctl.display import Cost, cost_of
from tpuctl.errors import ConfigError, TpuctlError, UsageError
from tpuctl.flows.nodes import down as down_flow
from tpuctl.flows.nodes import up as flow
from tpuctl.flows.nodes.lifetime import Lifetime, require_budget, require_time_left
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.placement.creation import zone_of
from tpuctl.flows.nodes.placement.rounds import Search, Terms, expand, is_zone
from tpuctl.flows.nodes.plan import RESERVED, UpPlan, default_name, plan_up
from tpuctl.flows.offers import read_quotas
from tpuctl.flows.progress import Report
from tpuctl.nodes import DataDisk, HttpRequest


class NodePlan:
    """What `client.up` with the same options would do; nothing is done before `create`."""

    name: str
    accelerator: str
    hosts: int
    """Hosts of one slice; 0 for a type that is not in the catalogue."""
    chips: int
    """Chips of one slice; 0 for a type that is not in the catalogue."""
    exists: bool
    """Whether there is a TPU of this name, which is used."""
    zones: tuple[str, ...]
    """In the order in which they are tried."""

    def __init__(self, context: Context, plan: UpPlan) -> None:
        self._context = context
        self._plan = plan
        self.name = plan.options.name
        self.accelerator = plan.options.accelerator
        self.hosts = plan.hosts
        self.chips = plan.chips
        self.exists = plan.existing is not None
        self.zones = tuple(each.request.id.zone for each in plan.creations)

    @property
    def price_per_hour(self) -> Cost:
        """What it costs in the first zone."""
        return cost_of(self._context.prices.of_creation(self._plan.creation))

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """What `create` would send."""
        return request_records(requests(self._context, self._plan))

    def create(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Node:
        """Do it, and return the TPU once every host answers over SSH; raises as `up` does."""
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            return Node(self._context, create(self._context, self._plan, call.line))


class DownPlan:
    """What `client.down` with the same names would delete; nothing is deleted before `delete`."""

    names: tuple[str, ...]

    def __init__(self, context: Context, plan: down_flow.DownPlan) -> None:
        self._context = context
        self._plan = plan
        self.names = tuple(item.name for item in plan.allocations)

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """What `delete` would send."""
        return request_records(changes.down_requests(self._context, self._plan))

    def delete(
        self, *, progress: ProgressCallback | None = None, stop: Stop | None = None
    ) -> tuple[str, ...]:
        """Delete all of it, and return the names."""
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            return self._delete(call.line)

    def _delete(self, report: Report) -> tuple[str, ...]:
        changes.down(self._context, self._plan, report)
        return self.names


def request_records(requests: Sequence[HttpRequest]) -> tuple[RequestInfo, ...]:
    """Return requests as records."""
    return tuple(RequestInfo(each.method, each.url, each.body) for each in requests)


class NodeOptions(TypedDict, total=False):
    """The options of `up` and `plan_up`; what is left out is as on the command line."""

    name: str
    """By default USER-ACCELERATOR."""
    zones: Sequence[str]
    """Zones or regions, or `any`, tried in this order; by default the configured zone."""
    runtime: str
    framework: Literal["tensorflow", "jax", "pytorch"]
    spot: bool
    queued: bool
    reserved: bool
    reservation: str
    slices: int
    valid_until: datetime | timedelta
    """Give up the place in the queue then; a span begins now."""
    topology: str
    labels: Mapping[str, str]
    tags: Sequence[str]
    network: str
    subnetwork: str
    internal_ips: bool
    service_account: str
    scopes: Sequence[str]
    data_disks: Sequence[str]
    """Names of disks, each with `:ro` for read-only."""
    startup_script: str
    """Its text."""
    metadata: Mapping[str, str]
    secure_boot: bool
    ttl: Span
    """Delete it that long after its creation."""
    idle: Span
    """Delete it after that long without use."""
    max_cost: Decimal | float
    """Delete it when it has cost that much, at its price now: a `ttl` that follows from it."""
    race: bool
    """Wait in the queues of all zones, and keep the first TPU."""
    wait_capacity: Span
    """Keep trying for up to this long while there is no capacity."""
    detach: bool
    """Return as soon as it is requested: `node.wait()` waits for it."""


OF_THE_SEARCH = {"zones", "race", "wait_capacity", "detach", "ttl", "idle", "max_cost", "internal_ips"}
"""Options that are no fields of UpOptions."""


def up_options(
    context: Context, accelerator: str | None, options: NodeOptions, typed: tuple[str, ...] = ()
) -> UpOptions:
    """Return what is asked for together with the configuration; raises UsageError.

    None stands for an option that is left out.
    """
    config = context.config
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    kind = _type(context, accelerator, given.get("topology", ""))
    resolved = {
        "name": given.get("name") or default_name(config.require("ssh_user"), kind.type),
        "framework": _setting(context, "framework", given.get("framework") or None),
        "network": _setting(context, "network", given.get("network")) or "default",
        "subnetwork": _setting(context, "subnetwork", given.get("subnetwork")),
        "subnetworks": {} if given.get("subnetwork") else subnetworks.of_config(config),
        "external_ips": config.require_bool("external_ips") and not given.get("internal_ips"),
        "service_account": _setting(context, "service_account", given.get("service_account")),
        "valid_until": _moment(context, given.get("valid_until")),
        "tags": tuple(given.get("tags", ())),
        "scopes": tuple(given.get("scopes", ())),
        "data_disks": tuple(_disk(disk) for disk in given.get("data_disks", ())),
    }
    plain = {name: value for name, value in given.items() if name not in OF_THE_SEARCH}
    return UpOptions(accelerator=kind.type, owner=context.owner, typed=typed, **{**plain, **resolved})


def lifetime_of(options: NodeOptions) -> Lifetime:
    """Return when a TPU ends; raises UsageError for a value that is none, and for 0 where it is named."""
    ttl, idle = length(options.get("ttl", 0)), length(options.get("idle", 0))
    amount = options.get("max_cost", 0)
    try:
        max_cost = Decimal(str(amount))
    except InvalidOperation:
        max_cost = Decimal("nan")
    if not max_cost.is_finite() or max_cost < 0:
        raise UsageError(f"max_cost is {amount!r}, and no amount of money.", hint="For instance max_cost=20.")
    require_budget(ttl if "ttl" in options else None, max_cost if "max_cost" in options else None)
    return Lifetime(ceil(ttl), ceil(idle), max_cost)


def search_of(
    context: Context, options: UpOptions, named: tuple[str, ...], *, race: bool, wait: float, detach: bool
) -> Search:
    """Return the search in the zones that were named, else in the configured one; raises ConfigError."""
    names = tuple(normalize("zone", name, "--zone") if is_zone(name) else name for name in named)
    if not names:
        configured = _configured_zone(context, options.type)
        return Search((configured,), race=race, wait=wait, detach=detach)
    location = bucket_location(context)
    known = dict[str, Terms]()

    def terms(zones: Sequence[str]) -> Mapping[str, Terms]:
        known.update(_terms(context, options, zones))
        return known

    zones = expand(names, options.type, location, terms)
    far = _far(context, location, zones)
    tried = tuple(zone for zone in zones if zone in names or zone not in far) or zones
    left_out = tuple(zone for zone in zones if zone not in tried)
    flaws = {zone: known[zone].flaw for zone in tried if zone in known and known[zone].flaw}
    return Search(tried, names, race=race, wait=wait, detach=detach, left_out=left_out, flaws=flaws)


def _terms(context: Context, options: UpOptions, zones: Sequence[str]) -> Mapping[str, Terms]:
    """Return what is known of a type in several zones: quota 0, and a price list that lacks it there.

    Nothing for reserved capacity. What cannot be read is no flaw.
    """
    if len(zones) < 2 or options.reserved or options.reservation:
        return {}
    quotas = read_quotas(context.cloud.read_quotas)
    prices = {zone: context.prices.price(options.type, zone, spot=options.spot) for zone in zones}
    has_list = any(price.is_known for price in prices.values())

    def flaw(zone: str) -> str:
        if quotas.quota(options.type, zone, spot=options.spot).limit == 0:
            return "no quota"
        return "no price" if has_list and not prices[zone].is_known else ""

    return {
        zone: Terms(flaw(zone), price.amount if options.spot and price.amount else Decimal(0))
        for zone, price in prices.items()
    }


def _far(context: Context, location: BucketLocation | None, zones: Sequence[str]) -> list[str]:
    """Return the zones in other regions than a bucket; none where the user says that this is meant."""
    if location is None or context.config.require_bool("cross_region"):
        return []
    return [zone for zone in zones if not location.is_near(zone)]


def plan(context: Context, options: UpOptions, lifetime: Lifetime, search: Search) -> UpPlan:
    """Return what is to be done; sends reads only."""
    lifetime.check(slices=options.slices, scopes=options.scopes)
    lifetime = limited(context, options, lifetime, search)
    options = replace(options, lifetime=lifetime, bucket=context.config.get("bucket"))
    planned = plan_of(context, options, search)
    if planned.stopped:
        require_time_left(planned.stopped, context.cloud.server_time)
    return planned


def limited(context: Context, options: UpOptions, lifetime: Lifetime, search: Search) -> Lifetime:
    """Return a lifetime with what its budget pays for, at the highest price of the zones of a search."""
    if not lifetime.max_cost:
        return lifetime
    if options.reserved or options.reservation:
        return lifetime.limited(RESERVED)
    prices = [
        context.prices.price(options.type, zone, spot=options.spot, slices=options.slices)
        for zone in search.zones
    ]
    return lifetime.limited(max(prices, key=lambda price: inf if price.amount is None else price.amount))


def plan_of(context: Context, options: UpOptions, search: Search) -> UpPlan:
    """Return the same for options that have their lifetime, also for a stopped TPU whose time is over.

    Raises UsageError where it would be created in another region than the bucket.
    """
    cloud = context.cloud
    planned = plan_up(cloud.provider, cloud.ssh.login_key(), options, search)
    if planned.existing or context.config.require_bool("cross_region"):
        return planned
    if location := bucket_location(context):
        location.require_near(*map(zone_of, planned.creations))
    return planned


def price_text(context: Context, plan: UpPlan) -> str:
    """Return what the TPU costs per hour in the first zone, and from how much to how much in the others."""
    first, *others = (context.prices.of_creation(each) for each in plan.creations)
    amounts = sorted((price.amount, price.short) for price in others if price.amount is not None)
    if all(price.amount == first.amount for price in others) or not amounts:
        return str(first)
    low, high = amounts[0][1], amounts[-1][1]
    return f"{first}; elsewhere {low if low == high else f'{low} to {high}'}"


def requests(context: Context, planned: UpPlan) -> list[HttpRequest]:
    """Return what `create` would send."""
    return [*note_requests(context, planned.ended), *flow.requests(context.cloud.provider, planned)]


def create(context: Context, planned: UpPlan, report: Report) -> Allocation:
    """Do what a plan says, and return the TPU."""
    cloud = context.cloud
    note_preemptions(context, planned.ended)
    return flow.up(cloud.provider, cloud.ssh, planned, report)


def bucket_location(context: Context) -> BucketLocation | None:
    """Return where the bucket is; None without one, or if it does not say."""
    if context.config.get("bucket") is None:
        return None
    try:
        return context.cloud.bucket.location()
    except TpuctlError:
        return None


def _type(context: Context, name: str | None, topology: str) -> Accelerator:
    """Return the type that is named, else that of the configuration; raises UsageError."""
    name = name or context.config.get("accelerator") or ""
    if topology:
        return accelerators.of_topology(topology, name)
    if not name:
        raise UsageError(
            "There is no TPU type.",
            hint="Name one: tpuctl up v3-8. For a project: accelerator in its tpuctl.toml.",
        )
    return accelerators.accelerator(name)


def _moment(context: Context, value: timedelta | datetime | None) -> str:
    """Return the end of the waiting as ISO-8601; raises UsageError for one that is past."""
    if value is None:
        return ""
    now = context.cloud.server_time()
    moment = value if isinstance(value, datetime) else now + value
    if moment.astimezone(UTC) <= now:
        raise UsageError(f"--valid-until {clock.iso(moment)} is not in the future: it is {clock.iso(now)}.")
    return clock.iso(moment)


def _setting(context: Context, name: str, flag: str | None) -> str:
    """Return what an option says, else the configuration; raises UsageError for a malformed option."""
    if flag is None:
        return context.config.get(name) or ""
    return normalize(name, flag, f"--{name.replace('_', '-')}")


def _configured_zone(context: Context, accelerator: Accelerator) -> str:
    zone = context.config.get("zone")
    if zone is None:
        raise ConfigError(
            "No zone is configured.",
            hint=f"{accelerator.places} Pass --zone, or --zone any, or run 'tpuctl init'.",
        )
    return zone


def _disk(text: str) -> DataDisk:
    """Return the disk that `DISK`, `DISK:ro` or `DISK:rw` names."""
    source, _, mode = text.rpartition(":")
    if mode in ("ro", "rw") and source:
        return DataDisk(source, read_only=mode == "ro")
    return DataDisk(text)

"""Gives a TPU an end: its metadata, and the startup script by which its hosts start the keeper.

- Reads and moves the end of a TPU's --ttl.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache

from tpuctl import clock
from tpuctl.catalogue.prices import Price
from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConfigError, StateError, UsageError
from tpuctl.flows.hosts.bucket_access import change_metadata
from tpuctl.flows.hosts.program_zip import program
from tpuctl.flows.nodes.lookup import Allocation, find_allocation
from tpuctl.flows.progress import Report
from tpuctl.host.keeper import records
from tpuctl.nodes import History, HttpRequest, Node, PastChange, QueuedResource, UpdateNode

A_SECOND = timedelta(seconds=1)
"""What times of operations leave out."""


@dataclass(frozen=True)
class Extension:
    """The moment to which `extend` moves the end of a TPU."""

    allocation: Allocation
    expires: datetime


def expiry_of(item: Node | QueuedResource) -> datetime | None:
    """Return when a node, or what a queued resource makes, ends; None for never, or not known.

    The time of a --ttl begins with the node: a queued resource has no end before its nodes exist. Metadata
    that is no time counts as none: the keeper says what is wrong with it.
    """
    created = item.created_at or None if isinstance(item, Node) else None
    try:
        moment = records.expiry(item.metadata, created)
        return None if moment is None else datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError):
        return None


def idle_limit(item: Node | QueuedResource) -> int:
    """Return the seconds without activity after which it ends by itself; 0 for no such end."""
    try:
        return records.idle_limit(item.metadata) or 0
    except ValueError:
        return 0


def expiry(allocation: Allocation) -> datetime | None:
    """Return when the first node of an allocation ends, which ends all of it; None for never."""
    moments = [moment for moment in map(expiry_of, allocation.nodes) if moment]
    return min(moments, default=None)


@dataclass(frozen=True)
class PastDeletion:
    """A deletion of a node that was to end by itself, as the provider remembers it."""

    node: Node
    """As it was when the provider last said."""
    began: str
    """ISO-8601, UTC."""

    @property
    def is_past_ttl(self) -> bool:
        """Whether the node's --ttl was over: its keeper asked for it, or `reap`."""
        expires = expiry_of(self.node)
        return expires is not None and clock.parse(self.began) + A_SECOND >= expires

    @property
    def may_be_idle(self) -> bool:
        """Whether the node had existed for as long as its --idle."""
        idle = idle_limit(self.node)
        age = clock.parse(self.began) - clock.parse(self.node.created)
        return bool(idle) and age >= timedelta(seconds=idle)


def past_deletions(history: History) -> list[PastDeletion]:
    """Return the deletions of nodes whose metadata the provider remembers, the oldest first."""
    nodes: dict[tuple[str, str], Node] = {}
    deletions = []
    for change in history.changes:
        if change.node and not change.of_queued_resource:
            nodes[change.zone, change.name] = change.node
        elif change.verb == "delete" and not change.error:
            ended = [place for place, node in nodes.items() if _ends(change, node)]
            deletions += [PastDeletion(nodes.pop(place), change.began) for place in ended]
    return deletions


def _ends(deletion: PastChange, node: Node) -> bool:
    """Return whether a node, or its queued resource, is what was deleted."""
    name = node.queued_resource if deletion.of_queued_resource else node.name
    return (deletion.zone, deletion.name) == (node.zone, name)


def require_time_left(node: Node, read_time: Callable[[], datetime]) -> None:
    """Raise StateError for a node past its end: its keeper would delete it as soon as it has booted."""
    end = expiry_of(node)
    if end and end <= read_time():
        raise StateError(
            f"'{node.name}' is past its --ttl, which ended {clock.iso(end)}: it would delete itself at boot.",
            hint=f"Move its end first: tpuctl extend {node.name} 8h",
            expires=clock.iso(end),
        )


def plan_extension(
    provider: Provider, name: str, length: int, now: datetime, zone: str | None = None
) -> Extension:
    """Return the TPU of this name with its new end: `length` seconds after its present one, or after now.

    Raises NotFoundError, StateError for one without a --ttl or without nodes yet, UsageError for an end more
    than a year away, and DeadlineError where a zone that did not answer may hold it.
    """
    allocation = find_allocation(provider, name, zone)
    if not allocation.nodes:
        raise StateError(
            f"'{name}' has no nodes yet: the time of --ttl begins with them.",
            hint="Its state: 'tpuctl ls'.",
        )
    present = expiry(allocation)
    if present is None:
        raise StateError(
            f"'{name}' has no --ttl: it runs until '{allocation.deletion}'.",
            hint="A --ttl is given to 'tpuctl up'.",
        )
    expires = max(present, now).replace(microsecond=0) + timedelta(seconds=length)
    if expires > now + timedelta(seconds=records.LONGEST):
        raise UsageError(f"'{name}' would end more than a year from now.", hint="Extend it by less.")
    return Extension(allocation, expires)


def changes(extension: Extension) -> list[UpdateNode]:
    """Return the changes by which `extend` moves the end."""
    planned = [_change(node, extension.expires) for node in extension.allocation.nodes]
    return [change for change in planned if change]


def requests(provider: Provider, extension: Extension) -> list[HttpRequest]:
    """Return the requests that `extend` sends, for --dry-run."""
    return [provider.http_request(change) for change in changes(extension)]


def extend(provider: Provider, extension: Extension, report: Report) -> None:
    """Move the end of every node; what others change in the metadata at the same time stays."""
    for node in extension.allocation.nodes:
        change_metadata(
            provider, node, lambda current: _change(current, extension.expires), "to take the new expiry"
        )
        report(f"{node.name} ends {clock.iso(extension.expires)}")


def _change(node: Node, expires: datetime) -> UpdateNode | None:
    """Return the change that moves the end of a node; None for one that ends then or later."""
    stored = expiry_of(node)
    if stored and stored >= expires:
        return None
    return UpdateNode(node, metadata={**node.metadata, records.EXPIRES: clock.iso(expires)})


LOOK_INTERVAL = 30.0
"""Seconds between two looks of the keeper at its host."""
NET = 3600
"""Seconds without use after which a TPU ends that is made for a run, and that nobody has given an end.

Who waits for the run's end deletes it; a closed terminal or a kill may have ended them.
"""
SHORTEST = 60
"""Seconds: an end before the hosts have booted helps nobody."""
MOST_BYTES = 256 * 1024
"""Of one value of a node's metadata: Compute Engine's documentation of custom metadata."""
NEEDED_SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "cloud-platform")
SCRIPT = """#!/bin/sh
# Written by tpuctl: starts the keeper, which deletes this TPU at the end of its --ttl or --idle.
(
  umask 077
  folder="$TPUCTL_HOST_ROOT/run/tpuctl-keeper"  # in memory: a full disk or an emptied home do not matter
  mkdir -p "$folder" && cd "$folder" || exit
  base64 -d >keeper.new <<'END' && mv keeper.new keeper.zip
{keeper}
END
  setsid sh -c 'while [ -e keeper.zip ] && ! (exec python3 -I keeper.zip "$1" 2>&3); do sleep 5; done' - \\
    {interval} </dev/null >/dev/null 2>&1 3>>keeper.log &
)
"""
WRITTEN_BY_TPUCTL = "#!/bin/sh\n# Written by tpuctl: "
"""How SCRIPT begins, in each version of tpuctl."""
USER_SCRIPT = """# The script of --startup-script.
script=$(mktemp) && base64 -d >"$script" <<'END'
{script}
END
chmod 700 "$script"
"$script"
code=$?
rm -f "$script"
exit $code
"""


@dataclass(frozen=True)
class Lifetime:
    """When a TPU ends by itself; both in seconds, 0 for never."""

    ttl: int = 0
    """From its creation on."""
    idle: int = 0
    """Without a run, a login or a program that holds chips."""
    max_cost: Decimal = Decimal(0)
    """What it may cost from its creation on, in the currency of its price; 0 for no limit."""
    budget: str = ""
    """How `ttl` follows from `max_cost`, for people; empty where it does not."""
    is_net: bool = False
    """Whether nobody has asked for it: a TPU that exists without it is used as it is."""

    def limited(self, price: Price) -> Lifetime:
        """Return it with the time to live that `max_cost` pays for at a price per hour, in whole minutes.

        Raises ConfigError for a price that nobody knows, UsageError for less than a minute.
        """
        if not self.max_cost:
            return self
        if not price.amount:
            unknown = "of this type is 0" if price.is_known else f"is unknown: {price.reason}"
            raise ConfigError(
                f"--max-cost needs a price, and that {unknown}.",
                hint="Name the time instead (--ttl 8h), or the price: the table [prices] in tpuctl.toml.",
            )
        seconds = int(self.max_cost * 60 / price.amount) * 60
        if seconds < SHORTEST:
            raise UsageError(
                f"--max-cost {self.max_cost} pays for less than a minute at {price.short} per hour.",
                hint=f"An hour costs {price.short}.",
            )
        seconds = min(seconds, records.LONGEST)
        if self.ttl and self.ttl <= seconds:
            return self
        return replace(self, ttl=seconds, budget=f"--max-cost {self.max_cost} at {price.short} per hour")

    def check(self, *, slices: int, scopes: tuple[str, ...]) -> None:
        """Raise UsageError for an end that the keeper could not bring about."""
        for option, length in (("--ttl", self.ttl), ("--idle", self.idle)):
            if length and not SHORTEST <= length <= records.LONGEST:
                raise UsageError(
                    f"{option} is from {SHORTEST} seconds to a year.", hint=f"For instance {option} 8h."
                )
        if self.idle and slices > 1 and not self.is_net:  # that of a run counts: it uses all slices
            raise UsageError(
                "--idle is for one slice: the keeper of a slice does not see who uses another.",
                hint="Use --ttl, which ends all slices together.",
            )
        if self and not can_end_itself(scopes):
            raise UsageError(
                "--ttl and --idle need the scope cloud-platform: the TPU deletes itself.",
                hint="Leave --scopes away, or add cloud-platform.",
            )

    def __bool__(self) -> bool:
        return bool(self.ttl or self.idle or self.max_cost)

    @property
    def marks(self) -> Mapping[str, str]:
        """What labels and metadata say about it."""
        lengths = {records.TTL: self.ttl, records.IDLE: self.idle}
        return {name: f"{length}s" for name, length in lengths.items() if length}

    def missing(self, metadata: Mapping[str, str]) -> tuple[str, ...]:
        """Return the options that a node with this metadata does not have."""
        if self.is_net:
            return ()
        options = {records.TTL: "--ttl", records.IDLE: "--idle"}
        return tuple(options[name] for name, value in self.marks.items() if metadata.get(name) != value)

    def metadata(self, bucket: str | None) -> Mapping[str, str]:
        """Return the metadata that the keeper reads; deletions and runs are recorded in `bucket`."""
        return {**self.marks, **({records.BUCKET: bucket} if bucket else {})}

    def startup_script(self, user_script: str) -> str:
        """Return the script for each boot: the keeper, then the user's own script; '' for neither.

        Raises UsageError for one that is too long for a node's metadata.
        """
        if not self:
            return user_script
        script = SCRIPT.format(keeper=_base64(_keeper_program()), interval=LOOK_INTERVAL)
        if user_script:
            script += USER_SCRIPT.format(script=_base64(user_script.encode()))
        if len(script) > MOST_BYTES:
            raise UsageError(
                f"The startup script has {len(script)} bytes with the keeper of --ttl and --idle, "
                f"and {MOST_BYTES} is the most.",
                hint="Have it fetch its larger parts.",
            )
        return script


def require_budget(ttl: float | None, max_cost: Decimal | None) -> None:
    """Raise UsageError for an end that somebody has named, and that leaves no time: none is None.

    0 is what a script computes of a budget that is spent, and must not make a TPU without an end.
    """
    if ttl == 0:
        raise UsageError("--ttl 0s leaves no time.", hint="Leave it out for a TPU without --ttl.")
    if max_cost == 0:
        raise UsageError("--max-cost 0 pays for nothing.", hint="Leave it out for a TPU without a budget.")


def can_end_itself(scopes: tuple[str, ...]) -> bool:
    """Whether a TPU with these scopes may delete itself; without any it has all."""
    return not scopes or bool(set(scopes) & set(NEEDED_SCOPES))


@cache
def _keeper_program() -> bytes:
    return program("keeper")


def users_script(startup_script: str) -> str:
    """Return the user's own script of what `Lifetime.startup_script` returned; '' for none."""
    if not startup_script.startswith(WRITTEN_BY_TPUCTL):
        return startup_script
    head, _ = USER_SCRIPT.split("{script}")
    _, _, rest = startup_script.partition(head)
    encoded, _, _ = rest.partition("\nEND\n")
    return base64.decodebytes(encoded.encode()).decode()


def _base64(data: bytes) -> str:
    return base64.encodebytes(data).decode().rstrip()

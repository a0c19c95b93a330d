"""Defines the settings of a simulated cloud: delays of transitions, clock, and what hosts may reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tpuctl.errors import UsageError

DELAYS: dict[str, Mapping[str, float]] = {
    # a queued resource that finds no capacity would try again without a pause
    "instant": {"retry": 0.05, "chips": 30},
    # Seconds, of the order that users see for a small slice; chosen for rehearsals, not measured.
    "real": {
        "create": 65,
        "delete": 20,
        "update": 3,
        "start": 20,
        "stop": 20,
        "simulateMaintenanceEvent": 3,
        "performMaintenance": 40,
        "failure": 5,
        "accept": 3,
        "queue": 5,
        "retry": 30,
        "suspend": 5,
        "dequeue": 5,
        "chips": 120,
    },
}

PASS = "pass"  # noqa: S105  a mode of the simulator
REFUSE = "refuse"
EGRESS = (PASS, REFUSE)
"""The treatment of traffic from hosts to addresses that are not simulated."""
FIREWALLS = ("open", "closed")
"""Whether the network `default` of a project has the rule for SSH that a new one has."""

MACHINE, IMAGE = "machine", "image"
PYTHONS = (MACHINE, IMAGE)
"""The Python of hosts: this machine's with packages of this machine, or that of their image with its own."""


@dataclass(frozen=True)
class Profile:
    """Seconds from the request to the end of each transition, times `scale`.

    The key is the operation's verb, or `failure` for an operation that is to fail; for a queued resource
    `accept`, `queue` (until it is provisioned or waits), `retry` (while it waits), `suspend` and `dequeue`;
    for a script `chips`, until its host looks whether it holds one.

    With `egress` "pass" programs on hosts reach other addresses, such as a package index, as this machine
    does. With "refuse" the hosts' proxy answers 403 with the reason, as behind a firewall: slices without
    external addresses often reach Google's own services alone. It holds for programs that honour
    `https_proxy` and `http_proxy`; other traffic is not blocked. Google's real services are never reached.
    """

    delays: Mapping[str, float]
    scale: float = 1.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    egress: str = PASS
    external_ips: bool = True
    """Whether nodes get the external addresses that they ask for."""

    def seconds(self, transition: str) -> float:
        """Return how long `transition` takes."""
        return self.delays.get(transition, 0) * self.scale

    async def pause(self, transition: str, since: float) -> None:
        """Wait until `transition`, which began at the time `since`, has taken its seconds."""
        remaining = since + self.seconds(transition) - self.clock()
        if remaining > 0:
            await self.sleep(remaining)


def profile(name: str, scale: float = 1.0, egress: str = PASS) -> Profile:
    """Return the profile called `instant` or `real`; raises UsageError."""
    if name not in DELAYS:
        raise UsageError(f"There is no simulator profile '{name}'.", hint=f"Use one of {', '.join(DELAYS)}.")
    if egress not in EGRESS:
        raise UsageError(f"There is no egress '{egress}'.", hint=f"Use one of {', '.join(EGRESS)}.")
    return Profile(DELAYS[name], scale, egress=egress)

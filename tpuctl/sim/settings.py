"""What kind of cloud is simulated: how long its transitions take, by which clock, what hosts may reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tpuctl.errors import UsageError

DELAYS: dict[str, Mapping[str, float]] = {
    # a queued resource that finds no room would ask again without a pause
    "instant": {"retry": 0.05},
    # Seconds, of the order that users see for a small slice; made for rehearsal, not measured.
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
    },
}

PASS = "pass"
REFUSE = "refuse"
EGRESS = (PASS, REFUSE)
"""What becomes of traffic from the hosts to places that are not simulated."""


@dataclass(frozen=True)
class Profile:
    """Seconds from the request to the end of each transition, times `scale`.

    The key is the operation's verb, or `failure` for an operation that is to fail; for a queued resource
    `accept`, `queue` (until it is served or waits), `retry` (while it waits), `suspend` and `dequeue`.

    With `egress` "pass" programs on hosts reach other places, a package index say, as this machine does.
    With "refuse" the hosts' proxy answers 403 with the reason, as behind a firewall: slices without external
    addresses often have none but Google's own services. It holds for programs that honour `https_proxy` and
    `http_proxy`; what goes around them is not kept back. Google's services are never passed through.
    """

    delays: Mapping[str, float]
    scale: float = 1.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    egress: str = PASS

    def seconds(self, transition: str) -> float:
        """Return how long `transition` takes."""
        return self.delays.get(transition, 0) * self.scale

    async def pause(self, transition: str, since: float) -> None:
        """Wait until `transition` has taken its time, counted from the moment `since`."""
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

"""How long the simulated cloud takes: a delay for each transition, a clock and a sleep."""

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


@dataclass(frozen=True)
class Profile:
    """Seconds from the request to the end of each transition, times `scale`.

    The key is the operation's verb, or `failure` for an operation that is to fail; for a queued resource
    `accept`, `queue` (until it is served or waits), `retry` (while it waits), `suspend` and `dequeue`.
    """

    delays: Mapping[str, float]
    scale: float = 1.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def seconds(self, transition: str) -> float:
        """Return how long `transition` takes."""
        return self.delays.get(transition, 0) * self.scale

    async def pause(self, transition: str, since: float) -> None:
        """Wait until `transition` has taken its time, counted from the moment `since`."""
        remaining = since + self.seconds(transition) - self.clock()
        if remaining > 0:
            await self.sleep(remaining)


def profile(name: str, scale: float = 1.0) -> Profile:
    """Return the profile called `instant` or `real`; raises UsageError."""
    if name not in DELAYS:
        raise UsageError(f"There is no simulator profile '{name}'.", hint=f"Use one of {', '.join(DELAYS)}.")
    return Profile(DELAYS[name], scale)

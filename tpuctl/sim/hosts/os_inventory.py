"""Writes the system facts in a host's guest attributes, as Google's OS config agent does."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache

AGENT_VERSION = "20240320.00"


def inventory(hostname: str) -> dict[str, str]:
    """Return the attributes of the namespace `guestInventory`: the facts of the machine that runs it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"Hostname": hostname, "LastUpdated": now, **_system()}


@cache
def _system() -> dict[str, str]:
    release = _os_release()
    return {
        "Architecture": platform.machine(),
        "KernelRelease": platform.release(),
        "KernelVersion": platform.version(),
        "LongName": release.get("PRETTY_NAME", platform.system()),
        "OSConfigAgentVersion": AGENT_VERSION,
        "ShortName": release.get("ID", platform.system().lower()),
        "Version": release.get("VERSION_ID", platform.release()),
    }


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:  # macOS
        return {}

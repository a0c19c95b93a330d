"""Checks that the packages of the `sim` extra are installed."""

from __future__ import annotations

from importlib.util import find_spec

from tpuctl.errors import ConfigError

PACKAGES = ("asyncssh", "aiohttp", "grpc_status", "psutil")


def check_installed() -> None:
    """Raise ConfigError naming the packages of the `sim` extra that are missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"The simulator needs packages that are not installed: {', '.join(missing)}.",
            hint="Install them in the clone of tpuctl: pip install '.[sim]'",
        )

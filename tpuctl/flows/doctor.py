"""Whether everything is in place, in the order in which things are needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.config import Config
from tpuctl.errors import ConfigError, TpuctlError

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud

OK, FAILED, SKIPPED = "ok", "failed", "skipped"

PACKAGES = (
    "click",
    "rich",
    "msgspec",
    "google.cloud.tpu_v2",
    "google.cloud.storage",
    "google_crc32c",
    "fabric",
)


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    state: str
    text: str
    fix: str = ""


def examine(config: Config, connect: Callable[[], Cloud]) -> Iterator[Finding]:
    """Run every check in order; one that needs another which failed is skipped."""
    failed = set[str]()
    cloud: list[Cloud] = []

    def connected() -> Cloud:
        if not cloud:
            cloud.append(connect())
        return cloud[0]

    for name, needs, check in CHECKS:
        blocked = [one for one in needs if one in failed]
        if blocked:
            failed.add(name)
            yield Finding(name, SKIPPED, f"needs {blocked[0]}")
            continue
        try:
            yield Finding(name, OK, check(config, connected))
        except TpuctlError as error:
            failed.add(name)
            yield Finding(name, FAILED, error.message, error.hint)


def _python(config: Config, connected: Callable[[], Cloud]) -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    missing = [name for name in PACKAGES if not _found(name)]
    if missing:
        raise ConfigError(f"Packages are missing: {', '.join(missing)}.", hint="Run 'pip install tpuctl'.")
    return f"Python {version}, all packages"


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _credentials(config: Config, connected: Callable[[], Cloud]) -> str:
    kind = type(connected().credentials).__name__
    return "none needed" if kind == "AnonymousCredentials" else f"found ({kind})"


def _project(config: Config, connected: Callable[[], Cloud]) -> str:
    return f"{config.require('project')} ({config.values['project'].origin})"


def _api(config: Config, connected: Callable[[], Cloud]) -> str:
    count = len(connected().tpu.nodes().nodes)
    return f"the Cloud TPU API answers: {count} node{'' if count == 1 else 's'}"


def _zone(config: Config, connected: Callable[[], Cloud]) -> str:
    zone = config.require("zone")
    offered = connected().tpu.accelerator_types(zone)
    if not offered:
        raise ConfigError(
            f"{zone} offers no TPUs.", hint=f"Zones with TPUs: {', '.join(accelerators.zones())}."
        )
    return f"{zone} offers {len(offered)} accelerator types"


def _bucket(config: Config, connected: Callable[[], Cloud]) -> str:
    connected().bucket.check()
    return f"gs://{connected().bucket.name} can be listed"


def _ssh_key(config: Config, connected: Callable[[], Cloud]) -> str:
    path = Path(config.require("ssh_key")).expanduser()
    if not path.exists():
        return f"{path} will be made by the first 'tpuctl up'"
    connected().ssh.public_key()
    return str(path)


CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[Config, Callable[[], Cloud]], str]], ...] = (
    ("python", (), _python),
    ("credentials", ("python",), _credentials),
    ("project", (), _project),
    ("api", ("credentials", "project"), _api),
    ("zone", ("api",), _zone),
    ("bucket", ("credentials", "project"), _bucket),
    ("ssh key", ("python",), _ssh_key),
)
"""Name, the checks it needs, what it does: returns what it found or raises what is wrong with a hint."""

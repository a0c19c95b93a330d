"""Whether everything is in place, in the order in which things are needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.bucket_layout import gs
from tpuctl.config import Config
from tpuctl.errors import ConfigError, TpuctlError
from tpuctl.flows.project import terraform

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"

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


class Unwise(Exception):
    """What a check found works, and is not as it should be."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.text = text
        self.fix = fix


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
        except Unwise as found:
            yield Finding(name, WARNING, found.text, found.fix)
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
    count = len(connected().provider.list_nodes().nodes)
    return f"the Cloud TPU API answers: {count} node{'' if count == 1 else 's'}"


def _zone(config: Config, connected: Callable[[], Cloud]) -> str:
    zone = config.require("zone")
    offered = connected().provider.list_accelerator_types(zone)
    if not offered:
        raise ConfigError(
            f"{zone} offers no TPUs.", hint=f"Zones with TPUs: {', '.join(accelerators.zones())}."
        )
    return f"{zone} offers {len(offered)} accelerator types"


def _bucket(config: Config, connected: Callable[[], Cloud]) -> str:
    runs, data = connected().bucket, connected().data_bucket
    buckets = [runs] if runs is data else [runs, data]
    for one in buckets:
        one.check()
    return f"{' and '.join(gs(one.name, '') for one in buckets)} can be listed"


def _region(config: Config, connected: Callable[[], Cloud]) -> str:
    """A bucket of another region works, slowly, and each byte that is read is billed."""
    region = accelerators.region(config.require("zone"))
    for bucket in (connected().bucket, connected().data_bucket):
        try:
            location = bucket.location()
        except ConfigError as error:
            raise Unwise(f"where gs://{bucket.name} is cannot be read", error.hint) from error
        if location != region:
            raise Unwise(
                f"gs://{bucket.name} is in {location}, the TPUs are in {region}: slow, billed by the byte",
                f"Use a bucket in {region}, or a zone of {location}.",
            )
    return f"{region}, that of the TPUs"


def _network(config: Config, connected: Callable[[], Cloud]) -> str:
    where = config.require("network")
    if config.get("subnetwork"):
        where += f", subnetwork {config.get('subnetwork')}"
    if config.require_bool("external_ips"):
        return where
    raise Unwise(
        f"{where}; hosts without external addresses are reached by SSH from inside the network alone",
        "Run tpuctl on a machine in the network, or over a VPN to it.",
    )


def _terraform(config: Config, connected: Callable[[], Cloud]) -> str:
    source = config.get("terraform")
    if source is None:
        return "not used: nothing to compare with"
    place = Path(config.values["terraform"].origin).parent / source
    differs = terraform.differences(config, terraform.read(place))
    if differs:
        raise ConfigError(
            f"{'; '.join(differs)}.",
            hint=f"Run 'tpuctl init --from-terraform {source} --force', or 'terraform apply' what was meant.",
        )
    return f"as {source} made it"


def _ssh_key(config: Config, connected: Callable[[], Cloud]) -> str:
    path = Path(config.require("ssh_key")).expanduser()
    if not path.exists():
        return f"{path} will be made by the first 'tpuctl up'"
    connected().ssh.login_key()
    return str(path)


CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[Config, Callable[[], Cloud]], str]], ...] = (
    ("python", (), _python),
    ("credentials", ("python",), _credentials),
    ("project", (), _project),
    ("api", ("credentials", "project"), _api),
    ("zone", ("api",), _zone),
    ("bucket", ("credentials", "project"), _bucket),
    ("region", ("bucket", "zone"), _region),
    ("network", (), _network),
    ("terraform", (), _terraform),
    ("ssh key", ("python",), _ssh_key),
)
"""Name, the checks it needs, what it does: returns what it found or raises what is wrong with a hint."""

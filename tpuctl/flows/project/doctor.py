"""Runs the checks of `tpuctl doctor`, in the order in which a first run needs them.

- Remembers in which folders this user had tpuctl run terraform.

  A tpuctl.toml that came with somebody's repository can name a folder whose backend block runs programs,
  such as `credential_process` of S3 and `exec` of Kubernetes:
  https://developer.hashicorp.com/terraform/language/backend
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tpuctl import accelerators
from tpuctl.atomic_files import PRIVATE, replace_file
from tpuctl.bucket_layout import gs
from tpuctl.config import Config
from tpuctl.config.files import state_folder
from tpuctl.errors import ConfigError, NotFoundError, TpuctlError
from tpuctl.flows.hosts.bucket_access import ROLE
from tpuctl.flows.hosts.way_in import IAP_RANGE, opening_command
from tpuctl.flows.project import rights, terraform
from tpuctl.local.private_folder import make_missing_folders
from tpuctl.nodes import NodeState

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud


FILE_NAME = "terraform-folders"
"""File in the state folder: one absolute path a line."""


def allow(folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Remember a folder; raises ConfigError if the state folder cannot be written."""
    file, path = _file(environ), str(folder.resolve())
    if path in _paths(file):
        return
    try:
        make_missing_folders(file.parent)
        replace_file(file, [f"{line}\n".encode() for line in (*_paths(file), path)], mode=PRIVATE)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}.", hint="Set TPUCTL_STATE to a folder of your own."
        ) from error


def is_allowed(folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `allow` was called for a folder by this user on this machine."""
    return str(folder.resolve()) in _paths(_file(environ))


def _file(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / FILE_NAME


def _paths(file: Path) -> list[str]:
    try:
        return file.read_text().split("\n")[:-1]
    except (OSError, UnicodeDecodeError):
        return []


Connect = Callable[[], "Cloud"]
"""Returns the clients, building them at the first call."""

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
DIFFERENT = "different"
"""What a real project, or a host, has is not what tpuctl takes it to be."""
MARKS = {OK: "ok", WARNING: "warning", FAILED: "FAILED", SKIPPED: "skipped", DIFFERENT: "DIFFERS"}
"""How a state is shown."""

PACKAGES = (
    "click",
    "rich",
    "msgspec",
    "google.cloud.tpu_v2",
    "google.cloud.storage",
    "google_crc32c",
    "paramiko",
)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    state: str
    text: str
    fix: str = ""


class Check(NamedTuple):
    """One row of the table of checks."""

    name: str
    needs: tuple[str, ...]
    """The checks that have to succeed before."""
    run: Callable[[Config, Connect], str]
    """Returns the facts found; raises CheckWarning, or TpuctlError with a hint."""
    settings: tuple[str, ...] = ()
    """Settings whose formats every check checks first."""


class CheckWarning(Exception):
    """What was checked works, but is slow, costly or limited."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.text = text
        self.fix = fix


def examine(config: Config, connect: Connect) -> Iterator[Finding]:
    """Run every check in order; one that needs another which failed is skipped."""
    failed = set[str]()
    connected = cache(connect)
    for check in CHECKS:
        finding = _malformed(check, config) or _unmet(check, failed) or _run(check, config, connected)
        if finding.state in (FAILED, SKIPPED):
            failed.add(check.name)
        yield finding


def _malformed(check: Check, config: Config) -> Finding | None:
    try:
        for name in check.settings:
            config.get(name)
    except TpuctlError as error:
        return Finding(check.name, FAILED, error.message, error.hint)
    return None


def _unmet(check: Check, failed: Collection[str]) -> Finding | None:
    unmet = [need for need in check.needs if need in failed]
    return Finding(check.name, SKIPPED, f"needs {unmet[0]}") if unmet else None


def _run(check: Check, config: Config, connected: Connect) -> Finding:
    try:
        return Finding(check.name, OK, check.run(config, connected))
    except CheckWarning as warning:
        return Finding(check.name, WARNING, warning.text, warning.fix)
    except TpuctlError as error:
        return Finding(check.name, FAILED, error.message, error.hint)


def _python(config: Config, connected: Connect) -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    missing = [name for name in PACKAGES if not _is_installed(name)]
    if missing:
        raise ConfigError(
            f"Packages are missing: {', '.join(missing)}.", hint="Run 'pip install .' in the clone of tpuctl."
        )
    return f"Python {version}, all packages"


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _credentials(config: Config, connected: Connect) -> str:
    credentials = connected().credentials
    kind, quota_project = type(credentials).__name__, getattr(credentials, "quota_project_id", None)
    if kind == "AnonymousCredentials":
        return "none needed"
    return f"found ({kind}), {f'quota project {quota_project}' if quota_project else 'no quota project'}"


def _project(config: Config, connected: Connect) -> str:
    return f"{config.require('project')} ({config.values['project'].origin})"


def _api(config: Config, connected: Connect) -> str:
    count = len(connected().provider.list_nodes().nodes)
    return f"the Cloud TPU API answers: {count} node{'' if count == 1 else 's'}"


def _zone(config: Config, connected: Connect) -> str:
    zone = config.require("zone")
    offered = connected().provider.list_accelerator_types(zone)
    if not offered:
        raise ConfigError(
            f"{zone} offers no TPUs.", hint=f"Zones with TPUs: {', '.join(accelerators.zones())}."
        )
    return f"{zone} offers {len(offered)} accelerator types"


def _bucket(config: Config, connected: Connect) -> str:
    runs, data = connected().bucket, connected().data_bucket
    buckets = [runs] if runs is data else [runs, data]
    for bucket in buckets:
        bucket.check()
    return f"{' and '.join(gs(bucket.name, '') for bucket in buckets)} can be listed"


def _region(config: Config, connected: Connect) -> str:
    """A bucket of another region works, slowly, and each byte read is billed."""
    zone = config.require("zone")
    region = accelerators.region(zone)
    for bucket in (connected().bucket, connected().data_bucket):
        try:
            location = bucket.location()
        except ConfigError as error:
            raise CheckWarning(f"the location of gs://{bucket.name} cannot be read", error.hint) from error
        if not location.is_near(zone):
            place = location.name
            raise CheckWarning(
                f"gs://{bucket.name} is in {place}, the TPUs are in {region}: slow, billed by the byte",
                f"Use a bucket in {region}, or a zone of {place}.",
            )
    return f"{region}, that of the TPUs"


def _rules(config: Config, connected: Connect) -> str:
    """A rule of a bucket may make every run fail, or delete the records of one that still runs."""
    bucket = connected().bucket
    try:
        rules = bucket.rules()
    except ConfigError:
        return f"not checked: reading the settings of gs://{bucket.name} needs storage.buckets.get"
    concerns = rules.concerns(bucket.now().date())
    text, fixes = "; ".join(each.text for each in concerns), " ".join(each.fix for each in concerns)
    if any(concern.is_fatal for concern in concerns):
        raise ConfigError(f"{text}.", hint=fixes)
    if concerns:
        raise CheckWarning(text, fixes)
    return f"none that breaks a run; {gs(bucket.name, '')} {rules.facts()}"


def _rights(config: Config, connected: Connect) -> str:
    """A grant that gives too much works, until somebody uses it."""
    account = config.get("service_account")
    runs, data = connected().bucket, connected().data_bucket
    concerns: list[rights.Concern] = []
    for bucket in [runs] if runs is data else [runs, data]:
        try:
            grants = bucket.grants()
        except ConfigError:
            return f"not checked: reading who may use gs://{bucket.name} needs storage.buckets.getIamPolicy"
        concerns += rights.concerns(bucket.name, grants, account, holds_runs=bucket is runs)
    if account is None and config.target == "gcp":
        concerns.append(rights.Concern(rights.DEFAULT_ACCOUNT))
    text = "; ".join(concern.text for concern in concerns)
    if any(concern.is_public for concern in concerns):
        fix = "gcloud storage buckets update gs://BUCKET --public-access-prevention"
        raise ConfigError(f"{text}.", hint=f"Close it: {fix}")
    if concerns:
        raise CheckWarning(text, 'Give the account less: terraform/ does, with protection = "records".')
    widest = f", no role of the TPU account is wider than {ROLE} (terraform/ gives less)"
    return "no bucket is public" + (widest if account else "")


def _network(config: Config, connected: Connect) -> str:
    network = config.require("network")
    if config.get("subnetwork"):
        network += f", subnetwork {config.get('subnetwork')}"
    if config.require_bool("external_ips") or config.get("iap") != "no":
        return network
    raise CheckWarning(
        f"{network}; hosts without external addresses are reached from inside the network alone (iap is no)",
        "Run tpuctl on a machine in the network, or over a VPN to it; or set iap = true.",
    )


def _iap(config: Config, connected: Connect) -> str:
    """A tunnel to a host shows that all is right; without a host, ask the relay, and read the rules."""
    if config.get("iap") == "no":
        return "not used: iap is no"
    cloud = connected()
    nodes = (node for node in cloud.provider.list_nodes().nodes if node.state is NodeState.READY)
    node = next((node for node in nodes if node.addresses and cloud.uses_iap(node, 0)), None)
    if node:
        cloud.ssh.open_stream(node, 0).close()
        return f"worker 0 of '{node.name}' is reached through IAP"
    if config.get("iap") is None and config.require_bool("external_ips"):
        return "not used: hosts have external addresses"
    cloud.check_relay()
    return f"the relay admits you; {_firewall(config, cloud)}"


def _firewall(config: Config, cloud: Cloud) -> str:
    network = config.require("network").rpartition("/")[2]
    try:
        rule = cloud.iap_firewall_rule()
    except NotFoundError as error:
        raise CheckWarning(f"the relay admits you; {error.message.rstrip('.')}", error.hint) from error
    except TpuctlError as error:
        return f"the firewall was not checked: {error.message}"
    if rule:
        return f"the firewall rule {rule} lets it reach port 22"
    raise CheckWarning(
        f"the relay admits you, but no firewall rule of {network} lets it ({IAP_RANGE}) reach port 22",
        opening_command(config.require("project"), network),
    )


def _terraform(config: Config, connected: Connect) -> str:
    source = config.get("terraform")
    if source is None:
        return "not used: nothing to compare with"
    path = Path(config.values["terraform"].origin).parent / Path(source).expanduser()
    command = f"tpuctl init --from-terraform {shlex.quote(source)} --force"
    if not path.exists():
        raise _not_compared(config, f"{path} is not on this machine", f"Where it is, run: {command}")
    if path.is_dir() and not is_allowed(path):
        why = f"terraform was never run in {path} by 'tpuctl init' on this machine"
        raise _not_compared(config, why, f"If you trust that folder, run: {command}")
    if not (path.is_dir() or path.is_file()):
        raise ConfigError(
            f"{path} is neither a folder nor a file.", hint=f"Correct {config.values['terraform'].place}."
        )
    try:
        differences = terraform.differences(config, terraform.read(path))
    except terraform.UnavailableError as error:
        raise _not_compared(config, error.message.rstrip("."), error.hint) from error
    if differences:
        raise ConfigError(
            f"{'; '.join(differences)}.",
            hint=f"Run '{command}', or correct it by 'terraform apply'.",
        )
    return f"the settings equal the outputs of {source}"


def _not_compared(config: Config, why: str, fix: str) -> CheckWarning | ConfigError:
    """Return what is said where Terraform cannot be asked: the committed settings are all there is then."""
    file = Path(config.values["terraform"].origin)
    overridden = terraform.overrides(config, file)
    if overridden:
        return ConfigError(
            f"{'; '.join(overridden)}.", hint="Unset what overrides it, or correct the file for everybody."
        )
    return CheckWarning(f"as in {file.name}, not compared with Terraform: {why}", fix)


def _ssh_key(config: Config, connected: Connect) -> str:
    path = Path(config.require("ssh_key")).expanduser()
    if not path.exists():
        return f"{path} will be made by the first 'tpuctl up'"
    connected().ssh.login_key()
    return str(path)


CHECKS = (
    Check("python", (), _python),
    Check("credentials", ("python",), _credentials),
    Check("project", (), _project),
    Check("api", ("credentials", "project"), _api),
    Check("zone", ("api",), _zone, ("zone",)),
    Check("bucket", ("credentials", "project"), _bucket, ("bucket", "data_bucket")),
    Check("region", ("bucket", "zone"), _region),
    Check("rules", ("bucket",), _rules),
    Check("rights", ("bucket",), _rights, ("service_account",)),
    Check("network", (), _network, ("network", "subnetwork", "external_ips", "service_account")),
    Check("iap", ("zone",), _iap, ("iap", "network", "external_ips", "ssh_user")),
    Check("terraform", (), _terraform),
    Check("ssh key", ("python",), _ssh_key, ("ssh_user",)),
)

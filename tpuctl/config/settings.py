"""Lists the settings that can be configured, and their defaults.

- Checks the format of setting values, so that a typing error is found before a request is sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.errors import ConfigError, TpuctlError, UsageError

PROJECT = r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
COMPUTE = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
REGION = r"[a-z]+(-[a-z]+)+[0-9]+"
ARCHIVE = r"3\.[0-9]{1,2}\.[0-9]{1,2}=[0-9a-f]{64}"
ZONE = rf"{REGION}-(ai[0-9]+)?[a-z]"


@dataclass(frozen=True)
class Format:
    """The format of one kind of value."""

    pattern: str
    description: str


LOCAL_PATH = Format(
    r"(?!-|~[^/])[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,4096}",
    "a path on this machine, without control characters, that does not begin with a dash or ~NAME",
)
BUCKET = Format(
    r"(?!goog)(?!.*google)(?!\d+\.\d+\.\d+\.\d+$)(?=.{3,222}$)[a-z0-9][-_a-z0-9]{1,61}[a-z0-9](\.[-_a-z0-9]{1,63})*",
    "3 to 63 lower-case letters, digits, dashes and underscores, without the word google",
)
YES_OR_NO = Format("yes|no", "yes or no")
BOOLEANS = {"true": "yes", "false": "no", "1": "yes", "0": "no"}
"""How TOML and the environment write yes and no."""
NUMBERS = ("restarts", "restarts_on_failure", "watch_max_price")
"""Settings that TOML may also write as numbers."""
FORMATS = {
    # setting: the format of its value, from the documentation of projects, zones, buckets, VPC and IAM
    "project": Format(
        PROJECT, "the project's id: 6 to 30 lower-case letters, digits and dashes; not its name or number"
    ),
    "zone": Format(ZONE, "a zone, such as europe-west4-a"),
    "accelerator": Format(r"[A-Za-z0-9]+(-[a-z0-9]+)*", "a TPU type, such as v3-8"),
    "framework": Format("jax|pytorch|tensorflow", "jax, pytorch or tensorflow"),
    "bucket": BUCKET,
    "data_bucket": BUCKET,
    "network": Format(
        rf"{COMPUTE}|projects/{PROJECT}/global/networks/{COMPUTE}",
        "a network's name, or projects/PROJECT/global/networks/NAME",
    ),
    "subnetwork": Format(
        rf"{COMPUTE}|projects/{PROJECT}/regions/[a-z0-9-]+/subnetworks/{COMPUTE}",
        "a subnetwork's name, or projects/PROJECT/regions/REGION/subnetworks/NAME",
    ),
    "subnetworks": Format(
        rf"{REGION}={COMPUTE}(,{REGION}={COMPUTE})*",
        'a subnetwork\'s name for each region, such as { us-central1 = "tpuctl-us-central1" } in TOML, or '
        "us-central1=tpuctl-us-central1 elsewhere",
    ),
    "service_account": Format(
        r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[a-z]+",
        "an e-mail address, such as NAME@PROJECT.iam.gserviceaccount.com",
    ),
    "external_ips": YES_OR_NO,
    "iap": YES_OR_NO,
    "cross_region": YES_OR_NO,
    "host_keys": Format(r"published|first-contact", "published or first-contact"),
    "python_archives": Format(
        rf"{ARCHIVE}(,{ARCHIVE})*",
        'hashes of archives, such as { "3.12.8" = "SHA256" } in TOML, or 3.12.8=SHA256 elsewhere',
    ),
    "watch_types": Format(r"[a-z0-9-]+(,[a-z0-9-]+)*", "TPU types with commas between them: v3-8,v4-8"),
    "watch_zones": Format(rf"{ZONE}(,{ZONE})*", "zones with commas between them"),
    "watch_max_price": Format(r"[0-9]{1,9}(\.[0-9]{1,9})?", "an amount such as 20"),
    "restarts": Format(r"[0-9]{1,4}|unlimited", "a number such as 3, or unlimited"),
    "restarts_on_failure": Format(r"[0-9]{1,4}", "a number such as 1"),
    "terraform": LOCAL_PATH,
    "ssh_key": LOCAL_PATH,
    "owner": Format(
        r"[A-Za-z0-9_][A-Za-z0-9._%+@-]{0,199}",
        "an account, such as ada@example.com: letters, digits and . _ % + @ -",
    ),
    "ssh_user": Format(
        r"[a-z0-9_][-_a-z0-9]{0,31}",
        "a user name on Linux: 1 to 32 lower-case letters, digits, dashes and underscores",
    ),
}


def normalize(setting: str, value: str, origin: str = "") -> str:
    """Return a setting's value as files hold it: a bucket without `gs://`, yes for true.

    Raises UsageError if a value is malformed, ConfigError if its origin is no option; both name the origin.
    """
    value = value.strip()
    if FORMATS[setting] is BUCKET:
        value = value.removeprefix("gs://").removesuffix("/")
    if FORMATS[setting] is YES_OR_NO:
        value = BOOLEANS.get(value.lower(), value)
    if not re.fullmatch(FORMATS[setting].pattern, value):
        raise _malformed(setting, value, origin)
    return value


def _malformed(setting: str, value: str, origin: str) -> TpuctlError:
    subject = f"'{value}' ({origin})" if origin else f"'{value}'"
    reason, hint = _explanation(setting, value)
    message = f"{subject} cannot be the {setting.replace('_', ' ')}{reason}."
    if origin and not origin.startswith("--"):
        return ConfigError(message, hint=hint, setting=setting, origin=origin)
    return UsageError(message, hint=hint, setting=setting)


def _explanation(setting: str, value: str) -> tuple[str, str]:
    """Return why a value is malformed, '' if unknown, and the hint."""
    form = FORMATS[setting]
    if form is BUCKET and "/" in value and "://" not in value:
        return ": it is a folder in a bucket", f"Name the bucket alone: {value.partition('/')[0]}"
    if setting == "zone" and re.fullmatch(REGION, value):
        zones = [zone for zone in accelerators.zones() if accelerators.region(zone) == value]
        known = f"Its zones with TPUs: {', '.join(zones)}." if zones else f"No TPUs are known in {value}."
        return ": it is a region", known
    return "", f"It is {form.description}."


TARGETS = ("gcp", "sim")


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    help: str
    gcp_default: str | None = None
    sim_default: str | None = None
    real_only: bool = False
    """It names a resource of a real project: the simulator does not use values of gcloud and of files, except
    of a file that sets `target = "sim"`."""

    @property
    def flag(self) -> str:
        """The option of a command that sets it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TPUCTL_{self.name.upper()}"


@dataclass(frozen=True)
class Value:
    """A setting's value, None when nothing sets it, and where it came from."""

    value: str | None
    origin: str
    line: int = 0
    """The line of the file that is its origin, counted from 1; 0 for other origins."""

    @property
    def place(self) -> str:
        """The origin as messages name it: of a file, with the line."""
        return f"{self.origin}, line {self.line}" if self.line else self.origin


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("target", "gcp or sim"),
        Setting("project", "Google Cloud project id", sim_default="sim-project", real_only=True),
        Setting("zone", "zone of the TPUs", sim_default="europe-west4-a"),
        Setting(
            "bucket",
            "Cloud Storage bucket of datasets and runs",
            sim_default="sim-project-tpuctl",
            real_only=True,
        ),
        Setting(
            "cross_region",
            "whether a TPU may read a bucket in another region, which is billed as traffic (yes or no)",
            "no",
            "no",
        ),
        Setting("accelerator", "TPU type that 'tpuctl up' creates"),
        Setting("framework", "framework that 'tpuctl up' chooses the image for (jax, pytorch or tensorflow)"),
        Setting("data_bucket", "Cloud Storage bucket of datasets, when it is another one", real_only=True),
        Setting("network", "VPC network of the TPU VMs", "default", "default"),
        Setting("subnetwork", "subnetwork of the TPU VMs", real_only=True),
        Setting(
            "subnetworks",
            "subnetwork of the TPU VMs in each region: zones of other regions are not used (REGION=NAME,...)",
            real_only=True,
        ),
        Setting(
            "external_ips",
            "whether TPU VMs have external addresses (yes or no)",
            "yes",
            "yes",
            real_only=True,
        ),
        Setting(
            "iap",
            "whether SSH goes through Identity-Aware Proxy (yes or no)",
            real_only=True,
        ),
        Setting(
            "host_keys",
            "which keys of hosts are trusted: those that they published, or those of the first contact "
            "(published or first-contact)",
            "published",
            "published",
            real_only=True,
        ),
        Setting("service_account", "service account of the TPU VMs (email)", real_only=True),
        Setting(
            "terraform",
            "folder or file that 'tpuctl init --from-terraform' read, to compare with",
            real_only=True,
        ),
        Setting(
            "watch_types",
            "TPU types that 'tpuctl watch' may make for runs submitted elsewhere (TYPE,...)",
            real_only=True,
        ),
        Setting(
            "watch_zones", "zones in which it may make them (ZONE,...); default: the zone", real_only=True
        ),
        Setting("watch_max_price", "most that they may cost per hour together", real_only=True),
        Setting("restarts", "how often a run is started again after a preemption (a number, or unlimited)"),
        Setting("restarts_on_failure", "how often a run is started again after a failure of its own"),
        Setting(
            "python_archives",
            "Pythons of the bucket that hosts may use, as 'tpuctl python' names them (VERSION=SHA256,...)",
            real_only=True,
        ),
        Setting("owner", "account whose TPUs and runs are one's own", real_only=True),
        Setting("ssh_user", "user on the TPU VMs"),
        Setting("ssh_key", "private key for SSH"),
    )
}

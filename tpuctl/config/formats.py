"""Checks the format of setting values, so that a typing error is found before a request is sent."""

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
    r"(?!-)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,4096}",
    "a path on this machine, without control characters, that does not begin with a dash",
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

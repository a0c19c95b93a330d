"""The formats of setting values, so that a typing mistake is found before a request is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.errors import UsageError

PROJECT = r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
COMPUTE = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"


@dataclass(frozen=True)
class Format:
    """The format of one kind of value."""

    pattern: str
    description: str


BUCKET = Format(
    r"(?!goog)(?!.*google)(?!\d+\.\d+\.\d+\.\d+$)(?=.{3,222}$)[a-z0-9][-_a-z0-9]{1,61}[a-z0-9](\.[-_a-z0-9]{1,63})*",
    "3 to 63 lower-case letters, digits, dashes and underscores, without the word google",
)
FORMATS = {
    # setting: the format of its value, from the documentation of projects, zones, buckets, VPC and IAM
    "project": Format(
        PROJECT, "the project's id: 6 to 30 lower-case letters, digits and dashes; not its name or number"
    ),
    "zone": Format(r"[a-z]+(-[a-z]+)+\d+-[a-z]", "a zone, such as europe-west4-a"),
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
    "service_account": Format(
        r"[^@\s:/]+@[^@\s:/]+\.[a-z]+", "an e-mail address, such as NAME@PROJECT.iam.gserviceaccount.com"
    ),
    "external_ips": Format("yes|no", "yes or no"),
}


def normalize(setting: str, value: str) -> str:
    """Return a setting's value as files hold it, a bucket without `gs://`; raises UsageError if malformed."""
    value = value.strip()
    if FORMATS[setting] is BUCKET:
        value = value.removeprefix("gs://").rstrip("/")
    if not re.fullmatch(FORMATS[setting].pattern, value):
        raise UsageError(
            f"'{value}' cannot be the {setting.replace('_', ' ')}.",
            hint=f"It is {FORMATS[setting].description}.",
            setting=setting,
        )
    return value

"""What the names of Google Cloud's things look like, so that a slip is found before Google is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.errors import UsageError

PROJECT = r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
COMPUTE = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"


@dataclass(frozen=True)
class Form:
    """The form of one kind of name."""

    pattern: str
    text: str


BUCKET = Form(
    r"(?!goog)(?!.*google)(?!\d+\.\d+\.\d+\.\d+$)(?=.{3,222}$)[a-z0-9][-_a-z0-9]{1,61}[a-z0-9](\.[-_a-z0-9]{1,63})*",
    "3 to 63 lower-case letters, digits, dashes and underscores, without the word google",
)
FORMS = {
    # setting: the form of its value; from the documentation of projects, zones, buckets, VPC and IAM
    "project": Form(
        PROJECT, "the project's id: 6 to 30 lower-case letters, digits and dashes; not its name or number"
    ),
    "zone": Form(r"[a-z]+(-[a-z]+)+\d+-[a-z]", "a zone, such as europe-west4-a"),
    "bucket": BUCKET,
    "data_bucket": BUCKET,
    "network": Form(
        rf"{COMPUTE}|projects/{PROJECT}/global/networks/{COMPUTE}",
        "a network's name, or projects/PROJECT/global/networks/NAME",
    ),
    "subnetwork": Form(
        rf"{COMPUTE}|projects/{PROJECT}/regions/[a-z0-9-]+/subnetworks/{COMPUTE}",
        "a subnetwork's name, or projects/PROJECT/regions/REGION/subnetworks/NAME",
    ),
    "service_account": Form(
        r"[^@\s:/]+@[^@\s:/]+\.[a-z]+", "an e-mail address, such as NAME@PROJECT.iam.gserviceaccount.com"
    ),
    "external_ips": Form("yes|no", "yes or no"),
}


def checked(setting: str, value: str) -> str:
    """Return a setting's value as it is kept, a bucket without `gs://`; raises UsageError for a wrong one."""
    value = value.strip()
    if FORMS[setting] is BUCKET:
        value = value.removeprefix("gs://").rstrip("/")
    if not re.fullmatch(FORMS[setting].pattern, value):
        raise UsageError(
            f"'{value}' cannot be the {setting.replace('_', ' ')}.",
            hint=f"It is {FORMS[setting].text}.",
            setting=setting,
        )
    return value

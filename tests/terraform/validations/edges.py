"""Values at the edges of what each variable of the module accepts.

terraform/tests has an example a rule; here is where each rule begins and ends. One run of terraform judges all.
"""

# ruff: noqa: E501  a table

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.terraform.workbench import IMAGE

POOL = "iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p"
ACCOUNT = "012345-6789AB-CDEF01"
KEY = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
NULL = "may not be set to null"
NUMBER = "a number is required"
STRING = "string required"
BOOL = "a bool is required"
NO_NAME = "name has 3 to 21"
NO_MEMBER = "Each member is user:E-MAIL"
NO_RANGE = "subnet_cidr is a private IPv4 range"
NO_SIZE = "subnet_cidr begins at the range's first address"
NO_PROJECT = "project_id is the project's id"
NO_BUCKET = "A bucket's name has 3 to 63"
NO_LABEL = "Labels have lower-case letters"
NO_KEY = "kms_key has the form"
NO_TYPE = "tpu.accelerator_type is a type"
WATCH = {"owners": ["a@b"], "types": ["v3-8"], "image": IMAGE}
NO_OWNER = "watch.owners are the e-mail addresses"

PLAIN = {"project_id": "demo-project-1", "region": "europe-west4", "zone": "europe-west4-a"}
"""The other inputs of a call."""

ACCEPTED: dict[str, list[Any]] = {
    "artifact_registry": [None, True, False, "true"],
    "bucket_names": [None,
        {}, {"data": None}, {"data": ""}, {"data": "abc", "runs": "abd"}, {"data": "a" * 63}, {"data": "0-_9"}, {"runs": "go0gle"},
        {"data": "gogle-goo"},
    ],
    "budget": [
        None, {"billing_account": ACCOUNT, "amount": 1}, {"billing_account": ACCOUNT, "amount": 10**9},
        {"billing_account": ACCOUNT, "amount": 1, "thresholds": [5, 0.01]}, {"billing_account": ACCOUNT, "amount": "7"},
    ],
    "bundle_days": [None, 0, 1, 100000, "30"],
    "delete_buckets_with_content": [None, True],
    "kms_key": [None, KEY],
    "labels": [None, {}, {"a": ""}, {"a" * 63: "b" * 63}, {"a_b-c9": "-_9"}, {"team": 7}],
    "log_days": [None, 0, 1],
    "members": [None,
        [], ["user:a@b"], ["user:o'hara+tpu@example.com"], [f"principal://{POOL}/subject/s"],
        [f"principalSet://{POOL}/attribute.repository/owner/name"], ["user:ada@example.com", "user:ada@example.com"],
        ["serviceAccount:ci@my-project.iam.gserviceaccount.com"], ["group:élan@example.com"],
    ],
    "mtu": [None, 1300, 8896, "1460", 1300.0],
    "name": [None, "abc", "a" * 21, "a-b", "a--b", "tpu2"],
    "project_id": ["abcdef", "a" * 30, "a-----b", "example.com:abcdef", "abc123"],
    "protection": [None, "records", "checkpoints", "nothing"],
    "regions": [
        None, {}, {"us-central1": "10.129.0.0/20"}, {"us-central1": "172.16.0.0/12", "us-east1": "192.168.0.0/16"},
        {"us-central1": "10.128.16.0/29"}, {"us-central1": "10.127.240.0/20", "us-east1": "10.128.16.0/20"},
    ],
    "self_delete": [None, True, False],
    "soft_delete_days": [None, 0, 7, 8, 90, "7"],
    "ssh_ranges": [
        None, [], ["10.0.0.0/8"], ["172.16.0.0/12", "192.168.0.0/16"], ["203.0.113.7/32"], ["203.0.0.0/16"],
        ["198.51.0.0/17", "203.0.128.0/17", "10.0.0.0/8"],
    ],
    "subnet_cidr": [None,
        "10.0.0.0/8", "10.255.255.248/29", "172.16.0.0/12", "172.31.0.0/16", "192.168.0.0/16", "192.168.255.248/29",
    ],
    "tpu": [
        None, {"accelerator_type": "v2-8", "runtime_version": "r"}, {"accelerator_type": "v5p-12288", "runtime_version": "r"},
        {"accelerator_type": "v6e-1", "runtime_version": "r", "name": "ab"},
        {"accelerator_type": "v6e-1", "runtime_version": "r", "name": "a" * 63},
        {"accelerator_type": "v6e-1", "runtime_version": "r", "spot": True},
    ],
    "watch": [
        None, WATCH, WATCH | {"owners": ["a@b", "c@d"], "types": ["v2-8", "v5p-12288"]}, WATCH | {"image": f"a:5000/b/C:1@sha256:{'f' * 64}"},
        WATCH | {"region": None, "zones": None, "max_price": None}, WATCH | {"zones": ["europe-west4-a", "europe-west4-z"], "max_price": 0.01},
    ],
}  # fmt: skip
"""Variable -> values that it takes; null is the default."""

REFUSED: dict[str, dict[str, list[Any]]] = {
    "artifact_registry": {BOOL: ["please", ""], "bool required": [2]},
    "bucket_names": {
        NO_BUCKET: [
            {"data": "ab"}, {"data": "a" * 64}, {"data": "-abc"}, {"data": "abc-"}, {"data": "_abc"}, {"data": "ab.c"},
            {"data": "goog-x"}, {"data": "my-google"}, {"data": "Abc"}, {"data": "a b"}, {"data": "bücher"}, {"runs": "abc\n"},
            {"runs": "gs://abc"}, {"runs": "${var.name}"},
        ],
        "The two buckets need two names": [{"data": "abc", "runs": "abc"}],
    },
    "budget": {
        "budget.billing_account has the form": [
            {"billing_account": "", "amount": 1}, {"billing_account": None, "amount": 1}, {"billing_account": ACCOUNT.lower(), "amount": 1},
            {"billing_account": f"billingAccounts/{ACCOUNT}", "amount": 1}, {"billing_account": f"{ACCOUNT}\n", "amount": 1},
        ],
        "budget.amount is an integer above 0": [
            {"billing_account": ACCOUNT, "amount": 0}, {"billing_account": ACCOUNT, "amount": -1}, {"billing_account": ACCOUNT, "amount": 0.5},
            {"billing_account": ACCOUNT, "amount": None},
        ],
        "budget.thresholds are shares": [
            {"billing_account": ACCOUNT, "amount": 1, "thresholds": []}, {"billing_account": ACCOUNT, "amount": 1, "thresholds": [0]},
            {"billing_account": ACCOUNT, "amount": 1, "thresholds": [0.5, 5.01]}, {"billing_account": ACCOUNT, "amount": 1, "thresholds": [-0.5]},
            {"billing_account": ACCOUNT, "amount": 1, "thresholds": [None]},
        ],
        'attribute "amount" is required': [{"billing_account": ACCOUNT}],
    },
    "bundle_days": {"bundle_days is an integer, 0 or more": [-1, 0.5, -0.5, 1e-9], NUMBER: ["never", ""]},
    "delete_buckets_with_content": {BOOL: ["yes"]},
    "kms_key": {
        NO_KEY: [
            "", "k", KEY.replace("europe-west4", "europe-west1"), KEY.replace("europe-west4", "global"), f"{KEY}/", f"{KEY}\n",
            f"//cloudkms.googleapis.com/{KEY}", KEY.replace("projects/p", "projects/"), f"{KEY}/cryptoKeyVersions/1",
        ],
    },
    "labels": {
        NO_LABEL: [{"": "a"}, {"a" * 64: ""}, {"a": "b" * 64}, {"9a": ""}, {"_a": ""}, {"a": "B"}, {"a": "b.c"}, {"équipe": "a"}, {"a": None}],
    },
    "log_days": {"log_days is an integer, 0 or more": [-1, 0.5], NUMBER: ["a year"]},
    "members": {
        NO_MEMBER: [
            ["allUsers"], ["allAuthenticatedUsers"], ["ALLUSERS"], ["principalSet://goog/public:all"], ["principal://goog/subject/a@b"],
            ["principalSet://iam.googleapis.com/"], ["principalSet://iam.googleapis.com.evil.example/x"], ["domain:example.com"],
            ["projectOwner:p"], ["projectEditor:p"], ["deleted:user:a@b?uid=1"], [""], ["user:"], ["user:@"], ["user:a@"], ["user:@b"],
            ["user:a@b@c"], ["user:a b@c"], ["user:a@b "], [" user:a@b"], ["user:a@b\n"], ["User:a@b"], ["user:a:b@c"], ["a@b"],
            ["user:ada@example.com", "allUsers"], ["user:a@b\nallUsers"],
            ["principalSet://iam.googleapis.com/\nallUsers"], [None],
        ],
    },
    "mtu": {"mtu is 1300 to 8896": [1299, 8897, 0, -1, 1460.5], NUMBER: ["jumbo"]},
    "name": {
        NO_NAME: ["", "ab", "a" * 22, "a-", "-ab", "2ab", "Abc", "a_b", "a.b", "a b", "äbc", "abc\n", "abc-", "日本語"],
    },
    "project_id": {
        NO_PROJECT: ["", "abcde", "a" * 31, "abcde-", "1abcde", "Abcdef", "my project", "my_project", "123456789012", "abcdef\n", ":abcdef",
                     "exämple", "projects/abcdef"],
        NULL: [None],
    },
    "protection": {"protection is records, checkpoints or nothing": ["Records", "none", "records ", "all"]},
    "region": {"region has the form": ["EU", "eu", "europe", "europe-west", "europe-west4-a", "", "Europe-west4", "europe-west4\n"], NULL: [None]},
    "regions": {
        "Each key of regions has the form us-central1": [
            {"europe-west4": "10.129.0.0/20"}, {"EU": "10.129.0.0/20"}, {"us-central1-a": "10.129.0.0/20"}, {"": "10.129.0.0/20"},
            {"us-central1\n": "10.129.0.0/20"},
        ],
        "Each range of regions is a private IPv4 range": [
            {"us-central1": text}
            for text in ("8.8.0.0/20", "172.32.0.0/20", "192.168.0.0/15", "10.0.0.0/7", "10.129.0.1/20", "10.129.0.0/30", "10.129.0.0", "",
                         "::/0", "0.0.0.0/0", "172.*", "10.129.0.0/20\n")
        ],
        "The ranges of regions and subnet_cidr overlap": [
            {"us-central1": "10.128.0.0/20"}, {"us-central1": "10.0.0.0/8"}, {"us-central1": "10.128.8.0/29"},
            {"us-central1": "10.129.0.0/20", "us-east1": "10.129.0.0/20"}, {"us-central1": "10.129.0.0/16", "us-east1": "10.129.8.0/24"},
        ],
    },
    "self_delete": {BOOL: ["no"]},
    "soft_delete_days": {"soft_delete_days is 0, or 7 to 90": [-1, 1, 6, 6.9, 7.5, 89.5, 91, 0.5], NUMBER: ["a week"]},
    "ssh_ranges": {
        "Each of ssh_ranges is an IPv4 range": [
            ["0.0.0.0/0"], ["::/0"], ["0.0.0.0/1", "128.0.0.0/1"], ["10.0.0.0/7"], ["10.0.0.1/8"], ["10.0.0.0"], [""], ["172.*"], ["any"],
            ["10.0.0.0/8", "0.0.0.0/0"], ["203.0.113.0/24\n"], ["2001:db8::/64"], [None],
        ],
        "All public ranges of ssh_ranges together": [
            ["203.0.0.0/15"], ["11.0.0.0/8"], ["172.0.0.0/8"], ["192.168.0.0/15"], ["203.0.0.0/16", "198.51.100.7/32"],
            [f"{first}.0.0.0/8" for first in range(1, 224)],
        ],
    },
    "subnet_cidr": {
        NO_RANGE: ["172.*", "172.15.0.0/20", "172.32.0.0/20", "172.1.0.0/16", "11.0.0.0/20", "192.169.0.0/20", "100.64.0.0/20", "0.0.0.0/0",
                   "::/0", "fd00::/64", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0/20", "10.0.0.256/29", "", "any", "10.0.0.0/20\n"],
        NO_SIZE: ["10.0.0.0/30", "10.0.0.0/32", "10.0.0.1/20", "10.0.16.0/19", "10.0.0.0/7", "192.168.0.0/15"],
    },
    "tpu": {
        NO_TYPE: [
            {"accelerator_type": kind, "runtime_version": "r"}
            for kind in ("", "a100", "v3", "v3-0", "v3-08", "v3-", "v4-8.5", "V3-8", "v5e-8", "v7x-8", "v3-8\n", " v3-8", None)
        ],
        "tpu.name has lower-case letters": [
            {"accelerator_type": "v3-8", "runtime_version": "r", "name": name} for name in ("A", "a", "a" * 64, "a-", "1a", "ä1", "a b", "ab\n")
        ],
        "A TPU is either spot or reserved": [{"accelerator_type": "v3-8", "runtime_version": "r", "spot": True, "reserved": True}],
        'attribute "runtime_version" is required': [{"accelerator_type": "v3-8"}],
    },
    "watch": {
        NO_OWNER: [WATCH | {"owners": owners} for owners in ([], [""], ["ada"], ["user:a@b", "a b@c"], None, ["a@b\n"])],
        "watch.types are the types": [WATCH | {"types": types} for types in ([], None, [""], ["v3"], ["v3-8", "a100"], ["v3-8,v4-512"], ["v3-8\n"])],
        "watch.zones are zones of": [
            WATCH | {"zones": zones} for zones in ([], [""], ["europe-west4"], ["europe-west4-a", "asia-east1-a"], ["europe-west4-a,asia-east1-a"],
                                                   ["europe-west4-A"], ["europe-west4-a\n"])
        ],
        "watch.max_price is the most": [WATCH | {"max_price": price} for price in (0, -1, 0.001, 10**6)],
        "watch.image is an image": [
            WATCH | {"image": image} for image in (None, "", "docker.io/library/python:3.12-slim", "eu.gcr.io/p/i:1", "eu.gcr.io/p/i@sha256:abc",
                                                   f"eu.gcr.io/p/i@sha256:{'A' * 64}", f"@sha256:{'a' * 64}", f"a b@sha256:{'a' * 64}", f"a@sha256:{'a' * 64}\n")
        ],
        "watch.schedule has the five fields": [WATCH | {"schedule": schedule} for schedule in ("", "* * * *", "* * * * * *", "hourly")],
        "watch.region has the form": [WATCH | {"region": region} for region in ("EU", "", "europe-west4-a")],
        "are required": [{"owners": ["a@b"]}],
        'attribute "types" is required': [{"owners": ["a@b"], "image": IMAGE}],
    },
    "zone": {
        "zone must be in region": ["europe-west4", "europe-west1-a", "europe-west4-", "europe-west4-aa", "europe-west4-A", "europe-west4-1",
                                   "xeurope-west4-a", "europe-west4-a\n", ""],
        NULL: [None],
    },
}  # fmt: skip
"""Variable -> part of the message -> values that are refused with it."""


def rows() -> Iterator[tuple[str, Any, str]]:
    """Yield variable, value, and the message's part; without one the value is accepted."""
    for name, values in ACCEPTED.items():
        yield from ((name, value, "") for value in values)
    for name, messages in REFUSED.items():
        for message, values in messages.items():
            yield from ((name, value, message) for value in values)

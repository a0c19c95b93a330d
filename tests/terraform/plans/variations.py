"""What is planned and recorded: the examples, and the module with each optional part on."""

# ruff: noqa: E501  a table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.terraform.workbench import EXAMPLES, IMAGE

REQUIRED = {"project_id": "demo-project-1", "region": "europe-west4", "zone": "europe-west4-a"}
PLAIN = {**REQUIRED, "members": ["user:ada@example.com"], "protection": "records"}
KEY = "projects/keys/locations/europe-west4/keyRings/training/cryptoKeys/buckets"
WATCHED = {"owners": ["ada@example.com", "bob@example.com"], "types": ["v3-8"], "image": IMAGE}
TPU = {"accelerator_type": "v3-8", "runtime_version": "tpu-ubuntu2204-base"}


@dataclass(frozen=True)
class Variation:
    """Settings of the module or of an example."""

    name: str
    where: str = "."
    settings: Mapping[str, Any] = field(default_factory=dict)
    like: str = ""
    """The variation whose record this one's record is written as a difference from."""
    ssh_ranges: tuple[str, ...] = ()
    """What the settings configure: ranges beyond IAP's from which SSH may come."""


def _with(variation: str, /, **settings: Any) -> Variation:
    """Return the plain module with some settings changed; its record is a difference from the plain one."""
    ranges = tuple(settings.get("ssh_ranges", ()))
    return Variation(variation, ".", {**PLAIN, **settings}, "plain", ranges)


RANGES_OF_EXAMPLES = {"examples/complete": ("10.8.0.0/16",)}
OF_EXAMPLES = [
    Variation(where.rpartition("/")[2], where, ssh_ranges=RANGES_OF_EXAMPLES.get(where, ()))
    for where in EXAMPLES
]
OF_MODULE = [
    Variation("plain", ".", PLAIN),
    Variation("unset", ".", REQUIRED, "plain"),
    _with("members", members=["user:ada@example.com", "group:lab@example.com", "serviceAccount:ci@demo-project-1.iam.gserviceaccount.com"]),
    _with("protected-checkpoints", protection="checkpoints"),
    _with("no-protection", protection="nothing"),
    _with("no-self-delete", self_delete=False),
    _with("key", kms_key=KEY),
    _with("registry", artifact_registry=True),
    _with("budget", budget={"billing_account": "012345-6789AB-CDEF01", "amount": 100, "currency": "EUR", "thresholds": [0.8]}),
    _with("tpu", tpu={**TPU, "name": "kept", "reserved": True}),
    _with("spot-tpu", tpu={**TPU, "spot": True}),
    _with("watch", watch=WATCHED),
    _with("watch-within-limits", regions={"us-central1": "10.129.0.0/20"}, watch={"owners": ["ada@example.com"], "types": ["v4-8", "v3-8"], "zones": ["europe-west4-b", "us-central1-b"], "max_price": 12.5, "image": IMAGE, "schedule": "0 * * * *", "region": "europe-west1"}),
    _with("days", bundle_days=0, log_days=1, soft_delete_days=0),
    _with("names", name="team-2", bucket_names={"data": "pictures", "runs": "models"}, labels={"team": "vision", "managed-by": "mine"}),
    _with("network", subnet_cidr="192.168.8.0/21", mtu=1460),
    _with("regions", regions={"us-central1": "10.129.0.0/20", "us-east1": "172.16.0.0/20"}),
    _with("vpn", ssh_ranges=["10.8.0.0/16", "203.0.113.0/24"]),
    _with("buckets-with-content", delete_buckets_with_content=True),
]  # fmt: skip
VARIATIONS = {variation.name: variation for variation in [*OF_EXAMPLES, *OF_MODULE]}

"""Maps errors that only the Cloud TPU API has, such as a stockout, by rows of a table.

Texts and codes: logs of the real API in public issues, gathered in the simulator's table
(`tpuctl/sim/world/api_errors.py`), whose source each of its rows names.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.rpc import error_details_pb2, status_pb2

from tpuctl import accelerators
from tpuctl.cloud.error_table import Failure, Row, Service, explain
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    QuotaError,
    StateError,
    StockoutError,
    TpuctlError,
    UsageError,
)

OF_THE_ZONE = {"scope": "zone"}
"""A refusal that another zone may not repeat; without it, one for good is the project's."""
QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"


class RateLimitError(DeadlineError):
    """The project has sent more requests in a minute than the service accepts: this one did nothing."""


def operation_error(subject: str, status: status_pb2.Status) -> TpuctlError:
    """Return the error of an operation that has failed."""
    info = error_details_pb2.ErrorInfo()
    reason = next((info.reason for detail in status.details if detail.Unpack(info)), "")
    return explain(
        Failure(SERVICE, subject, status.code, status.message.strip(), reason, tuple(status.details))
    )


def _other_zones(fields: Mapping[str, str]) -> dict[str, str]:
    """Where a type that a zone lacks has been seen."""
    known = accelerators.catalogue().get(fields["type"])
    others = [zone for zone in known.zones if zone != fields["zone"]] if known else []
    if not known or not others:
        return {"where": "Check the type: gcloud compute tpus accelerator-types list --zone ZONE"}
    return {"where": f"It has been seen in {', '.join(others)}: tpuctl up {known.type} --zone {others[0]}"}


ROWS = (
    Row(
        "too-large", (8,),
        "CLIENT: Received message larger than max (4238034 vs. 4194304)",
        DeadlineError,
        "{subject}: {words}",
        "The client refused it, not the service: ask for less at a time, as with --zone ZONE, and report it.",
        text=r"CLIENT: |message larger than max|metadata size exceeds",
    ),
    Row(
        "rate", (8,),
        "Quota exceeded for quota metric 'M' and limit 'Read requests per minute' of service ...",
        RateLimitError,
        "{subject}: {words}",
        "The project sends more requests than the service accepts in a minute: run the same command again in "
        "a minute.",
        text=r"(?i)\bper (second|minute|\d+ seconds)\b",
    ),
    Row(
        "quota-zero", (8,),
        "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in zone Z.",
        QuotaError,
        "{subject}: {words}",
        f"This quota was never granted: request it at {QUOTA_PAGE}. Spot TPUs have one of their own: --spot.",
        detail="QuotaFailure", text="(?i)quota", text_too=r"Limit: (\d+,)*0(?!\d|\.\d)",
        facts={"granted": False},
    ),
    Row(
        "quota", (8,),
        "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone Z.",
        QuotaError,
        "{subject}: {words}",
        f"Delete what you do not need ('tpuctl ls --all-users', 'tpuctl down NAME'), or request more at "
        f"{QUOTA_PAGE}.",
        detail="QuotaFailure", text="(?i)quota", facts={"granted": True},
    ),
    Row(
        "reserved-capacity", (8, 9),
        "Insufficient reserved capacity. Contact customer support to increase your reservation.",
        StockoutError,
        "{subject}: {words}",
        "Run the same command without the reservation, or later.",
        text="reserved capacity",
    ),
    Row(
        "stockout", (8,),
        'There is no more capacity in the zone "Z"; you can try in another zone ...',
        StockoutError,
        "{subject}: {words}",
        "Run the same command with another --zone, with --spot, or later.",
    ),
    Row(
        "zone-denied", (7,),
        "Permission denied on 'locations/Z' (or it may not exist).",
        ConfigError,
        "{subject}: {words}",
        "The zone does not exist, or this project may not use it; list the zones that it may use: "
        "gcloud compute tpus locations list",
        reason="LOCATION_POLICY_VIOLATED", text="denied on 'locations/[^/']+'", facts=OF_THE_ZONE,
    ),
    Row(
        "guest-attributes", (7, 9),
        "Constraint constraints/compute.disableGuestAttributesAccess violated for project P.",
        ConfigError,
        "{subject}: {words} The keys and the names of its hosts are in guest attributes.",
        "Ask for an exception of this organization policy; or, where hosts have external addresses, trust "
        "the key that answers first: the same command with --host-keys first-contact.",
        text="disableGuestAttributesAccess",
    ),
    Row(
        "preempted", (3, 9),
        "Cloud TPU received a bad request. update is not supported while in state PREEMPTED",
        PreemptedError,
        "{subject} was preempted: {words}",
        "Delete it with 'tpuctl down {name}', then create it again with the same 'tpuctl up'.",
        text="PREEMPTED",
    ),
    Row(
        "wrong-state", (3, 9),
        "Cloud TPU received a bad request. stop is not supported while in state CREATING",
        StateError,
        "{subject}: {words}",
        "'tpuctl ls' shows its state.",
        text="while in state",
    ),
    Row(
        "several-hosts", (3,),
        "Cloud TPU received a bad request. stop is only available with single TPU nodes",
        StateError,
        "{subject}: {words}",
        "A slice of several hosts can be deleted only: tpuctl down {name}",
        text="only available with single TPU nodes",
    ),
    Row(
        "type-not-in-zone", (3,),
        "Cloud TPU received a bad request. the accelerator v3-9 was not found in zone Z",
        UsageError,
        "{subject}: {words}",
        "{where}",
        text=r"the accelerator (?P<type>\S+) was not found in zone (?P<zone>[a-z0-9-]+)", derive=_other_zones,
        facts=OF_THE_ZONE,
    ),
    Row(
        "runtime", (3,),
        'Cloud TPU received an invalid argument. The field "RuntimeVersion" cannot be "R".',
        UsageError,
        "{subject}: {words}",
        "Choose another --runtime, or leave it out for the newest one.",
        text='"RuntimeVersion" cannot be',
    ),
    Row(
        "no-reservation", (5,),
        "Reservation not found",
        StateError,
        "{subject}: {words}",
        "List the reservations: gcloud alpha compute tpus reservations list --zone ZONE",
        text="(?i)reservation not found",
    ),
    Row(
        "missing", (5,),
        "Resource '...' was not found",
        NotFoundError,
        "{subject} does not exist.",
        "'tpuctl ls' lists the nodes that do.",
    ),
    Row(
        "precondition", (9,),
        "The state of the resource does not allow the call.",
        StateError,
        "{subject}: {words}",
        "'tpuctl ls' shows its state.",
    ),
)  # fmt: skip
"""Answers of the Cloud TPU API; the rate comes before quota and stockout: all are RESOURCE_EXHAUSTED."""
SERVICE = Service(api="tpu.googleapis.com", role="roles/tpu.admin", rows=ROWS)

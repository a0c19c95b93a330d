"""Maps errors that only the Cloud TPU API has, such as a stockout, by rows of a table.

Texts and codes: logs of the real API in public issues, which `tests/cloud/sentences.toml` and the simulator's
table (`tpuctl/sim/world/api_errors.py`) name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from google.rpc import error_details_pb2, status_pb2

from tpuctl import accelerators
from tpuctl.cloud.error_mapping import OF_THE_ZONE, Failure, Row, Service, explain
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

QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"


class RateLimitError(DeadlineError):
    """The project has sent more requests in a minute than the service accepts: this one did nothing."""


def operation_error(subject: str, status: status_pb2.Status, service: Service) -> TpuctlError:
    """Return the error of an operation that has failed, of `SERVICE` or of `CREATING`."""
    info = error_details_pb2.ErrorInfo()
    reason = next((info.reason for detail in status.details if detail.Unpack(info)), "")
    words, details = status.message.strip(), tuple(status.details)
    return explain(Failure(service, subject, status.code, words, reason, details))


def _other_zones(fields: Mapping[str, str]) -> dict[str, str]:
    """Where a type is available that a zone lacks."""
    known = accelerators.catalogue().get(fields["type"])
    others = [zone for zone in known.zones if zone != fields["zone"]] if known else []
    if not known or not others:
        return {"where": "Check the type: gcloud compute tpus accelerator-types list --zone ZONE"}
    return {"where": f"It is available in {', '.join(others)}: tpuctl up {known.type} --zone {others[0]}"}


def _quota(fields: Mapping[str, str]) -> dict[str, str]:
    """Which quota it is, by its name, and what needs none of it."""
    words = fields["words"]
    if "IN_USE_ADDRESSES" in words:
        return {
            "which": "This quota",
            "besides": " Hosts without external addresses need none: --internal-ips.",
        }
    is_spot, is_of_tpus = "Preemptible" in words, "TPU" in words
    place = next((kind for kind in ("region", "zone") if re.search(rf"\bin {kind}\b", words)), "")
    besides = {
        "region": " There is one of the zone, too, and both are needed; another region has its own.",
        "zone": " Another --zone has its own.",
    }.get(place, "")
    if is_of_tpus and not is_spot:
        besides += " Spot TPUs have one of their own: --spot."
    which = f"This quota{' of spot TPUs' * is_spot}{f' of the {place}' * bool(place)}"
    return {"which": which, "besides": besides}


MISSING = r"(?i)not found|does not exist|cannot be found|has no network"
CREATION_ROWS = (
    Row(
        "no-subnetwork", (3, 5, 9),
        "The resource 'projects/P/regions/R/subnetworks/S' was not found",
        ConfigError,
        "{subject} cannot be created: {words}",
        "Each region has subnetworks of its own: name one of the zone's region with --subnetwork, or choose "
        "another --zone. See them: gcloud compute networks subnets list",
        text="(?i)subnet", text_too=MISSING, facts=OF_THE_ZONE,
    ),
    Row(
        "no-network", (3, 5, 9),
        "The resource 'projects/P/global/networks/default' was not found",
        ConfigError,
        "{subject} cannot be created: {words}",
        "Name a network that exists with --network NAME; projects of many organizations have none called "
        "'default'. See them: gcloud compute networks list",
        text=r"(?i)\bnetworks?\b", text_too=MISSING,
    ),
    Row(
        "no-account", (3, 5, 9),
        "Service account A does not exist.",
        ConfigError,
        "{subject} cannot be created: {words}",
        "Name a service account that exists with --service-account EMAIL. See them: gcloud iam "
        "service-accounts list",
        text="(?i)service ?account", text_too=MISSING,
    ),
    Row(
        "no-disk", (3, 5, 9),
        "The resource 'projects/P/zones/Z/disks/D' was not found",
        ConfigError,
        "{subject} cannot be created: {words}",
        "Name a disk of the TPU's zone with --data-disk, or create it first. See them: gcloud compute disks "
        "list",
        text=r"(?i)\bdisks?\b", text_too=MISSING, facts=OF_THE_ZONE,
    ),
    Row(
        "no-part", (5,),
        "Requested entity was not found.",
        ConfigError,
        "{subject} cannot be created: {words}",
        "Something that the request names does not exist: --dry-run shows the request.",
    ),
    Row(
        "refused", (9,),
        "Your request to provision TPU Node has been denied.",
        ConfigError,
        "{subject} cannot be created: {words}",
        "What stands in the way is in Google's words; 'tpuctl doctor' checks the project.",
    ),
)  # fmt: skip
"""Answers to a request that creates, where what is missing is something else."""
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
        f"{{which}} was never granted: request it at {QUOTA_PAGE}.{{besides}}",
        detail="QuotaFailure", text="(?i)quota", text_too=r"Limit:?\s+(\d+,)*0(\.0+)?(?!\d|\.\d)",
        derive=_quota, facts={"granted": False},
    ),
    Row(
        "quota", (8,),
        "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone Z.",
        QuotaError,
        "{subject}: {words}",
        f"Delete what you do not need ('tpuctl ls --all-users', 'tpuctl down NAME'), or request more at "
        f"{QUOTA_PAGE}.{{besides}}",
        detail="QuotaFailure", text="(?i)quota", derive=_quota, facts={"granted": True},
    ),
    Row(
        "reserved-capacity", (8, 9),
        "Insufficient reserved capacity. Contact customer support to increase your reservation.",
        StockoutError,
        "{subject}: {words}",
        "With a reservation: run the same command without it, or later. Without one, this type is not sold "
        "on demand here: --spot, another --zone, or ask Google for a reservation.",
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
        "no-resources", (9, 13, 14),
        "The zone 'Z' does not have enough resources available to fulfill the request.",
        StockoutError,
        "{subject}: {words}",
        "Run the same command with another --zone, with --spot, or later.",
        text=r"does not have enough resources available|is currently unavailable in the \S+ zone",
    ),
    Row(
        "zone-denied", (3, 7),
        "Permission denied on 'locations/Z' (or it may not exist).",
        ConfigError,
        "{subject}: {words}",
        "The zone does not exist, or this project may not use it; list the zones that it may use: "
        "gcloud compute tpus locations list",
        reason="LOCATION_POLICY_VIOLATED", facts=OF_THE_ZONE,
        text=r"denied on 'locations/[^/']+'|Location \S+ is not found or access is unauthorized|"
        r"requested zone \S+ is not supported|permission to submit requests into this queue",
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
        ConfigError,
        "{subject}: {words}",
        "With a reservation: list those of the zone: gcloud alpha compute tpus reservations list --zone "
        "ZONE. Without one, this type is not sold on demand here: --spot, or another --zone.",
        text="(?i)reservation not found", facts=OF_THE_ZONE,
    ),
    Row(
        "missing", (5,),
        "Resource '...' was not found",
        NotFoundError,
        "{subject} does not exist.",
        "'tpuctl ls' lists the nodes that do.",
        stock="^Resource '.*' was not found|^Requested entity was not found",
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
CREATING = replace(SERVICE, rows=(*CREATION_ROWS, *ROWS))
"""As it answers to a request that creates: the name of what is missing is not that of what is asked for."""

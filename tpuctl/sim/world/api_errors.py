"""Defines every error of the simulated Cloud TPU API in one table: code, text, details, source."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypedDict

from tpuctl.sim.token_server import project_number

SERVICE = "tpu.googleapis.com"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
RESOURCE_INFO = "type.googleapis.com/google.rpc.ResourceInfo"


class Code(IntEnum):
    """google.rpc.Code."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Violation(TypedDict):
    """google.rpc.QuotaFailure.Violation."""

    subject: str
    description: str


ErrorDetail = TypedDict(
    "ErrorDetail",
    {
        "@type": str,
        "reason": str,
        "domain": str,
        "metadata": dict[str, str],
        "violations": list[Violation],
        "resourceName": str,
    },
    total=False,
)
"""google.rpc.ErrorInfo (reason, domain, metadata), QuotaFailure (violations) or ResourceInfo, as JSON."""


@dataclass(frozen=True)
class Status:
    """google.rpc.Status, its details in their JSON form."""

    code: int
    message: str
    details: tuple[ErrorDetail, ...] = ()


class ApiError(Exception):
    """A call that fails: the API's response is `status`."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


@dataclass(frozen=True)
class Template:
    """One kind of error; `{fields}` in text and metadata are filled in, `{eid}` with a fresh number."""

    code: Code
    text: str
    source: str
    """Where the wording is from; "ours" where no source was found (the code then is what the notes of
    the proto or the clients' behaviour say)."""
    reason: str = ""
    metadata: Mapping[str, str] | None = None
    resource: str = ""
    """The full name that a ResourceInfo names."""


OURS = "ours"
BAD_REQUEST = "Cloud TPU received a bad request. "
CONSUMER = {"consumer": "projects/{project}", "service": SERVICE}

ERRORS: dict[str, Template] = {
    "api_disabled": Template(
        Code.PERMISSION_DENIED,
        "Cloud TPU API has not been used in project {project} before or it is disabled. Enable it by "
        "visiting https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?"
        "project={project} then retry. If you enabled this API recently, wait a few minutes for the "
        "action to propagate to our systems and retry.",
        "Google's generic text, from memory",
        "SERVICE_DISABLED",
        CONSUMER,
    ),
    "location": Template(
        Code.PERMISSION_DENIED,
        "Permission denied on 'locations/{zone}' (or it may not exist).",
        "a public log of the real API",
        "LOCATION_POLICY_VIOLATED",
        CONSUMER | {"location": "{zone}"},
    ),
    "unknown_location": Template(
        Code.PERMISSION_DENIED,
        "Location {zone} is not found or access is unauthorized.",
        "skypilot-org/skypilot, which looks for it in what nodes.list answers; reason as for `location`",
        "LOCATION_POLICY_VIOLATED",
        CONSUMER | {"location": "{zone}"},
    ),
    "type_not_in_zone": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + 'The requested accelerator configuration for accelerator type, "{type}", could not '
        'be found in the zonal accelerator configurations for "{zone}".; the accelerator {type} was not '
        "found in zone {zone} [EID: {eid}]",
        "a public log of the real API; the second half in skypilot-org/skypilot#3840",
    ),
    "bad_runtime": Template(
        Code.INVALID_ARGUMENT,
        'Cloud TPU received an invalid argument. The field "RuntimeVersion" cannot be "{runtime}". '
        "[EID: {eid}]",
        "ours, after the same code and text for TensorflowVersion in API v1 (tensorflow/tpu#877)",
    ),
    "exists": Template(
        Code.ALREADY_EXISTS,
        "Resource '{name}' already exists",
        "skypilot-org/skypilot#129",
        resource="{name}",
    ),
    "not_found": Template(Code.NOT_FOUND, "Resource '{name}' was not found", OURS),
    "no_guest_attribute": Template(
        Code.NOT_FOUND,
        "The resource '{path}' of type 'Guest Attribute' was not found.",
        "Compute Engine: googlecloudsdk/command_lib/compute/ssh_utils.py of gcloud",
    ),
    "no_guest_attributes": Template(
        Code.FAILED_PRECONDITION,
        "Constraint constraints/compute.disableGuestAttributesAccess violated for project {project}.",
        "public logs of Compute Engine, with status 412 of HTTP; unverified for Cloud TPU",
    ),
    "wrong_state": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + "{call} is not supported while in state {state} [EID: {eid}]",
        "skypilot-org/skypilot, for update while in state PREEMPTED",
    ),
    "several_hosts": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + "{call} is only available with single TPU nodes, {name} has {hosts} hosts [EID: {eid}]",
        "ours, after the client's documentation of start and stop",
    ),
    "queued_power": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + "{call} is not supported for {name}, a node of a queued resource [EID: {eid}]",
        "ours, as for slices of several hosts: what a queued resource provisions it also ends",
    ),
    "spot_start": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + "start is not supported for the preemptible node {name} [EID: {eid}]",
        "ours, after gcloud's help: preemptible nodes cannot be restarted",
    ),
    "concurrent_update": Template(
        Code.ABORTED,
        "Resource '{name}' is being updated by another operation",
        "ours; gcloud takes a 409 on UpdateNode for another update in flight",
    ),
    "cancelled": Template(Code.CANCELLED, "The operation was cancelled.", OURS),
    "stockout": Template(
        Code.RESOURCE_EXHAUSTED,
        'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes '
        "are offered (see https://cloud.google.com/tpu/docs/regions) [EID: {eid}]",
        "GoogleCloudPlatform/magic-modules#7297",
    ),
    "reserved_stockout": Template(
        Code.FAILED_PRECONDITION,
        "Insufficient reserved capacity. Contact customer support to increase your reservation. [EID: {eid}]",
        "skypilot-org/skypilot#4579",
    ),
    "quota": Template(
        Code.RESOURCE_EXHAUSTED,
        "Quota limit '{limit}' has been exceeded. Limit: {value} in {place}.",
        "a public log of the real API; several at once, joined by commas, in another",
        "",
        {
            "quota_limit": "{limit}",
            "quota_limit_value": "{value}",
            "quota_location": "{place}",
            "subject": "{subject}",
        },
    ),
    "no_reservation": Template(Code.NOT_FOUND, "Reservation not found", "skypilot-org/skypilot#4579"),
    "expired": Template(
        Code.DEADLINE_EXCEEDED,
        "The queued resource could not be provisioned within the time it was valid.",
        "ours, after the comment on valid_until_time in the proto",
    ),
    "unreachable": Template(
        Code.UNAVAILABLE, "The location could not be reached.", "ours; lists name it as unreachable"
    ),
    "queue_state": Template(
        Code.FAILED_PRECONDITION,
        "{call} is not supported for the queued resource {name} while in state {state}{hint} [EID: {eid}]",
        "ours, after the comment on force in the proto",
    ),
    "bad_filter": Template(Code.INVALID_ARGUMENT, "Invalid filter: {reason}", OURS),
    "permission": Template(
        Code.PERMISSION_DENIED,
        "Permission '{permission}' denied on '{resource}' (or it may not exist).",
        "Google's generic text",
        "IAM_PERMISSION_DENIED",
        {"permission": "{permission}", "resource": "{resource}"},
    ),
    "act_as": Template(
        Code.PERMISSION_DENIED,
        "The user does not have access to service account '{account}'. User: '{user}'. Ask a project owner "
        "to grant you the iam.serviceAccountUser role on the service account.",
        "Google's text, as for instances of Compute Engine",
        "IAM_PERMISSION_DENIED",
        {"permission": "{permission}", "resource": "{resource}"},
    ),
    "unauthenticated": Template(
        Code.UNAUTHENTICATED,
        "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie "
        "or other valid authentication credential.",
        "Google's generic text",
    ),
    "deadline": Template(Code.DEADLINE_EXCEEDED, "Deadline exceeded.", "Google's generic text"),
    "unavailable": Template(
        Code.UNAVAILABLE, "The service is currently unavailable.", "Google's generic text"
    ),
    "bad_name": Template(
        Code.INVALID_ARGUMENT, "Invalid resource field value in the request: '{name}'.", OURS
    ),
    "bad_id": Template(
        Code.INVALID_ARGUMENT,
        "Invalid {what} ID '{id}': it must begin with a lowercase letter, have lowercase letters, digits, "
        "hyphens and underscores only, end with a letter or a digit, and be at most 63 characters long.",
        "ours, after Compute Engine's rule; the underscores: skypilot-org/skypilot#129",
    ),
    "bad_page": Template(Code.INVALID_ARGUMENT, "Invalid {parameter}.", OURS),
    "bad_field": Template(Code.INVALID_ARGUMENT, BAD_REQUEST + "{reason} [EID: {eid}]", OURS),
    "label_key": Template(
        Code.INVALID_ARGUMENT,
        "resource labels are invalid: key {key} {problem}",
        "GoogleCloudPlatform/k8s-config-connector, its recorded texts of other APIs",
    ),
    "label_value": Template(
        Code.INVALID_ARGUMENT,
        "resource labels are invalid: value {value} {problem} for key {key}",
        "GoogleCloudPlatform/ml-testing-accelerators#461, for an invalid character; another problem is ours",
    ),
    "many_labels": Template(
        Code.INVALID_ARGUMENT,
        "The number of labels, {count}, exceeds the limit of {most} per resource.",
        "ours; the limit: Google Cloud's requirements for labels",
    ),
    "flex_start": Template(
        Code.INVALID_ARGUMENT,
        BAD_REQUEST + "{reason} [EID: {eid}]",
        "ours, after the documentation of flex-start",
    ),
    "bad_mask": Template(
        Code.INVALID_ARGUMENT, "Invalid update_mask: {paths}. Fields that can be updated: {updatable}.", OURS
    ),
    "bad_json": Template(
        Code.INVALID_ARGUMENT, "Invalid JSON payload received. {reason}", "Google's generic text"
    ),
    "operation_runs": Template(Code.FAILED_PRECONDITION, "The operation '{name}' is still running.", OURS),
    "no_route": Template(Code.NOT_FOUND, "There is no method {verb} {path} in the Cloud TPU API.", OURS),
    "unimplemented": Template(Code.UNIMPLEMENTED, "The simulator does not know {feature} yet.", OURS),
    "old_version": Template(
        Code.UNIMPLEMENTED,
        "The simulator serves API v1, of TPU Nodes, for reading alone: call {call} of v2.",
        OURS,
    ),
    "internal": Template(Code.INTERNAL, "Internal error in the simulator: {reason}", OURS),
}


def api_error(kind: str, **fields: object) -> ApiError:
    """Return the error of this row of the table, filled in."""
    template, values = ERRORS[kind], {"eid": f"0x{secrets.token_hex(8)}", **fields}
    metadata = {key: text.format_map(values) for key, text in (template.metadata or {}).items()}
    details = error_details(template.reason, metadata)
    if template.resource:
        details += ({"@type": RESOURCE_INFO, "resourceName": template.resource.format_map(values)},)
    return ApiError(Status(template.code, template.text.format_map(values), details))


def quota_exceeded(project: str, quotas: Sequence[tuple[str, int, str]]) -> ApiError:
    """Return the error of exceeding these quotas of a project: id, limit, zone or region."""
    kinds = ["zone" if "PerZone" in quota_id else "region" for quota_id, _, _ in quotas]
    return api_error(
        "quota",
        subject=f"project:{project_number(project)}",
        limit=",".join(quota_id for quota_id, _, _ in quotas),
        value=",".join(str(limit) for _, limit, _ in quotas),
        place=",".join(f"{kind} {place}" for kind, (_, _, place) in zip(kinds, quotas, strict=True)),
    )


def error_details(reason: str, metadata: Mapping[str, str]) -> tuple[ErrorDetail, ...]:
    """Return an ErrorInfo when there is a reason, a QuotaFailure when the metadata names a quota."""
    details: list[ErrorDetail] = []
    if reason:
        details.append(
            {"@type": ERROR_INFO, "reason": reason, "domain": "googleapis.com", "metadata": dict(metadata)}
        )
    if "quota_limit" in metadata:
        details.append({"@type": QUOTA_FAILURE, "violations": _violations(metadata)})
    return tuple(details)


def _violations(metadata: Mapping[str, str]) -> list[Violation]:
    """Return a violation for each of the quotas, which are joined by commas."""
    limits = metadata["quota_limit"].split(",")
    values = metadata.get("quota_limit_value", "0").split(",")
    places = metadata.get("quota_location", "").split(",")
    return [
        {
            "subject": metadata.get("subject", ""),
            "description": f"Quota '{limit}' exhausted. Limit {value} in {place}".removesuffix(" in "),
        }
        for limit, value, place in zip(limits, values, places, strict=False)
    ]

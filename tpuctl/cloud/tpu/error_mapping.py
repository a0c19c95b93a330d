"""Maps errors that only the Cloud TPU API has, such as a stockout."""

from __future__ import annotations

from google.rpc import error_details_pb2, status_pb2

from tpuctl.cloud.error_mapping import Failure, Service, explain, permission_denied
from tpuctl.errors import (
    ConfigError,
    NotFoundError,
    PreemptedError,
    QuotaError,
    StateError,
    StockoutError,
    TpuctlError,
    UsageError,
)

SEE_STATE = "'tpuctl ls' shows its state."


def operation_error(subject: str, status: status_pb2.Status) -> TpuctlError:
    """Return the error of an operation that has failed."""
    info = error_details_pb2.ErrorInfo()
    reason = next((info.reason for detail in status.details if detail.Unpack(info)), "")
    return explain(
        Failure(SERVICE, subject, status.code, status.message.strip(), reason, tuple(status.details))
    )


def _invalid(failure: Failure) -> TpuctlError:
    if "PREEMPTED" in failure.message:
        return _precondition(failure)
    if "not supported while in state" in failure.message:
        return StateError(failure.sentence, hint=SEE_STATE)
    return UsageError(failure.sentence, hint="The service refused the request as it was typed.")


def _not_found(failure: Failure) -> TpuctlError:
    return NotFoundError(f"{failure.subject} does not exist.", hint="'tpuctl ls' lists the nodes that do.")


def _denied(failure: Failure) -> TpuctlError:
    if failure.reason == "LOCATION_POLICY_VIOLATED" or "denied on 'locations/" in failure.message:
        return ConfigError(
            failure.sentence,
            hint="The zone does not exist, or this project may not use it; list the zones that it may use: "
            "gcloud compute tpus locations list",
            reason=failure.reason,
        )
    return permission_denied(failure)


def _exhausted(failure: Failure) -> TpuctlError:
    """Quota before stockout: both are RESOURCE_EXHAUSTED."""
    if not _is_quota(failure):
        return StockoutError(failure.sentence, hint="Try another zone, or --spot, or later.")
    granted = "Limit: 0" not in failure.message
    hint = (
        "Delete what you do not need ('tpuctl ls'), or request more quota."
        if granted
        else "This quota was never granted: request it at https://console.cloud.google.com/iam-admin/quotas."
    )
    return QuotaError(failure.sentence, hint=hint, granted=granted)


def _is_quota(failure: Failure) -> bool:
    """Details come as messages from a refused call, packed from a failed operation."""
    names = (type(detail).__name__ + getattr(detail, "type_url", "") for detail in failure.details)
    return any("QuotaFailure" in name for name in names) or "quota" in failure.message.lower()


def _precondition(failure: Failure) -> TpuctlError:
    if "PREEMPTED" in failure.message:
        return PreemptedError(
            f"{failure.subject} was preempted: {failure.message}", hint="Delete it and create it again."
        )
    if "reserved capacity" in failure.message:
        return StockoutError(failure.sentence, hint="Try without the reservation, or later.")
    return StateError(failure.sentence, hint=SEE_STATE)


SERVICE = Service(
    api="tpu.googleapis.com",
    role="roles/tpu.admin",
    by_code={3: _invalid, 5: _not_found, 7: _denied, 8: _exhausted, 9: _precondition},
)

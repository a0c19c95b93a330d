"""Foreign errors of Google's clients become ours, by table: status code and reason first, text last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests.exceptions
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    QuotaError,
    StateError,
    StockoutError,
    TpuctlError,
    UsageError,
)

LOGIN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn errors of Google's clients inside the block into tpuctl's; `what` names the resource."""
    try:
        yield
    except google.GoogleAPICallError as error:
        raise from_status(what, _code(error), _text(error), _reason(error), error.details) from error
    except google.RetryError as error:
        raise DeadlineError(f"No answer about {what} in time.", hint="Try again in a minute.") from error
    except auth.DefaultCredentialsError as error:
        raise ConfigError(_no_credentials(), hint=LOGIN) from error
    except auth.RefreshError as error:
        raise ConfigError(f"The Google Cloud credentials were refused: {error}.", hint=LOGIN) from error
    except (auth.TransportError, requests.exceptions.RequestException) as error:
        raise unreachable(what) from error


def _no_credentials() -> str:
    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        return f"GOOGLE_APPLICATION_CREDENTIALS names {file}, which holds no credentials."
    return "There are no Google Cloud credentials on this machine."


def unreachable(what: str) -> DeadlineError:
    """Return the error for a service that does not answer at all."""
    return DeadlineError(
        f"The service that knows about {what} cannot be reached.", hint="Check the network, then try again."
    )


def from_status(what: str, code: int, message: str, reason: str = "", details: Any = ()) -> TpuctlError:
    """Return our error for a gRPC status code (`google.rpc.Code`) with its reason and details."""
    message = message.strip()
    if code == 7:
        return _denied(what, message, reason)
    if code == 8:
        return _exhausted(what, message, details)
    make = BY_CODE.get(code)
    if make:
        return make(what, message)
    return DeadlineError(f"{what}: {message}", hint="This is the service's own failure: try again.")


def _denied(what: str, message: str, reason: str) -> ConfigError:
    if reason == "SERVICE_DISABLED" or "has not been used in project" in message:
        return ConfigError(
            f"An API that {what} needs is not enabled in the project.", hint=_enable(message), reason=reason
        )
    if reason == "LOCATION_POLICY_VIOLATED" or "denied on 'locations/" in message:
        return ConfigError(
            f"{what}: {message}",
            hint="The zone does not exist, or this project may not use it; see which it may: "
            "gcloud compute tpus locations list",
            reason=reason,
        )
    return ConfigError(
        f"No permission for {what}: {message}",
        hint="Ask for the role roles/tpu.admin or, for a bucket, roles/storage.objectAdmin.",
        reason=reason,
    )


def _enable(message: str) -> str:
    if "https://" in message:
        url = "https://" + message.split("https://", 1)[1].split()[0]
        return f"Enable it at {url}"
    return "Enable it: gcloud services enable tpu.googleapis.com storage.googleapis.com"


def _exhausted(what: str, message: str, details: Any) -> TpuctlError:
    """Quota before stockout: both are RESOURCE_EXHAUSTED."""
    if _has_quota_failure(details) or "quota" in message.lower():
        never = "Limit: 0" in message
        hint = (
            "This quota was never granted: ask for it at https://console.cloud.google.com/iam-admin/quotas."
            if never
            else "Delete what you do not need ('tpuctl ls'), or ask for more quota."
        )
        return QuotaError(f"{what}: {message}", hint=hint, granted=not never)
    return StockoutError(f"{what}: {message}", hint="Try another zone, or --spot, or later.")


def _has_quota_failure(details: Any) -> bool:
    return any("QuotaFailure" in (type(one).__name__ + getattr(one, "type_url", "")) for one in details)


def _precondition(what: str, message: str) -> TpuctlError:
    if "PREEMPTED" in message:
        return PreemptedError(f"{what} was preempted: {message}", hint="Delete it and create it again.")
    if "reserved capacity" in message:
        return StockoutError(f"{what}: {message}", hint="Try without the reservation, or later.")
    return StateError(f"{what}: {message}", hint="'tpuctl ls' shows its state.")


def _invalid(what: str, message: str) -> TpuctlError:
    if "PREEMPTED" in message:
        return _precondition(what, message)
    if "not supported while in state" in message:
        return StateError(f"{what}: {message}", hint="'tpuctl ls' shows its state.")
    return UsageError(f"{what}: {message}", hint="The service refused the request as it was typed.")


BY_CODE: Mapping[int, Callable[[str, str], TpuctlError]] = {
    3: _invalid,
    4: lambda what, message: DeadlineError(f"No answer about {what} in time.", hint="Try again in a minute."),
    5: lambda what, message: NotFoundError(f"{what} does not exist.", hint="'tpuctl ls' lists what does."),
    6: lambda what, message: ConflictError(f"{what} exists already.", hint="Choose another name."),
    9: _precondition,
    10: lambda what, message: ConflictError(f"{what} was changed by somebody else.", hint="Try again."),
    14: lambda what, message: unreachable(what),
    16: lambda what, message: ConfigError(f"The credentials were refused for {what}.", hint=LOGIN),
}

HTTP_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 412: 10, 503: 14, 504: 4}
"""HTTP status -> gRPC code, for Cloud Storage; its 429 asks for patience and is no stockout: not here."""


def _code(error: google.GoogleAPICallError) -> int:
    grpc_code = error.grpc_status_code
    if grpc_code is not None:
        return int(grpc_code.value[0])
    return HTTP_CODES.get(int(error.code or 500), 13)


def _text(error: google.GoogleAPICallError) -> str:
    """The service's own words: the HTTP form puts method and URL in front."""
    return str(error.message).rsplit("prettyPrint=false: ", 1)[-1]


def _reason(error: google.GoogleAPICallError) -> str:
    return str(error.reason or "")

"""Maps errors of Google's clients to tpuctl's, by a table: status code and reason first, text last."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests.exceptions
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    TpuctlError,
    UsageError,
)

CONSOLE_PAGE = re.compile(r"https://console\.\S+")
PERMISSION = re.compile(
    r"[Pp]ermission '([a-zA-Z.]+)'|does not have ([a-zA-Z.]+) access|"
    r"grant you the (iam\.serviceAccountUser) role"
)
ROLES = (
    # how a permission begins: the least role that has it and what else tpuctl does with the resource
    ("storage.objects.", "roles/storage.objectUser"),
    ("storage.multipartUploads.", "roles/storage.objectUser"),
    ("storage.buckets.getIamPolicy", "roles/storage.admin"),
    ("storage.buckets.get", "roles/storage.legacyBucketReader"),
    ("storage.", "roles/storage.admin"),
    ("iam.serviceAccount", "roles/iam.serviceAccountUser, on the service account of the TPU VMs"),
    ("serviceusage.", "roles/serviceusage.serviceUsageConsumer"),
    ("tpu.", "roles/tpu.admin"),
)
"""Permissions that Google's errors name; roles: https://cloud.google.com/iam/docs/roles-permissions."""
LOGIN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."


@dataclass(frozen=True)
class Service:
    """A service of Google, as hints name it, and the codes that mean something of their own there."""

    api: str
    role: str
    """The role that may do all that tpuctl does."""
    by_code: Mapping[int, Explain] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """What a service answered instead of a result."""

    service: Service
    subject: str
    """Names the resource in messages."""
    code: int
    """Of gRPC (`google.rpc.Code`)."""
    message: str
    reason: str = ""
    details: tuple[object, ...] = ()

    @property
    def sentence(self) -> str:
        """The resource, and the service's own words."""
        return f"{self.subject}: {self.message}"


Explain = Callable[[Failure], TpuctlError]

GOOGLE_CLOUD = Service(
    "tpu.googleapis.com storage.googleapis.com",
    "roles/tpu.admin and, for a bucket, roles/storage.objectUser",
)


@contextmanager
def translated(subject: str, service: Service = GOOGLE_CLOUD) -> Iterator[None]:
    """Turn errors of Google's clients inside the block into tpuctl's; `subject` names the resource."""
    try:
        yield
    except google.GoogleAPICallError as error:
        raise explain(_failure(service, subject, error)) from error
    except google.RetryError as error:
        raise _no_answer(subject) from error
    except auth.DefaultCredentialsError as error:
        raise ConfigError(_no_credentials(), hint=LOGIN) from error
    except auth.RefreshError as error:
        raise ConfigError(f"The Google Cloud credentials were refused: {error}.", hint=LOGIN) from error
    except (auth.TransportError, requests.exceptions.RequestException) as error:
        raise _unreachable(subject) from error


def explain(failure: Failure) -> TpuctlError:
    """Return tpuctl's error for a failure, by the service's own row of its code or by that of BY_CODE."""
    row = failure.service.by_code.get(failure.code) or BY_CODE.get(failure.code)
    if row is None:
        return DeadlineError(failure.sentence, hint="This is the service's own failure: try again.")
    return row(failure)


def permission_denied(failure: Failure) -> ConfigError:
    """Return the error for a disabled API or a missing permission."""
    if failure.reason == "SERVICE_DISABLED" or "has not been used in project" in failure.message:
        return ConfigError(
            f"An API that {failure.subject} needs is not enabled in the project.",
            hint=f"Enable it{_how_to_enable(failure)}",
            reason=failure.reason,
        )
    return ConfigError(
        f"No permission for {failure.sentence}",
        hint=f"Ask an owner of the project for the role {_role(failure)}.",
        reason=failure.reason,
    )


def _role(failure: Failure) -> str:
    """The least role with the permission that the service names, else the one for all of tpuctl."""
    named = PERMISSION.search(failure.message)
    permission = next((text for text in named.groups() if text), "") if named else ""
    return next((role for prefix, role in ROLES if permission.startswith(prefix)), failure.service.role)


def _how_to_enable(failure: Failure) -> str:
    page = CONSOLE_PAGE.search(failure.message)
    return f" at {page[0]}" if page else f": gcloud services enable {failure.service.api}"


def _no_credentials() -> str:
    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        return f"GOOGLE_APPLICATION_CREDENTIALS names {file}, which holds no credentials."
    return "There are no Google Cloud credentials on this machine."


def _no_answer(subject: str) -> DeadlineError:
    return DeadlineError(f"No answer about {subject} in time.", hint="Try again in a minute.")


def _unreachable(subject: str) -> DeadlineError:
    return DeadlineError(
        f"The service that knows about {subject} cannot be reached.",
        hint="Check the network, then try again.",
    )


BY_CODE: Mapping[int, Explain] = {
    3: lambda failure: UsageError(failure.sentence, hint="The service refused the request as it was typed."),
    4: lambda failure: _no_answer(failure.subject),
    5: lambda failure: NotFoundError(f"{failure.subject} does not exist.", hint="Check its name."),
    6: lambda failure: ConflictError(f"{failure.subject} exists already.", hint="Choose another name."),
    7: permission_denied,
    10: lambda failure: ConflictError(f"{failure.subject} was changed by another client.", hint="Try again."),
    14: lambda failure: _unreachable(failure.subject),
    16: lambda failure: ConfigError(f"The credentials were refused for {failure.subject}.", hint=LOGIN),
}
"""For every service; its own rows come first."""

HTTP_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 412: 10, 503: 14, 504: 4}
"""HTTP status -> gRPC code, for Cloud Storage. Its 429 is rate limiting and no stockout: not here."""


def _failure(service: Service, subject: str, error: google.GoogleAPICallError) -> Failure:
    """The HTTP form of an error puts method and URL in front of the service's own words."""
    message = str(error.message).rsplit("prettyPrint=false: ", 1)[-1].strip()
    details = tuple(error.details or ())
    return Failure(service, subject, _code(error), message, str(error.reason or ""), details)


def _code(error: google.GoogleAPICallError) -> int:
    grpc_code = error.grpc_status_code
    if grpc_code is not None:
        return int(grpc_code.value[0])
    return HTTP_CODES.get(int(error.code or 500), 13)

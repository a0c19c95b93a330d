"""Defines rows of what a service of Google answers and what a user reads; `docs/errors.md` shows them.

Sources of codes, reasons and texts: https://cloud.google.com/apis/design/errors and the rows' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    ServiceError,
    TpuctlError,
    UsageError,
)

CONSOLE_PAGE = re.compile(r"https://console\.\S+")
PROJECT = re.compile(r"in project ([a-z0-9:.-]+)|[?&]project=([a-z0-9:.-]+)")
NAME = re.compile(r"'([^']+)'")
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
    ("cloudquotas.", "roles/cloudquotas.viewer"),
    ("compute.", "NAME_member, which terraform/ grants its members, or roles/compute.viewer"),
    ("serviceusage.", "roles/serviceusage.serviceUsageConsumer"),
    ("tpu.", "roles/tpu.admin"),
)
"""Permissions that Google's errors name; roles: https://cloud.google.com/iam/docs/roles-permissions."""
LOGIN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."


@dataclass(frozen=True)
class Service:
    """A service of Google, as hints name it, and the answers that mean something of their own there."""

    api: str
    role: str
    """The role that may do all that tpuctl does."""
    rows: tuple[Row, ...] = ()


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

    def has_detail(self, name: str) -> bool:
        """Whether a detail of this type came along: a message of a call, or packed in an operation."""
        names = (type(detail).__name__ + getattr(detail, "type_url", "") for detail in self.details)
        return any(name in known for known in names)


@dataclass(frozen=True)
class Row:
    """One answer of a service; the first row that fits decides."""

    name: str
    codes: tuple[int, ...]
    answer: str
    """What the service says, for docs/errors.md."""
    error: type[TpuctlError]
    message: str
    """What the user reads; fields: those of `_fields`, and named groups of `text`."""
    hint: str
    """The next command; the same fields."""
    reason: str = ""
    """Of google.rpc.ErrorInfo: it fits by this, or by its text."""
    detail: str = ""
    """Type of a detail: it fits by this, or by its text; its limits are in `text_too`."""
    text: str = ""
    """Regular expression; with neither reason nor detail nor text it fits every answer of its codes."""
    text_too: str = ""
    """Regular expression that has to be found besides."""
    derive: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
    """Returns more fields, from the others."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Of the error's JSON form."""

    def fits(self, failure: Failure) -> bool:
        """Whether a failure is this answer: by code and reason or detail, else by code and text."""
        if failure.code not in self.codes or not re.search(self.text_too, failure.message):
            return False
        if not (self.reason or self.detail or self.text):
            return True
        return (
            bool(self.reason and failure.reason == self.reason)
            or bool(self.detail and failure.has_detail(self.detail))
            or bool(self.text and re.search(self.text, failure.message))
        )

    def explain(self, failure: Failure) -> TpuctlError:
        """Return tpuctl's error for a failure that fits."""
        named = re.search(self.text, failure.message) if self.text else None
        fields = _fields(failure) | (named.groupdict(default="") if named else {})
        fields |= self.derive(fields)
        facts = dict(self.facts) | ({"reason": failure.reason} if failure.reason else {})
        return self.error(self.message.format_map(fields), hint=self.hint.format_map(fields), **facts)


def explain(failure: Failure) -> TpuctlError:
    """Return tpuctl's error for a failure, by the service's own rows, then by those of every service."""
    row = first_row((*failure.service.rows, *EVERY_SERVICE), failure)
    return (row or OWN_FAILURE).explain(failure)


def first_row(rows: Iterable[Row], failure: Failure) -> Row | None:
    """Return the row that decides about a failure, None without one."""
    return next((row for row in rows if row.fits(failure)), None)


def _fields(failure: Failure) -> dict[str, str]:
    name = NAME.search(failure.subject)
    return {
        "subject": failure.subject,
        "words": failure.message,
        "name": name[1] if name else "NAME",
        "role": _role(failure),
        "enable": _how_to_enable(failure),
    }


def _role(failure: Failure) -> str:
    """The least role with the permission that the service names, else the one for all of tpuctl."""
    named = PERMISSION.search(failure.message)
    permission = next((text for text in named.groups() if text), "") if named else ""
    return next((role for prefix, role in ROLES if permission.startswith(prefix)), failure.service.role)


def _how_to_enable(failure: Failure) -> str:
    page, project = CONSOLE_PAGE.search(failure.message), PROJECT.search(failure.message)
    command = f"gcloud services enable {failure.service.api}"
    if project and not (project[1] or project[2]).isdigit():
        command += f" --project {project[1] or project[2]}"
    return f"{command}, or at {page[0]}" if page else command


EVERY_SERVICE = (
    Row(
        "api-off", (7,),
        "the API is not enabled in the project",
        ConfigError,
        "An API that {subject} needs is not enabled in the project.",
        "Enable it: {enable}",
        reason="SERVICE_DISABLED", text="has not been used in project",
    ),
    Row(
        "billing-off", (7,),
        "the project has no billing account",
        ConfigError,
        "{subject}: {words}",
        "Link a billing account: gcloud billing projects link PROJECT --billing-account ACCOUNT",
        reason="BILLING_DISABLED", text="requires billing to be enabled",
    ),
    Row(
        "permission", (7,),
        "the account lacks a permission",
        ConfigError,
        "No permission for {subject}: {words}",
        "Ask an owner of the project for the role {role}. Then check: tpuctl doctor",
    ),
    Row(
        "credentials", (16,),
        "no credentials, or such that have expired",
        ConfigError,
        "The credentials were refused for {subject}.",
        LOGIN,
    ),
    Row(
        "bad-request", (3,),
        "a value that the service does not allow",
        UsageError,
        "{subject}: {words}",
        "The service refused the request as it was typed: --dry-run shows it.",
    ),
    Row(
        "missing", (5,),
        "the resource does not exist",
        NotFoundError,
        "{subject} does not exist.",
        "Check its name.",
    ),
    Row(
        "exists", (6,),
        "the resource exists",
        ConflictError,
        "{subject} exists already.",
        "Choose another name with --name.",
    ),
    Row(
        "changed", (10,),
        "another client changes the resource at the same time",
        ConflictError,
        "{subject} was changed by another client.",
        "Run the same command again.",
    ),
    Row(
        "no-answer", (4,),
        "no answer in time",
        DeadlineError,
        "No answer about {subject} in time.",
        "Run the same command again in a minute.",
    ),
    Row(
        "unreachable", (14,),
        "the service, or the zone, cannot be reached",
        DeadlineError,
        "The service that knows about {subject} cannot be reached.",
        "Check the network, then run the same command again.",
    ),
)  # fmt: skip
"""Answers of every service."""
OWN_FAILURE = Row(
    "own-failure", (),
    "a failure of the service's own (INTERNAL and every other code)",
    ServiceError,
    "{subject}: {words}",
    "This is the service's own failure: run the same command again.",
)  # fmt: skip
"""What no other row fits."""

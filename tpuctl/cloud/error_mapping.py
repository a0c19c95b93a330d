"""Maps errors of Google's clients to tpuctl's, by a table: status code and reason first, text last.

- Defines rows of what a service of Google answers and what a user reads; `docs/errors.md` shows them.

  Sources of codes, reasons and texts: https://cloud.google.com/apis/design/errors and the rows' own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests.exceptions
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl.cloud.request_log import naming_host
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    ServiceError,
    TpuctlError,
    UsageError,
    cause,
)

CONSOLE_PAGE = re.compile(r"https://console\.\S+")
PAGE_OF_API = re.compile(r"/apis/api/([a-z0-9.-]+)/")
PROJECT = re.compile(r"in project ([a-z0-9:.-]+)|[?&]project=([a-z0-9:.-]+)")
NAME = re.compile(r"'([^']+)'")
PERMISSION = re.compile(
    r"[Pp]ermission '([a-zA-Z.]+)'|does not have ([a-zA-Z.]+) access|Required '([a-zA-Z.]+)' permission|"
    r"the ([a-zA-Z]+\.[a-zA-Z]+\.[a-zA-Z]+) permission|grant you the (iam\.serviceAccountUser) role"
)
ROLES = (
    # how a permission begins: the least role that has it and what else tpuctl does with the resource
    ("storage.objects.", "roles/storage.objectUser"),
    ("storage.multipartUploads.", "roles/storage.objectUser"),
    ("storage.buckets.getIamPolicy", "roles/storage.admin"),
    ("storage.buckets.get", "roles/storage.legacyBucketReader"),
    ("storage.", "roles/storage.admin"),
    ("iam.serviceAccounts.getAccessToken", "roles/iam.serviceAccountTokenCreator, on that service account"),
    ("iam.serviceAccount", "roles/iam.serviceAccountUser, on the service account of the TPU VMs"),
    ("cloudquotas.", "roles/cloudquotas.viewer"),
    ("compute.", "NAME_member, which terraform/ grants its members, or roles/compute.viewer"),
    ("serviceusage.", "roles/serviceusage.serviceUsageConsumer"),
    ("tpu.", "roles/tpu.admin"),
)
"""Permissions that Google's errors name; roles: https://cloud.google.com/iam/docs/roles-permissions."""
LOGIN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."
OF_THE_ZONE = {"scope": "zone"}
"""A refusal that another zone may not repeat; without it, one for good is the project's."""
NO_WORDS = "the service gives no reason"


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
    """One answer of a service."""

    name: str
    codes: tuple[int, ...]
    answer: str
    """What the service says, for docs/errors.md."""
    error: type[TpuctlError]
    message: str
    """What the user reads; fields: those of `_fields`, and named groups of `text`.

    The service's words are put behind it where it has no `{words}` and they are not `stock`.
    """
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
    stock: str = ""
    """Regular expression of sentences that say no more than the message does."""
    derive: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
    """Returns more fields, from the others."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Of the error's JSON form."""

    @property
    def is_general(self) -> bool:
        """Whether it fits by the code alone."""
        return not (self.reason or self.detail or self.text)

    def fits(self, failure: Failure) -> bool:
        """Whether a failure is this answer: by code and reason or detail, else by code and text."""
        if failure.code not in self.codes or not re.search(self.text_too, failure.message):
            return False
        return (
            self.is_general
            or bool(self.reason and failure.reason == self.reason)
            or bool(self.detail and failure.has_detail(self.detail))
            or bool(self.text and re.search(self.text, failure.message))
        )

    def explain(self, failure: Failure) -> TpuctlError:
        """Return tpuctl's error for a failure that fits."""
        named = re.search(self.text, failure.message) if self.text else None
        fields = _fields(failure) | (named.groupdict(default="") if named else {})
        fields |= self.derive(fields)
        message = self.message.format_map(fields)
        if failure.message and "{words}" not in self.message and not self._is_stock(failure.message):
            message = f"{message.removesuffix('.')}: {failure.message}"
        facts = dict(self.facts) | ({"reason": failure.reason} if failure.reason else {})
        facts |= {"words": failure.message} if failure.message else {}
        return self.error(message, hint=self.hint.format_map(fields), **facts)

    def _is_stock(self, words: str) -> bool:
        return bool(self.stock and re.search(self.stock, words))


def explain(failure: Failure) -> TpuctlError:
    """Return tpuctl's error for a failure."""
    return deciding_row(failure).explain(failure)


def deciding_row(failure: Failure) -> Row:
    """Return the row that decides: the service's own before that of every service, by code alone last."""
    rows = sorted((*failure.service.rows, *EVERY_SERVICE), key=lambda row: row.is_general)
    return first_row(rows, failure) or OWN_FAILURE


def first_row(rows: Iterable[Row], failure: Failure) -> Row | None:
    """Return the first row that fits a failure, None without one."""
    return next((row for row in rows if row.fits(failure)), None)


def _fields(failure: Failure) -> dict[str, str]:
    name = NAME.search(failure.subject)
    return {
        "subject": failure.subject,
        "words": failure.message or NO_WORDS,
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
    api = PAGE_OF_API.search(failure.message)
    command = f"gcloud services enable {api[1] if api else failure.service.api}"
    if project and not (project[1] or project[2]).isdigit():
        command += f" --project {project[1] or project[2]}"
    return f"{command}, or at {page[0]}" if page else command


POLICY_OPTIONS = {
    # constraint of an organization policy -> the option that heeds it
    "compute.vmExternalIpAccess": "Give the hosts no external addresses: --internal-ips.",
    "compute.requireShieldedVm": "Boot signed software only: --secure-boot.",
}


def _policy_option(fields: Mapping[str, str]) -> dict[str, str]:
    ask = "Ask its administrator for an exception."
    return {"heed": " ".join(filter(None, (POLICY_OPTIONS.get(fields["constraint"], ""), ask)))}


EVERY_SERVICE = (
    Row(
        "quota-project", (7,),
        "Your application is authenticating by using local Application Default Credentials. The S API "
        "requires a quota project, which is not set by default.",
        ConfigError,
        "{subject}: {words}",
        "Set the project that your requests count for: gcloud auth application-default set-quota-project "
        "PROJECT",
        text=r"requires a quota project|using end user credentials from the Google Cloud SDK|"
        r"not been used in project (764086051850|32555940559)\b",
    ),
    Row(
        "api-off", (7,),
        "the API is not enabled in the project",
        ConfigError,
        "An API that {subject} needs is not enabled in the project.",
        "Enable it: {enable}",
        reason="SERVICE_DISABLED", text="has not been used in project", stock="has not been used in project",
    ),
    Row(
        "billing-off", (7,),
        "the project has no billing account",
        ConfigError,
        "{subject}: {words}",
        "Link a billing account: gcloud billing projects link PROJECT --billing-account ACCOUNT",
        reason="BILLING_DISABLED",
        text="requires billing to be enabled|billing account for the owning project|absent billing account",
    ),
    Row(
        "no-project", (7,),
        "Permission denied on resource project P.",
        ConfigError,
        "{subject}: {words}",
        "There is no such project, or it is not yours. See yours: gcloud projects list. Name one with "
        "--project, or as 'project' in tpuctl.toml.",
        reason="CONSUMER_INVALID", text="^Permission denied on resource project ",
    ),
    Row(
        "perimeter", (7,),
        "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: ID",
        ConfigError,
        "{subject}: {words}",
        "A perimeter of VPC Service Controls refuses it, which no role changes: run tpuctl inside of it, or "
        "give its administrator the identifier.",
        reason="SECURITY_POLICY_VIOLATED", text="vpcServiceControlsUniqueIdentifier",
    ),
    Row(
        "scopes", (7,),
        "Request had insufficient authentication scopes.",
        ConfigError,
        "{subject}: {words}",
        "The access token lacks the scope cloud-platform, which no role changes: log in again with 'gcloud "
        "auth application-default login', or give it to the VM on which tpuctl runs.",
        reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", text="insufficient authentication scopes",
    ),
    Row(
        "location-policy", (3, 7, 9, 10),
        "R violates constraint constraints/gcp.resourceLocations on the resource projects/P",
        ConfigError,
        "{subject}: {words}",
        "An organization policy allows other locations only: choose another zone, or a bucket in another "
        "region. See which: gcloud org-policies describe gcp.resourceLocations --effective --project PROJECT",
        text=r"constraints/gcp\.resourceLocations", facts=OF_THE_ZONE,
    ),
    Row(
        "policy", (3, 7, 9, 10),
        "Constraint constraints/compute.vmExternalIpAccess violated for project P.",
        ConfigError,
        "{subject}: {words}",
        "An organization policy forbids it. {heed}",
        text=r"[Cc]onstraint '?constraints/(?P<constraint>[\w.]+)", derive=_policy_option,
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
        stock="authentication credential",
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
        stock="^No such object|^Not Found$|bucket does not exist|^The resource '.*' was not found",
    ),
    Row(
        "exists", (6,),
        "the resource exists",
        ConflictError,
        "{subject} exists already.",
        "Choose another name with --name.",
        stock="^Resource '.*' already exists",
    ),
    Row(
        "changed", (10,),
        "another client changes the resource at the same time",
        ConflictError,
        "{subject} was changed by another client.",
        "Run the same command again.",
        stock="being updated by another operation|pre-conditions you specified did not hold",
    ),
    Row(
        "no-answer", (4,),
        "no answer in time",
        DeadlineError,
        "No answer about {subject} in time.",
        "Run the same command again in a minute.",
        stock="(?i)^deadline exceeded",
    ),
    Row(
        "unreachable", (14,),
        "the service, or the zone, cannot be reached",
        DeadlineError,
        "The service that knows about {subject} cannot be reached.",
        "Check the network, then run the same command again.",
        stock=r"^The service is currently unavailable\.$|^The location could not be reached\.$",
    ),
)  # fmt: skip
"""Answers of every service."""
OWN_FAILURE = Row(
    "own-failure",
    (),
    "a failure of the service's own (INTERNAL and every other code)",
    ServiceError,
    "{subject}: {words}",
    "This is the service's own failure: run the same command again.",
)
"""What no other row fits."""


GOOGLE_CLOUD = Service(
    "tpu.googleapis.com storage.googleapis.com",
    "roles/tpu.admin and, for a bucket, roles/storage.objectUser",
)
CREDENTIALS = Service("iamcredentials.googleapis.com", "roles/iam.serviceAccountTokenCreator")
NO_ANSWER, UNREACHABLE, DENIED = 4, 14, 7
"""gRPC's codes: the first two for what happens before a service answers."""


@contextmanager
def translated(subject: str, service: Service = GOOGLE_CLOUD) -> Iterator[None]:
    """Turn errors of Google's clients inside the block into tpuctl's; `subject` names the resource.

    That of a service which cannot be reached names the host, too, and why.
    """
    with naming_host(), _translated(subject, service):
        yield


@contextmanager
def _translated(subject: str, service: Service) -> Iterator[None]:
    try:
        yield
    except google.GoogleAPICallError as error:
        raise explain(_failure(service, subject, error)) from cause(error)
    except google.RetryError as error:
        raise explain(Failure(service, subject, NO_ANSWER, "")) from cause(error)
    except auth.DefaultCredentialsError as error:
        raise ConfigError(_no_credentials(), hint=LOGIN, words=str(error)) from cause(error)
    except auth.RefreshError as error:
        raise _refused_credentials(subject, error) from cause(error)
    except (auth.TransportError, requests.exceptions.RequestException) as error:
        raise explain(Failure(service, subject, UNREACHABLE, "")) from cause(error)


def _refused_credentials(subject: str, error: auth.RefreshError) -> TpuctlError:
    """Return the error of credentials that give no token, in the words of the service that was asked.

    The client's error has its own sentence and, behind it, what the service answered: JSON or its record.
    """
    sentence, *answers = [*error.args, ""]
    for answer in answers:
        try:
            refusal = (json.loads(answer) if isinstance(answer, str) else answer)["error"]
            code, words = int(refusal["code"]), str(refusal["message"]).strip()
        except (KeyError, TypeError, ValueError):
            continue
        if HTTP_CODES.get(code) == DENIED:
            return explain(Failure(CREDENTIALS, subject, DENIED, words))
        sentence = words
    message = f"The Google Cloud credentials were refused: {sentence}".removesuffix(".")
    return ConfigError(f"{message}.", hint=LOGIN, words=str(sentence))


def _no_credentials() -> str:
    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        return f"GOOGLE_APPLICATION_CREDENTIALS names {file}, which holds no credentials."
    return "There are no Google Cloud credentials on this machine."


HTTP_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 412: 10, 503: 14, 504: 4}
"""HTTP status -> gRPC code, for Cloud Storage. Its 429 is rate limiting and no stockout: not here."""


def _failure(service: Service, subject: str, error: google.GoogleAPICallError) -> Failure:
    details = tuple(error.details or ())
    return Failure(service, subject, _code(error), _words(error), str(error.reason or ""), details)


def _words(error: google.GoogleAPICallError) -> str:
    """Return the service's own words: around them are method and URL, and of media all of the answer."""
    text = str(getattr(error.response, "text", "")).strip()  # gRPC has none
    try:
        return str(json.loads(text)["error"]["message"]).strip()
    except (KeyError, TypeError, ValueError):
        is_page = text.startswith("<")  # of a proxy
    return text if text and not is_page else str(error.message).rsplit("prettyPrint=false: ", 1)[-1].strip()


def _code(error: google.GoogleAPICallError) -> int:
    grpc_code = error.grpc_status_code
    if grpc_code is not None:
        return int(grpc_code.value[0])
    return HTTP_CODES.get(int(error.code or 500), 13)

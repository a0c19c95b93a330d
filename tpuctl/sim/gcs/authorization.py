"""Refuses operations that the caller's roles do not allow, in the words of Cloud Storage.

Which permission a method needs: https://cloud.google.com/storage/docs/access-control/iam-json and iam-xml.

- Returns the scheme and host that a client used, for the URLs in responses.
- Checks signed URLs: their expiry, and their signature by the key of the account that they name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from multidict import MultiMapping

from tpuctl.errors import UsageError
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.rules import parse_number
from tpuctl.sim.iam.callers import Caller, current_caller
from tpuctl.sim.iam.enforcement import Resource, binding_of
from tpuctl.sim.iam.roles import permissions_of
from tpuctl.sim.json_values import JsonObject, objects_at


def base_url_of(request: web.Request) -> str:
    """Return scheme and host as the client wrote them: behind the proxy that is https and Google's name."""
    return f"{request.scheme}://{request.host}"


V4 = "GOOG4-RSA-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
READS = {"HEAD": "GET"}
"""A URL that is signed for GET serves HEAD, too."""
UNSIGNED_V2 = {
    "GoogleAccessId", "Expires", "Signature", "generation", "userProject", "response-content-type",
    "response-content-disposition",
}  # fmt: skip
"""Parameters that V2 does not sign."""
KEYS_OF_CALLER = ("x-goog-encryption-key", "x-goog-encryption-key-sha256")
LONGEST = 7 * 86400
"""Seconds that a V4 signature can be valid."""

REQUIRED_V4 = (
    "X-Goog-Algorithm",
    "X-Goog-Credential",
    "X-Goog-Date",
    "X-Goog-Expires",
    "X-Goog-SignedHeaders",
)
"""Parameters that `X-Goog-Signature` requires."""


MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your Google secret "
    "key and signing method."
)

KeyOf = Callable[[str], RSAPublicKey | None]
"""Returns the public key of a service account; None for an account that has none here."""


def check_signed_url(request: web.Request, key_of: KeyOf | None) -> None:
    """Raise 400 when a signature, V2 or V4, has expired or lacks a parameter, 403 when it is wrong.

    Without `key_of` only the expiry counts. The URI of an upload that has begun carries no signature.
    """
    query, now = request.query, datetime.now(UTC)
    if "X-Goog-Signature" in query:
        _check_v4(query, now)
    elif {"GoogleAccessId", "Signature"} <= set(query):
        _check_v2(query, now)
    else:
        return
    if key_of and "upload_id" not in query:
        _check_signature(
            SignedRequest(request.method, request.rel_url.raw_path, query, request.headers), key_of
        )


def _check_signature(signed: SignedRequest, key_of: KeyOf) -> None:
    key = key_of(signed.signer)
    if key is None:
        message = (
            f"The simulator does not know the key of {signed.signer}: sign with the key file that "
            "GOOGLE_APPLICATION_CREDENTIALS names after `tpuctl sim env`."
        )
        raise GcsError(403, message, xml_code="InvalidAccessKeyId")
    if not signed.is_signed_with(key):
        raise GcsError(403, MISMATCH, xml_code="SignatureDoesNotMatch")


def _check_v2(query: Mapping[str, str], now: datetime) -> None:
    if now.timestamp() > parse_number("Expires", query.get("Expires", "")):
        raise _expired()


def _check_v4(query: Mapping[str, str], now: datetime) -> None:
    missing = [name for name in REQUIRED_V4 if not query.get(name)]
    if missing:
        raise GcsError(400, f"Missing query parameter {missing[0]}", xml_code="AuthenticationRequired")
    seconds = parse_number("X-Goog-Expires", query["X-Goog-Expires"])
    try:
        signed = datetime.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise GcsError(400, "Invalid argument: X-Goog-Date", xml_code="InvalidArgument") from error
    if seconds > LONGEST:
        raise GcsError(400, "X-Goog-Expires is longer than seven days.", xml_code="InvalidArgument")
    if now > signed + timedelta(seconds=seconds):
        raise _expired()


def _expired() -> GcsError:
    return GcsError(400, "Invalid argument: the signed URL has expired.", xml_code="ExpiredToken")


# Computes what the signature of a signed URL was made of, for V4 and V2, and verifies it.
#
# https://cloud.google.com/storage/docs/authentication/canonical-requests and
# https://cloud.google.com/storage/docs/access-control/signed-urls-v2


@dataclass(frozen=True)
class SignedRequest:
    """A request with a signature in its query; `path` is percent-encoded."""

    method: str
    path: str
    query: MultiMapping[str]
    headers: MultiMapping[str]

    @property
    def signer(self) -> str:
        """The service account that the URL names."""
        if "X-Goog-Credential" in self.query:
            return self.query["X-Goog-Credential"].partition("/")[0]
        return self.query["GoogleAccessId"]

    def is_signed_with(self, key: RSAPublicKey) -> bool:
        """Return whether the signature is that of this request, as it is or, for HEAD, as a GET."""
        methods = {self.method, READS.get(self.method, self.method)}
        return any(self._verifies(key, method) for method in methods)

    def _verifies(self, key: RSAPublicKey, method: str) -> bool:
        try:
            if "X-Goog-Signature" in self.query:
                signature, text = bytes.fromhex(self.query["X-Goog-Signature"]), self._text_v4(method)
            else:
                signature, text = base64.b64decode(self.query["Signature"]), self._text_v2(method)
            key.verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True

    def _text_v4(self, method: str) -> str:
        scope = self.query["X-Goog-Credential"].partition("/")[2]
        digest = hashlib.sha256(self._canonical_v4(method).encode()).hexdigest()
        return "\n".join((V4, self.query["X-Goog-Date"], scope, digest))

    def _canonical_v4(self, method: str) -> str:
        signed = self.query["X-Goog-SignedHeaders"]
        headers = [f"{name}:{self._header(name)}\n" for name in signed.split(";")]
        query = _encoded(self.query, {"X-Goog-Signature"})
        payload = self.headers.get("x-goog-content-sha256", UNSIGNED)
        return "\n".join((method, self.path, query, "".join(headers), signed, payload))

    def _text_v2(self, method: str) -> str:
        names = sorted({name.lower() for name in self.headers} - {*KEYS_OF_CALLER})
        extension = [f"{name}:{self._header(name)}\n" for name in names if name.startswith("x-goog-")]
        query = _encoded(self.query, UNSIGNED_V2)
        resource = f"{self.path}?{query}" if query else self.path
        fields = (method, self._header("content-md5"), self._header("content-type"), self.query["Expires"])
        return "\n".join((*fields, "".join(extension) + resource))

    def _header(self, name: str) -> str:
        return ",".join(" ".join(value.split()) for value in self.headers.getall(name, ()))


def _encoded(query: MultiMapping[str], without: set[str]) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in set(query) - without
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


PERMISSIONS: dict[str, tuple[str, ...]] = {
    # method of the audit log: the permissions that it needs, where they are not just its own name
    "storage.getIamPermissions": ("storage.buckets.getIamPolicy",),
    "storage.setIamPermissions": ("storage.buckets.setIamPolicy",),
    "storage.buckets.testIamPermissions": (),
    "storage.buckets.create": (),
    "storage.buckets.list": (),
    "storage.buckets.getStorageLayout": ("storage.objects.list",),
    "storage.objects.restore": ("storage.objects.restore", "storage.objects.create"),
    "storage.multipartUploads.create": ("storage.multipartUploads.create", "storage.objects.create"),
}
OF_PROJECTS = ("storage.buckets.create", "storage.buckets.list")
"""Methods whose permission is one of the project: `authorize_in_project`."""
ASSIGN_BILLING = "resourcemanager.projects.createBillingAssignment"
"""Who has it in the project of a bucket with requester pays need not name a project that pays:
https://cloud.google.com/storage/docs/requester-pays#requirements."""
NO_PAYER = "Bucket is a requester pays bucket but no user project provided."

UnpaidProject = Callable[[str], str]
_unpaid_project: ContextVar[UnpaidProject | None] = ContextVar("unpaid_project", default=None)


def set_unpaid_project(find: UnpaidProject | None) -> None:
    """Set what finds the project that would pay for the current request instead of the caller.

    It is given a bucket, and returns an empty text for one whose requesters do not pay. None for a request
    that names a project that pays.
    """
    _unpaid_project.set(find)


def authorize(method: str, bucket: str, name: str) -> None:
    """Raise 403 unless the caller may call a method on a bucket, or on an object of it.

    Raises 400 where requesters pay, and the caller is one who names no project.
    """
    if method not in OF_PROJECTS:
        _require_payer(bucket)
    caller = current_caller()
    if caller is None:
        return
    for permission in PERMISSIONS.get(method, (method,)):
        require(permission, bucket, name)


def require(permission: str, bucket: str, name: str = "") -> None:
    """Raise 403 unless the caller has a permission on a bucket or an object; one without a bucket is 404."""
    caller = current_caller()
    if caller is None:
        return
    access = caller.access
    of_bucket = ".buckets." in permission or not name
    resource = access.bucket(bucket) if of_bucket else access.object(bucket, name)
    if resource is not None:
        _require(caller, permission, resource, "bucket" if of_bucket else "object")


def authorize_in_project(permission: str, project: str) -> None:
    """Raise 403 unless the caller has a permission in a project, such as to create buckets."""
    caller = current_caller()
    if caller is not None:
        _require(caller, permission, Resource(project, f"projects/{project}"), "project")


def granted(permissions: list[str], bucket: str) -> list[str]:
    """Return which of these permissions the caller has on a bucket."""
    caller = current_caller()
    resource = caller.access.bucket(bucket) if caller else None
    if caller is None or resource is None:
        return permissions
    return [permission for permission in permissions if caller.may(permission, resource)]


def check_bindings(policy: JsonObject) -> None:
    """Raise 400 for a policy that could not be enforced: an unknown role, a condition of an unknown form."""
    caller = current_caller()
    if caller is None:
        return
    try:
        for document in objects_at(policy, "bindings"):
            binding = binding_of(document)
            if binding.role not in caller.access.policies.roles:
                permissions_of(binding.role)
    except UsageError as error:
        raise invalid(f"{error.message} {error.hint}") from error


def _require_payer(bucket: str) -> None:
    find, caller = _unpaid_project.get(), current_caller()
    project = find(bucket) if find else ""
    if project and not (caller and caller.may(ASSIGN_BILLING, Resource(project, f"projects/{project}"))):
        raise GcsError(400, NO_PAYER, reason="required", xml_code="UserProjectMissing")


def _require(caller: Caller, permission: str, resource: Resource, kind: str) -> None:
    if caller.may(permission, resource):
        return
    message = (
        f"{caller.label} does not have {permission} access to the Google Cloud {_noun(kind)}. "
        f"Permission '{permission}' denied on resource (or it may not exist)."
    )
    raise GcsError(403 if caller.member else 401, message)


def _noun(kind: str) -> str:
    return "project" if kind == "project" else f"Storage {kind}"

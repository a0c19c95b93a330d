"""The rules for requests: names, fields, patterns and preconditions. No state, no HTTP.

- Parses numbers and flags in query parameters and headers.
- Checks names of buckets and objects, https://cloud.google.com/storage/docs/buckets#naming.
- Checks the fields of an object that callers may set.
- JSON merge patch, RFC 7396, over the fields that a caller may set.
- Checks changes of ACLs and policies against a bucket's uniform access and public access prevention.
- Checks the entries of access control lists that callers send.
- Refuses encryption keys of callers: an object that ignored its key would be readable without it.
- Defines the filters of a listing of objects, and the page token of its next page.
- Checks preconditions of requests: ifGeneration*, ifMetageneration*, If-Match and If-None-Match.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from urllib.parse import unquote

from tpuctl.sim.gcs.errors import (
    GcsError,
    condition_not_met,
    invalid,
    invalid_field,
    not_modified,
    parse_timestamp,
    required,
)
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, objects_at


def parse_number(name: str, text: object) -> int:
    """Return the number that a parameter holds, 0 to 2**63 - 1; raises 400."""
    try:
        number = int(str(text))
    except ValueError as error:
        raise invalid(f"Invalid value for parameter {name}: {text}") from error
    if not 0 <= number < 1 << 63:
        raise invalid(f"Invalid value for parameter {name}: {text}")
    return number


def is_true(text: str | None) -> bool:
    """Return whether a parameter is `true`, in any case of letters."""
    return (text or "").lower() == "true"


LONGEST_OBJECT_NAME = 1024
"""Bytes of UTF-8."""

LONGEST_BUCKET_NAME = 222
"""Characters of a name with dots; each part between dots has at most `LONGEST_BUCKET_PART`."""

LONGEST_BUCKET_PART = 63

RESERVED_OBJECT_PREFIX = ".well-known/acme-challenge/"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]+[a-z0-9]")
_IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def check_bucket_name(name: object) -> str:
    """Return a valid name of a bucket; raises 400 for another."""
    if not isinstance(name, str) or not _is_bucket_name(name):
        raise GcsError(400, f"Invalid bucket name: '{name}'", xml_code="InvalidBucketName")
    return name


def check_object_name(name: object) -> str:
    """Return a valid name of an object; raises 400 for another."""
    if not isinstance(name, str) or not name:
        raise required("name")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise invalid("Object names must be valid UTF-8.") from error
    if size > LONGEST_OBJECT_NAME:
        raise invalid(
            f"The maximum object length is {LONGEST_OBJECT_NAME} characters, but got a name with {size}."
        )
    if name in (".", "..") or "\r" in name or "\n" in name or name.startswith(RESERVED_OBJECT_PREFIX):
        raise invalid(f"Disallowed object name: {name!r}")
    return name


def decode_segment(segment: str) -> str:
    """Return one percent-encoded segment of a path as text; raises 400 if it is not UTF-8."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise invalid("The path is not valid UTF-8.") from error


def _is_bucket_name(name: str) -> bool:
    parts = name.split(".")
    return (
        _BUCKET.fullmatch(name) is not None
        and len(name) <= LONGEST_BUCKET_NAME
        and all(1 <= len(part) <= LONGEST_BUCKET_PART for part in parts)
        and _IP_ADDRESS.fullmatch(name) is None
        and not name.startswith("goog")
        and "google" not in name
    )


SETTABLE_ONCE = frozenset({"storageClass"})
"""Fields that only the write of the object's bytes may set."""

TEXTS = SETTABLE_ONCE | {
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
}

SETTABLE = (TEXTS | {"acl", "eventBasedHold", "metadata", "retention", "temporaryHold"}) - SETTABLE_ONCE
"""Fields that callers may set at any time."""

HOLDS = {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}
"""Field of an object -> the name of the hold in errors."""

RETENTION_MODES = ("Unlocked", "Locked")


def checked_object_fields(fields: JsonObject) -> JsonObject:
    """Return the fields with their ACL in its stored form; raises 400 for an invalid value."""
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise invalid_field("metadata")
    for name in TEXTS:
        text = fields.get(name, "")
        if not isinstance(text, str) or "\n" in text or "\r" in text:
            raise invalid_field(name)
    for name in HOLDS:
        if not isinstance(fields.get(name, False), bool):
            raise invalid_field(name)
    if "acl" in fields:
        fields["acl"] = checked_acl(fields["acl"])
    if fields.get("retention"):
        _check_retention(fields["retention"])
    return fields


def _check_retention(retention: JsonValue) -> None:
    if not isinstance(retention, dict) or retention.get("mode") not in RETENTION_MODES:
        raise invalid_field("retention.mode")
    until = retention.get("retainUntilTime")
    try:
        parse_timestamp(until if isinstance(until, str) else "")
    except ValueError as error:
        raise invalid_field("retention.retainUntilTime") from error


def merge_patch(
    old: Mapping[str, JsonValue], patch: Mapping[str, JsonValue], settable: Collection[str]
) -> JsonObject:
    """Return `old` with the settable fields of `patch` merged into it; null removes a field."""
    return _merge(old, {name: value for name, value in patch.items() if name in settable})


def _merge(old: Mapping[str, JsonValue], patch: Mapping[str, JsonValue]) -> JsonObject:
    merged = dict(old)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = _merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


PUBLIC = frozenset({"allUsers", "allAuthenticatedUsers"})
PREVENTION = ("enforced", "inherited", "unspecified")
"""Values of `publicAccessPrevention`."""
ACLS = ("acl", "defaultObjectAcl")
READ_MORE = "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access"
CONDITIONS_VERSION = 3


def has_uniform_access(fields: Mapping[str, JsonValue]) -> bool:
    """Return whether uniform bucket-level access has switched the ACLs of a bucket off."""
    configuration = object_at(fields, "iamConfiguration")
    return bool(object_at(configuration, "uniformBucketLevelAccess").get("enabled"))


def check_acl_change(bucket: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> None:
    """Raise 400 for a new ACL where ACLs are off, 412 for a public one where that is prevented.

    `bucket` are the fields of the bucket after the change.
    """
    for name in ACLS:
        entries = objects_at(changes, name)
        if entries and has_uniform_access(bucket):
            raise GcsError(
                400,
                "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
                + READ_MORE,
            )
        check_not_public(bucket, [str(entry.get("entity")) for entry in entries])


def check_policy(bucket: Mapping[str, JsonValue], policy: Mapping[str, JsonValue]) -> None:
    """Raise 412 or 400 for bindings that the bucket or the policy's version does not allow.

    That 412 asks for uniform access and 400 for version 3 is certain, the rest of the texts is made up.
    """
    bindings = objects_at(policy, "bindings")
    members = [member for binding in bindings for member in _texts(binding.get("members"))]
    check_not_public(bucket, members)
    if not any(binding.get("condition") for binding in bindings):
        return
    if not has_uniform_access(bucket):
        raise GcsError(
            412, "To set conditions in IAM policies, enable uniform bucket-level access on the bucket."
        )
    version = policy.get("version")
    if not isinstance(version, int) or version < CONDITIONS_VERSION:
        raise GcsError(400, "The version of a policy with conditions must be at least 3.")


def check_not_public(bucket: Mapping[str, JsonValue], members: list[str]) -> None:
    """Raise 412 for a public member where public access prevention is enforced."""
    prevention = object_at(bucket, "iamConfiguration").get("publicAccessPrevention")
    if prevention == "enforced" and PUBLIC & set(members):
        raise GcsError(
            412,
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access "
            "prevention is enforced.",
        )


def _texts(value: JsonValue) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


AclEntry = dict[str, str]
"""`entity` and `role`."""

ROLES = {"acl": ("OWNER", "WRITER", "READER"), "defaultObjectAcl": ("OWNER", "READER")}
"""Field of a bucket -> the roles of its entries; the lists of objects have those of `defaultObjectAcl`."""


def checked_acl(entries: JsonValue) -> list[AclEntry]:
    """Return a list with entity and role of each entry; raises 400 for an invalid one."""
    if not isinstance(entries, list):
        raise invalid_field("acl")
    return [_entity_and_role(entry) for entry in entries]


def checked_entry(body: Mapping[str, JsonValue], field: str) -> AclEntry:
    """Return the entry in the body of an ACL call; raises 400 for an invalid one."""
    entity, role = body.get("entity"), body.get("role")
    if not isinstance(entity, str) or not entity:
        raise required("entity")
    if role not in ROLES[field]:
        raise invalid(f"Invalid value for field: role: {role}")
    return {"entity": entity, "role": str(role)}


def _entity_and_role(entry: JsonValue) -> AclEntry:
    if isinstance(entry, dict):
        entity, role = entry.get("entity"), entry.get("role")
        if isinstance(entity, str) and entity and isinstance(role, str) and role:
            return {"entity": entity, "role": role}
    raise invalid_field("acl")


HEADERS = ("x-goog-encryption-", "x-goog-copy-source-encryption-")
"""How the headers begin that name a key: of the caller, or one of Cloud KMS (XML API)."""
PARAMETERS = frozenset({"kmsKeyName", "destinationKmsKeyName"})
FIELDS = ("kmsKeyName", "customerEncryption")


def refuse_keys(headers: Iterable[str], query: Iterable[str]) -> None:
    """Raise 501 for a request whose headers or parameters name an encryption key."""
    named = [name for name in headers if name.lower().startswith(HEADERS)]
    named += [name for name in query if name in PARAMETERS]
    if named:
        raise _no_keys(named[0])


def refuse_key_of_object(fields: Mapping[str, JsonValue]) -> None:
    """Raise 501 for the resource of a new object that names an encryption key."""
    for name in FIELDS:
        if fields.get(name):
            raise _no_keys(name)


def refuse_default_key(encryption: Mapping[str, JsonValue]) -> None:
    """Raise 501 for a bucket whose objects are to be encrypted with a key of Cloud KMS."""
    for name, value in encryption.items():
        if value and (name == "defaultKmsKeyName" or name.endswith("EnforcementConfig")):
            raise _no_keys(f"encryption.{name}")


def _no_keys(name: str) -> GcsError:
    return GcsError(501, f"The simulator keeps no encryption keys ({name}); see docs/simulator.md.")


TOKENS = (
    (re.compile(r"\*\*/"), "(?:.*/)?"),  # also no folder at all
    (re.compile(r"\*\*"), ".*"),
    (re.compile(r"\*"), "[^/]*"),
    (re.compile(r"\?"), "[^/]"),
)
"""Wildcard -> its regular expression; the first that matches counts."""
_CLASS = re.compile(r"\[([!^]?)([^\]]+)\]")
_CHOICE = re.compile(r"\{([^{}]*)\}")
LARGEST_PAGE = 1000
"""Objects and prefixes together on one page, at most and by default."""


@dataclass(frozen=True)
class Position:
    """Where a page begins: the first key to read, and the last common prefix that was listed."""

    name: str = ""
    generation: int = 0
    prefix: str = ""

    @classmethod
    def of_token(cls, token: str) -> Position:
        """Parse a page token; raises 400."""
        try:
            name, generation, prefix = json.loads(base64.urlsafe_b64decode(token))
            return cls(str(name), int(generation), str(prefix))
        except (ValueError, TypeError, binascii.Error) as error:
            raise invalid("Invalid value for parameter pageToken.") from error

    def to_token(self) -> str:
        """Return the page token."""
        return base64.urlsafe_b64encode(
            json.dumps([self.name, self.generation, self.prefix]).encode()
        ).decode()


@dataclass(frozen=True)
class ListQuery:
    """The filters, the size and the start of one page of a listing."""

    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    glob: re.Pattern[str] | None = None
    versions: bool = False
    soft_deleted: bool = False
    trailing_delimiter: bool = False
    limit: int = LARGEST_PAGE
    position: Position = Position()

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        """Parse the query parameters of the JSON API's objects.list; raises 400."""
        if is_true(query.get("softDeleted")) and is_true(query.get("versions")):
            raise invalid("softDeleted and versions cannot both be true.")
        limit = parse_number("maxResults", query.get("maxResults") or LARGEST_PAGE)
        token = query.get("pageToken")
        return cls(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start_offset=query.get("startOffset", ""),
            end_offset=query.get("endOffset", ""),
            glob=compile_glob(query["matchGlob"]) if query.get("matchGlob") else None,
            versions=is_true(query.get("versions")),
            soft_deleted=is_true(query.get("softDeleted")),
            trailing_delimiter=is_true(query.get("includeTrailingDelimiter")),
            limit=min(limit, LARGEST_PAGE) or LARGEST_PAGE,
            position=Position.of_token(token) if token else Position(),
        )

    def common_prefix(self, name: str) -> str:
        """Return the common prefix that stands for a name in the listing, or nothing."""
        if not self.delimiter:
            return ""
        at = name.find(self.delimiter, len(self.prefix))
        return name[: at + len(self.delimiter)] if at >= 0 else ""


# matchGlob patterns, https://cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob.


def compile_glob(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; raises 400 for an invalid glob."""
    try:
        return re.compile(_translate(glob), re.DOTALL)
    except re.error as error:
        raise invalid(f"Invalid value for parameter matchGlob: {glob}") from error


def _translate(glob: str) -> str:
    out, at = "", 0
    while at < len(glob):
        piece, at = _next(glob, at)
        out += piece
    return out


def _next(glob: str, at: int) -> tuple[str, int]:
    for token, expression in TOKENS:
        if wildcard := token.match(glob, at):
            return expression, wildcard.end()
    if characters := _CLASS.match(glob, at):
        negated = "^" if characters[1] else ""
        return f"[{negated}{characters[2]}]".replace("\\", "\\\\"), characters.end()
    if choices := _CHOICE.match(glob, at):
        return "(?:" + "|".join(map(_translate, choices[1].split(","))) + ")", choices.end()
    return re.escape(glob[at]), at + 1


QUERY_NAMES = {
    "generation_match": "GenerationMatch",
    "generation_not_match": "GenerationNotMatch",
    "metageneration_match": "MetagenerationMatch",
    "metageneration_not_match": "MetagenerationNotMatch",
}
"""Field -> its name in the JSON API after `if` or `ifSource`."""

HEADER_NAMES = {
    "generation_match": "generation-match",
    "generation_not_match": "generation-not-match",
    "metageneration_match": "metageneration-match",
    "metageneration_not_match": "metageneration-not-match",
}
"""Field -> its header in the XML API after `x-goog-if-` or `x-goog-copy-source-if-`."""


@dataclass(frozen=True)
class Preconditions:
    """Conditions on the generations of the live object; an absent object has generation 0."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    @classmethod
    def of_query(cls, query: Mapping[str, object], prefix: str = "if") -> Preconditions:
        """Read the conditions of a JSON API call; `prefix` is `ifSource` for those on a copy's source."""
        return cls(**{field: _number(query, prefix + name) for field, name in QUERY_NAMES.items()})

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], prefix: str = "x-goog-if-") -> Preconditions:
        """Read the conditions of an XML API call."""
        return cls(**{field: _number(headers, prefix + name) for field, name in HEADER_NAMES.items()})

    def to_json(self) -> dict[str, int]:
        """Return the conditions that are set, for `Preconditions(**...)`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, generation: int, metageneration: int, *, reading: bool = False) -> None:
        """Raise 412 unless every condition holds; a reader whose "not match" fails gets 304."""
        if self.generation_match not in (None, generation):
            raise condition_not_met()
        if self.metageneration_match not in (None, metageneration):
            raise condition_not_met()
        if self.generation_not_match == generation or self.metageneration_not_match == metageneration:
            raise not_modified() if reading else condition_not_met()


def check_etags(headers: Mapping[str, str], etag: str) -> None:
    """Raise 412 unless If-Match holds for a reader, 304 unless If-None-Match does."""
    match, none_match = _etags(headers.get("If-Match")), _etags(headers.get("If-None-Match"))
    if match and not match & {etag, "*"}:
        raise condition_not_met()
    if none_match & {etag, "*"}:
        raise not_modified()


def _number(parameters: Mapping[str, object] | Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    return None if text is None else parse_number(name, text)


def _etags(header: str | None) -> set[str]:
    return {part.strip().strip('"') for part in (header or "").split(",") if part.strip()}

"""Checks names of buckets and objects, https://cloud.google.com/storage/docs/buckets#naming."""

from __future__ import annotations

import re
from urllib.parse import unquote

from tpuctl.sim.gcs.errors import GcsError, invalid, required

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

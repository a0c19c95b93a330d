"""Computes CRC32C and MD5 while bytes are streamed, and compares them with those a client sent."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import google_crc32c

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.json_values import JsonValue, text_at


class Checksums:
    """Size, CRC32C and MD5 of the bytes so far."""

    def __init__(self) -> None:
        self.size = 0
        self._crc32c = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self.update_crc32c(data)
        self.update_md5(data)

    def update_crc32c(self, data: bytes) -> None:
        """Add the next bytes to size and CRC32C alone."""
        self.size += len(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    def update_md5(self, data: bytes) -> None:
        """Add the next bytes to the MD5 alone."""
        self._md5.update(data)

    @property
    def crc32c(self) -> str:
        """The CRC32C, big-endian, in base64, as in the API."""
        return base64.b64encode(self._crc32c.to_bytes(4, "big")).decode()

    @property
    def md5(self) -> str:
        """The MD5 in base64, as in the API."""
        return base64.b64encode(self._md5.digest()).decode()


@dataclass(frozen=True)
class ExpectedChecksums:
    """The checksums that a client expects of its data; None where the client sends none."""

    crc32c: str | None = None
    md5: str | None = None

    @classmethod
    def of(
        cls, headers: Mapping[str, str], fields: Mapping[str, JsonValue] | None = None
    ) -> ExpectedChecksums:
        """Collect the checksums of `x-goog-hash`, `Content-MD5` and an object's fields; the fields win."""
        hashes = dict(_parse_hash_header(headers.get("X-Goog-Hash", "")))
        if "Content-MD5" in headers:
            hashes["md5"] = headers["Content-MD5"]
        return cls(
            crc32c=text_at(fields or {}, "crc32c") or hashes.get("crc32c"),
            md5=text_at(fields or {}, "md5Hash") or hashes.get("md5"),
        )

    def check(self, crc32c: str, md5: str | None) -> None:
        """Raise 400 unless the checksums of the received bytes are the expected ones."""
        for label, expected, actual in (("CRC32C", self.crc32c, crc32c), ("MD5 hash", self.md5, md5)):
            if expected and actual and expected != actual:
                message = f'Provided {label} "{expected}" doesn\'t match calculated {label} "{actual}".'
                raise GcsError(400, message, xml_code="BadDigest")


def hash_header(crc32c: str, md5: str | None) -> str:
    """Return the value of `x-goog-hash`."""
    return f"crc32c={crc32c}" + (f",md5={md5}" if md5 else "")


def _parse_hash_header(value: str) -> Iterable[tuple[str, str]]:
    for part in value.split(","):
        kind, separator, digest = part.strip().partition("=")
        if separator:
            yield kind.lower(), digest

"""Encodes the token of a rewrite in several calls, with the bytes rewritten so far."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass

from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.rules.parameters import parse_number

QUANTUM = 1 << 20
"""Bytes: `maxBytesRewrittenPerCall` is a multiple of this."""


@dataclass(frozen=True)
class RewriteToken:
    """A rewrite of one generation to one destination, of which some bytes are rewritten."""

    bucket: str
    name: str
    generation: int
    to_bucket: str
    to_name: str
    bytes_rewritten: int = 0

    @classmethod
    def parse(cls, text: str) -> RewriteToken:
        """Parse a token; raises 400."""
        try:
            bucket, name, generation, to_bucket, to_name, size = json.loads(base64.urlsafe_b64decode(text))
            return cls(str(bucket), str(name), int(generation), str(to_bucket), str(to_name), int(size))
        except (ValueError, TypeError, binascii.Error) as error:
            raise invalid("Invalid rewrite token.") from error

    def to_text(self) -> str:
        """Return the token as text."""
        return base64.urlsafe_b64encode(json.dumps(astuple(self)).encode()).decode()


def bytes_per_call(query: Mapping[str, str]) -> int | None:
    """Return how many bytes one call may rewrite, None for all; raises 400."""
    text = query.get("maxBytesRewrittenPerCall")
    if text is None:
        return None
    limit = parse_number("maxBytesRewrittenPerCall", text)
    if not limit or limit % QUANTUM:
        raise invalid("maxBytesRewrittenPerCall must be an integral multiple of 1 MiB (1048576).")
    return limit

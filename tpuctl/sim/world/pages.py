"""Lists in pages: stable while things come and go, since a token is the last name seen."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from tpuctl.sim.world.api_errors import problem

MOST = 1000
"""Entries a page, unless fewer are asked for."""

Entry = TypeVar("Entry")


def page(
    entries: Iterable[Entry], name: Callable[[Entry], str], size: int, token: str
) -> tuple[list[Entry], str]:
    """Return one page of `entries` by name, and the token of the next or ''; raises INVALID_ARGUMENT."""
    if size < 0:
        raise problem("bad_page", what=f"page_size {size}")
    after = _last_seen(token)
    ordered = sorted((entry for entry in entries if name(entry) > after), key=name)
    size = min(size or MOST, MOST)
    chosen = ordered[:size]
    more = len(ordered) > size
    return chosen, base64.urlsafe_b64encode(name(chosen[-1]).encode()).decode() if more else ""


def _last_seen(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise problem("bad_page", what=f"page_token '{token}'") from None

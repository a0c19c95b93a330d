"""Pages lists by the last name shown, so that pages are stable while resources come and go."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from tpuctl.sim.world.api_errors import api_error

MAX_PAGE_SIZE = 1000
"""Also the size when a request names none."""

Resource = TypeVar("Resource")


def page(
    resources: Iterable[Resource], name: Callable[[Resource], str], size: int, token: str
) -> tuple[list[Resource], str]:
    """Return one page of `resources` by name, and the token of the next or ''; raises INVALID_ARGUMENT."""
    if size < 0:
        raise api_error("bad_page", parameter=f"page_size {size}")
    after = _last_name(token)
    ordered = sorted((resource for resource in resources if name(resource) > after), key=name)
    size = min(size or MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    chosen = ordered[:size]
    more = len(ordered) > size
    return chosen, base64.urlsafe_b64encode(name(chosen[-1]).encode()).decode() if more else ""


def _last_name(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise api_error("bad_page", parameter=f"page_token '{token}'") from None

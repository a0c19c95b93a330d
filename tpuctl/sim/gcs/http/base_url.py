"""Returns the scheme and host that a client used, for the URLs in responses."""

from __future__ import annotations

from aiohttp import web


def base_url_of(request: web.Request) -> str:
    """Return scheme and host as the client wrote them: behind the proxy that is https and Google's name."""
    return f"{request.scheme}://{request.host}"

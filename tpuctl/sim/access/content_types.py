"""Refuses bodies of the types that a web page may send anywhere without asking, where an API takes JSON.

These are the types of https://fetch.spec.whatwg.org/#cors-safelisted-request-header. Google's APIs refuse
them with these messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

MESSAGES = {
    "application/x-www-form-urlencoded": "This API does not support parsing form-encoded input.",
    "multipart/form-data": "This API does not support parsing form-encoded input.",
    "text/plain": "Unsupported content with type: text/plain",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def json_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 400 to a body of such a type, before it is read; an empty body has no type."""
    message = MESSAGES.get(request.content_type) if request.can_read_body else None
    if message is None or "Content-Type" not in request.headers:
        return await handler(request)
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return web.json_response({"error": error}, status=400)

"""Batches: many calls of the JSON API in one request, https://cloud.google.com/storage/docs/batch."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.message import Message
from http import HTTPStatus

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from tpuctl.sim.gcs.authorization import base_url_of
from tpuctl.sim.gcs.errors import invalid, method_not_allowed
from tpuctl.sim.gcs.json_api.routes import PREFIX, JsonApi
from tpuctl.sim.gcs.request_faults import as_gcs_error
from tpuctl.sim.gcs.uploads import boundary_of
from tpuctl.sim.json_values import JsonObject

MOST_CALLS = 100
MULTIPART = "multipart/mixed"
"""Another multipart type could come from a form of a web page."""

BOUNDARY = "batch_of_responses"


class Batch:
    """Handles POST /batch/storage/v1: carries out the calls in order; each has its own status."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    async def handle(self, request: web.Request) -> web.Response:
        """Handle one batch; raises GcsError when the batch itself is invalid."""
        if request.method != "POST":
            raise method_not_allowed(request.method)
        content_type = request.headers.get("Content-Type", "")
        if request.content_type != MULTIPART:
            raise invalid(
                f"Batch requests must have the content type {MULTIPART}, not {request.content_type}."
            )
        boundary_of(content_type)
        head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
        message = message_from_bytes(head + await request.read())
        parts = message.get_payload() if message.is_multipart() else []
        if not isinstance(parts, list) or not parts:
            raise invalid("Failed to parse batch request, error: 0 items.")
        if len(parts) > MOST_CALLS:
            raise invalid(f"The batch request exceeds the maximum of {MOST_CALLS} calls: {len(parts)}.")
        base_url = base_url_of(request)
        responses = [await self._respond(part, base_url) for part in parts if isinstance(part, Message)]
        body = b"".join(responses) + f"--{BOUNDARY}--\r\n".encode()
        return web.Response(body=body, headers={"Content-Type": f"multipart/mixed; boundary={BOUNDARY}"})

    async def _respond(self, part: Message, base_url: str) -> bytes:
        try:
            resource = await self._call(part, base_url)
            status, body = (204, "") if resource is None else (200, json.dumps(resource))
        except Exception as exception:
            error = as_gcs_error(exception)
            status, body = error.status, "" if error.status == 304 else error.to_json()
        return _render(str(part.get("Content-ID", "")), status, body.encode())

    async def _call(self, part: Message, base_url: str) -> JsonObject | None:
        payload = part.get_payload(decode=True)
        head, _, body = (payload if isinstance(payload, bytes) else b"").partition(b"\r\n\r\n")
        if not body and b"\r\n" not in head:
            head, _, body = head.partition(b"\n\n")
        line, *rest = head.decode("latin-1").splitlines() or [""]
        words = line.split()
        if len(words) not in (2, 3):
            raise invalid("Failed to parse batch request, error: a part holds no HTTP request.")
        url = _url(words[1])
        if not url.raw_path.startswith(PREFIX) or url.query.get("alt") == "media":
            raise invalid("Batches carry calls of the JSON API without media.")
        pairs = (field.partition(":")[::2] for field in rest)
        headers = CIMultiDict((name.strip(), value.strip()) for name, value in pairs)
        return await self._api.call(words[0].upper(), url.raw_path, url.query, headers, body, base_url)


def _url(target: str) -> URL:
    try:
        return URL(target, encoded=True)
    except ValueError as error:
        raise invalid("Failed to parse batch request, error: a part has no valid URL.") from error


def _render(content_id: str, status: int, body: bytes) -> bytes:
    identity = content_id.strip().removeprefix("<").removesuffix(">")
    lines = [
        f"--{BOUNDARY}",
        "Content-Type: application/http",
        *([f"Content-ID: <response-{identity}>"] if identity.isprintable() and identity else []),
        "",
        f"HTTP/1.1 {status} {_phrase(status)}",
        *(["Content-Type: application/json; charset=UTF-8"] if body else []),
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1", "replace") + body + b"\r\n"


def _phrase(status: int) -> str:
    return next((known.phrase for known in HTTPStatus if known == status), "Error")

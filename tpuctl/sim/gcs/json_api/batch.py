"""Batches: many JSON API calls in one request, https://cloud.google.com/storage/docs/batch."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.message import Message
from http import HTTPStatus
from typing import Any

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.http.internal_errors import as_gcs_error
from tpuctl.sim.gcs.http.multipart_related import boundary_of
from tpuctl.sim.gcs.json_api.routes import PREFIX, JsonApi

MOST_CALLS = 100

BOUNDARY = "batch_of_answers"


class Batch:
    """Answers POST /batch/storage/v1: the calls are carried out in order, each with its own success."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one batch; raises GcsError when the batch as a whole cannot be read."""
        if request.method != "POST":
            raise GcsError(405, f"Method {request.method} is not allowed here.")
        content_type = request.headers.get("Content-Type", "")
        boundary_of(content_type)
        head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
        message = message_from_bytes(head + await request.read())
        parts = message.get_payload() if message.is_multipart() else []
        if not isinstance(parts, list) or not parts:
            raise invalid("Failed to parse batch request, error: 0 items.")
        if len(parts) > MOST_CALLS:
            raise invalid(f"The batch request exceeds the maximum of {MOST_CALLS} calls: {len(parts)}.")
        answers = [await self._part(part, origin_of(request)) for part in parts if isinstance(part, Message)]
        body = b"".join(answers) + f"--{BOUNDARY}--\r\n".encode()
        return web.Response(body=body, headers={"Content-Type": f"multipart/mixed; boundary={BOUNDARY}"})

    async def _part(self, part: Message, origin: str) -> bytes:
        try:
            answer = await self._call(part, origin)
            status, body = (204, "") if answer is None else (200, json.dumps(answer))
        except Exception as error:
            refusal = as_gcs_error(error)
            status, body = refusal.status, "" if refusal.status == 304 else refusal.to_json()
        return _render(str(part.get("Content-ID", "")), status, body.encode())

    async def _call(self, part: Message, origin: str) -> dict[str, Any] | None:
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
        return await self._api.answer(words[0].upper(), url.raw_path, url.query, headers, body, origin)


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
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"

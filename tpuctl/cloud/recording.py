"""Records the requests of Google's clients that change something, instead of sending them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import requests
from requests.adapters import BaseAdapter

from tpuctl.nodes import HttpRequest

UNKNOWN_GENERATION = -1
"""The generation of every object that was never sent; `GENERATION` where a recorded URL has it."""
_EMPTY = {"size": "0", "crc32c": "AAAAAA==", "generation": str(UNKNOWN_GENERATION)}
"""What the service would say of an object without content."""


class Recorder(BaseAdapter):
    """Answers every request as Cloud Storage does for an empty bucket, and keeps those other than GET."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[HttpRequest] = []

    def send(  # type: ignore[override]  # the options of a real transport mean nothing here
        self, request: requests.PreparedRequest, **_options: object
    ) -> requests.Response:
        """Record a request; return an empty object, a session to upload to, or an empty list."""
        method, url = request.method or "", request.url or ""
        if method != "GET":
            recorded_url = url.replace(f"GenerationMatch={UNKNOWN_GENERATION}", "GenerationMatch=GENERATION")
            self.requests.append(HttpRequest(method, recorded_url, _body(request)))
        return _response(request, {"Location": f"{url.partition('&')[0]}&upload_id=UPLOAD_ID"})

    def close(self) -> None:
        """There is no connection to close."""


def _response(request: requests.PreparedRequest, headers: Mapping[str, str]) -> requests.Response:
    response = requests.Response()
    response.status_code = 200
    response.request, response.url = request, request.url or ""
    response.headers.update(headers)
    response.raw = io.BytesIO(json.dumps(_EMPTY).encode())
    return response


def _body(request: requests.PreparedRequest) -> dict[str, str] | None:
    """The name that the metadata of an upload gives the object; the content is not known yet."""
    if request.method != "POST" or not isinstance(request.body, bytes):
        return None
    _, brace, rest = request.body.decode(errors="replace").partition("{")
    return {"name": str(json.JSONDecoder().raw_decode(brace + rest)[0]["name"])} if brace else None

"""The HTTP server of the simulated Cloud Storage: which API a request is for, and how its errors look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.downloads.media import send
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.bandwidth import Links
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.http.fault_middleware import Exchange, exchange_of, refuse_if_asked
from tpuctl.sim.gcs.http.internal_errors import as_gcs_error
from tpuctl.sim.gcs.json_api.batch import Batch
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.json_api.routes import JsonApi, match
from tpuctl.sim.gcs.lifecycle.background_tasks import keep_tidy
from tpuctl.sim.gcs.rules.preconditions import Preconditions, check_etags, parse_number
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.uploads.resumable import ResumableUploads
from tpuctl.sim.gcs.uploads.routes import Uploads
from tpuctl.sim.gcs.xml_api.routes import XmlApi

_log = logging.getLogger("tpuctl.sim.gcs.http")
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))

RUNNER_OPTIONS: dict[str, Any] = {
    "auto_decompress": False,
    "access_log": None,
    "max_line_size": 32 << 10,
    "logger": _log,
    "read_bufsize": 1 << 20,
}
"""What `aiohttp.web.AppRunner` must be given: bodies stay as sent, long names fit, percent-encoded, what is
no HTTP gets its 400 without a traceback in the log, and a fast upload is not paused at every read."""

LARGEST_DOCUMENT = 16 << 20
"""Bytes of a JSON body; objects themselves are streamed and have no limit."""

MEDIA_PATH = "/storage/v1/b/{bucket}/o/{object}"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rendering = Callable[[GcsError], tuple[str, str]]


class GcsServer:
    """Cloud Storage in the folder `root`; run `application()` with `RUNNER_OPTIONS`, then `close()`."""

    def __init__(self, root: Path, faults: FaultRegistry) -> None:
        self.store = Store(root)
        self._faults = faults
        self._links = Links()
        self._json = JsonApi(self.store, faults)
        resumable = ResumableUploads(self.store, faults)
        uploads = Uploads(self.store, faults, resumable)
        xml = XmlApi(self.store, faults, resumable)
        self._apis: tuple[tuple[str, Handler, Rendering], ...] = (
            ("/upload/storage/v1/", uploads.handle, _as_json),
            ("/resumable/upload/storage/v1/", uploads.handle, _as_json),
            ("/download/storage/v1/", self._download, _as_text),
            ("/storage/v1/", self._call, _as_json),
            ("/batch", Batch(self._json).handle, _as_json),
            ("/", xml.handle, _as_xml),
        )

    def application(self) -> web.Application:
        """Return the application that answers every path."""
        application = web.Application(client_max_size=LARGEST_DOCUMENT)
        application.router.add_route("*", r"/{path:[\s\S]*}", self._handle)
        application.cleanup_ctx.append(self._janitor)
        return application

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    async def _janitor(self, _: web.Application) -> AsyncIterator[None]:
        janitor = asyncio.ensure_future(keep_tidy(self.store))
        yield
        janitor.cancel()
        await asyncio.gather(janitor, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        handler, rendering = next((api[1], api[2]) for api in self._apis if path.startswith(api[0]))
        with exchange_of(self._faults, self._links, request) as exchange:
            answer = await self._answer_of(request, handler, rendering)
            return await _on_its_way(exchange, answer, rendering) if exchange else answer

    async def _answer_of(
        self, request: web.Request, handler: Handler, rendering: Rendering
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except GcsError as error:
            return _answer(error, rendering)
        except (ConnectionError, aiohttp.ClientError):
            return web.Response(status=499)  # nobody is there to read it
        except web.HTTPException as error:
            return _answer(GcsError(error.status, error.reason), rendering)
        except Exception as error:
            return _answer(as_gcs_error(error), rendering)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("alt") == "media" and request.method in ("GET", "HEAD"):
            try:
                return await self._download(request)
            except GcsError as error:
                return _answer(error, _as_text)
        body = await request.read()
        answer = await self._json.answer(
            request.method,
            request.rel_url.raw_path,
            request.query,
            request.headers,
            body,
            origin_of(request),
        )
        return web.Response(status=204) if answer is None else web.json_response(answer)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        names = match(MEDIA_PATH, request.rel_url.raw_path.removeprefix("/download"))
        if names is None or request.method not in ("GET", "HEAD"):
            raise GcsError(404, "Not Found")
        bucket, name = names["bucket"], names["object"]
        refuse_if_asked(self._faults, "storage.objects.get", f"{bucket}/{name}")
        generation = request.query.get("generation")
        stored = self.store.objects.get(
            bucket, name, None if generation is None else parse_number("generation", generation)
        )
        conditions = Preconditions.of_query(request.query)
        conditions.check(stored.generation, stored.metageneration, reading=True)
        tag = etag(stored.generation, stored.metageneration)
        check_etags(request.headers, tag)
        return await send(self.store, request, stored, tag)


async def _on_its_way(
    exchange: Exchange, answer: web.StreamResponse, rendering: Rendering
) -> web.StreamResponse:
    """Hold the answer up, or put another in its place; one that has gone out already can only be cut."""
    lost = exchange.lost_answer()
    if answer.prepared:
        if lost:
            exchange.break_off()
        return answer
    await exchange.settle()
    return _answer(lost, rendering) if lost else answer


def _answer(error: GcsError, rendering: Rendering) -> web.Response:
    if error.status == 304:
        return web.Response(status=304)
    content_type, text = rendering(error)
    return web.Response(status=error.status, content_type=content_type, text=text)


def _as_json(error: GcsError) -> tuple[str, str]:
    return "application/json", error.to_json()


def _as_xml(error: GcsError) -> tuple[str, str]:
    return "application/xml", error.to_xml()


def _as_text(error: GcsError) -> tuple[str, str]:
    """Downloads fail in plain words, unless the fault asked for more."""
    return "text/html", error.message

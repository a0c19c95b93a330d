"""The HTTP server of the simulated Cloud Storage: which API a request is for, and how its errors look."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tpuctl.sim.faults import Faults
from tpuctl.sim.gcs.downloads import send
from tpuctl.sim.gcs.errors import GcsError, disk_full, refuse_if_asked
from tpuctl.sim.gcs.json_api import JsonApi, match
from tpuctl.sim.gcs.origin import origin_of
from tpuctl.sim.gcs.preconditions import Preconditions, check_etags, parse_number
from tpuctl.sim.gcs.resources import etag
from tpuctl.sim.gcs.store import Store
from tpuctl.sim.gcs.uploads import Uploads
from tpuctl.sim.gcs.xml_api import XmlApi

RUNNER_OPTIONS: dict[str, Any] = {"auto_decompress": False, "access_log": None, "max_line_size": 32 << 10}
"""What `aiohttp.web.AppRunner` must be given: bodies stay as sent, and long names fit, percent-encoded."""

LARGEST_DOCUMENT = 16 << 20
"""Bytes of a JSON body; objects themselves are streamed and have no limit."""

MEDIA_PATH = "/storage/v1/b/{bucket}/o/{object}"

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rendering = Callable[[GcsError], tuple[str, str]]


class GcsServer:
    """Cloud Storage in the folder `root`; run `application()` with `RUNNER_OPTIONS`, then `close()`."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self.store = Store(root)
        self._faults = faults
        self._json = JsonApi(self.store, faults)
        uploads = Uploads(self.store, faults)
        xml = XmlApi(self.store, faults)
        self._apis: tuple[tuple[str, Handler, Rendering], ...] = (
            ("/upload/storage/v1/", uploads.handle, _as_json),
            ("/resumable/upload/storage/v1/", uploads.handle, _as_json),
            ("/download/storage/v1/", self._download, _as_text),
            ("/storage/v1/", self._call, _as_json),
            ("/", xml.handle, _as_xml),
        )

    def application(self) -> web.Application:
        """Return the application that answers every path."""
        application = web.Application(client_max_size=LARGEST_DOCUMENT)
        application.router.add_route("*", r"/{path:[\s\S]*}", self._handle)
        return application

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        handler, rendering = next((api[1], api[2]) for api in self._apis if path.startswith(api[0]))
        try:
            return await handler(request)
        except GcsError as error:
            return _answer(error, rendering)
        except (ConnectionError, aiohttp.ClientError):
            return web.Response(status=499)  # nobody is there to read it
        except web.HTTPException as error:
            return _answer(GcsError(error.status, error.reason), rendering)
        except Exception as error:
            return _answer(_unforeseen(error), rendering)

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


def _unforeseen(error: Exception) -> GcsError:
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return disk_full()
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        return disk_full()
    _log.error("an unforeseen error", exc_info=error)
    return GcsError(500, "We encountered an internal error. Please try again.")

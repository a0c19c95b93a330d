"""The HTTP server of the simulated Cloud Storage: path -> API, and the format of its errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tpuctl.sim.faults import BandwidthLimits, FaultRegistry, reset
from tpuctl.sim.gcs.authorization import KeyOf, base_url_of, require, set_unpaid_project
from tpuctl.sim.gcs.background_tasks import run_forever
from tpuctl.sim.gcs.downloads import send_object
from tpuctl.sim.gcs.errors import GcsError, no_such_path
from tpuctl.sim.gcs.json_api.batch import Batch
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.json_api.routes import JsonApi, match_path
from tpuctl.sim.gcs.request_faults import RequestFaults, as_gcs_error, begin_operation, faults_of
from tpuctl.sim.gcs.rules import Preconditions, check_etags, parse_number, refuse_keys
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads import ResumableUploads, Uploads
from tpuctl.sim.gcs.xml_api.routes import XmlApi
from tpuctl.sim.iam.callers import current_caller

PATH = "/storage/v1/b/{bucket}/o/{object}"


@dataclass(frozen=True)
class Downloads:
    """Handles the downloads of the JSON API."""

    store: Store
    faults: FaultRegistry

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle one request; raises GcsError."""
        names = match_path(PATH, request.rel_url.raw_path.removeprefix("/download"))
        if names is None or request.method not in ("GET", "HEAD"):
            raise no_such_path()
        bucket, name = names["bucket"], names["object"]
        begin_operation(self.faults, "storage.objects.get", f"{bucket}/{name}")
        generation = request.query.get("generation")
        stored = self.store.objects.get(
            bucket, name, None if generation is None else parse_number("generation", generation)
        )
        conditions = Preconditions.of_query(request.query)
        conditions.check(stored.generation, stored.metageneration, reading=True)
        tag = etag(stored.generation, stored.metageneration)
        check_etags(request.headers, tag)
        return await send_object(self.store, request, stored, tag)


_log = logging.getLogger("tpuctl.sim.gcs.http")
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


class RunnerOptions(TypedDict):
    """Arguments of `aiohttp.web.AppRunner`."""

    auto_decompress: bool
    access_log: None
    max_line_size: int
    logger: logging.Logger
    read_bufsize: int


RUNNER_OPTIONS: RunnerOptions = {
    "auto_decompress": False,
    "access_log": None,
    "max_line_size": 32 << 10,
    "logger": _log,
    "read_bufsize": 1 << 20,
}
"""Bodies are not decompressed, long percent-encoded names fit into the request line, invalid HTTP gets 400
without a traceback in the log, and a fast upload is not paused at every read."""

LARGEST_DOCUMENT = 16 << 20
"""Bytes of a JSON body; objects themselves are streamed and have no limit."""

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Renderer = Callable[[GcsError], tuple[str, str]]


class GcsServer:
    """Cloud Storage in the folder `root`; run `application()` with `RUNNER_OPTIONS`, then `close()`.

    `key_of` returns the keys by which the signatures of signed URLs are checked, and `account_of_token` the
    service account whose token a host sends, '' for any other token.
    """

    def __init__(
        self,
        root: Path,
        faults: FaultRegistry,
        key_of: KeyOf | None = None,
        account_of_token: Callable[[str], str] = lambda token: "",
    ) -> None:
        self.store = Store(root)
        self.store.objects.before_replacing = _require_delete
        self._faults = faults
        self._account_of_token = account_of_token
        self._bandwidth_limits = BandwidthLimits()
        self._json = JsonApi(self.store, faults)
        self._downloads = Downloads(self.store, faults)
        resumable = ResumableUploads(self.store, faults)
        uploads = Uploads(self.store, faults, resumable, key_of)
        xml = XmlApi(self.store, faults, resumable, key_of)
        self._apis: tuple[tuple[str, Handler, Renderer], ...] = (
            ("/upload/storage/v1/", uploads.handle, _as_json),
            ("/resumable/upload/storage/v1/", uploads.handle, _as_json),
            ("/download/storage/v1/", self._downloads.handle, _as_text),
            ("/storage/v1/", self._handle_json, _as_json),
            ("/batch", Batch(self._json).handle, _as_json),
            ("/", xml.handle, _as_xml),
        )

    def application(self) -> web.Application:
        """Return the application, which handles every path."""
        application = web.Application(client_max_size=LARGEST_DOCUMENT)
        application.router.add_route("*", r"/{path:[\s\S]*}", self._handle)
        application.cleanup_ctx.append(self._background_tasks)
        return application

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    async def _background_tasks(self, _: web.Application) -> AsyncIterator[None]:
        task = asyncio.ensure_future(run_forever(self.store))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        handler, renderer = next((api[1], api[2]) for api in self._apis if path.startswith(api[0]))
        has_payer = "userProject" in request.query or "X-Goog-User-Project" in request.headers
        set_unpaid_project(None if has_payer else partial(self._unpaid_project, request))
        with faults_of(self._faults, self._bandwidth_limits, request) as faults:
            response = await self._respond(request, handler, renderer)
            return await _with_faults(request, response, faults, renderer) if faults else response

    def _unpaid_project(self, request: web.Request, bucket: str) -> str:
        """Return the project of a bucket whose requesters pay.

        Without roles every caller may do everything, and the service account of a host is an editor.
        """
        stored = self.store.buckets.find(bucket)
        if stored is None or not stored.is_requester_pays:
            return ""
        token = request.headers.get("Authorization", "").rpartition(" ")[2]
        return stored.project if current_caller() or self._account_of_token(token) else ""

    async def _respond(
        self, request: web.Request, handler: Handler, renderer: Renderer
    ) -> web.StreamResponse:
        try:
            refuse_keys(request.headers, request.query)
            return await handler(request)
        except GcsError as error:
            return _error_response(error, renderer)
        except (ConnectionError, aiohttp.ClientError):
            return web.Response(status=499)  # the client has disconnected and reads no response
        except web.HTTPRequestEntityTooLarge as error:  # Python 3.13 has another name for it
            return _error_response(GcsError(error.status, "Request Entity Too Large"), renderer)
        except web.HTTPException as error:
            return _error_response(GcsError(error.status, error.reason), renderer)
        except Exception as error:
            return _error_response(as_gcs_error(error), renderer)

    async def _handle_json(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("alt") == "media" and request.method in ("GET", "HEAD"):
            try:
                return await self._downloads.handle(request)
            except GcsError as error:
                return _error_response(error, _as_text)
        body = await _json_body(request)
        url = request.rel_url
        resource = await self._json.call(
            request.method, url.raw_path, request.query, request.headers, body, base_url_of(request)
        )
        return web.Response(status=204) if resource is None else web.json_response(resource)


async def _json_body(request: web.Request) -> bytes:
    """Read a body; raises GcsError for the types that web pages may send without asking, as forms do."""
    body = await request.read()
    if body and request.headers.get("Content-Type") and request.content_type in FORM_TYPES:
        raise GcsError(400, "This API does not support parsing form-encoded input.", reason="badRequest")
    if body and request.content_type == "text/plain":
        raise GcsError(400, "Unsupported content with type: text/plain", reason="badContent")
    return body


def _require_delete(old: StoredObject) -> None:
    """Overwriting an object needs the permission to delete it."""
    require("storage.objects.delete", old.bucket, old.name)


async def _with_faults(
    request: web.Request, response: web.StreamResponse, faults: RequestFaults, renderer: Renderer
) -> web.StreamResponse:
    """Delay a response, or replace it by an error; one that is being sent can only be cut."""
    error = faults.response_error()
    if response.prepared:
        if error:
            reset(request.transport)
        return response
    await faults.body.delay_response()
    return _error_response(error, renderer) if error else response


def _error_response(error: GcsError, renderer: Renderer) -> web.Response:
    if error.status == 304:
        return web.Response(status=304)
    content_type, text = renderer(error)
    return web.Response(status=error.status, content_type=content_type, text=text)


def _as_json(error: GcsError) -> tuple[str, str]:
    return "application/json", error.to_json()


def _as_xml(error: GcsError) -> tuple[str, str]:
    return "application/xml", error.to_xml()


def _as_text(error: GcsError) -> tuple[str, str]:
    """Errors of downloads are plain text."""
    return "text/html", error.message

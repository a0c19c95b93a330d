"""Notes each request that the simulator answered with success, and its client by its headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from tests.contract.storage_methods import JSON_METHODS

GRPC = "gRPC"
HTTP = "REST"
"""The official Cloud TPU client's REST transport, requests, urllib, curl: every plain HTTP client."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("gsutil/", "gsutil"),  # before gcloud, whose name it bears too
    ("google-cloud-sdk", "gcloud"),
    ("gccl-gcs-cmd/tm.", "transfer_manager"),
    ("gcloud-python", "google-cloud-storage"),
    ("gcsfs", "gcsfs"),
    ("tensorstore", "tensorstore"),
    ("object_store", "obstore"),
    ("tsl", "tf.io.gfile"),
)
"""Part of its headers -> client; the first match counts."""


def client_of(headers: Mapping[str, str]) -> str:
    """Return the name of the client that sends these headers."""
    signature = " ".join(headers.get(name, "") for name in ("User-Agent", "x-goog-api-client")).lower()
    return next((client for sign, client in SIGNS if sign in signature), HTTP)


Note = Callable[[str, str], None]
"""Takes a method and a client."""

_client: ContextVar[str] = ContextVar("client", default=HTTP)
_UPLOAD = re.compile(r"/(?:resumable/)?upload/storage/v1/")
_MEDIA = re.compile(r"/(?:download/)?storage/v1/b/[^/]+/o/[^/]+")


def watch(note: Note) -> None:
    """Have every simulator that is built in this process from now on be watched."""
    _watch_tpu(note)
    _watch_storage(note)
    _watch_compute(note)


def _watch_tpu(note: Note) -> None:
    from tpuctl.sim.tpu import grpc_api, rest_api
    from tpuctl.sim.tpu.grpc_api import MIXINS

    shared = {rpc.name: f"{rpc.service.rpartition('.')[2]}.{rpc.name}" for rpc in MIXINS}
    behaviour, answer = grpc_api._behaviour, rest_api._respond

    def watched_behaviour(service: Any, rpc: Any) -> Any:
        original = behaviour(service, rpc)

        async def watched(request: Any, context: Any) -> Any:
            result = await original(request, context)
            note(shared.get(rpc.name, f"{service.version}.{rpc.name}"), GRPC)
            return result

        return watched

    async def watched_answer(services: Any, table: Any, request: Any) -> Any:
        result = await answer(services, table, request)
        for route in table:
            if route.verb == request.method and route.path.fullmatch(request.path):
                client = "gcloud" if client_of(request.headers) == "gcloud" else HTTP
                note(shared.get(route.method, f"{route.version}.{route.method}"), client)
                break
        return result

    grpc_api._behaviour = watched_behaviour
    rest_api._respond = watched_answer


def _watch_storage(note: Note) -> None:
    from tpuctl.sim.gcs.json_api.routes import JsonApi
    from tpuctl.sim.gcs.server import GcsServer

    handle, call = GcsServer._handle, JsonApi.call

    async def watched_handle(self: Any, request: Any) -> Any:
        _client.set(client_of(request.headers))
        answer = await handle(self, request)
        method = _not_plain_json(request)
        if answer.status < 400 and method:
            note(method, _client.get())
        return answer

    async def watched_call(self: Any, method: str, path: str, *rest: Any) -> Any:
        answer = await call(self, method, path, *rest)
        named = _json_method(method, path)
        if named:
            note(named, _client.get())
        return answer

    GcsServer._handle = watched_handle
    JsonApi.call = watched_call


def _watch_compute(note: Note) -> None:
    from tpuctl.sim.compute.holdings import HoldingsApi
    from tpuctl.sim.compute.rest_api import FirewallApi, _ComputeApi

    for name, method in (
        ("get", "projects.get"),
        ("set_metadata", "projects.setCommonInstanceMetadata"),
        ("get_operation", "globalOperations.{}"),
        ("list_instances", "instances.list"),
        ("list_all_instances", "instances.aggregatedList"),
    ):
        setattr(_ComputeApi, name, _watched_compute(getattr(_ComputeApi, name), f"compute.{method}", note))

    for method in ("list", "get", "insert", "update", "patch", "delete"):
        watched = _watched_compute(getattr(FirewallApi, method), f"compute.firewalls.{method}", note)
        setattr(FirewallApi, method, watched)

    for name in ("list_all", "list", "get", "insert", "delete"):
        method = f"compute.{{collection}}.{'aggregatedList' if name == 'list_all' else name}"
        setattr(HoldingsApi, name, _watched_compute(getattr(HoldingsApi, name), method, note))


def _watched_compute(original: Any, method: str, note: Note) -> Any:
    async def watched(self: Any, request: Any) -> Any:
        answer = await original(self, request)
        if answer.status < 400:
            client = "gcloud" if client_of(request.headers) == "gcloud" else HTTP
            collection = request.match_info.get("collection")
            note(method.format("wait" if request.method == "POST" else "get", collection=collection), client)
        return answer

    return watched


def _json_method(verb: str, path: str) -> str | None:
    below = path.removeprefix("/storage/v1/").rstrip("/")
    for method, expected, template in JSON_METHODS:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if verb == expected and re.fullmatch(pattern, below):
            return method
    return None


def _not_plain_json(request: Any) -> str | None:
    """The method of a request that carries bytes or other calls, or that is one of the XML API."""
    path = request.rel_url.raw_path
    if _UPLOAD.match(path):
        return f"storage.objects.insert uploadType={request.query.get('uploadType', 'resumable')}"
    if path.startswith("/batch"):
        return "batch"
    media = request.query.get("alt") == "media" or path.startswith("/download")
    if media and _MEDIA.fullmatch(path):
        return "storage.objects.get alt=media"
    if path.startswith(("/storage/v1/", "/download/")):
        return None
    return f"xml {_xml_request(request)}"


def _xml_request(request: Any) -> str:
    from tpuctl.sim.gcs.xml_api.documents import _target
    from tpuctl.sim.gcs.xml_api.routes import SUBRESOURCES

    bucket, name = _target(request)
    kind = "object" if name else "bucket" if bucket else "service"
    if name and "upload_id" in request.query:
        return "PUT object ?upload_id"
    if name and request.method == "POST" and "x-goog-resumable" in request.headers:
        return "POST object x-goog-resumable"
    subresource = next((name for name in SUBRESOURCES if name in request.query), "")
    return f"{request.method} {kind}" + (f" ?{subresource}" if subresource else "")

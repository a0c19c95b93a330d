"""Builds the responses to uploads: the resource of the new object, or 308 with the bytes stored so far."""

from __future__ import annotations

from aiohttp import web

from tpuctl.sim.gcs.http.base_url import base_url_of
from tpuctl.sim.gcs.json_api.fields_mask import select
from tpuctl.sim.gcs.json_api.resources import object_resource
from tpuctl.sim.gcs.storage.stored_object import StoredObject


def object_response(request: web.Request, stored: StoredObject) -> web.Response:
    """Return 200 with the new object, or with the fields that the query selects."""
    resource = object_resource(stored, base_url_of(request))
    fields = request.query.get("fields")
    return web.json_response(select(resource, fields) if fields is not None else resource)


def incomplete_response(request: web.Request, session_id: str, size: int) -> web.Response:
    """Return 308 with the range of bytes that are stored; 200 and 308 in a header to clients in Go.

    https://github.com/googleapis/google-api-go-client/blob/main/internal/gensupport/resumable.go
    """
    headers = {"X-GUploader-UploadID": session_id}
    if size:
        headers["Range"] = f"bytes=0-{size - 1}"
    if request.headers.get("X-GUploader-No-308") == "yes":
        return web.Response(headers={**headers, "X-HTTP-Status-Code-Override": "308"})
    return web.Response(status=308, reason="Resume Incomplete", headers=headers)

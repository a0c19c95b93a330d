"""The JSON API's operations on objects without their bytes; uploads/ and downloads/ transfer those."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from tpuctl.sim.gcs.authorization import require
from tpuctl.sim.gcs.errors import invalid, required
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.json_api.resources import etag, projected_object
from tpuctl.sim.gcs.rules import ListQuery, check_etags, is_true, parse_number
from tpuctl.sim.gcs.storage.store import compose, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject, predefined_acl
from tpuctl.sim.json_values import JsonObject, objects_at, text_at

QUANTUM = 1 << 20
"""Bytes: `maxBytesRewrittenPerCall` is a multiple of this."""


async def list_objects(request: JsonRequest) -> JsonObject:
    """objects.list"""
    request.begin("storage.objects.list", request.bucket)
    bucket = request.store.buckets.get(request.bucket)
    page = list_page(request.store.database, request.bucket, ListQuery.of(request.query))
    response: JsonObject = {"kind": "storage#objects"}
    if page.items:
        response["items"] = [projected_object(request, stored, bucket) for stored in page.items]
    if page.prefixes:
        response["prefixes"] = page.prefixes
    if page.next is not None:
        response["nextPageToken"] = page.next.to_token()
    return response


async def get_object(request: JsonRequest) -> JsonObject:
    """objects.get without alt=media"""
    request.begin("storage.objects.get", request.bucket, request.object)
    if is_true(request.query.get("softDeleted")):
        stored = request.store.objects.soft_deletes.get(
            request.bucket, request.object, _required_generation(request)
        )
    else:
        stored = request.store.objects.get(request.bucket, request.object, request.generation())
    request.conditions().check(stored.generation, stored.metageneration, reading=True)
    check_etags(request.headers, etag(stored.generation, stored.metageneration))
    return projected_object(request, stored)


async def patch_object(request: JsonRequest) -> JsonObject:
    """objects.patch"""
    return _change(request, replace_all=False)


async def update_object(request: JsonRequest) -> JsonObject:
    """objects.update"""
    return _change(request, replace_all=True)


async def delete_object(request: JsonRequest) -> None:
    """objects.delete"""
    request.begin("storage.objects.delete", request.bucket, request.object)
    request.store.objects.delete(request.bucket, request.object, request.generation(), request.conditions())


async def copy_object(request: JsonRequest) -> JsonObject:
    """objects.copy"""
    return projected_object(request, _copy(request, _source_of_copy(request)))


async def rewrite_object(request: JsonRequest) -> JsonObject:
    """objects.rewrite: copies share their bytes, so only the caller's own limit makes several calls of it."""
    text = request.query.get("rewriteToken")
    token = RewriteToken.parse(text) if text else None
    source = _source_of_copy(request, token.generation if token else None)
    start = RewriteToken(
        source.bucket, source.name, source.generation, request.names["to_bucket"], request.names["to_object"]
    )
    if token is not None and replace(token, bytes_rewritten=0) != start:
        raise invalid("The rewrite token is for another rewrite.")
    limit = bytes_per_call(request.query)
    size = min((token.bytes_rewritten if token else 0) + (limit or source.size), source.size)
    response: JsonObject = {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(size),
        "objectSize": str(source.size),
        "done": size == source.size,
    }
    if size < source.size:
        request.store.objects.check(start.to_bucket, start.to_name, request.conditions())
        return response | {"rewriteToken": replace(start, bytes_rewritten=size).to_text()}
    return response | {"resource": projected_object(request, _copy(request, source))}


async def move_object(request: JsonRequest) -> JsonObject:
    """objects.move"""
    request.begin("storage.objects.delete", request.bucket, request.object)
    request.begin("storage.objects.create", request.bucket, request.names["to_object"])
    source = request.store.objects.get(request.bucket, request.object)
    moved = request.store.objects.move(
        source, request.names["to_object"], request.conditions("ifSource"), request.conditions()
    )
    return projected_object(request, moved)


async def restore_object(request: JsonRequest) -> JsonObject:
    """objects.restore"""
    request.begin("storage.objects.restore", request.bucket, request.object)
    restored = request.store.objects.restore(
        request.bucket, request.object, _required_generation(request), request.conditions()
    )
    return projected_object(request, restored)


async def compose_object(request: JsonRequest) -> JsonObject:
    """objects.compose"""
    request.begin("storage.objects.create", request.bucket, request.object)
    for source in objects_at(request.body, "sourceObjects"):
        require("storage.objects.get", request.bucket, text_at(source, "name"))
    stored = await compose(request.store, request.bucket, request.object, request.body, request.conditions())
    return projected_object(request, stored)


def _required_generation(request: JsonRequest) -> int:
    generation = request.generation()
    if generation is None:
        raise required("generation")
    return generation


def _change(request: JsonRequest, *, replace_all: bool) -> JsonObject:
    request.begin("storage.objects.update", request.bucket, request.object)
    if "retention" in request.body:
        require("storage.objects.setRetention", request.bucket, request.object)
    stored = request.store.objects.get(request.bucket, request.object, request.generation())
    changes = request.body
    if "predefinedAcl" in request.query:
        bucket = request.store.buckets.get(request.bucket)
        changes = {**changes, "acl": predefined_acl(request.query["predefinedAcl"], bucket)}
    changed = request.store.objects.patch(stored, changes, request.conditions(), replace_all=replace_all)
    return projected_object(request, changed)


def _source_of_copy(request: JsonRequest, generation: int | None = None) -> StoredObject:
    request.begin("storage.objects.get", request.bucket, request.object)
    request.begin("storage.objects.create", request.names["to_bucket"], request.names["to_object"])
    if generation is None:
        generation = request.generation("sourceGeneration")
    source = request.store.objects.get(request.bucket, request.object, generation)
    request.conditions("ifSource").check(source.generation, source.metageneration)
    return source


def _copy(request: JsonRequest, source: StoredObject) -> StoredObject:
    bucket, name = request.names["to_bucket"], request.names["to_object"]
    return request.store.objects.copy(source, bucket, name, request.body, request.conditions())


# Encodes the token of a rewrite in several calls, with the bytes rewritten so far.


@dataclass(frozen=True)
class RewriteToken:
    """A rewrite of one generation to one destination, of which some bytes are rewritten."""

    bucket: str
    name: str
    generation: int
    to_bucket: str
    to_name: str
    bytes_rewritten: int = 0

    @classmethod
    def parse(cls, text: str) -> RewriteToken:
        """Parse a token; raises 400."""
        try:
            bucket, name, generation, to_bucket, to_name, size = json.loads(base64.urlsafe_b64decode(text))
            return cls(str(bucket), str(name), int(generation), str(to_bucket), str(to_name), int(size))
        except (ValueError, TypeError, binascii.Error) as error:
            raise invalid("Invalid rewrite token.") from error

    def to_text(self) -> str:
        """Return the token as text."""
        return base64.urlsafe_b64encode(json.dumps(astuple(self)).encode()).decode()


def bytes_per_call(query: Mapping[str, str]) -> int | None:
    """Return how many bytes one call may rewrite, None for all; raises 400."""
    text = query.get("maxBytesRewrittenPerCall")
    if text is None:
        return None
    limit = parse_number("maxBytesRewrittenPerCall", text)
    if not limit or limit % QUANTUM:
        raise invalid("maxBytesRewrittenPerCall must be an integral multiple of 1 MiB (1048576).")
    return limit

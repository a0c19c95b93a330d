"""The JSON API's operations on objects, all but those that carry the bytes themselves."""

from __future__ import annotations

from typing import Any

from tpuctl.sim.gcs.call import Call
from tpuctl.sim.gcs.composing import compose
from tpuctl.sim.gcs.listing import ListQuery, list_page
from tpuctl.sim.gcs.objects import StoredObject
from tpuctl.sim.gcs.preconditions import check_etags
from tpuctl.sim.gcs.resources import etag, object_resource


async def list_objects(call: Call) -> dict[str, Any]:
    """objects.list"""
    call.refuse_if_asked("storage.objects.list", call.bucket)
    call.store.buckets.get(call.bucket)
    page = list_page(call.store.database, call.bucket, ListQuery.of(call.query))
    answer: dict[str, Any] = {"kind": "storage#objects"}
    if page.items:
        answer["items"] = [object_resource(stored, call.origin) for stored in page.items]
    if page.prefixes:
        answer["prefixes"] = page.prefixes
    if page.next is not None:
        answer["nextPageToken"] = page.next.to_token()
    return answer


async def get_object(call: Call) -> dict[str, Any]:
    """objects.get without alt=media"""
    call.refuse_if_asked("storage.objects.get", call.bucket, call.object)
    stored = call.store.objects.get(call.bucket, call.object, call.generation())
    call.conditions().check(stored.generation, stored.metageneration, reading=True)
    check_etags(call.headers, etag(stored.generation, stored.metageneration))
    return object_resource(stored, call.origin)


async def patch_object(call: Call) -> dict[str, Any]:
    """objects.patch"""
    return _change(call, replace_all=False)


async def update_object(call: Call) -> dict[str, Any]:
    """objects.update"""
    return _change(call, replace_all=True)


async def delete_object(call: Call) -> None:
    """objects.delete"""
    call.refuse_if_asked("storage.objects.delete", call.bucket, call.object)
    call.store.objects.delete(call.bucket, call.object, call.generation(), call.conditions())


async def copy_object(call: Call) -> dict[str, Any]:
    """objects.copy"""
    return object_resource(_copy(call), call.origin)


async def rewrite_object(call: Call) -> dict[str, Any]:
    """objects.rewrite: always done in one call, as copies share their bytes."""
    stored = _copy(call)
    return {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(stored.size),
        "objectSize": str(stored.size),
        "done": True,
        "resource": object_resource(stored, call.origin),
    }


async def move_object(call: Call) -> dict[str, Any]:
    """objects.move"""
    call.refuse_if_asked("storage.objects.delete", call.bucket, call.object)
    call.refuse_if_asked("storage.objects.create", call.bucket, call.names["to_object"])
    source = call.store.objects.get(call.bucket, call.object)
    moved = call.store.objects.move(
        source, call.names["to_object"], call.conditions("ifSource"), call.conditions()
    )
    return object_resource(moved, call.origin)


async def compose_object(call: Call) -> dict[str, Any]:
    """objects.compose"""
    call.refuse_if_asked("storage.objects.create", call.bucket, call.object)
    stored = await compose(call.store, call.bucket, call.object, call.body, call.conditions())
    return object_resource(stored, call.origin)


def _change(call: Call, *, replace_all: bool) -> dict[str, Any]:
    call.refuse_if_asked("storage.objects.update", call.bucket, call.object)
    stored = call.store.objects.get(call.bucket, call.object, call.generation())
    changed = call.store.objects.patch(stored, call.body, call.conditions(), replace_all=replace_all)
    return object_resource(changed, call.origin)


def _copy(call: Call) -> StoredObject:
    bucket, name = call.names["to_bucket"], call.names["to_object"]
    call.refuse_if_asked("storage.objects.get", call.bucket, call.object)
    call.refuse_if_asked("storage.objects.create", bucket, name)
    source = call.store.objects.get(call.bucket, call.object, call.generation("sourceGeneration"))
    call.conditions("ifSource").check(source.generation, source.metageneration)
    return call.store.objects.copy(source, bucket, name, call.body, call.conditions())

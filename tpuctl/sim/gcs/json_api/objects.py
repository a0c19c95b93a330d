"""The JSON API's operations on objects, all but those that carry the bytes themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpuctl.sim.gcs.errors import invalid, required
from tpuctl.sim.gcs.json_api.projection import shown_object
from tpuctl.sim.gcs.json_api.request import Call
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.rules.preconditions import check_etags
from tpuctl.sim.gcs.storage.acl import predefined
from tpuctl.sim.gcs.storage.composing import compose
from tpuctl.sim.gcs.storage.listing import ListQuery, is_true, list_page
from tpuctl.sim.gcs.storage.rewrite_tokens import RewriteToken, bytes_per_call
from tpuctl.sim.gcs.storage.stored_object import StoredObject


async def list_objects(call: Call) -> dict[str, Any]:
    """objects.list"""
    call.refuse_if_asked("storage.objects.list", call.bucket)
    call.store.buckets.get(call.bucket)
    page = list_page(call.store.database, call.bucket, ListQuery.of(call.query))
    answer: dict[str, Any] = {"kind": "storage#objects"}
    if page.items:
        answer["items"] = [shown_object(call, stored) for stored in page.items]
    if page.prefixes:
        answer["prefixes"] = page.prefixes
    if page.next is not None:
        answer["nextPageToken"] = page.next.to_token()
    return answer


async def get_object(call: Call) -> dict[str, Any]:
    """objects.get without alt=media"""
    call.refuse_if_asked("storage.objects.get", call.bucket, call.object)
    if is_true(call.query.get("softDeleted")):
        stored = call.store.objects.soft_deletes.get(call.bucket, call.object, _wanted_generation(call))
    else:
        stored = call.store.objects.get(call.bucket, call.object, call.generation())
    call.conditions().check(stored.generation, stored.metageneration, reading=True)
    check_etags(call.headers, etag(stored.generation, stored.metageneration))
    return shown_object(call, stored)


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
    return shown_object(call, _copy(call, _source_of_copy(call)))


async def rewrite_object(call: Call) -> dict[str, Any]:
    """objects.rewrite: copies share their bytes, so only the caller's own limit makes it several calls."""
    text = call.query.get("rewriteToken")
    token = RewriteToken.parse(text) if text else None
    source = _source_of_copy(call, token.generation if token else None)
    begun = RewriteToken(
        source.bucket, source.name, source.generation, call.names["to_bucket"], call.names["to_object"]
    )
    if token is not None and replace(token, done=0) != begun:
        raise invalid("The rewrite token is for another rewrite.")
    limit = bytes_per_call(call.query)
    done = min((token.done if token else 0) + (limit or source.size), source.size)
    answer = {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(done),
        "objectSize": str(source.size),
        "done": done == source.size,
    }
    if done < source.size:
        call.store.objects.check(begun.to_bucket, begun.to_name, call.conditions())
        return answer | {"rewriteToken": replace(begun, done=done).to_text()}
    return answer | {"resource": shown_object(call, _copy(call, source))}


async def move_object(call: Call) -> dict[str, Any]:
    """objects.move"""
    call.refuse_if_asked("storage.objects.delete", call.bucket, call.object)
    call.refuse_if_asked("storage.objects.create", call.bucket, call.names["to_object"])
    source = call.store.objects.get(call.bucket, call.object)
    moved = call.store.objects.move(
        source, call.names["to_object"], call.conditions("ifSource"), call.conditions()
    )
    return shown_object(call, moved)


async def restore_object(call: Call) -> dict[str, Any]:
    """objects.restore"""
    call.refuse_if_asked("storage.objects.restore", call.bucket, call.object)
    restored = call.store.objects.restore(
        call.bucket, call.object, _wanted_generation(call), call.conditions()
    )
    return shown_object(call, restored)


async def compose_object(call: Call) -> dict[str, Any]:
    """objects.compose"""
    call.refuse_if_asked("storage.objects.create", call.bucket, call.object)
    stored = await compose(call.store, call.bucket, call.object, call.body, call.conditions())
    return shown_object(call, stored)


def _wanted_generation(call: Call) -> int:
    generation = call.generation()
    if generation is None:
        raise required("generation")
    return generation


def _change(call: Call, *, replace_all: bool) -> dict[str, Any]:
    call.refuse_if_asked("storage.objects.update", call.bucket, call.object)
    stored = call.store.objects.get(call.bucket, call.object, call.generation())
    changes = call.body
    if "predefinedAcl" in call.query:
        bucket = call.store.buckets.get(call.bucket)
        changes = {**changes, "acl": predefined(call.query["predefinedAcl"], bucket)}
    changed = call.store.objects.patch(stored, changes, call.conditions(), replace_all=replace_all)
    return shown_object(call, changed)


def _source_of_copy(call: Call, generation: int | None = None) -> StoredObject:
    call.refuse_if_asked("storage.objects.get", call.bucket, call.object)
    call.refuse_if_asked("storage.objects.create", call.names["to_bucket"], call.names["to_object"])
    if generation is None:
        generation = call.generation("sourceGeneration")
    source = call.store.objects.get(call.bucket, call.object, generation)
    call.conditions("ifSource").check(source.generation, source.metageneration)
    return source


def _copy(call: Call, source: StoredObject) -> StoredObject:
    bucket, name = call.names["to_bucket"], call.names["to_object"]
    return call.store.objects.copy(source, bucket, name, call.body, call.conditions())

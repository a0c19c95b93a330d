"""Composing one object from several, and one content from several."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from tpuctl.sim.gcs.crc32c_combine import combined_crc32c
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions, parse_number
from tpuctl.sim.gcs.storage.blobs import BlobWriter, Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject

MOST_SOURCES = 32


async def compose(
    store: Store, bucket: str, name: str, request: dict[str, Any], conditions: Preconditions
) -> StoredObject:
    """Write the sources of `request` one behind the other into a new object, in a thread.

    The sources are those of the moment of the call, whatever happens to them meanwhile.
    """
    check_object_name(name)
    store.objects.check(bucket, name, conditions)
    sources = [_find(store, bucket, source) for source in _listed_sources(request)]
    fields = request.get("destination") or {}
    if not isinstance(fields, dict):
        raise invalid("Invalid value for field: destination")
    components = sum(source.components or 1 for source in sources)
    async with joined(store, [source.content for source in sources], components) as content:
        return store.objects.create(bucket, name, content, fields, conditions)


@asynccontextmanager
async def joined(
    store: Store, contents: Sequence[Content], components: int | None = None
) -> AsyncIterator[Content]:
    """Put contents one behind the other, in a thread; the bytes stay when they have a name by the end."""
    with ExitStack() as opened, store.blobs.create() as writer:
        files = [opened.enter_context(store.blobs.open(content.blob)) for content in contents]
        sizes = [content.size for content in contents]
        await asyncio.to_thread(_concatenate, writer, list(zip(files, sizes, strict=True)))
        store.blobs.sync(writer.file)
        yield Content(writer.blob, sum(sizes), _crc32c(contents), None, components)


def _crc32c(contents: Sequence[Content]) -> str:
    total = 0
    for content in contents:
        part = int.from_bytes(base64.b64decode(content.crc32c), "big")
        total = combined_crc32c(total, part, content.size)
    return base64.b64encode(total.to_bytes(4, "big")).decode()


def _listed_sources(request: dict[str, Any]) -> Sequence[dict[str, Any]]:
    sources = request.get("sourceObjects")
    if not isinstance(sources, list) or not sources:
        raise GcsError(400, "You must provide at least one source component.", reason="required")
    if len(sources) > MOST_SOURCES:
        raise invalid(
            f"The number of source components provided ({len(sources)}) exceeds the maximum ({MOST_SOURCES})"
        )
    if not all(isinstance(source, dict) for source in sources):
        raise invalid("Invalid value for field: sourceObjects")
    return sources


def _find(store: Store, bucket: str, source: dict[str, Any]) -> StoredObject:
    name = check_object_name(source.get("name"))
    wanted = source.get("generation")
    generation = parse_number("generation", wanted) if wanted is not None else None
    found = store.objects.get(bucket, name, generation)
    conditions = source.get("objectPreconditions") or {}
    if not isinstance(conditions, dict):
        raise invalid("Invalid value for field: objectPreconditions")
    Preconditions.of_query(conditions).check(found.generation, found.metageneration)
    return found


def _concatenate(writer: BlobWriter, files: Sequence[tuple[Any, int]]) -> None:
    for file, size in files:
        writer.append(file, size)

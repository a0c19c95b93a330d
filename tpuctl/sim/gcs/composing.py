"""Composing one object from several."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

from tpuctl.sim.gcs.blobs import BLOCK, BlobWriter
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.names import check_object_name
from tpuctl.sim.gcs.objects import StoredObject
from tpuctl.sim.gcs.preconditions import Preconditions, parse_number
from tpuctl.sim.gcs.store import Store

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
    with ExitStack() as opened, store.blobs.create(with_md5=False) as writer:
        files = [opened.enter_context(store.blobs.open(source.blob)) for source in sources]
        await asyncio.to_thread(_concatenate, writer, files)
        return store.objects.create(bucket, name, writer.finish(components), fields, conditions)


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


def _concatenate(writer: BlobWriter, files: Sequence[BinaryIO]) -> None:
    for file in files:
        writer.write(_blocks(file))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block

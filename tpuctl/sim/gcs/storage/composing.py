"""Composing one object from several, and concatenating the bytes of several blobs into one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import lru_cache
from typing import BinaryIO

from tpuctl.sim.gcs.errors import GcsError, invalid, invalid_field
from tpuctl.sim.gcs.rules import Preconditions, check_object_name, parse_number
from tpuctl.sim.gcs.storage.blobs import BlobWriter, Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject, JsonValue, objects_at

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with its bits reversed."""
Matrix = tuple[int, ...]
"""32 columns over GF(2): the next CRC register as a linear function of the last."""
MOST_SOURCES = 32


async def compose(
    store: Store, bucket: str, name: str, request: Mapping[str, JsonValue], conditions: Preconditions
) -> StoredObject:
    """Create an object from the `sourceObjects` of a request, in a thread; raises GcsError.

    The generations are those at the time of the call: later changes of the sources have no effect.
    """
    check_object_name(name)
    store.objects.check(bucket, name, conditions)
    sources = [_find(store, bucket, source) for source in _source_objects(request)]
    fields = request.get("destination") or {}
    if not isinstance(fields, dict):
        raise invalid_field("destination")
    components = sum(source.components or 1 for source in sources)
    async with concatenated(store, [source.content for source in sources], components) as content:
        return store.objects.create(bucket, name, content, fields, conditions, content_type=None)


@asynccontextmanager
async def concatenated(
    store: Store, contents: Sequence[Content], components: int | None = None
) -> AsyncIterator[Content]:
    """Concatenate contents in a thread; the bytes are discarded unless an object names them at the end."""
    with ExitStack() as stack, store.blobs.create() as writer:
        files = [stack.enter_context(store.blobs.open(content.blob)) for content in contents]
        sizes = [content.size for content in contents]
        await asyncio.to_thread(_append_all, writer, list(zip(files, sizes, strict=True)))
        store.blobs.sync(writer.file)
        yield Content(writer.blob, sum(sizes), _crc32c(contents), None, components)


def _crc32c(contents: Sequence[Content]) -> str:
    crc32c = 0
    for content in contents:
        following = int.from_bytes(base64.b64decode(content.crc32c), "big")
        crc32c = combine_crc32c(crc32c, following, content.size)
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def _source_objects(request: Mapping[str, JsonValue]) -> Sequence[JsonObject]:
    sources = request.get("sourceObjects")
    if not isinstance(sources, list) or not sources:
        raise GcsError(400, "You must provide at least one source component.", reason="required")
    if len(sources) > MOST_SOURCES:
        raise invalid(
            f"The number of source components provided ({len(sources)}) exceeds the maximum ({MOST_SOURCES})"
        )
    objects = objects_at(request, "sourceObjects")
    if len(objects) < len(sources):
        raise invalid_field("sourceObjects")
    return objects


def _find(store: Store, bucket: str, source: JsonObject) -> StoredObject:
    name = check_object_name(source.get("name"))
    number = source.get("generation")
    generation = parse_number("generation", number) if number is not None else None
    stored = store.objects.get(bucket, name, generation)
    conditions = source.get("objectPreconditions") or {}
    if not isinstance(conditions, dict):
        raise invalid_field("objectPreconditions")
    Preconditions.of_query(conditions).check(stored.generation, stored.metageneration)
    return stored


def _append_all(writer: BlobWriter, files: Sequence[tuple[BinaryIO, int]]) -> None:
    for file, size in files:
        writer.append(file, size)


# Computes the CRC-32C of concatenated data from those of the pieces, as zlib's crc32_combine does.


def combine_crc32c(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of data whose first and second part have these CRC-32Cs."""
    power = 0
    while second_size:
        if second_size & 1:
            first = _times(_zero_bytes(power), first)
        second_size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _zero_bytes(power: int) -> Matrix:
    """The effect of 2**power zero bytes on a CRC register."""
    if power == 0:
        one_bit: Matrix = (POLYNOMIAL, *(1 << bit for bit in range(31)))
        two_bits = _squared(one_bit)
        return _squared(_squared(two_bits))
    return _squared(_zero_bytes(power - 1))


def _squared(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, column) for column in matrix)


def _times(matrix: Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
    return total

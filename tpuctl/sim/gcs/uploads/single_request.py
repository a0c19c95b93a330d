"""Stores an object from the body of one request, for the JSON API and the XML API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.http.request_faults import begin_operation, with_upload_faults
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads.spooling import spool
from tpuctl.sim.json_values import JsonValue


async def store_object(
    store: Store,
    faults: FaultRegistry,
    bucket: str,
    name: str,
    content: AsyncIterator[bytes],
    fields: Mapping[str, JsonValue],
    checksums: ExpectedChecksums,
    conditions: Preconditions,
) -> StoredObject:
    """Write the content to a blob and create the object; a GcsError leaves nothing behind."""
    begin_operation(faults, "storage.objects.create", f"{bucket}/{name}", fields)
    store.objects.check(bucket, name, conditions)
    with store.blobs.create() as writer:
        await spool(with_upload_faults(content), writer)
        complete = writer.finish()
        checksums.check(complete.crc32c, complete.md5)
        return store.objects.create(bucket, name, complete, fields, conditions)

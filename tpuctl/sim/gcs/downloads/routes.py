"""Downloads through the JSON API: GET of an object with `alt=media`, or under /download/."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.downloads.sending import send_object
from tpuctl.sim.gcs.errors import no_such_path
from tpuctl.sim.gcs.http.request_faults import begin_operation
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.json_api.routes import match_path
from tpuctl.sim.gcs.rules.parameters import parse_number
from tpuctl.sim.gcs.rules.preconditions import Preconditions, check_etags
from tpuctl.sim.gcs.storage.store import Store

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

"""Serves what a project keeps and pays for beside its TPUs: persistent disks and static addresses."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tpuctl.sim.accounts import stable_number
from tpuctl.sim.compute.answers import PROJECT, authorize, base, error, not_found, operation_resource
from tpuctl.sim.compute.firewalls import NAME
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.state.database import Database, RecordTable

SCOPES = {"disks": "zones", "addresses": "regions"}
"""Where the resources of each collection are."""
KINDS = {"disks": "disk", "addresses": "address"}
DEFAULTS: dict[str, JsonObject] = {
    "disks": {"sizeGb": "500", "status": "READY", "type": "pd-standard"},
    "addresses": {"addressType": "EXTERNAL", "status": "RESERVED", "networkTier": "PREMIUM"},
}
"""Of fields that were not sent: https://cloud.google.com/compute/docs/reference/rest/v1/disks"""

Handler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True)
class Holding:
    """The stored record of one resource; `name` is `PROJECT/COLLECTION/PLACE/NAME`."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0


class HoldingsApi:
    """The methods of `disks` and `addresses` that make, list and delete them."""

    def __init__(self, database: Database, operations: Operations) -> None:
        self._records = RecordTable(database, "compute holding", Holding)
        self._operations = operations

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Yield HTTP method, path and handler."""
        for collection, scope in SCOPES.items():
            listed = f"{PROJECT}/{scope}/{{place}}/{{collection:{collection}}}"
            yield "GET", f"{PROJECT}/aggregated/{{collection:{collection}}}", self.list_all
            yield "GET", listed, self.list
            yield "POST", listed, self.insert
            yield "GET", f"{listed}/{{name}}", self.get
            yield "DELETE", f"{listed}/{{name}}", self.delete

    async def list_all(self, request: web.Request) -> web.Response:
        """Those of every place, by place."""
        parts = request.match_info
        project, collection = parts["project"], parts["collection"]
        authorize(f"compute.{collection}.list", project)
        items: dict[str, dict[str, list[JsonObject]]] = {}
        for record in self._of(project, collection):
            place = f"{SCOPES[collection]}/{record.name.split('/')[2]}"
            items.setdefault(place, {collection: []})[collection].append(_resource(record, request))
        path = f"projects/{project}/aggregated/{collection}"
        kind = f"compute#{KINDS[collection]}AggregatedList"
        link = {"id": path, "selfLink": f"{base(request)}/{path}"}
        return web.json_response({"kind": kind, "items": items, **link})

    async def list(self, request: web.Request) -> web.Response:
        """Those of one place."""
        parts = request.match_info
        authorize(f"compute.{parts['collection']}.list", parts["project"])
        records = self._of(parts["project"], parts["collection"])
        items = [_resource(each, request) for each in records if f"/{parts['place']}/" in each.name]
        kind = f"compute#{KINDS[parts['collection']]}List"
        return web.json_response({"kind": kind, **({"items": items} if items else {})})

    async def get(self, request: web.Request) -> web.Response:
        """One."""
        authorize(f"compute.{request.match_info['collection']}.get", request.match_info["project"])
        record = self._records.get(_name(request))
        return _missing(request) if record is None else web.json_response(_resource(record, request))

    async def insert(self, request: web.Request) -> web.Response:
        """Make one."""
        parts = request.match_info
        authorize(f"compute.{parts['collection']}.create", parts["project"])
        try:
            sent = json.loads(await request.read())
        except ValueError:
            sent = None
        if not isinstance(sent, dict) or not NAME.fullmatch(str(sent.get("name", ""))):
            return error(400, "Invalid value for field 'resource.name'.")
        name = f"{_folder(request)}/{sent['name']}"
        if self._records.get(name):
            resource = f"projects/{parts['project']}{_target(request, sent['name'])}"
            return error(409, f"The resource '{resource}' already exists")
        self._records.put(Holding(name, DEFAULTS[parts["collection"]] | sent, time.time()))
        return self._done(request, "insert", sent["name"])

    async def delete(self, request: web.Request) -> web.Response:
        """Delete one."""
        authorize(f"compute.{request.match_info['collection']}.delete", request.match_info["project"])
        if self._records.get(_name(request)) is None:
            return _missing(request)
        self._records.remove(_name(request))
        return self._done(request, "delete", request.match_info["name"])

    def _of(self, project: str, collection: str) -> Iterator[Holding]:
        prefix = f"{project}/{collection}/"
        return (record for record in self._records.all() if record.name.startswith(prefix))

    def _done(self, request: web.Request, kind: str, name: str) -> web.Response:
        operation = self._operations.record(request.match_info["project"], kind, _target(request, name))
        return web.json_response(operation_resource(operation, base(request)))


def _folder(request: web.Request) -> str:
    parts = request.match_info
    return f"{parts['project']}/{parts['collection']}/{parts['place']}"


def _name(request: web.Request) -> str:
    return f"{_folder(request)}/{request.match_info['name']}"


def _target(request: web.Request, name: str) -> str:
    """Return the path of a resource below its project."""
    parts = request.match_info
    return f"/{SCOPES[parts['collection']]}/{parts['place']}/{parts['collection']}/{name}"


def _missing(request: web.Request) -> web.Response:
    parts = request.match_info
    return not_found(f"projects/{parts['project']}{_target(request, parts['name'])}")


def _resource(record: Holding, request: web.Request) -> JsonObject:
    project, collection, place, name = record.name.split("/")
    scope, url = SCOPES[collection], f"{base(request)}/projects/{project}"
    answer: JsonObject = {
        **record.fields,
        "kind": f"compute#{KINDS[collection]}",
        "id": str(stable_number(record.name)),
        "name": name,
        "creationTimestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        scope.removesuffix("s"): f"{url}/{scope}/{place}",
        "selfLink": f"{url}/{scope}/{place}/{collection}/{name}",
    }
    if collection == "disks":
        kind = str(record.fields["type"]).rpartition("/")[2]
        return answer | {
            "type": f"{url}/zones/{place}/diskTypes/{kind}",
            "sizeGb": str(record.fields["sizeGb"]),
        }
    address = f"203.0.113.{stable_number(record.name) % 254 + 1}"
    return {"address": address} | answer

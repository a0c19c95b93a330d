"""Serves the Compute Engine API over REST: a project, its metadata and firewall, no instances, operations.

- Stores the metadata that all hosts of a project share.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from tpuctl.sim.compute.answers import (
    PROJECT,
    answer_denied,
    authorize,
    base,
    error,
    not_found,
    operation_resource,
)
from tpuctl.sim.compute.holdings import BadRule, Firewalls, HoldingsApi, Rule, RuleExists
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.state import Database, RecordTable
from tpuctl.sim.token_server import service_account, stable_number

KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_VALUE_BYTES = 256 << 10
"""Both limits: Compute Engine's documentation of custom metadata."""


class StaleFingerprint(Exception):
    """The metadata has changed since the client read it."""


class BadMetadata(ValueError):
    """A key or a value that Compute Engine refuses."""


@dataclass(frozen=True)
class Project:
    """The stored record of a project."""

    name: str
    metadata: dict[str, str] = field(default_factory=dict)
    changed: float = 0.0
    """When the metadata was set last, in seconds; 0 for never."""

    @property
    def fingerprint(self) -> str:
        """A tag that changes with the metadata: eight bytes in base64, as Google's."""
        digest = hashlib.sha256(json.dumps(self.metadata, sort_keys=True).encode()).digest()
        return base64.urlsafe_b64encode(digest[:8]).decode()


class Projects:
    """All projects: any name is one, as for the Cloud TPU API. `on_change` takes a project's name."""

    def __init__(self, database: Database, on_change: Callable[[str], None]) -> None:
        self._records = RecordTable(database, "project", Project)
        self._on_change = on_change

    def get(self, name: str) -> Project:
        """Return a project, with empty metadata unless it has been set."""
        return self._records.get(name) or Project(name)

    def metadata(self, name: str) -> Mapping[str, str]:
        """Return a project's metadata."""
        return self.get(name).metadata

    def set_metadata(self, name: str, metadata: Mapping[str, str], fingerprint: str) -> None:
        """Replace a project's metadata, read with `fingerprint`; raises StaleFingerprint, BadMetadata."""
        if fingerprint != self.get(name).fingerprint:
            raise StaleFingerprint
        for key, value in metadata.items():
            _check(key, value)
        self._records.put(Project(name, dict(metadata), time.time()))
        self._on_change(name)


def _check(key: str, value: str) -> None:
    if not KEY.fullmatch(key):
        raise BadMetadata(f"Invalid value for field 'metadata.items.key': '{key}'.")
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise BadMetadata(f"The value of '{key}' is longer than {MAX_VALUE_BYTES} bytes.")


RULES = f"{PROJECT}/global/firewalls"
RULE = f"{RULES}/{{firewall}}"
BY_NAME = re.compile(r"\(?\s*name\s*(?:=|eq)\s*\"?(?P<name>[-a-z0-9]+)\"?\s*\)?")

Handler = Callable[[web.Request], Awaitable[web.Response]]


class FirewallApi:
    """The methods of `firewalls`."""

    def __init__(self, firewalls: Firewalls, operations: Operations) -> None:
        self._firewalls = firewalls
        self._operations = operations

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Yield HTTP method, path and handler."""
        yield "GET", RULES, self.list
        yield "POST", RULES, self.insert
        yield "GET", RULE, self.get
        yield "PUT", RULE, self.update
        yield "PATCH", RULE, self.patch
        yield "DELETE", RULE, self.delete
        yield "GET", f"{PROJECT}/global/networks/{{network}}", self.get_network

    async def list(self, request: web.Request) -> web.Response:
        """All rules, or the one that a filter names; other filters are refused."""
        project, wanted = request.match_info["project"], request.query.get("filter", "")
        authorize("compute.firewalls.list", project)
        named = BY_NAME.fullmatch(wanted)
        if wanted and not named:
            return error(400, f"Invalid value for field 'filter': '{wanted}'. The simulator knows name=NAME.")
        rules = [rule for rule in self._firewalls.rules(project) if not named or rule.id == named["name"]]
        place = f"projects/{project}/global/firewalls"
        answer: JsonObject = {
            "kind": "compute#firewallList",
            "id": place,
            "selfLink": f"{base(request)}/{place}",
        }
        items = {"items": [_resource(rule, request) for rule in rules]} if rules else {}
        return web.json_response({**answer, **items})

    async def get(self, request: web.Request) -> web.Response:
        authorize("compute.firewalls.get", request.match_info["project"])
        rule = self._rule(request)
        return _missing(request) if rule is None else web.json_response(_resource(rule, request))

    async def get_network(self, request: web.Request) -> web.Response:
        """The network `default`, or one that a rule is of."""
        project, name = request.match_info["project"], request.match_info["network"]
        authorize("compute.networks.get", project)
        place = f"projects/{project}/global/networks/{name}"
        if not self._firewalls.has_network(project, name):
            return not_found(place)
        content = {"kind": "compute#network", "name": name, "selfLink": f"{base(request)}/{place}"}
        return web.json_response(content)

    async def insert(self, request: web.Request) -> web.Response:
        project = request.match_info["project"]
        authorize("compute.firewalls.create", project)
        try:
            rule = self._firewalls.insert(project, await _sent(request))
        except BadRule as bad:
            return error(400, str(bad))
        except RuleExists:
            name = json.loads(await request.read())["name"]
            return error(409, f"The resource 'projects/{project}/global/firewalls/{name}' already exists")
        return self._done(request, "insert", rule)

    async def update(self, request: web.Request) -> web.Response:
        return await self._change(request, "update")

    async def patch(self, request: web.Request) -> web.Response:
        return await self._change(request, "patch")

    async def delete(self, request: web.Request) -> web.Response:
        authorize("compute.firewalls.delete", request.match_info["project"])
        rule = self._rule(request)
        if rule is None:
            return _missing(request)
        self._firewalls.delete(rule)
        return self._done(request, "delete", rule)

    async def _change(self, request: web.Request, kind: str) -> web.Response:
        authorize("compute.firewalls.update", request.match_info["project"])
        rule = self._rule(request)
        if rule is None:
            return _missing(request)
        try:
            changed = self._firewalls.change(rule, await _sent(request), whole=kind == "update")
        except BadRule as bad:
            return error(400, str(bad))
        return self._done(request, kind, changed)

    def _rule(self, request: web.Request) -> Rule | None:
        return self._firewalls.get(request.match_info["project"], request.match_info["firewall"])

    def _done(self, request: web.Request, kind: str, rule: Rule) -> web.Response:
        project = request.match_info["project"]
        operation = self._operations.record(project, kind, f"/global/firewalls/{rule.id}")
        return web.json_response(operation_resource(operation, base(request)))


async def _sent(request: web.Request) -> JsonObject:
    """Return the rule in a request; raises BadRule."""
    try:
        sent = json.loads(await request.read())
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        raise BadRule("Invalid JSON payload received.")
    return sent


def _resource(rule: Rule, request: web.Request) -> JsonObject:
    place = f"{base(request)}/projects/{request.match_info['project']}"
    network = str(rule.fields.get("network") or "global/networks/default")
    return {
        **rule.fields,
        "kind": "compute#firewall",
        "id": str(stable_number(rule.name)),
        "creationTimestamp": rule.time,
        "name": rule.id,
        "network": f"{place}/global/networks/{network.rpartition('/')[2]}",
        "selfLink": f"{place}/global/firewalls/{rule.id}",
    }


def _missing(request: web.Request) -> web.Response:
    project, name = request.match_info["project"], request.match_info["firewall"]
    return not_found(f"projects/{project}/global/firewalls/{name}")


INSTANCES = f"{PROJECT}/zones/{{zone}}/instances"
OPERATION = f"{PROJECT}/global/operations/{{operation}}"
CREATED = "2020-01-01T00:00:00.000-08:00"
STALE = "Supplied fingerprint does not match current metadata fingerprint."


def application(
    projects: Projects, operations: Operations, firewalls: Firewalls, holdings: HoldingsApi
) -> web.Application:
    """Return the REST server; every path that TPU slices do not use is 404."""
    api = _ComputeApi(projects, operations)
    app = web.Application(middlewares=[answer_denied])
    for verb, path, handler in (
        ("GET", PROJECT, api.get),
        ("POST", f"{PROJECT}/setCommonInstanceMetadata", api.set_metadata),
        *FirewallApi(firewalls, operations).routes(),
        *holdings.routes(),
        ("GET", f"{PROJECT}/aggregated/instances", api.list_all_instances),
        ("GET", INSTANCES, api.list_instances),
        ("GET", f"{INSTANCES}/{{instance}}", api.get_instance),
        ("GET", OPERATION, api.get_operation),
        ("POST", f"{OPERATION}/wait", api.get_operation),
        ("*", "/{path:.*}", api.unknown),
    ):
        app.router.add_route(verb, path, handler)
    return app


class _ComputeApi:
    """The methods of the API."""

    def __init__(self, projects: Projects, operations: Operations) -> None:
        self._projects = projects
        self._operations = operations

    async def get(self, request: web.Request) -> web.Response:
        authorize("compute.projects.get", request.match_info["project"])
        project = self._projects.get(request.match_info["project"])
        return web.json_response(_project(project, base(request)))

    async def set_metadata(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]
        authorize("compute.projects.setCommonInstanceMetadata", name)
        try:
            fingerprint, metadata = _metadata_of(await request.read())
            self._projects.set_metadata(name, metadata, fingerprint)
        except StaleFingerprint:
            return error(412, STALE)
        except BadMetadata as bad:
            return error(400, str(bad))
        operation = self._operations.record(name, "compute.projects.setCommonInstanceMetadata")
        return web.json_response(operation_resource(operation, base(request)))

    async def list_instances(self, request: web.Request) -> web.Response:
        """None: the hosts of TPUs are not among a project's instances."""
        parts = request.match_info
        authorize("compute.instances.list", parts["project"])
        return web.json_response(_list(request, "compute#instanceList", f"zones/{parts['zone']}/instances"))

    async def list_all_instances(self, request: web.Request) -> web.Response:
        authorize("compute.instances.list", request.match_info["project"])
        kind = "compute#instanceAggregatedList"
        return web.json_response({**_list(request, kind, "aggregated/instances"), "items": {}})

    async def get_instance(self, request: web.Request) -> web.Response:
        parts = request.match_info
        authorize("compute.instances.get", parts["project"])
        return not_found(f"projects/{parts['project']}/zones/{parts['zone']}/instances/{parts['instance']}")

    async def get_operation(self, request: web.Request) -> web.Response:
        parts = request.match_info
        authorize("compute.globalOperations.get", parts["project"])
        operation = self._operations.get(parts["project"], parts["operation"])
        if operation is None:
            return not_found(f"projects/{parts['project']}/global/operations/{parts['operation']}")
        return web.json_response(operation_resource(operation, base(request)))

    async def unknown(self, request: web.Request) -> web.Response:
        return error(404, f"The simulator has no {request.method} {request.path} of Compute Engine")


def _metadata_of(body: bytes) -> tuple[str, dict[str, str]]:
    """Read a `Metadata` message: its fingerprint and its items; raises BadMetadata."""
    try:
        sent = json.loads(body or b"{}")
        items = [(item["key"], item.get("value", "")) for item in sent.get("items", [])]
        fingerprint = sent.get("fingerprint", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadMetadata("Invalid JSON payload received.") from None
    if not all(isinstance(text, str) for text in (fingerprint, *(part for item in items for part in item))):
        raise BadMetadata("Invalid value for field 'metadata.items'.")
    metadata = dict(items)
    if len(metadata) < len(items):
        raise BadMetadata("Invalid value for field 'metadata': duplicate keys.")
    return fingerprint, metadata


def _project(project: Project, base: str) -> JsonObject:
    items = [{"key": key, "value": value} for key, value in project.metadata.items()]
    return {
        "kind": "compute#project",
        "id": str(stable_number(project.name)),
        "name": project.name,
        "creationTimestamp": CREATED,
        "commonInstanceMetadata": {
            "kind": "compute#metadata",
            "fingerprint": project.fingerprint,
            **({"items": items} if items else {}),
        },
        "defaultNetworkTier": "PREMIUM",
        "defaultServiceAccount": service_account(project.name),
        "selfLink": f"{base}/projects/{project.name}",
        "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
    }


def _list(request: web.Request, kind: str, place: str) -> JsonObject:
    """An empty list."""
    path = f"projects/{request.match_info['project']}/{place}"
    return {"kind": kind, "id": path, "selfLink": f"{base(request)}/{path}"}

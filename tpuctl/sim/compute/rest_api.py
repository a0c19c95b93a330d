"""Serves the Compute Engine API over REST: a project, its metadata and firewall, no instances, operations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aiohttp import web

from tpuctl.sim.accounts import project_number, service_account, stable_number
from tpuctl.sim.compute.operations import Operation, Operations
from tpuctl.sim.compute.projects import BadMetadata, Project, Projects, StaleFingerprint
from tpuctl.sim.iam.access import current_caller
from tpuctl.sim.iam.policies import Resource
from tpuctl.sim.json_values import JsonObject

VERSIONS = "v1|beta|alpha"
PROJECT = f"/compute/{{version:{VERSIONS}}}/projects/{{project}}"
INSTANCES = f"{PROJECT}/zones/{{zone}}/instances"
OPERATION = f"{PROJECT}/global/operations/{{operation}}"
CREATED = "2020-01-01T00:00:00.000-08:00"
REASONS = {400: "invalid", 401: "required", 403: "forbidden", 404: "notFound", 412: "conditionNotMet"}
DEFAULT_RULES = (
    ("default-allow-internal", "10.128.0.0/9", "0-65535"),
    ("default-allow-ssh", "0.0.0.0/0", "22"),
)
STALE = "Supplied fingerprint does not match current metadata fingerprint."

Handler = Callable[[web.Request], Awaitable[web.Response]]
WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(projects: Projects, operations: Operations) -> web.Application:
    """Return the REST server; every path that TPU slices do not use is 404."""
    api = _ComputeApi(projects, operations)
    app = web.Application(middlewares=[_answer_denied])
    for verb, path, handler in (
        ("GET", PROJECT, api.get),
        ("POST", f"{PROJECT}/setCommonInstanceMetadata", api.set_metadata),
        ("GET", f"{PROJECT}/global/firewalls", api.list_firewalls),
        ("GET", f"{PROJECT}/global/firewalls/{{firewall}}", api.get_firewall),
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
        _authorize("compute.projects.get", request.match_info["project"])
        project = self._projects.get(request.match_info["project"])
        return web.json_response(_project(project, _base(request)))

    async def set_metadata(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]
        _authorize("compute.projects.setCommonInstanceMetadata", name)
        try:
            fingerprint, metadata = _metadata_of(await request.read())
            self._projects.set_metadata(name, metadata, fingerprint)
        except StaleFingerprint:
            return _error(412, STALE)
        except BadMetadata as error:
            return _error(400, str(error))
        operation = self._operations.record(name, "compute.projects.setCommonInstanceMetadata")
        return web.json_response(_operation(operation, _base(request)))

    async def list_firewalls(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]
        _authorize("compute.firewalls.list", name)
        return web.json_response(_firewalls(name, _base(request)))

    async def get_firewall(self, request: web.Request) -> web.Response:
        name, firewall = request.match_info["project"], request.match_info["firewall"]
        _authorize("compute.firewalls.get", name)
        for rule in _rules(name, _base(request)):
            if rule["name"] == firewall:
                return web.json_response(rule)
        return _not_found(f"projects/{name}/global/firewalls/{firewall}")

    async def list_instances(self, request: web.Request) -> web.Response:
        """None: the hosts of TPUs are not among a project's instances."""
        parts = request.match_info
        _authorize("compute.instances.list", parts["project"])
        return web.json_response(_list(request, "compute#instanceList", f"zones/{parts['zone']}/instances"))

    async def list_all_instances(self, request: web.Request) -> web.Response:
        _authorize("compute.instances.list", request.match_info["project"])
        kind = "compute#instanceAggregatedList"
        return web.json_response({**_list(request, kind, "aggregated/instances"), "items": {}})

    async def get_instance(self, request: web.Request) -> web.Response:
        parts = request.match_info
        _authorize("compute.instances.get", parts["project"])
        return _not_found(f"projects/{parts['project']}/zones/{parts['zone']}/instances/{parts['instance']}")

    async def get_operation(self, request: web.Request) -> web.Response:
        parts = request.match_info
        _authorize("compute.globalOperations.get", parts["project"])
        operation = self._operations.get(parts["project"], parts["operation"])
        if operation is None:
            return _not_found(f"projects/{parts['project']}/global/operations/{parts['operation']}")
        return web.json_response(_operation(operation, _base(request)))

    async def unknown(self, request: web.Request) -> web.Response:
        return _error(404, f"The simulator has no {request.method} {request.path} of Compute Engine")


def _authorize(permission: str, project: str) -> None:
    """Answer 403 unless the caller has a permission in a project; 401 to an anonymous caller."""
    caller = current_caller()
    if caller is None or caller.may(permission, Resource(project, f"projects/{project}")):
        return
    raise _Denied(f"Required '{permission}' permission for 'projects/{project}'", known=bool(caller.member))


class _Denied(Exception):
    """The caller may not call a method."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.status = 403 if known else 401


@web.middleware
async def _answer_denied(request: web.Request, handler: WebHandler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _Denied as denied:
        return _error(denied.status, str(denied))


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
    return {"kind": kind, "id": path, "selfLink": f"{_base(request)}/{path}"}


def _firewalls(project: str, base: str) -> JsonObject:
    return {"kind": "compute#firewallList", "items": _rules(project, base)}


def _rules(project: str, base: str) -> list[JsonObject]:
    """The rules that a new project's network `default` has for SSH and for its own hosts.

    https://cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc
    """
    place = f"{base}/projects/{project}"
    return [
        {
            "kind": "compute#firewall",
            "name": name,
            "network": f"{place}/global/networks/default",
            "direction": "INGRESS",
            "priority": 65534,
            "disabled": False,
            "sourceRanges": [source],
            "allowed": [{"IPProtocol": "tcp", "ports": [ports]}],
            "selfLink": f"{place}/global/firewalls/{name}",
        }
        for name, source, ports in DEFAULT_RULES
    ]


def _operation(operation: Operation, base: str) -> JsonObject:
    time = datetime.fromtimestamp(operation.time, UTC).isoformat(timespec="milliseconds")
    project = f"{base}/projects/{operation.project}"
    return {
        "kind": "compute#operation",
        "id": str(stable_number(operation.name)),
        "name": operation.id,
        "operationType": operation.kind,
        "status": "DONE",
        "progress": 100,
        "user": service_account(operation.project),
        "insertTime": time,
        "startTime": time,
        "endTime": time,
        "targetId": str(project_number(operation.project)),
        "targetLink": project,
        "selfLink": f"{project}/global/operations/{operation.id}",
    }


def _base(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}/compute/{request.match_info['version']}"


def _not_found(resource: str) -> web.Response:
    return _error(404, f"The resource '{resource}' was not found")


def _error(status: int, message: str) -> web.Response:
    """Return an error in Compute Engine's JSON form."""
    reason = {"message": message, "domain": "global", "reason": REASONS[status]}
    error = {"code": status, "message": message, "errors": [reason]}
    return web.json_response({"error": error}, status=status)

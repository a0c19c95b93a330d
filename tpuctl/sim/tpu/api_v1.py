"""Serves the methods of API v1 that clients still call: nodes and TensorFlow versions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.cloud import tpu_v2
from google.protobuf.json_format import MessageToDict

from tpuctl.images import IMAGES
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.tpu.service import Service
from tpuctl.sim.world import api_error

PLACE = r"projects/[^/]+/locations/[^/]+"
RENAMED = {"runtimeVersion": "tensorflowVersion"}
SHARED_FIELDS = (
    *("name", "description", "acceleratorType", "state", "health", "healthDescription", "createTime"),
    *("cidrBlock", "labels", "symptoms", "runtimeVersion"),
)
"""Fields of a node that v1 has as v2 does, but for the name of the last."""
SCHEDULING = ("preemptible", "reserved")

Method = Callable[[Service, re.Match[str]], Awaitable[JsonObject]]


async def respond(service: Service, verb: str, path: str) -> JsonObject | None:
    """Return the JSON at a path that only v1 has, or None; raises `ApiError`."""
    for pattern, method in METHODS.items():
        match = pattern.fullmatch(path) if verb == "GET" else None
        if match:
            return await method(service, match)
    return None


async def _get_node(service: Service, match: re.Match[str]) -> JsonObject:
    return _node(MessageToDict(await service.call("GetNode", tpu_v2.GetNodeRequest.pb()(name=match[1]))))


async def _list_nodes(service: Service, match: re.Match[str]) -> JsonObject:
    """All of them: v1's clients are older than pages of nodes."""
    request = tpu_v2.ListNodesRequest.pb()(parent=match[1], page_size=1000)
    listed = MessageToDict(await service.call("ListNodes", request))
    nodes = [_node(node) for node in listed.get("nodes", [])]
    return {"nodes": nodes, "unreachable": listed.get("unreachable", [])}


async def _list_versions(service: Service, match: re.Match[str]) -> JsonObject:
    """For `gcloud compute tpus versions list`."""
    return {"tensorflowVersions": await _versions(service, match[1])}


async def _get_version(service: Service, match: re.Match[str]) -> JsonObject:
    """For `gcloud compute tpus versions describe`."""
    name = f"{match[1]}/tensorflowVersions/{match[2]}"
    for version in await _versions(service, match[1]):
        if version["name"] == name:
            return version
    raise api_error("not_found", name=name)


async def _versions(service: Service, parent: str) -> list[JsonObject]:
    """The versions of a place; raises ApiError for one that the caller may not see."""
    await service.call("ListRuntimeVersions", tpu_v2.ListRuntimeVersionsRequest.pb()(parent=parent))
    return [
        {"name": f"{parent}/tensorflowVersions/{version}", "version": version}
        for version in dict.fromkeys(image.framework_version for image in IMAGES.values())
        if version
    ]


def description() -> JsonObject:
    """Return the discovery document, for googleapiclient 1 (cloud-tpu-client pins it), which has none."""
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": "tpu:v1",
        "name": "tpu",
        "version": "v1",
        "rootUrl": "https://tpu.googleapis.com/",
        "servicePath": "",
        "baseUrl": "https://tpu.googleapis.com/",
        "batchPath": "batch",
        "auth": {"oauth2": {"scopes": {"https://www.googleapis.com/auth/cloud-platform": {}}}},
        "schemas": {"Node": {"id": "Node", "type": "object"}, "Nodes": {"id": "Nodes", "type": "object"}},
        "resources": {
            "projects": {"resources": {"locations": {"resources": {"nodes": {"methods": NODE_METHODS}}}}}
        },
    }


METHODS: Mapping[re.Pattern[str], Method] = {
    re.compile(rf"/v1/({PLACE}/nodes/[^/]+)"): _get_node,
    re.compile(rf"/v1/({PLACE})/nodes"): _list_nodes,
    re.compile(rf"/v1/({PLACE})/tensorflowVersions"): _list_versions,
    re.compile(rf"/v1/({PLACE})/tensorflowVersions/([^/]+)"): _get_version,
}


def _method(name: str, parameter: str, path: str, pattern: str, response: str) -> JsonObject:
    """A method of nodes in the discovery document."""
    described: JsonObject = {"location": "path", "pattern": pattern, "required": True, "type": "string"}
    return {
        "id": f"tpu.projects.locations.nodes.{name}",
        "httpMethod": "GET",
        "path": path,
        "parameters": {parameter: described},
        "parameterOrder": [parameter],
        "response": {"$ref": response},
    }


NODE_METHODS = {
    "get": _method("get", "name", "v1/{+name}", f"^{PLACE}/nodes/[^/]+$", "Node"),
    "list": _method("list", "parent", "v1/{+parent}/nodes", f"^{PLACE}$", "Nodes"),
}


def _node(node: Mapping[str, Any]) -> JsonObject:
    """A v2 node in v1's JSON: https://cloud.google.com/tpu/docs/reference/rest/v1/projects.locations.nodes."""
    endpoints = [
        {"ipAddress": endpoint["ipAddress"], "port": endpoint["port"]}
        for endpoint in node.get("networkEndpoints", [])
    ]
    scheduling = node.get("schedulingConfig", {})
    fields: JsonObject = {RENAMED.get(name, name): node[name] for name in SHARED_FIELDS if name in node}
    if endpoints:
        fields |= {"ipAddress": endpoints[0]["ipAddress"], "port": str(endpoints[0]["port"])}
    return fields | {
        "networkEndpoints": endpoints,
        "network": node.get("networkConfig", {}).get("network", "default"),
        "schedulingConfig": {name: scheduling[name] for name in SCHEDULING if name in scheduling},
        "apiVersion": "V2_ALPHA1",  # the newest that v1 has a name for
    }

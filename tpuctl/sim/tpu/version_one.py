"""What clients still ask of API v1: nodes (TensorFlow, cloud-tpu-client) and TensorFlow versions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.cloud import tpu_v2
from google.protobuf import json_format

from tpuctl.sim.tpu.service import Service
from tpuctl.sim.world.capacity import availability

PLACE = r"projects/[^/]+/locations/[^/]+"
RENAMED = {"runtimeVersion": "tensorflowVersion"}
KEPT = (
    *("name", "description", "acceleratorType", "state", "health", "healthDescription", "createTime"),
    *("cidrBlock", "labels", "symptoms", "runtimeVersion"),
)
"""Fields of a node that v1 has as v2 does, but for the name of the last."""
SCHEDULING = ("preemptible", "reserved")

Answer = Callable[[Service, re.Match[str]], Awaitable[dict[str, Any]]]


async def answer(service: Service, verb: str, path: str) -> dict[str, Any] | None:
    """Return the JSON at a path that only v1 has, or None; raises `Problem`."""
    for pattern, method in METHODS.items():
        match = pattern.fullmatch(path) if verb == "GET" else None
        if match:
            return await method(service, match)
    return None


async def _get_node(service: Service, match: re.Match[str]) -> dict[str, Any]:
    return _node(await service.call("GetNode", tpu_v2.GetNodeRequest.pb()(name=match[1])))


async def _list_nodes(service: Service, match: re.Match[str]) -> dict[str, Any]:
    """All of them: v1's clients are older than pages of nodes."""
    found = await service.call("ListNodes", tpu_v2.ListNodesRequest.pb()(parent=match[1], page_size=1000))
    return {"nodes": [_node(node) for node in found.nodes], "unreachable": list(found.unreachable)}


async def _list_versions(service: Service, match: re.Match[str]) -> dict[str, Any]:
    """What `gcloud compute tpus versions list` asks for."""
    await service.call("ListRuntimeVersions", tpu_v2.ListRuntimeVersionsRequest.pb()(parent=match[1]))
    return {
        "tensorflowVersions": [
            {"name": f"{match[1]}/tensorflowVersions/{version}", "version": version}
            for version in availability.TENSORFLOW_VERSIONS
        ]
    }


async def _describe(_: Service, __: re.Match[str]) -> dict[str, Any]:
    """The discovery document, for googleapiclient 1 (cloud-tpu-client pins it), which brings none along."""
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


METHODS: Mapping[re.Pattern[str], Answer] = {
    re.compile(rf"/v1/({PLACE}/nodes/[^/]+)"): _get_node,
    re.compile(rf"/v1/({PLACE})/nodes"): _list_nodes,
    re.compile(rf"/v1/({PLACE})/tensorflowVersions"): _list_versions,
    re.compile(r"/\$discovery/rest"): _describe,
}


def _method(name: str, parameter: str, path: str, pattern: str, response: str) -> dict[str, Any]:
    """A method of nodes in the discovery document."""
    described = {"location": "path", "pattern": pattern, "required": True, "type": "string"}
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


def _node(message: Any) -> dict[str, Any]:
    """A node in v1's JSON: https://cloud.google.com/tpu/docs/reference/rest/v1/projects.locations.nodes."""
    node = json_format.MessageToDict(message)
    shown = {RENAMED.get(name, name): node[name] for name in KEPT if name in node}
    endpoints = [
        {"ipAddress": one["ipAddress"], "port": one["port"]} for one in node.get("networkEndpoints", [])
    ]
    if endpoints:
        shown |= {"ipAddress": endpoints[0]["ipAddress"], "port": str(endpoints[0]["port"])}
    scheduling = node.get("schedulingConfig", {})
    return shown | {
        "networkEndpoints": endpoints,
        "network": node.get("networkConfig", {}).get("network", "default"),
        "schedulingConfig": {name: scheduling[name] for name in SCHEDULING if name in scheduling},
        "apiVersion": "V2_ALPHA1",  # the newest that v1 has a name for
    }

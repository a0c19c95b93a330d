"""Builds the request messages for the Cloud TPU API, and their HTTP form for --dry-run."""

from __future__ import annotations

from google.api_core import path_template
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2, json_format

from tpuctl.cloud.tpu.names import location, node_name
from tpuctl.nodes import HttpRequest, Node, NodeId, NodeRequest, SshKey

HOST = "https://tpu.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
SSH_KEYS = "ssh-keys"
"""The metadata key that the hosts read, a line `USER:KEY` for each key."""

Change = tpu_v2.CreateNodeRequest | tpu_v2.DeleteNodeRequest | tpu_v2.UpdateNodeRequest

HTTP_RULES = {
    tpu_v2.CreateNodeRequest: ("post", "/v2/{parent=projects/*/locations/*}/nodes", "node"),
    tpu_v2.DeleteNodeRequest: ("delete", "/v2/{name=projects/*/locations/*/nodes/*}", ""),
    tpu_v2.UpdateNodeRequest: ("patch", "/v2/{node.name=projects/*/locations/*/nodes/*}", "node"),
}
"""Method, path, and field that is the body: the annotations of google/cloud/tpu/v2/cloud_tpu.proto."""


def create(request: NodeRequest) -> tpu_v2.CreateNodeRequest:
    """Return the message that creates a node."""
    node = tpu_v2.Node(
        accelerator_type=request.accelerator,
        runtime_version=request.runtime,
        labels=dict(request.labels),
        metadata={SSH_KEYS: ssh_key_line(request.ssh_key)},
        network_config=tpu_v2.NetworkConfig(
            network=request.network,
            subnetwork=request.subnetwork or "",
            enable_external_ips=request.external_ips,
        ),
        scheduling_config=tpu_v2.SchedulingConfig(spot=request.spot),
    )
    if request.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=request.service_account, scope=[SCOPE])
    parent = location(request.id.project, request.id.zone)
    return tpu_v2.CreateNodeRequest(parent=parent, node_id=request.id.name, node=node)


def delete(node: NodeId) -> tpu_v2.DeleteNodeRequest:
    """Return the message that deletes a node."""
    return tpu_v2.DeleteNodeRequest(name=node_name(node))


def add_ssh_key(node: Node, key: SshKey) -> tpu_v2.UpdateNodeRequest:
    """Return the message that adds a key to a node: the API replaces the metadata as a whole."""
    lines = "\n".join([*ssh_key_lines(node), ssh_key_line(key)])
    return tpu_v2.UpdateNodeRequest(
        node=tpu_v2.Node(name=node_name(node.id), metadata={**node.metadata, SSH_KEYS: lines}),
        update_mask=field_mask_pb2.FieldMask(paths=["metadata"]),
    )


def ssh_key_line(key: SshKey) -> str:
    """Return a key as the metadata holds it."""
    return f"{key.user}:{key.public_key} {key.user}"


def ssh_key_lines(node: Node) -> list[str]:
    """Return the keys in a node's metadata."""
    return [line for line in node.metadata.get(SSH_KEYS, "").split("\n") if line]


def as_http(message: Change) -> HttpRequest:
    """Return the HTTP form of a message, as the API's own annotations say and its REST client sends it."""
    method, uri, body = HTTP_RULES[type(message)]
    rule = {"method": method, "uri": uri, **({"body": body} if body else {})}
    parts = path_template.transcode([rule], type(message).pb(message))  # type: ignore[no-untyped-call]
    query = json_format.MessageToDict(parts["query_params"])
    parameters = "&".join(f"{name}={value}" for name, value in sorted(query.items()))
    url = f"{HOST}{parts['uri']}{'?' if parameters else ''}{parameters}"
    return HttpRequest(method.upper(), url, json_format.MessageToDict(parts["body"]) if body else None)

"""Refuses calls of the Cloud TPU API that the caller's roles do not allow, in Google's words.

Permissions: https://cloud.google.com/tpu/docs/iam; those that it does not list follow its pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from tpuctl.sim import resource_names
from tpuctl.sim.accounts import service_account
from tpuctl.sim.iam.access import Caller, current_caller
from tpuctl.sim.iam.policies import Resource
from tpuctl.sim.records import DEFAULT_ACCOUNT
from tpuctl.sim.world import api_error

PERMISSIONS = {
    "CreateNode": "tpu.nodes.create",
    "DeleteNode": "tpu.nodes.delete",
    "GetNode": "tpu.nodes.get",
    "ListNodes": "tpu.nodes.list",
    "UpdateNode": "tpu.nodes.update",
    "StartNode": "tpu.nodes.start",
    "StopNode": "tpu.nodes.stop",
    "GetGuestAttributes": "tpu.nodes.getGuestAttributes",
    "SimulateMaintenanceEvent": "tpu.nodes.simulateMaintenanceEvent",
    "PerformMaintenance": "tpu.nodes.performMaintenance",
    "CreateQueuedResource": "tpu.queuedResources.create",
    "DeleteQueuedResource": "tpu.queuedResources.delete",
    "GetQueuedResource": "tpu.queuedResources.get",
    "ListQueuedResources": "tpu.queuedResources.list",
    "ResetQueuedResource": "tpu.queuedResources.reset",
    "PerformMaintenanceQueuedResource": "tpu.queuedResources.performMaintenance",
    "ListReservations": "tpu.reservations.list",
    "GenerateServiceIdentity": "tpu.locations.generateServiceIdentity",
    "GetAcceleratorType": "tpu.acceleratortypes.get",
    "ListAcceleratorTypes": "tpu.acceleratortypes.list",
    "GetRuntimeVersion": "tpu.runtimeversions.get",
    "ListRuntimeVersions": "tpu.runtimeversions.list",
    "GetLocation": "tpu.locations.get",
    "ListLocations": "tpu.locations.list",
    "GetOperation": "tpu.operations.get",
    "ListOperations": "tpu.operations.list",
    "WaitOperation": "tpu.operations.get",
    "CancelOperation": "tpu.operations.cancel",
    "DeleteOperation": "tpu.operations.delete",
}
ACT_AS = "iam.serviceAccounts.actAs"
TYPES = {"nodes": "tpu.googleapis.com/Node", "queuedResources": "tpu.googleapis.com/QueuedResource"}
"""Collection -> the type of its resources, for conditions."""


def authorize(method: str, resource: str, request: Message) -> None:
    """Raise the API's error unless the caller may call a method on a resource."""
    caller = current_caller()
    if caller is None:
        return
    name = resource_names.parse(resource)
    about = Resource(name.project, resource, TYPES.get(name.collection, ""))
    permission = PERMISSIONS[method]
    if not caller.member:
        raise api_error("unauthenticated")
    if not caller.may(permission, about):
        raise api_error("permission", permission=permission, resource=resource)
    for account in _accounts(method, request):
        _authorize_account(caller, name.project, account or service_account(name.project))


def _accounts(method: str, request: Any) -> Iterator[str]:
    """Yield the accounts as which the hosts of requested nodes are to run, '' for the default one."""
    if method == "CreateNode":
        nodes = [request.node]
    elif method == "CreateQueuedResource":
        nodes = [spec.node for spec in request.queued_resource.tpu.node_spec]
    else:
        nodes = []
    for node in nodes:
        email = str(node.service_account.email)
        yield "" if email == DEFAULT_ACCOUNT else email


def _authorize_account(caller: Caller, project: str, account: str) -> None:
    name = f"projects/{project}/serviceAccounts/{account}"
    if not caller.may(ACT_AS, Resource(project, name, "iam.googleapis.com/ServiceAccount", account=account)):
        raise api_error("act_as", account=account, user=caller.label, permission=ACT_AS, resource=name)

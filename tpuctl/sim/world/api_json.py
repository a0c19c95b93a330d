"""The fields of nodes and queued resources that a request may set, in the API's JSON form.

API v2 with v2alpha1's own fields added. Fields that are not here are written by the service alone.
Enums are their names; a number is one that this version of the API does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import msgspec

MessageFields = dict[str, object]
"""Any message in its JSON form."""


class AcceleratorConfig(TypedDict, total=False):
    type: str | int
    topology: str


class NetworkConfig(TypedDict, total=False):
    network: str
    subnetwork: str
    enableExternalIps: bool
    canIpForward: bool
    queueCount: int


class ServiceAccount(TypedDict, total=False):
    email: str
    scope: list[str]


class SchedulingConfig(TypedDict, total=False):
    preemptible: bool
    reserved: bool
    spot: bool


class AttachedDisk(TypedDict, total=False):
    sourceDisk: str
    mode: str | int


class ShieldedInstanceConfig(TypedDict, total=False):
    enableSecureBoot: bool


class CustomerEncryptionKey(TypedDict, total=False):
    kmsKeyName: str


class BootDiskConfig(TypedDict, total=False):
    customerEncryptionKey: CustomerEncryptionKey
    enableConfidentialCompute: bool


class NodeFields(TypedDict, total=False):
    """A node, or of an update its changed fields."""

    description: str
    acceleratorType: str
    acceleratorConfig: AcceleratorConfig
    runtimeVersion: str
    networkConfig: NetworkConfig
    networkConfigs: list[NetworkConfig]
    cidrBlock: str
    serviceAccount: ServiceAccount
    schedulingConfig: SchedulingConfig
    labels: dict[str, str]
    metadata: dict[str, str]
    tags: list[str]
    dataDisks: list[AttachedDisk]
    shieldedInstanceConfig: ShieldedInstanceConfig
    autocheckpointEnabled: bool
    bootDiskConfig: BootDiskConfig


class UpcomingMaintenance(TypedDict):
    """Written by the service alone; v2 does not show it."""

    type: str
    canReschedule: bool
    maintenanceStatus: str
    windowStartTime: str
    windowEndTime: str
    latestWindowStartTime: str


class MultisliceParams(TypedDict, total=False):
    nodeCount: int
    nodeIdPrefix: str
    workloadType: str | int


class NodeSpec(TypedDict, total=False):
    """A node of a queued resource, or with `multisliceParams` several of one kind."""

    parent: str
    nodeId: str
    multisliceParams: MultisliceParams
    node: NodeFields


class Tpu(TypedDict, total=False):
    nodeSpec: list[NodeSpec]


class EmptyMessage(TypedDict, total=False):
    """A message without fields."""


class Guaranteed(TypedDict, total=False):
    minDuration: str
    reserved: bool


class Interval(TypedDict, total=False):
    startTime: str
    endTime: str


class QueueingPolicy(TypedDict, total=False):
    validUntilDuration: str
    validUntilTime: str
    validAfterDuration: str
    validAfterTime: str
    validInterval: Interval


class QueuedResourceFields(TypedDict, total=False):
    tpu: Tpu
    spot: EmptyMessage
    bestEffort: EmptyMessage
    guaranteed: Guaranteed
    queueingPolicy: QueueingPolicy
    reservationName: str


def node_fields(sent: Mapping[str, object]) -> NodeFields:
    """Return the fields of a node as sent that a request may set; as with Google, others are ignored."""
    return msgspec.convert(sent, NodeFields)


def queued_resource_fields(sent: Mapping[str, object]) -> QueuedResourceFields:
    """Return the fields of a queued resource as sent that a request may set; others are ignored."""
    return msgspec.convert(sent, QueuedResourceFields)


def is_preemptible(node: NodeFields) -> bool:
    """Whether Google may take the node back: a spot node, or a preemptible one as it was called before."""
    scheduling = node.get("schedulingConfig", {})
    return bool(scheduling.get("spot") or scheduling.get("preemptible"))

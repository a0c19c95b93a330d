"""Defines the records of nodes, of queued resources and of changes to them, the same for every provider."""

from tpuctl.nodes.history import (
    Change,
    CreateNode,
    CreateQueuedResource,
    Creation,
    DeleteNode,
    DeleteQueuedResource,
    History,
    LastingChange,
    Maintenance,
    PastChange,
    SimulateMaintenance,
    StartNode,
    StopNode,
    UpdateNode,
)
from tpuctl.nodes.node import (
    CLOUD_TPU,
    DataDisk,
    HttpRequest,
    Node,
    NodeId,
    NodeList,
    NodeRequest,
    NodeSpec,
    NodeState,
    SshKey,
    Symptom,
    joined,
)
from tpuctl.nodes.owner import (
    LABEL,
    LABEL_VALUE,
    OWNER_LABEL,
    OWNER_METADATA,
    RESTART_LABEL,
    RUN_LABEL,
    owner_label,
)
from tpuctl.nodes.queued_resources import (
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    QueuedResourceRequest,
    QueueState,
)

__all__ = [
    "CLOUD_TPU", "LABEL", "LABEL_VALUE", "OWNER_LABEL", "OWNER_METADATA", "RESTART_LABEL", "RUN_LABEL",
    "Change", "CreateNode", "CreateQueuedResource", "Creation", "DataDisk", "DeleteNode",
    "DeleteQueuedResource", "History",
    "HttpRequest", "LastingChange", "Maintenance", "Node", "NodeId", "NodeList", "NodeRequest",
    "NodeSpec", "NodeState", "PastChange",
    "QueueState", "QueuedResource", "QueuedResourceId", "QueuedResourceList", "QueuedResourceRequest",
    "SimulateMaintenance", "SshKey", "StartNode", "StopNode", "Symptom", "UpdateNode", "joined",
    "owner_label",
]  # fmt: skip
